package io.millrace;

import io.millrace.internal.Client;
import io.millrace.internal.EventId;
import io.millrace.internal.Frame;
import io.millrace.internal.MessagePack;
import io.millrace.internal.Messages;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A log of a namespace. */
public final class Log {
    /** How long the host waits in one request; the client repeats the request. */
    private static final long SLICE_MS = 20_000;

    private final Client client;
    private final String name;

    Log(Client client, String name) {
        this.client = client;
        this.name = name;
    }

    /** For other packages of Millrace: a log of the namespace that a client reaches. */
    public static Log at(Client client, String name) {
        return new Log(client, name);
    }

    /** Its name. */
    public String name() {
        return name;
    }

    /** Appends a record. */
    public Receipt append(byte[] data) {
        return append(data, AppendOptions.DEFAULT);
    }

    /** Appends a text in UTF-8. */
    public Receipt append(String text) {
        return append(text.getBytes(StandardCharsets.UTF_8), AppendOptions.DEFAULT);
    }

    /** Appends a text in UTF-8. */
    public Receipt append(String text, AppendOptions options) {
        return append(text.getBytes(StandardCharsets.UTF_8), options);
    }

    /**
     * Appends a record. If the connection is lost before the answer, an append with an idempotency key is sent again; one without fails
     * with MR6123, and it is unknown whether it took place.
     */
    public Receipt append(byte[] data, AppendOptions options) {
        Map<String, Object> message = message();
        message.put("data", data);
        options.write(message);
        byte[] cause = EventId.bytes(options.cause());
        Frame answer = options.isKeyed() ? client.insist(Messages.APPEND, message, cause, 0) : client.ask(Messages.APPEND, message, cause, 0);
        return new Receipt(name, answer.number("seqno"), EventId.text(answer.bytes("id")));
    }

    /**
     * The record with this number. Fails with MR2105 if the log does not have it yet, and with MR2104 if the record has left the log's
     * history.
     */
    public LogRecord get(long seqno) {
        return get(seqno, Duration.ZERO);
    }

    /** The record with this number; waits at most this long for a record that the log does not have yet. */
    public LogRecord get(long seqno, Duration wait) {
        long until = System.nanoTime() + wait.toNanos();
        while (true) {
            long leftMs = Math.max(0, (until - System.nanoTime()) / 1_000_000);
            Map<String, Object> message = message();
            message.put("seqno", MessagePack.unsigned(seqno));
            put(message, "wait_ms", Math.min(leftMs, SLICE_MS));
            try {
                Frame answer = client.insist(Messages.GET, message, null, Math.min(leftMs, SLICE_MS));
                return LogRecord.of(name, answer.message());
            } catch (MillraceException error) {
                if (!error.is("MR2105") || leftMs <= SLICE_MS) {
                    throw error;
                }
            }
        }
    }

    /** The newest record. */
    public LogRecord last() {
        return get(0, Duration.ZERO);
    }

    /** The number of the newest record; 0 if there is none. */
    public long latest() {
        return client.insist(Messages.LATEST, message(), null, 0).number("seqno");
    }

    /**
     * Waits until the newest record has a higher number than {@code above}, at most for {@code wait}; returns the number of the newest
     * record.
     */
    public long latest(long above, Duration wait) {
        long until = System.nanoTime() + wait.toNanos();
        while (true) {
            long leftMs = Math.max(0, (until - System.nanoTime()) / 1_000_000);
            Map<String, Object> message = message();
            put(message, "above", above);
            put(message, "wait_ms", Math.min(leftMs, SLICE_MS));
            long latest = client.insist(Messages.LATEST, message, null, Math.min(leftMs, SLICE_MS)).number("seqno");
            if (Long.compareUnsigned(latest, above) > 0 || leftMs <= SLICE_MS) {
                return latest;
            }
        }
    }

    /**
     * Records of a log, and where to continue.
     *
     * @param records the records
     * @param next the number to begin the next request with
     */
    public record Range(List<LogRecord> records, long next) {}

    /** At most {@code count} records, from a number on. There are fewer at the log's end, or if more would not fit into one answer. */
    public Range range(long from, int count) {
        Map<String, Object> message = message();
        message.put("from", MessagePack.unsigned(from));
        message.put("count", count);
        Frame answer = client.insist(Messages.RANGE, message, null, 0);
        return new Range(records(answer), answer.number("next"));
    }

    List<LogRecord> records(Frame frame) {
        List<LogRecord> records = new ArrayList<>();
        frame.maps("records").forEach(record -> records.add(LogRecord.of(name, record)));
        return records;
    }

    /** Follows the log from a record on; with 0, returns only new records. */
    public Tail tail(long from) {
        return new Tail(client, this, from, 0);
    }

    /** Follows the log from the cursor of an earlier tail on. */
    public Tail tail(Tail.Cursor cursor) {
        return new Tail(client, this, cursor.next(), cursor.incarnation());
    }

    private Map<String, Object> message() {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("log", name);
        return message;
    }

    private static void put(Map<String, Object> message, String key, long value) {
        if (value != 0) {
            message.put(key, MessagePack.unsigned(value));
        }
    }

    @Override
    public String toString() {
        return "log " + name;
    }
}
