package io.millrace.table;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.Durability;
import io.millrace.Host;
import io.millrace.LogRecord;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.Tail;
import io.millrace.internal.Json;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Tables of a real host. */
class TableTest {
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final TableOptions BINARY = TableOptions.DEFAULT.withCodec(TableOptions.Codec.BYTES).withKeys(TableOptions.Keys.BYTES);
    private static final TableOptions TEXT = TableOptions.DEFAULT.withCodec(TableOptions.Codec.TEXT);

    @TempDir
    static Path folder;

    private static Host host;
    private static Millrace farm;

    @BeforeAll
    static void start() throws Exception {
        host = Host.start(folder.resolve("shared"));
        farm = Millrace.connect(host.namespace.toString());
    }

    @AfterAll
    static void end() {
        farm.close();
        host.close();
    }

    private static MillraceException refused(String code, Executable work) {
        MillraceException error = assertThrows(MillraceException.class, work);
        assertEquals(code, error.code(), error.toString());
        return error;
    }

    private static void misused(Executable work) {
        assertThrows(IllegalArgumentException.class, work);
    }

    private static List<String> keys(Iterable<TableEntry> scan) {
        return StreamSupport.stream(scan.spliterator(), false).map(TableEntry::key).toList();
    }

    private static byte[] hex(String text) {
        return HexFormat.of().parseHex(text);
    }

    /** The bytes that JSON has as text or in base64. */
    private static byte[] bytes(Map<?, ?> object) {
        String base64 = (String) object.get("base64");
        return base64 == null ? ((String) object.get("data")).getBytes(StandardCharsets.UTF_8) : Base64.getDecoder().decode(base64);
    }

    /** What `millrace table` prints as JSON, one object a line. */
    private static List<Map<String, Object>> printed(String... command) throws Exception {
        List<String> all = new ArrayList<>(List.of("--json", "table"));
        all.addAll(List.of(command));
        return host.run(all.toArray(String[]::new)).lines().map(Json::object).toList();
    }

    @Test
    void aValueHasTheVersionThatTheCommandLineSees() throws Exception {
        Table grades = farm.createTable("grades");
        assertTrue(grades.get("alice").isEmpty());
        assertEquals(1, grades.put("alice", "{\"score\": 7}"));
        assertEquals(2, grades.putJson("bob", Map.of("score", 5)));
        assertEquals(3, grades.put("alice", "{\"score\": 8}"));

        TableEntry entry = grades.get("alice").orElseThrow();
        assertEquals("alice", entry.key());
        assertEquals("{\"score\": 8}", entry.text());
        assertEquals(Map.of("score", 8L), entry.json());
        assertEquals(3, entry.version());
        assertNull(entry.expires());
        assertFalse(entry.deleted());

        Map<String, Object> seen = printed("get", "grades", "alice").get(0);
        assertEquals(3L, seen.get("version"));
        assertEquals("{\"score\": 8}", seen.get("data"), seen.toString());
        assertEquals(entry.time(), Instant.parse((String) seen.get("time")));

        host.run("table", "put", "grades", "alice", "{\"score\": 9}");
        assertEquals(Map.of("score", 9L), grades.get("alice").orElseThrow().json());
        assertEquals(4, grades.get("alice").orElseThrow().version());
        assertTrue(grades.delete("bob"));
        assertFalse(grades.delete("bob"), "it has no value any more");
        assertTrue(grades.get("bob").isEmpty());
        assertEquals(List.of("alice"), printed("scan", "grades").stream().map(found -> found.get("key")).toList());
        assertThrows(IllegalStateException.class, () -> host.run("table", "get", "grades", "bob"));

        List<TableEntry> versions = grades.versions("bob", 100);
        assertEquals(List.of(5L, 2L), versions.stream().map(TableEntry::version).toList());
        assertTrue(versions.get(0).deleted() && versions.get(0).data() == null && versions.get(0).text() == null);
        assertNull(versions.get(0).json());
        assertEquals(Map.of("score", 5L), versions.get(1).json());
        assertEquals(List.of(4L), grades.versions("alice", 1).stream().map(TableEntry::version).toList());
        byte[] alice = "alice".getBytes(StandardCharsets.UTF_8);
        assertEquals(List.of(3L, 1L), grades.versions(alice, 100, 4).stream().map(TableEntry::version).toList());
        assertEquals(List.of(), grades.versions("nobody", 100));
        List<Object> listed = printed("versions", "grades", "alice").stream().map(found -> found.get("version")).toList();
        assertEquals(listed, grades.versions("alice", 100).stream().map(found -> (Object) found.version()).toList());
    }

    @Test
    void aChangeDependsOnTheVersionOfTheKey() {
        Table table = farm.createTable("conditions", TEXT);
        long first = table.put("k", "one", ChangeOptions.ifAbsent());
        MillraceException error = refused("MR7300", () -> table.put("k", "two", ChangeOptions.ifAbsent()));
        assertEquals(MillraceException.Kind.CONFLICT, error.kind());
        assertTrue(error.detail().contains("has version " + first) && error.detail().contains("asks for no value"), error.detail());

        long second = table.put("k", "two", ChangeOptions.ifVersion(first));
        error = refused("MR7300", () -> table.put("k", "three", ChangeOptions.ifVersion(first)));
        assertTrue(error.detail().contains("has version " + second), error.detail());
        error = refused("MR7300", () -> table.put("other", "x", ChangeOptions.ifVersion(second)));
        assertTrue(error.detail().contains("has no value"), error.detail());
        refused("MR7300", () -> table.put("k", "x", ChangeOptions.ifVersion(Long.MAX_VALUE)));
        refused("MR7300", () -> table.delete("k", ChangeOptions.ifVersion(first)));
        refused("MR7300", () -> table.delete("other", ChangeOptions.ifVersion(1)));
        assertEquals("two", table.get("k").orElseThrow().text());
        assertTrue(table.delete("k", ChangeOptions.ifVersion(second)));
        assertFalse(table.get("k").isPresent());

        long third = table.put("k", "four", ChangeOptions.ifAbsent());
        assertTrue(third > second, "versions of one key grow, also after it was deleted");

        // In a request these numbers mean that there is no value, or no condition.
        misused(() -> ChangeOptions.ifVersion(0));
        misused(() -> ChangeOptions.ifVersion(-1));
        misused(() -> table.delete("k", ChangeOptions.ttl(Duration.ofSeconds(1))));
        misused(() -> table.increment("k", 1, ChangeOptions.ifAbsent()));
        misused(() -> table.increment("k", 1, ChangeOptions.ttl(Duration.ofSeconds(1))));
        assertEquals(third, table.get("k").orElseThrow().version());
    }

    @Test
    void aValueExpires() throws Exception {
        Table table = farm.createTable("sessions", TEXT.withTtl(Duration.ofHours(1)));
        table.put("soon", "x", ChangeOptions.ttl(Duration.ofNanos(1)));
        table.put("later", "y");
        table.put("long", "z", ChangeOptions.ifAbsent().withTtl(Duration.ofDays(30)));
        table.put("longest", "z", ChangeOptions.ttl(Duration.ofSeconds(Long.MAX_VALUE)));
        for (long end = System.nanoTime() + PATIENCE.toNanos(); table.get("soon").isPresent();) {
            assertTrue(System.nanoTime() - end < 0, "it has not expired");
        }
        assertEquals(List.of("later", "long", "longest"), keys(table.scan()));
        TableEntry later = table.get("later").orElseThrow();
        assertEquals(later.time().plus(Duration.ofHours(1)).getEpochSecond(), later.expires().getEpochSecond(), 60);
        assertEquals(later.expires(), Instant.parse((String) printed("get", "sessions", "later").get(0).get("expires")));
        TableEntry found = table.get("long").orElseThrow();
        assertEquals(found.time().plus(Duration.ofDays(30)).getEpochSecond(), found.expires().getEpochSecond(), 60);
        // 2^64 - 1 microseconds.
        assertEquals(Instant.parse("+586524-01-19T08:01:49.551615Z"), table.get("longest").orElseThrow().expires());
        assertTrue(table.put("soon", "again", ChangeOptions.ifAbsent()) > 0, "what has expired is absent");

        misused(() -> ChangeOptions.ttl(Duration.ZERO));
        misused(() -> ChangeOptions.ttl(Duration.ofSeconds(-1)));
        misused(() -> TableOptions.DEFAULT.withTtl(Duration.ZERO));
        Table forever = farm.createTable("forever", TEXT);
        forever.put("k", "v");
        assertNull(forever.get("k").orElseThrow().expires());
    }

    @Test
    void aScanIsInOrderOverPages() throws Exception {
        Table table = farm.createTable("pages");
        NavigableMap<String, Long> model = new TreeMap<>();
        List<Callable<Object>> puts = new ArrayList<>();
        for (int number = 0; number < 2100; number++) {
            String key = String.format("k/%04d", number);
            long value = number;
            model.put(key, value);
            puts.add(() -> table.putJson(key, value));
        }
        // With the one before all others, a page ends between k/0998 and k/0998!, which begins with it.
        for (String key : List.of("j", "k/0998!", "l")) {
            model.put(key, -1L);
            puts.add(() -> table.putJson(key, -1));
        }
        Collections.shuffle(puts, new Random(1));
        ExecutorService threads = Executors.newFixedThreadPool(4);
        for (Future<?> done : threads.invokeAll(puts)) {
            done.get();
        }
        threads.shutdown();

        assertEquals(new ArrayList<>(model.keySet()), keys(table.scan()));
        List<Object> values = new ArrayList<>();
        table.scan("k/").forEach(entry -> values.add(entry.json()));
        assertEquals(new ArrayList<Object>(model.subMap("k/", "k0").values()), values);
        for (long limit : new long[] {0, 1, 999, 1000, 1001, 2000, 2001, 5000}) {
            assertEquals(model.keySet().stream().limit(limit).toList(), keys(table.scan().limit(limit)), "limit " + limit);
        }
        assertEquals(List.of("k/0003", "k/0004", "k/0005"), keys(table.scan("k/").from("k/0003").to("k/0006")));
        assertEquals(List.of("k/0003", "k/0004"), keys(table.scan("k/").to("k/0006").from("k/0003").limit(2).limit(9)));
        assertEquals(new ArrayList<>(model.subMap("k/0500", "k/1700").keySet()), keys(table.scan().from("k/0500").to("k/1700")));
        assertEquals(List.of("j"), keys(table.scan("j").from("a").to("z")), "the prefix remains");
        assertEquals(List.of("l"), keys(table.scan().from("k/2099\0")));
        for (TableScan none : List.of(table.scan("x"), table.scan().from("m"), table.scan().to(""), table.scan().from("l").to("k"),
                table.scan().to("l").to("").to("l"), table.scan().from("k").to("k"))) {
            assertEquals(List.of(), keys(none), none.toString());
        }
        for (TableEntry entry : table.scan().keysOnly().limit(1500)) {
            assertNull(entry.data(), entry.toString());
            assertTrue(entry.version() > 0);
        }
        List<String> seen = printed("scan", "pages", "--keys").stream().map(found -> (String) found.get("key")).toList();
        assertEquals(seen, keys(table.scan().keysOnly()));

        TableScan two = table.scan().limit(2);
        Iterator<TableEntry> entries = two.iterator();
        entries.next();
        assertTrue(entries.hasNext() && entries.hasNext());
        entries.next();
        assertFalse(entries.hasNext());
        assertThrows(NoSuchElementException.class, entries::next);
        table.putJson("a", null);
        assertEquals(List.of("a", "j"), keys(two), "it is read anew");
        misused(() -> table.scan().limit(-1));
    }

    @Test
    void pagesOfLongValuesAreShort() {
        Table table = farm.createTable("long", BINARY);
        for (int number = 0; number < 13; number++) {
            byte[] value = new byte[200_000];
            Arrays.fill(value, (byte) number);
            table.put(new byte[] {(byte) number}, value);
        }
        int number = 0;
        for (TableEntry entry : table.scan()) {
            assertArrayEquals(new byte[] {(byte) number}, entry.keyBytes());
            assertEquals(200_000, entry.data().length);
            assertEquals(number, entry.data()[199_999]);
            number++;
        }
        assertEquals(13, number);
        // One request has at most 1 MiB and the entry that makes it longer.
        assertTrue(table.read(TableBytes.scan(new byte[0], new byte[0], 1000, false)).more());
    }

    @Test
    void keysAndValuesAreAnyBytes() throws Exception {
        Table table = farm.createTable("binary", BINARY);
        NavigableMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
        Random random = new Random(2);
        for (String key : List.of("00", "0000", "7f", "80", "ff", "ff00", "ffff", "ffffff", "fe", "feff", "ff7f", "01ff", "02")) {
            model.put(hex(key), hex(key + "00ff80"));
        }
        for (int number = 0; number < 60; number++) {
            byte[] key = new byte[1 + random.nextInt(4)];
            byte[] value = new byte[random.nextInt(40)];
            random.nextBytes(key);
            random.nextBytes(value);
            model.put(key, value);
        }
        model.put(new byte[1024], new byte[0]);
        model.forEach((key, value) -> assertTrue(table.put(key, value) > 0));
        model.forEach((key, value) -> assertArrayEquals(value, table.get(key).orElseThrow().data()));
        List<byte[]> bounds = new ArrayList<>(model.keySet());
        bounds.add(new byte[0]);
        bounds.add(hex("0001"));
        for (int round = 0; round < 200; round++) {
            byte[] prefix = bounds.get(random.nextInt(bounds.size()));
            prefix = Arrays.copyOf(prefix, Math.min(prefix.length, random.nextInt(3)));
            byte[] from = bounds.get(random.nextInt(bounds.size()));
            byte[] to = bounds.get(random.nextInt(bounds.size()));
            int limit = random.nextInt(30);
            List<String> wanted = new ArrayList<>();
            for (byte[] key : model.keySet()) {
                boolean inside = Arrays.compareUnsigned(key, from) >= 0 && Arrays.compareUnsigned(key, to) < 0;
                if (inside && key.length >= prefix.length && Arrays.mismatch(key, 0, prefix.length, prefix, 0, prefix.length) < 0) {
                    wanted.add(HexFormat.of().formatHex(key));
                }
            }
            List<String> found = new ArrayList<>();
            table.scan(prefix).from(from).to(to).limit(limit).forEach(entry -> found.add(HexFormat.of().formatHex(entry.keyBytes())));
            String told = HexFormat.of().formatHex(prefix) + " " + HexFormat.of().formatHex(from) + " " + HexFormat.of().formatHex(to);
            assertEquals(wanted.subList(0, Math.min(limit, wanted.size())), found, told);
        }
        assertTrue(table.delete(hex("ff00")));
        assertTrue(table.get(hex("ff00")).isEmpty());
        assertEquals(41, table.increment(hex("fff0"), 41, ChangeOptions.DEFAULT));
        assertEquals(1, table.versions(hex("fff0"), 9).size());
        for (Map<String, Object> seen : printed("scan", "binary")) {
            byte[] key = bytes(seen.get("key") instanceof Map<?, ?> map ? map : Map.of("data", seen.get("key")));
            assertArrayEquals(table.get(key).orElseThrow().data(), bytes(seen), seen.toString());
            model.remove(key);
        }
        assertEquals(List.of("ff00"), model.keySet().stream().map(HexFormat.of()::formatHex).toList(), "the command line sees all others");
    }

    @Test
    void keysInTextAreOrderedByTheirBytes() {
        Table table = farm.createTable("texts");
        // In UTF-16, the surrogates of the last one come before U+FFFD.
        List<String> ordered = List.of(" ", "A", "a", "a b/ü?#%", "ä", "\uFFFD", "\uD83D\uDE00");
        for (String key : ordered) {
            table.putJson(key, key);
        }
        assertEquals(ordered, keys(table.scan()));
        for (TableEntry entry : table.scan()) {
            assertEquals(entry.key(), entry.json());
        }
        assertEquals(List.of("\uD83D\uDE00"), keys(table.scan("\uD83D\uDE00")));
    }

    @Test
    void keysThatNoTableHasAreRefused() {
        Table table = farm.createTable("hostile", TEXT);
        String most = "k".repeat(1024);
        assertTrue(table.put(most, "v") > 0);
        assertEquals("v", table.get(most).orElseThrow().text());
        for (String bad : List.of("", most + "k", "k".repeat(70_000), "ü".repeat(600), "a\0b", "\uD800", "a\uDC00b", "\uDE00\uD83D")) {
            List<Executable> all = List.of(() -> table.put(bad, "v"), () -> table.get(bad), () -> table.delete(bad),
                    () -> table.increment(bad), () -> table.versions(bad, 1));
            for (Executable one : all) {
                assertEquals(MillraceException.Kind.INVALID, refused("MR7303", one).kind());
            }
        }
        refused("MR7303", () -> table.put(hex("ff"), hex("41")));
        refused("MR7303", () -> table.scan("\uD800"));
        refused("MR7303", () -> table.scan().from("\uD800"));
        assertEquals(List.of(), keys(table.scan("k".repeat(70_000))));
        assertEquals(List.of(most), keys(table.scan("").from("a".repeat(70_000)).to("z".repeat(70_000))));
        assertEquals(List.of(most), keys(table.scan()), "nothing was changed");
    }

    @Test
    void valuesThatTheTableDoesNotPermitAreRefused() {
        Table json = farm.createTable("json");
        for (String bad : List.of("", "{", "NaN", "[1] 2", "'a'", "\"\uD800\"")) {
            refused("MR7304", () -> json.put("k", bad));
        }
        Table text = farm.createTable("text", TEXT);
        refused("MR7304", () -> text.put("k", hex("ff")));
        refused("MR7304", () -> text.put("k", "\uDC00"));
        text.put("k", "");
        assertEquals("", text.get("k").orElseThrow().text());
        misused(() -> text.get("k").orElseThrow().json());

        Table binary = farm.createTable("sizes", BINARY);
        byte[] key = {1};
        // Longer than a frame, and longer than a record of this namespace.
        refused("MR6002", () -> binary.put(key, new byte[17 << 20]));
        refused("MR1004", () -> binary.put(key, new byte[300_000]));
        assertTrue(binary.get(key).isEmpty());
    }

    @Test
    void aTableThatIsNoneIsRefused() {
        refused("MR2101", () -> farm.table("nothing").get("k"));
        refused("MR2101", () -> farm.table("nothing").scan().iterator().hasNext());
        farm.createLog("plain", 10);
        refused("MR7302", () -> farm.table("plain").put("k", "1"));
        Table table = farm.createTable("once", TEXT);
        table.put("k", "v");
        refused("MR7301", () -> farm.log("once").append("x"));
        assertEquals(table.name(), farm.createTable("once", TEXT).name(), "it is left as it is");
        assertEquals("v", table.get("k").orElseThrow().text());
        for (TableOptions other : List.of(TableOptions.DEFAULT, TEXT.withKeys(TableOptions.Keys.BYTES), TEXT.withTtl(Duration.ofMillis(1)),
                TEXT.withHistory(7))) {
            refused("MR2102", () -> farm.createTable("once", other));
        }
        refused("MR2102", () -> farm.createTable("plain"));
        assertEquals(MillraceException.Kind.INVALID, assertThrows(MillraceException.class, () -> farm.createTable("a \"name\"")).kind());
        misused(() -> TableOptions.DEFAULT.withHistory(-1));
        farm.removeLog("once");
        refused("MR2101", () -> table.get("k"));
    }

    @Test
    void aTableIsCreatedWithItsAttributes() throws Exception {
        farm.createTable("made", BINARY.withTtl(Duration.ofMillis(2500)).withHistory(12));
        farm.createTable("untrimmed", TEXT.withHistory(0));
        farm.createTable("usual");
        Map<Object, Map<String, Object>> tables = new LinkedHashMap<>();
        printed("ls").forEach(table -> tables.put(table.get("table"), table));
        Map<String, Object> made = tables.get("made");
        assertEquals(List.of("bytes", "bytes", 2500L, 12L),
                List.of(made.get("codec"), made.get("keys"), made.get("ttl_ms"), made.get("history")));
        assertNull(tables.get("untrimmed").get("history"));
        Map<String, Object> usual = tables.get("usual");
        assertEquals(List.of("json", "text", 0L, 10_000L),
                List.of(usual.get("codec"), usual.get("keys"), usual.get("ttl_ms"), usual.get("history")));
    }

    @Test
    void valuesOfJsonComeBack() {
        Table table = farm.createTable("values");
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("null", null);
        all.put("true", true);
        all.put("least", Long.MIN_VALUE);
        all.put("most", Long.MAX_VALUE);
        all.put("more", BigInteger.TWO.pow(80));
        all.put("half", -0.5);
        all.put("tiny", Double.MIN_VALUE);
        all.put("huge", Double.MAX_VALUE);
        all.put("text", "a\"\\\n\0\u007f ü \uD83D\uDE00 </script>");
        all.put("\"", List.of());
        all.put("", Map.of("a", List.of(1L, Map.of(), "b", List.of(List.of()))));
        for (Map.Entry<String, Object> one : all.entrySet()) {
            table.putJson("k", one.getValue());
            assertEquals(one.getValue(), table.get("k").orElseThrow().json(), one.getKey());
        }
        table.putJson("k", all);
        assertEquals(all, table.get("k").orElseThrow().json());
        table.putJson("k", new java.util.concurrent.atomic.AtomicInteger(3));
        assertEquals(3L, table.get("k").orElseThrow().json());

        Object deepest = "x";
        for (int depth = 1; depth < 64; depth++) {
            deepest = List.of(deepest);
        }
        table.putJson("deep", deepest);
        assertEquals(deepest, table.get("deep").orElseThrow().json());
        Object deeper = List.of(deepest);
        List<Object> endless = new ArrayList<>();
        endless.add(endless);
        List<Object> odd = new ArrayList<>(List.of(Double.NaN, Double.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, new byte[1], new int[0],
                'c', Instant.EPOCH, Map.of(1, 2), Set.of(), deeper, endless, List.of(new Object())));
        for (Object one : odd) {
            misused(() -> table.putJson("k", one));
        }
        refused("MR7304", () -> table.putJson("k", "\uD800"));
        assertEquals(3L, table.get("k").orElseThrow().json());
    }

    @Test
    void aCounterCountsForAll() throws Exception {
        Table table = farm.createTable("counters");
        assertEquals(List.of(1L, 42L, 40L), List.of(table.increment("n"), table.increment("n", 41), table.increment("n", -2)));
        assertEquals("40", table.get("n").orElseThrow().text());
        assertEquals(Long.MIN_VALUE, table.increment("edge", Long.MIN_VALUE));
        refused("MR7307", () -> table.increment("edge", -1));
        assertEquals(-1, table.increment("edge", Long.MAX_VALUE));
        assertEquals(Long.MAX_VALUE, table.increment("top", Long.MAX_VALUE));
        refused("MR7307", () -> table.increment("top"));
        table.putJson("text", "x");
        refused("MR7307", () -> table.increment("text"));
        table.put("lasting", "1", ChangeOptions.ttl(Duration.ofDays(1)));
        Instant expires = table.get("lasting").orElseThrow().expires();
        table.increment("lasting");
        assertEquals(expires, table.get("lasting").orElseThrow().expires(), "an increment keeps the lifetime");

        try (Millrace other = Millrace.connect(host.address())) {
            Set<Long> sums = ConcurrentHashMap.newKeySet();
            ExecutorService threads = Executors.newFixedThreadPool(4);
            List<Callable<Boolean>> work = new ArrayList<>();
            for (int at = 0; at < 4; at++) {
                Table mine = (at % 2 == 0 ? farm : other).table("counters");
                work.add(() -> {
                    boolean isNew = true;
                    for (int count = 0; count < 100; count++) {
                        isNew &= sums.add(mine.increment("shared"));
                    }
                    return isNew;
                });
            }
            for (Future<Boolean> done : threads.invokeAll(work)) {
                assertTrue(done.get(), "each increment has a sum of its own");
            }
            threads.shutdown();
            assertEquals(400, sums.size());
            assertEquals(400L, other.table("counters").get("shared").orElseThrow().json());
        }
    }

    @Test
    void twoClientsThatExchangeVersionsLoseNoChange() throws Exception {
        Table mine = farm.createTable("contended");
        mine.putJson("list", 0);
        try (Millrace other = Millrace.connect(host.address())) {
            List<Callable<Integer>> work = new ArrayList<>();
            for (Table table : List.of(mine, other.table("contended"))) {
                work.add(() -> {
                    int refused = 0;
                    for (int done = 0; done < 50;) {
                        TableEntry entry = table.get("list").orElseThrow();
                        try {
                            table.putJson("list", (Long) entry.json() + 1, ChangeOptions.ifVersion(entry.version()));
                            done++;
                        } catch (MillraceException error) {
                            assertEquals("MR7300", error.code());
                            refused++;
                        }
                    }
                    return refused;
                });
            }
            ExecutorService threads = Executors.newFixedThreadPool(2);
            int refused = 0;
            for (Future<Integer> done : threads.invokeAll(work)) {
                refused += done.get();
            }
            threads.shutdown();
            assertEquals(100L, mine.get("list").orElseThrow().json());
            assertEquals(101, mine.get("list").orElseThrow().version(), refused + " were refused, and changed nothing");
            other.table("contended").delete("list");
            assertTrue(mine.get("list").isEmpty(), "one client sees what the other has done");
        }
    }

    @Test
    void aTailOfATableSaysWhichKeysHaveChanged() throws Exception {
        Table table = farm.createTable("followed", TEXT);
        try (Tail tail = farm.log("followed").tail(1)) {
            String cause = farm.createLog("causes", 10).append("x").id();
            table.put("a", "1", ChangeOptions.DEFAULT.withCause(cause).withDurability(Durability.DISK));
            table.delete("a");
            table.increment("b", 5);
            LogRecord first = tail.next(PATIENCE).orElseThrow();
            assertEquals(cause, first.cause());
            assertEquals("1", first.text());
            TableEntry change = table.change(first);
            assertEquals(List.of("a", "1", 1L), List.of(change.key(), change.text(), change.version()));
            change = table.change(tail.next(PATIENCE).orElseThrow());
            assertTrue(change.deleted() && change.key().equals("a") && change.data() == null, change.toString());
            change = table.change(tail.next(PATIENCE).orElseThrow());
            assertEquals(List.of("b", "5"), List.of(change.key(), change.text()));
            assertThrows(MillraceException.class, () -> table.change(4));
        }
    }

    @Test
    void aChangeWithTheTokenOfAFormerOwnerIsRefused() throws Exception {
        Table table = farm.createTable("fenced", TEXT);
        long former = farm.lock("table-lock").acquire();
        farm.lock("table-lock").unlock();
        long token = farm.lock("table-lock").acquire();
        table.put("k", "owner", ChangeOptions.DEFAULT.withFence("table-lock", token));
        ChangeOptions late = ChangeOptions.DEFAULT.withFence("table-lock", former);
        refused("MR7127", () -> table.put("k", "former", late));
        refused("MR7127", () -> table.delete("k", late));
        refused("MR7127", () -> table.increment("n", 1, late));
        assertEquals("owner", table.get("k").orElseThrow().text());
        farm.lock("table-lock").unlock();
    }

    @Test
    void aCapabilityLimitsWhatIsPermitted() throws Exception {
        farm.createTable("readable", TEXT).put("k", "v");
        farm.createTable("hidden", TEXT).put("k", "v");
        Path file = folder.resolve("readable.cap");
        host.run("cap", "issue", "--read", "readable", "--out", file.toString());
        try (Millrace limited = Millrace.at(host.address()).capability(file).connect()) {
            Table readable = limited.table("readable");
            assertEquals("v", readable.get("k").orElseThrow().text());
            assertEquals(List.of("k"), keys(readable.scan()));
            List<Executable> all = List.of(() -> readable.put("k", "w"), () -> readable.delete("k"), () -> readable.increment("n"),
                    () -> limited.table("hidden").get("k"), () -> limited.createTable("new"));
            for (Executable one : all) {
                MillraceException error = assertThrows(MillraceException.class, one);
                assertEquals(MillraceException.Kind.DENIED, error.kind(), error.toString());
            }
        }
        assertEquals("v", farm.table("readable").get("k").orElseThrow().text());
    }

    @Test
    void readsGoOnAfterTheHostWasKilled() throws Exception {
        try (Host own = Host.start(folder.resolve("killed"));
                Millrace client = Millrace.at(own.namespace.toString()).patience(PATIENCE).connect()) {
            Table table = client.createTable("t");
            for (int number = 0; number < 1200; number++) {
                table.putJson(String.format("%04d", number), number);
            }
            long version = table.put("0000", "\"new\"");
            Iterator<TableEntry> entries = table.scan().iterator();
            assertEquals("0000", entries.next().key());
            own.kill();
            MillraceException error = assertThrows(MillraceException.class, () -> table.put("0000", "\"lost\""));
            assertEquals(MillraceException.Kind.UNAVAILABLE, error.kind());
            FutureTask<TableEntry> reading = new FutureTask<>(() -> table.get("0000").orElseThrow());
            new Thread(reading).start();
            own.serve("none");
            TableEntry entry = reading.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            assertEquals(List.of("new", version), List.of(entry.json(), entry.version()));
            for (int number = 1; number < 1200; number++) {
                assertEquals(String.format("%04d", number), entries.next().key());
            }
            assertFalse(entries.hasNext());
            assertEquals(version + 1, table.put("0000", "\"again\"", ChangeOptions.ifVersion(version)));
            assertEquals(1, table.increment("n"));
        }
    }

    /** Between a client and a host; ends the connection in place of the next answer when it was told to. */
    private static final class Cutter implements AutoCloseable {
        private final ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
        private final String name;
        private final int port;
        private final AtomicBoolean cuts = new AtomicBoolean();
        private final ConcurrentLinkedQueue<Socket> sockets = new ConcurrentLinkedQueue<>();

        Cutter(String address) throws IOException {
            // mr://127.0.0.1:PORT/NAME
            name = address.substring(address.lastIndexOf('/'));
            port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1, address.lastIndexOf('/')));
            thread(this::accept);
        }

        private static void thread(Runnable work) {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            thread.start();
        }

        String address() {
            return "mr://127.0.0.1:" + listener.getLocalPort() + name;
        }

        private void accept() {
            try {
                while (true) {
                    Socket client = listener.accept();
                    Socket served = new Socket(InetAddress.getLoopbackAddress(), port);
                    sockets.addAll(List.of(client, served));
                    thread(() -> copy(client, served, false));
                    thread(() -> copy(served, client, true));
                }
            } catch (IOException error) {
                // It was closed.
            }
        }

        private void copy(Socket one, Socket other, boolean answers) {
            try (one; other) {
                InputStream from = one.getInputStream();
                OutputStream to = other.getOutputStream();
                byte[] buffer = new byte[64 << 10];
                for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
                    if (answers && cuts.compareAndSet(true, false)) {
                        return;
                    }
                    to.write(buffer, 0, count);
                }
            } catch (IOException error) {
                // The other direction has ended.
            }
        }

        @Override
        public void close() throws IOException {
            listener.close();
            for (Socket socket : sockets) {
                socket.close();
            }
        }
    }

    @Test
    void aChangeWhoseAnswerIsLostIsNotMadeTwice() throws Exception {
        Table direct = farm.createTable("cut");
        try (Cutter cutter = new Cutter(host.address()); Millrace client = Millrace.at(cutter.address()).patience(PATIENCE).connect()) {
            Table table = client.table("cut");
            assertEquals(1, table.increment("n"));
            cutter.cuts.set(true);
            refused("MR6123", () -> table.increment("n"));
            assertEquals(2L, direct.get("n").orElseThrow().json(), "it took place once");

            long version = table.putJson("k", "first");
            cutter.cuts.set(true);
            refused("MR6123", () -> table.putJson("k", "second", ChangeOptions.ifVersion(version)));
            // It can be made again, and the answer says that it took place.
            MillraceException error = refused("MR7300", () -> table.putJson("k", "second", ChangeOptions.ifVersion(version)));
            assertTrue(error.detail().contains("has version " + (version + 1)), error.detail());

            cutter.cuts.set(true);
            assertEquals("second", table.get("k").orElseThrow().json(), "a read is repeated");
            assertFalse(cutter.cuts.get());
            cutter.cuts.set(true);
            assertEquals(List.of("k", "n"), keys(table.scan()));
            assertFalse(cutter.cuts.get());
        }
    }

    @Test
    void oddAnswersAreRefused() {
        byte[] answer = hex("01" + "0200" + "6b31" + "0900000000000000" + "0000000000000000" + "0100000000000000" + "00" + "03000000"
                + "616263");
        TableBytes.Answer read = TableBytes.answer(answer);
        assertTrue(read.more());
        assertArrayEquals("abc".getBytes(StandardCharsets.US_ASCII), read.rows().get(0).value());
        assertEquals(List.of(), TableBytes.answer(hex("00")).rows());
        for (int length = 0; length < answer.length; length++) {
            byte[] part = Arrays.copyOf(answer, length);
            if (length != 1) {
                refused("MR6003", () -> TableBytes.answer(part));
            }
        }
        for (int at : new int[] {0, 29}) {
            byte[] changed = answer.clone();
            changed[at] = 2;
            refused("MR6003", () -> TableBytes.answer(changed));
        }
        byte[] changed = answer.clone();
        Arrays.fill(changed, 30, 34, (byte) 0xff);
        refused("MR6003", () -> TableBytes.answer(changed));
    }

    @Test
    void aReadAtAReplicaShowsAtLeastWhatItsTokenNames() throws Exception {
        Table owned = farm.createTable("replicated", TEXT);
        assertTrue(farm.table("replicated").token().isEmpty());
        try (Host copy = Host.start(folder.resolve("copy")); Millrace there = Millrace.connect(copy.socket())) {
            copy.run("table", "mirror", "replicated", "--from", host.address() + "/replicated");
            Table replica = there.table("replicated");
            // It is loaded first, and shows nothing until then.
            Instant patience = Instant.now().plus(PATIENCE);
            for (boolean loaded = false; !loaded;) {
                assertTrue(Instant.now().isBefore(patience));
                try {
                    loaded = replica.get("grade").isEmpty();
                } catch (MillraceException error) {
                    assertEquals("MR7332", error.code());
                    Thread.sleep(50);
                }
            }
            for (int grade = 0; grade < 50; grade++) {
                owned.put("grade", Integer.toString(grade));
                String token = owned.token().orElseThrow();
                assertEquals(Integer.toString(grade), replica.after(token).get("grade").orElseThrow().text());
                TableEntry first = replica.after(token).scan().iterator().next();
                assertEquals(Integer.toString(grade), first.text());
            }
            String[] parts = replica.token().orElseThrow().split("-");
            String later = parts[0] + "-" + parts[1] + "-" + Long.toHexString(Long.parseLong(parts[2], 16) + 1_000_000);
            assertEquals("MR7331", assertThrows(MillraceException.class, () -> replica.after(later).get("grade")).code());
            assertEquals("MR1005", assertThrows(MillraceException.class, () -> replica.after("yesterday")).code());
            MillraceException refused = assertThrows(MillraceException.class, () -> replica.put("grade", "0"));
            assertTrue(refused.is("MR7330") && refused.detail().contains(host.address()), refused.detail());
        }
    }
}
