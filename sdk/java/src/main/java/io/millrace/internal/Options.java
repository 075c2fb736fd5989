package io.millrace.internal;

import java.nio.file.Path;
import java.time.Duration;

/**
 * How to reach a host.
 *
 * @param client the name under which this program introduces itself
 * @param capability a file with a capability; null for none
 * @param authorities a file with certificates of authorities, or {@code system}; null for none
 * @param connectMs how long connecting and the handshake may take
 * @param requestMs how long an answer may take, beyond what the request asks the host to wait
 * @param silenceMs a host that says nothing for so long, although something is asked of it, is taken for dead
 * @param reconnectMs how long a lost connection is tried again
 */
public record Options(String client, Path capability, Path authorities, long connectMs, long requestMs, long silenceMs, long reconnectMs) {
    private static final String CAPABILITY = "MILLRACE_CAPABILITY";

    private static final String AUTHORITIES = "MILLRACE_CA";

    private static Path given(Path file, String variable) {
        String named = System.getenv(variable);
        return file != null || named == null || named.isEmpty() ? file : Path.of(named);
    }

    /** The default options, with this capability and these authorities; without them, with those that the environment names. */
    public static Options with(Path capability, Path authorities, Duration connect, Duration patience) {
        return new Options("millrace-java", given(capability, CAPABILITY), given(authorities, AUTHORITIES), connect.toMillis(), 30_000, 10_000,
                patience.toMillis());
    }

    /** The same, with another time for which a lost connection is tried again. */
    public Options withReconnect(long ms) {
        return new Options(client, capability, authorities, connectMs, requestMs, silenceMs, ms);
    }
}
