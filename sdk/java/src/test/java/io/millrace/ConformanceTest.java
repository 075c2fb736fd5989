package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.internal.Client;
import io.millrace.internal.Json;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** spec/conformance.json: the script that every client runs. Scripts take turns to use the Unix socket and TCP. */
class ConformanceTest {
    @TempDir
    Path folder;

    private final Map<String, Object> kept = new HashMap<>();
    private Millrace farm;

    @TestFactory
    @SuppressWarnings("unchecked")
    List<DynamicTest> everyScript() throws IOException {
        Map<String, Object> file = Json.object(Files.readString(Host.ROOT.resolve("spec/conformance.json")));
        List<DynamicTest> tests = new ArrayList<>();
        for (Map<String, Object> script : (List<Map<String, Object>>) file.get("scripts")) {
            int number = tests.size();
            tests.add(DynamicTest.dynamicTest((String) script.get("name"), () -> {
                try (Host host = Host.start(folder.resolve("script-" + number));
                        Millrace connected = Millrace.connect(number % 2 == 0 ? host.socket() : host.address())) {
                    farm = connected;
                    kept.clear();
                    for (Map<String, Object> step : (List<Map<String, Object>>) script.get("steps")) {
                        take(step);
                    }
                }
            }));
        }
        return tests;
    }

    private void take(Map<String, Object> step) throws Exception {
        Thread later = null;
        if (step.get("meanwhile") instanceof Map<?, ?> meanwhile) {
            later = new Thread(() -> {
                try {
                    Client.pause(200);
                    @SuppressWarnings("unchecked")
                    Map<String, Object> other = (Map<String, Object>) meanwhile;
                    call(other);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
            later.start();
        }
        Map<String, Object> got;
        try {
            got = call(step);
            assertNull(step.get("fails"), step + " gave " + got);
        } catch (MillraceException error) {
            assertEquals(step.get("fails"), error.code(), step + ": " + error);
            return;
        } finally {
            if (later != null) {
                later.join();
            }
        }
        if (step.get("gives") instanceof Map<?, ?> gives) {
            assertTrue(same(gives, got), step + " gave " + got);
        }
        if (step.get("keep") instanceof Map<?, ?> keep) {
            keep.forEach((name, member) -> kept.put((String) name, got.get(member)));
        }
    }

    private Object meant(Object value) {
        return value instanceof String text && text.startsWith("$") ? kept.get(text.substring(1)) : value;
    }

    private static byte[] data(Object value) {
        Map<?, ?> of = (Map<?, ?>) value;
        if (of.get("text") instanceof String text) {
            return text.getBytes(StandardCharsets.UTF_8);
        } else if (of.get("hex") instanceof String hex) {
            return HexFormat.of().parseHex(hex);
        }
        byte[] filled = new byte[((Number) of.get("count")).intValue()];
        Arrays.fill(filled, ((Number) of.get("fill")).byteValue());
        return filled;
    }

    private boolean same(Object wanted, Object got) {
        if (got instanceof byte[] bytes) {
            return Arrays.equals(data(wanted), bytes);
        } else if (wanted instanceof List<?> list) {
            List<?> found = (List<?>) got;
            boolean all = list.size() == found.size();
            for (int at = 0; all && at < list.size(); at++) {
                all = same(list.get(at), found.get(at));
            }
            return all;
        } else if (wanted instanceof Map<?, ?> map) {
            Map<?, ?> found = (Map<?, ?>) got;
            return map.entrySet().stream().allMatch(entry -> same(entry.getValue(), found.get(entry.getKey())));
        }
        Object value = meant(wanted);
        if (value instanceof BigInteger number) {
            value = number.longValue();
        }
        return value.equals(got instanceof Integer number ? (Object) number.longValue() : got);
    }

    private static Map<String, Object> of(LogRecord record) {
        Map<String, Object> found = new HashMap<>();
        found.put("seqno", record.seqno());
        found.put("id", record.id());
        found.put("cause", record.cause() == null ? "-" : record.cause());
        found.put("data", record.data());
        return found;
    }

    private static Map<String, Object> of(Receipt receipt) {
        return Map.of("seqno", receipt.seqno(), "id", receipt.id());
    }

    private AppendOptions options(Map<String, Object> step) {
        AppendOptions options = AppendOptions.DEFAULT;
        if (step.get("durability") instanceof String durability) {
            options = options.withDurability(Durability.valueOf(durability.toUpperCase(java.util.Locale.ROOT)));
        }
        if (step.get("key") instanceof String key) {
            options = options.withKey(key);
        }
        if (step.get("function") instanceof String function) {
            options = options.withFunction(function);
        }
        return meant(step.get("cause")) instanceof String cause ? options.withCause(cause) : options;
    }

    private long number(Map<String, Object> step, String key) {
        return meant(step.get(key)) instanceof Number number ? number.longValue() : 0;
    }

    private Map<String, Object> call(Map<String, Object> step) throws InterruptedException {
        String name = (String) step.get("log");
        Log log = name == null ? null : farm.log(name);
        Duration wait = Duration.ofMillis(number(step, "wait_ms"));
        switch ((String) step.get("do")) {
            case "create_log":
                farm.createLog(name, number(step, "history"));
                return Map.of();
            case "set_history":
                farm.setHistory(name, number(step, "history"));
                return Map.of();
            case "remove_log":
                farm.removeLog(name);
                return Map.of();
            case "cancel_run":
                farm.cancelRun((String) meant(step.get("run")));
                return Map.of();
            case "append":
                return of(log.append(data(step.get("data")), options(step)));
            case "append_many":
                List<Millrace.NewRecord> records = new ArrayList<>();
                for (Object record : (List<?>) step.get("records")) {
                    Map<?, ?> one = (Map<?, ?>) record;
                    records.add(new Millrace.NewRecord((String) one.get("log"), data(one.get("data"))));
                }
                return Map.of("records", farm.appendMany(records, options(step)).stream().map(ConformanceTest::of).toList());
            case "get":
                return of(log.get(number(step, "seqno"), wait));
            case "range":
                Log.Range range = log.range(number(step, "from"), (int) number(step, "count"));
                return Map.of("records", range.records().stream().map(ConformanceTest::of).toList(), "next", range.next());
            case "latest":
                return Map.of("seqno", step.containsKey("above") ? log.latest(number(step, "above"), wait) : log.latest());
            case "tail":
                Tail.Cursor from = new Tail.Cursor((int) number(step, "incarnation"), number(step, "from"));
                try (Tail tail = log.tail(from)) {
                    List<Map<String, Object>> found = new ArrayList<>();
                    while (found.size() < number(step, "take")) {
                        found.add(of(tail.next(Duration.ofSeconds(100)).orElseThrow()));
                    }
                    return Map.of("records", found, "next", tail.cursor().next(), "incarnation", tail.cursor().incarnation());
                }
            case "show":
                assertNotNull(Json.parse(farm.show((String) step.get("path"))));
                return Map.of();
            default:
                throw new IllegalStateException("there is no step " + step.get("do"));
        }
    }
}
