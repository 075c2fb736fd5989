package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A host that is known by its key, over TLS. Keying material for proofs is exported by Java 25; MILLRACE_JAVA25 names one for these tests if
 * they run in an older one.
 */
class TlsTest {
    private static final int EXPORTS = 25;
    /** The certificate of an authority that has signed no other one. */
    private static final String AUTHORITY = """
            -----BEGIN CERTIFICATE-----
            MIIBqTCCAU+gAwIBAgIUNEng2smALVEgRp3Dr8Zq7t8DIh4wCgYIKoZIzj0EAwIw
            KTEnMCUGA1UEAwweQW4gYXV0aG9yaXR5IHRoYXQgbm9ib2R5IGtub3dzMCAXDTI2
            MTEyMzEzNTM1NVoYDzIxMjYxMDMwMTM1MzU1WjApMScwJQYDVQQDDB5BbiBhdXRo
            b3JpdHkgdGhhdCBub2JvZHkga25vd3MwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
            AASU6owmhtLkjnVplimAfCZzQUpH2njb4T7US9dO5OLmDzImWziKzQekt3opRGik
            4h6Hs4zzT8fFapZUP2Vp+789o1MwUTAdBgNVHQ4EFgQU17LiclkT+sO9mkJ52vXK
            o429JjwwHwYDVR0jBBgwFoAU17LiclkT+sO9mkJ52vXKo429JjwwDwYDVR0TAQH/
            BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBAruCmMFLWvSslFch4aSLVtjw7OnR+
            D6RuXTurVfMIoQIhAIoPMuYDYndeKDV+xZAU/GyJDKGLAn5wmOGKNPSbdaN1
            -----END CERTIFICATE-----
            """;

    @TempDir
    static Path folder;

    private static Host host;
    private static String address;

    /** Appends a record, as a program of its own. */
    static final class Program {
        private Program() {}

        public static void main(String[] arguments) {
            Millrace.Builder builder = Millrace.at(arguments[0]).connectTimeout(Duration.ofMinutes(5));
            if (arguments.length > 1) {
                builder.capability(Path.of(arguments[1])).authorities(Path.of(arguments[2]));
            }
            try (Millrace farm = builder.connect()) {
                long first = farm.log("raw").append("21.5").seqno();
                byte[] large = new byte[200_000];
                System.out.println("appended " + (farm.log("raw").append(large).seqno() - first));
                farm.log("raw").get(first);
            } catch (MillraceException error) {
                System.out.println(error.getMessage());
            }
        }
    }

    @BeforeAll
    static void start() throws Exception {
        host = Host.create(folder.resolve("hub"));
        host.run("log", "create", "raw");
        host.serve("0.0.0.0:0");
        address = "127.0.0.2:" + host.address().replaceAll(".*:([0-9]+)/.*", "$1");
    }

    @AfterAll
    static void end() {
        host.close();
    }

    /** Runs the program for a user whose state is in a directory; returns what it printed. */
    private static String ran(String java, Path state, String... arguments) throws Exception {
        String classes = Path.of(Millrace.class.getProtectionDomain().getCodeSource().getLocation().toURI()) + ":"
                + Path.of(TlsTest.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<String> command = new ArrayList<>(List.of(java, "-cp", classes, Program.class.getName()));
        command.addAll(List.of(arguments));
        return ended(command, state);
    }

    private static String ended(List<String> command, Path state) throws Exception {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().putAll(Map.of("XDG_STATE_HOME", state.toString(), "XDG_CONFIG_HOME", state.toString(), "XDG_RUNTIME_DIR",
                state.toString()));
        Process process = builder.start();
        String printed = new String(process.getInputStream().readAllBytes()).strip();
        assertEquals(0, process.waitFor(), printed);
        return printed;
    }

    /** A Java that exports keying material; null if there is none. */
    private static String exporting() {
        String named = System.getenv("MILLRACE_JAVA25");
        return Runtime.version().feature() >= EXPORTS ? "java" : named == null || named.isEmpty() ? null : named;
    }

    @Test
    void aHostThatWasJoinedIsKnownByItsKey() throws Exception {
        Path state = Files.createDirectory(folder.resolve("joined"));
        String line = host.run("invite", "edge", "--append", "raw", "--address", address, "--served-as", "farm").lines()
                .filter(each -> each.startsWith("mri1_")).findFirst().orElseThrow();
        ended(List.of(Host.binary(), "join", line.strip()), state);
        String place = "mr://" + address + "/farm";
        if (Runtime.version().feature() < EXPORTS) {
            String refused = ran("java", state, place);
            assertTrue(refused.startsWith("MR6161") && refused.contains("Java 25"), refused);
        }
        if (exporting() == null) {
            return;
        }
        String printed = ran(exporting(), state, place);
        assertTrue(printed.startsWith("appended 1\nMR6132"), "it may append, and not read: " + printed);
        // Another key: the host is another one.
        Path stored = state.resolve("millrace/peers").resolve(address).resolve("farm");
        String text = Files.readString(stored);
        char digit = text.charAt("key ".length());
        Files.writeString(stored, "key " + (digit == '0' ? '1' : '0') + text.substring("key ".length() + 1));
        assertTrue(ran(exporting(), state, place).startsWith("MR6162"));
        // Another user's key does not open what was joined.
        Files.writeString(stored, text);
        Files.delete(state.resolve("millrace/identity"));
        printed = ran(exporting(), state, place);
        assertTrue(printed.startsWith("MR6132") && printed.contains("another key"), printed);
    }

    @Test
    void authoritiesThatDidNotSignTheCertificateDoNotVouchForTheHost() throws Exception {
        if (exporting() == null) {
            return;
        }
        Path state = Files.createDirectory(folder.resolve("authorities"));
        Path capability = folder.resolve("all.cap");
        host.run("cap", "issue", "--append", "raw", "--out", capability.toString());
        Path authority = Files.writeString(folder.resolve("authority.pem"), AUTHORITY);
        String printed = ran(exporting(), state, "mr://" + address + "/farm", capability.toString(), authority.toString());
        assertTrue(printed.startsWith("MR6196"), printed);
        printed = ran(exporting(), state, "mr://" + address + "/farm", capability.toString(), capability.toString());
        assertTrue(printed.startsWith("MR6195"), printed);
    }
}
