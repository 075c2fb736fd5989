package io.millrace.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.MillraceException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Hosts that answer what they should not, and addresses at which another program listens. */
class HostileTest {
    private static final Options OPTIONS = new Options("tests", null, null, 120_000, 120_000, 120_000, 0);
    private static final int PREFACE_BYTES = 4;

    private static Map<String, Object> welcome(int version) {
        Map<String, Object> welcome = new LinkedHashMap<>();
        welcome.put("version", version);
        welcome.put("host", "fake");
        welcome.put("name", "farm");
        welcome.put("namespace", 1);
        welcome.put("epoch", 1);
        welcome.put("frame_max_bytes", Frame.BYTES_MAX);
        welcome.put("record_max_bytes", 1 << 20);
        welcome.put("requests_max", 64);
        welcome.put("durability", "memory");
        return welcome;
    }

    /** Serves one connection: answers each frame with the next of these. */
    private static ServerSocket fake(byte[]... answers) throws IOException {
        ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(() -> {
            try (Socket socket = server.accept()) {
                socket.getInputStream().readNBytes(PREFACE_BYTES);
                for (byte[] answer : answers) {
                    byte[] head = socket.getInputStream().readNBytes(Frame.LENGTH_BYTES);
                    socket.getInputStream().readNBytes(Frame.length(head, Frame.BYTES_MAX));
                    socket.getOutputStream().write(answer);
                }
            } catch (IOException error) {
                // The client has closed the connection.
            }
        });
        thread.setDaemon(true);
        thread.start();
        return server;
    }

    private static Client client(ServerSocket server) {
        return new Client(List.of(new Place(null, "127.0.0.1", server.getLocalPort(), "farm")), OPTIONS);
    }

    private static String refusal(byte[]... answers) throws IOException {
        try (ServerSocket server = fake(answers)) {
            return assertThrows(MillraceException.class, () -> client(server).close()).code();
        }
    }

    @Test
    void aGreetingThatIsNotOneIsRefused() throws IOException {
        assertEquals("MR6123", refusal(), "it closes");
        assertEquals("MR6002", refusal(HexFormat.of().parseHex("ffffffff")));
        assertEquals("MR6002", refusal(new Frame(Messages.WELCOME, 1, 0, Map.of("host", "x".repeat(20_000))).encode()), "too long a greeting");
        assertEquals("MR6003", refusal(HexFormat.of().parseHex("01000000c0")));
        assertEquals("MR6003", refusal(new Frame(Messages.WELCOME, 1, 0, Map.of()).encode()), "it lacks keys");
        assertEquals("MR6006", refusal(new Frame(Messages.WELCOME, 1, 0, welcome(3)).encode()));
        assertEquals("MR6125", refusal(new Frame(Messages.PONG, 1, 0, Map.of()).encode()));
        assertEquals("MR6131", refusal(new Frame(Messages.FAILURE, 1, 0, Map.of("code", "MR6131", "detail", "no")).encode()));
    }

    @Test
    void anAnswerThatIsNotOneEndsTheRequest() throws IOException {
        byte[] greeting = new Frame(Messages.WELCOME, 1, 0, welcome(2)).encode();
        Map<byte[], String> answers = new LinkedHashMap<>();
        answers.put(new Frame(25, 2, 0, Map.of("seqno", "seven")).encode(), "MR6003");
        answers.put(new Frame(Messages.FAILURE, 2, 0, Map.of("code", "MR2101", "detail", "none")).encode(), "MR2101");
        answers.put(new Frame(Messages.FAILURE, 0, 0, Map.of("code", "MR6053", "detail", "it stops")).encode(), "MR6053");
        answers.put(HexFormat.of().parseHex("ffffffff"), "MR6002");
        answers.put(HexFormat.of().parseHex("01000000c1"), "MR6003");
        for (Map.Entry<byte[], String> answer : answers.entrySet()) {
            try (ServerSocket server = fake(greeting, answer.getKey()); Client client = client(server)) {
                assertEquals(answer.getValue(), assertThrows(MillraceException.class,
                        () -> client.ask(Messages.LATEST, Map.of("log", "raw"), null, 0)).code());
            }
        }
    }

    @Test
    void theKernelReportsWhoListens() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket socket = new Socket(server.getInetAddress(), server.getLocalPort()); Socket accepted = server.accept()) {
            InetSocketAddress theirs = (InetSocketAddress) socket.getRemoteSocketAddress();
            InetSocketAddress ours = (InetSocketAddress) socket.getLocalSocketAddress();
            Loopback.check(theirs, ours);
            InetSocketAddress other = new InetSocketAddress(ours.getAddress(), ours.getPort() == 1 ? 2 : ours.getPort() - 1);
            assertEquals("MR6163", assertThrows(MillraceException.class, () -> Loopback.check(theirs, other)).code());
            assertTrue(accepted.isConnected());
        }
    }

    @Test
    void aConnectionOfAnotherProgramDoesNotVouchForOneThatIsOver() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            String connect = "exec 3<>/dev/tcp/127.0.0.1/" + server.getLocalPort() + "; read -r line <&3";
            Process other = new ProcessBuilder("bash", "-c", connect).start();
            try (Socket accepted = server.accept()) {
                InetSocketAddress theirs = (InetSocketAddress) accepted.getLocalSocketAddress();
                InetSocketAddress ours = (InetSocketAddress) accepted.getRemoteSocketAddress();
                // The socket at `ours` is now the other program's, as after a reset of this program's connection.
                assertEquals("MR6123", assertThrows(MillraceException.class, () -> Loopback.check(theirs, ours)).code());
            } finally {
                other.destroy();
            }
        }
    }
}
