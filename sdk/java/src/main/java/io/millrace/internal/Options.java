package io.millrace.internal;

import java.nio.file.Path;
import java.time.Duration;

/**
 * How to reach a host.
 *
 * @param client the name under which this program introduces itself
 * @param capability a file with a capability; null for none
 * @param connectMs how long connecting and the handshake may take
 * @param requestMs how long an answer may take, beyond what the request asks the host to wait
 * @param silenceMs a host that says nothing for so long, although something is asked of it, is taken for dead
 * @param reconnectMs how long a lost connection is tried again
 */
public record Options(String client, Path capability, long connectMs, long requestMs, long silenceMs, long reconnectMs) {
    private static final String CAPABILITY = "MILLRACE_CAPABILITY";

    /** The usual ones, with this capability; without one, with the one that the environment names. */
    public static Options with(Path capability, Duration patience) {
        String named = System.getenv(CAPABILITY);
        Path file = capability != null || named == null || named.isEmpty() ? capability : Path.of(named);
        return new Options("millrace-java", file, 10_000, 30_000, 10_000, patience.toMillis());
    }
}
