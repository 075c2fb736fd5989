package io.millrace;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.internal.EventId;
import io.millrace.internal.Frame;
import io.millrace.internal.Json;
import io.millrace.internal.MessagePack;
import io.millrace.internal.Messages;
import io.millrace.internal.SecureChannel;
import io.millrace.internal.Token;
import io.millrace.space.Values;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** The golden bytes of the specification. */
class VectorsTest {
    private static final HexFormat HEX = HexFormat.of();

    private static Map<String, Object> read(String name) throws IOException {
        return Json.object(Files.readString(Host.ROOT.resolve("spec/vectors").resolve(name)));
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> all(Map<String, Object> vectors, String key) {
        return (List<Map<String, Object>>) vectors.getOrDefault(key, List.of());
    }

    /** The value that a vector describes: bytes are objects with the key {@code hex}. */
    private static Object meant(Object value) {
        if (value instanceof Map<?, ?> map) {
            if (map.size() == 1 && map.get("hex") instanceof String hex) {
                return HEX.parseHex(hex);
            }
            Map<String, Object> found = new LinkedHashMap<>();
            map.forEach((key, element) -> found.put((String) key, meant(element)));
            return found;
        } else if (value instanceof List<?> list) {
            return list.stream().map(VectorsTest::meant).toList();
        }
        return value;
    }

    @SuppressWarnings("unchecked")
    private static Frame frame(Map<String, Object> vector) {
        int type = ((Number) vector.get("type")).intValue();
        int slot = vector.get("slot") instanceof Number number ? number.intValue() : 0;
        long request = ((Number) vector.get("request")).longValue();
        long hlc = ((Number) vector.get("hlc")).longValue();
        Map<String, Object> message = (Map<String, Object>) meant(vector.get("message"));
        return new Frame(type, request, hlc, (byte[]) meant(vector.get("cause")), message, slot);
    }

    private static byte[] body(byte[] bytes) {
        return Arrays.copyOfRange(bytes, 4, bytes.length);
    }

    @Test
    void framesAreWrittenAndReadAsTheSpecificationHasThem() throws IOException {
        int seen = 0;
        for (String file : List.of("wire.json", "objects.json", "messages.json")) {
            for (Map<String, Object> vector : all(read(file), "frames")) {
                Frame frame = frame(vector);
                if (!Messages.knows(frame.type())) {
                    continue;
                }
                byte[] bytes = HEX.parseHex((String) vector.get("hex"));
                assertEquals(vector.get("hex"), HEX.formatHex(frame.encode()), (String) vector.get("name"));
                Frame found = Frame.decode(body(bytes)).checked();
                assertEquals(vector.get("hex"), HEX.formatHex(found.encode()), (String) vector.get("name"));
                seen++;
            }
        }
        assertTrue(seen > 150, seen + " frames");
    }

    @Test
    void whatIsReadableIsReadAndWhatIsNotIsRefused() throws IOException {
        Map<String, Object> vectors = read("wire.json");
        for (Map<String, Object> vector : all(vectors, "readable")) {
            Frame found = Frame.decode(body(HEX.parseHex((String) vector.get("hex")))).checked();
            Frame wanted = frame(vector);
            assertEquals(wanted.type(), found.type(), (String) vector.get("name"));
            for (String key : wanted.message().keySet()) {
                Object value = wanted.message().get(key);
                boolean left = !found.message().containsKey(key) && value instanceof Number number && number.longValue() == 0;
                assertTrue(left || HEX.formatHex(MessagePack.encode(value)).equals(HEX.formatHex(MessagePack.encode(found.message().get(key)))),
                        vector.get("name") + ": " + key);
            }
        }
        int seen = 0;
        for (Map<String, Object> vector : all(vectors, "refused")) {
            byte[] bytes = HEX.parseHex((String) vector.get("hex"));
            String name = (String) vector.get("name");
            // Lengths are checked before there is a body, and the host alone receives items of links.
            if (name.startsWith("length.") || name.startsWith("refused.")) {
                continue;
            }
            MillraceException error = assertThrows(MillraceException.class, () -> Frame.decode(body(bytes)).checked(), name);
            assertEquals(vector.get("code"), error.code(), name);
            seen++;
        }
        assertTrue(seen > 45, seen + " refused");
    }

    @Test
    void tokensProveWhatTheyAreWithoutTheirSignature() throws IOException {
        for (Map<String, Object> vector : all(read("capability.json"), "tokens")) {
            Token token = Token.parse((String) vector.get("text"));
            assertEquals(vector.get("body"), HEX.formatHex(token.body()), (String) vector.get("name"));
            byte[] challenge = HEX.parseHex((String) vector.get("challenge"));
            assertEquals(vector.get("challenge_proof"), HEX.formatHex(token.proof(challenge)), (String) vector.get("name"));
        }
    }

    @Test
    void channelsAreOpenedAndCarryRecords() throws IOException {
        Map<String, Object> vectors = read("capability.json");
        for (Map<String, Object> vector : all(vectors, "channels")) {
            Map<String, Object> of = all(vectors, "tokens").stream().filter(one -> one.get("name").equals(vector.get("token"))).findFirst().get();
            Token token = Token.parse((String) of.get("text"));
            int takes = ((Number) vector.get("client_takes")).intValue();
            byte[] m1 = SecureChannel.first(token, HEX.parseHex((String) vector.get("client_nonce")), takes);
            assertEquals(vector.get("m1"), HEX.formatHex(m1));
            byte[] m2 = HEX.parseHex((String) vector.get("m2"));
            SecureChannel channel = SecureChannel.open(token, m1, m2);
            for (Map<String, Object> record : all(vector, "from_client")) {
                assertEquals(record.get("sent"), HEX.formatHex(channel.seal(HEX.parseHex((String) record.get("plain")))));
            }
            for (Map<String, Object> record : all(vector, "from_host")) {
                byte[] sent = HEX.parseHex((String) record.get("sent"));
                byte[] opened = channel.open(Arrays.copyOf(sent, 2), Arrays.copyOfRange(sent, 2, sent.length));
                assertEquals(record.get("plain"), HEX.formatHex(opened));
            }
            for (int at = 0; at < m2.length; at++) {
                byte[] changed = m2.clone();
                changed[at] ^= 1;
                assertThrows(MillraceException.class, () -> SecureChannel.open(token, m1, changed), "byte " + at);
            }
            byte[] head = {17, 0};
            assertThrows(MillraceException.class, () -> SecureChannel.open(token, m1, m2).open(head, new byte[17]));
        }
        assertThrows(MillraceException.class, () -> SecureChannel.recordLength(new byte[] {15, 0}));
        assertThrows(MillraceException.class, () -> SecureChannel.recordLength(new byte[] {1, 64}));
    }

    @Test
    void valuesComeBackAsTheyWere() {
        List<Object> values = Arrays.asList(null, true, false, 0L, -1L, 127L, 128L, -33L, 65536L, Long.MAX_VALUE, Long.MIN_VALUE, 0.5, "text",
                List.of(1L, List.of("x")), Map.of("key", 2L), new java.util.BitSet());
        for (Object value : values) {
            assertEquals(value, Values.decode(Values.encode(value)));
        }
        assertArrayEquals(new byte[300], (byte[]) Values.decode(Values.encode(new byte[300])));
        // A tuple of Python, and a pickle.
        assertEquals(List.of(1L, 2L), Values.decode(HEX.parseHex("c70302920102")));
        assertThrows(IllegalStateException.class, () -> Values.decode(HEX.parseHex("d40180")));
        for (String hostile : List.of("ddffffffff", "c6ffffffff", "c1", "91", "0101", "91".repeat(600) + "c0")) {
            assertThrows(MillraceException.class, () -> Values.decode(HEX.parseHex(hostile)), hostile);
        }
    }

    @Test
    void idsOfEventsHaveOneForm() {
        String text = "00a1b2c3d4e5-3f-1c";
        assertEquals(text, EventId.text(EventId.bytes(text)));
        assertThrows(MillraceException.class, () -> EventId.bytes("1-2"));
    }
}
