package io.millrace.table;

import io.millrace.LogRecord;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.internal.Client;
import io.millrace.internal.EventId;
import io.millrace.internal.Frame;
import io.millrace.internal.Json;
import io.millrace.internal.Messages;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A table of a namespace: it keeps the newest value of each key.
 *
 * <p>Reads are repeated if the connection is lost. A change is not, because others may have changed the key meanwhile: it fails with
 * MR6123, and it is unknown whether it took place. A change with the version of the value that it replaces takes effect at most once, so it
 * can be made again: if it did take place, it fails with MR7300, which names the version that the key has.
 *
 * <p>A replica on another host may lack what a client has just seen or changed. Each answer has a {@link #token}. A read at any replica that
 * {@linkplain #after names it} shows at least what that answer showed or changed: it waits for that up to a second, and then fails with MR7331.
 */
public final class Table {
    /** How long an answer may wait for the table's database. */
    private static final long DATABASE_MS = 30_000;
    private static final String KEY_INVALID = "MR7303";
    private static final String VALUE_INVALID = "MR7304";
    private static final byte[] EMPTY = {};

    private final Client client;
    private final String name;
    /** What reads name; null for none. */
    private final byte[] after;
    private final AtomicReference<String> token;

    /** Programs get it from {@link Millrace#table}. */
    public Table(Client client, String name) {
        this(client, name, null, new AtomicReference<>());
    }

    private Table(Client client, String name, byte[] after, AtomicReference<String> token) {
        this.client = client;
        this.name = name;
        this.after = after;
        this.token = token;
    }

    /** Creates a table of these attributes for {@link Millrace#createTable}. */
    public static Table create(Client client, String name, TableOptions options) {
        Map<String, Object> order = new LinkedHashMap<>();
        order.put("do", "create-table");
        order.put("table", name);
        options.write(order);
        client.insist(Messages.MANAGE, Map.of("json", Json.text(order)), null, 0);
        return new Table(client, name);
    }

    /** Its name. */
    public String name() {
        return name;
    }

    /** The token of the last answer; empty if no answer had one yet. */
    public Optional<String> token() {
        return Optional.ofNullable(token.get());
    }

    /** This table, whose reads show at least what the answer with this token showed or changed. */
    public Table after(String token) {
        return new Table(client, name, EventId.bytes(token), this.token);
    }

    /** The value of a key with its version; empty if the key has none. */
    public Optional<TableEntry> get(String key) {
        return get(bytes(key));
    }

    /** The value of a key with its version; empty if the key has none. */
    public Optional<TableEntry> get(byte[] key) {
        return read(TableBytes.get(key)).rows().stream().findFirst().map(row -> TableEntry.of(row, true));
    }

    /** Sets the value of a key to a text in UTF-8: of a table whose values are JSON, the text of one. Returns the new version. */
    public long put(String key, String value) {
        return put(key, value, ChangeOptions.DEFAULT);
    }

    /** Sets the value of a key to a text in UTF-8. Returns the new version. */
    public long put(String key, String value, ChangeOptions options) {
        return put(bytes(key), encoded(value, VALUE_INVALID), options);
    }

    /** Sets the value of a key. Returns the new version. */
    public long put(String key, byte[] value) {
        return put(bytes(key), value, ChangeOptions.DEFAULT);
    }

    /** Sets the value of a key. Returns the new version. */
    public long put(String key, byte[] value, ChangeOptions options) {
        return put(bytes(key), value, options);
    }

    /** Sets the value of a key. Returns the new version. */
    public long put(byte[] key, byte[] value) {
        return put(key, value, ChangeOptions.DEFAULT);
    }

    /**
     * Sets the value of a key. Returns the new version. If the condition of the options is not met, fails with MR7300, which names the
     * version that the key has.
     */
    public long put(byte[] key, byte[] value, ChangeOptions options) {
        return change(TableBytes.put(key, options.condition(), options.ttlMs(), value), options).get(0).version();
    }

    /**
     * Sets the value of a key to a value of JSON: a {@link Map} with texts as keys, a {@link List}, a text, a finite number, a boolean, or
     * null. Returns the new version. Throws an {@link IllegalArgumentException} for anything else, and for values that nest deeper than 64
     * levels.
     */
    public long putJson(String key, Object value) {
        return putJson(key, value, ChangeOptions.DEFAULT);
    }

    /** The same with options. */
    public long putJson(String key, Object value, ChangeOptions options) {
        return put(key, Json.checkedText(value), options);
    }

    /** Deletes the value of a key. Returns whether it had one. */
    public boolean delete(String key) {
        return delete(bytes(key), ChangeOptions.DEFAULT);
    }

    /** Deletes the value of a key. Returns whether it had one. */
    public boolean delete(String key, ChangeOptions options) {
        return delete(bytes(key), options);
    }

    /** Deletes the value of a key. Returns whether it had one. */
    public boolean delete(byte[] key) {
        return delete(key, ChangeOptions.DEFAULT);
    }

    /**
     * Deletes the value of a key. Returns whether it had one. If the condition of the options is not met, fails with MR7300, which names
     * the version that the key has. A deletion has no lifetime.
     */
    public boolean delete(byte[] key, ChangeOptions options) {
        if (options.ttlMs() != 0) {
            throw new IllegalArgumentException("a deletion has no lifetime");
        }
        return !change(TableBytes.delete(key, options.condition()), options).isEmpty();
    }

    /** Adds 1 to the whole number that a key has, or to 0 if it has no value. Returns the sum. */
    public long increment(String key) {
        return increment(key, 1);
    }

    /** Adds to the whole number that a key has, or to 0 if it has no value. Returns the sum. */
    public long increment(String key, long amount) {
        return increment(bytes(key), amount, ChangeOptions.DEFAULT);
    }

    /** Adds to the whole number that a key has, or to 0 if it has no value. Returns the sum. */
    public long increment(String key, long amount, ChangeOptions options) {
        return increment(bytes(key), amount, options);
    }

    /**
     * Adds to the whole number that a key has, or to 0 if it has no value. Returns the sum. Fails with MR7307 if the value is no whole
     * number of 64 bits, or if the sum would be none. An increment has no condition, and keeps the lifetime of the value.
     */
    public long increment(byte[] key, long amount, ChangeOptions options) {
        if (options.condition() != TableBytes.ALWAYS || options.ttlMs() != 0) {
            throw new IllegalArgumentException("an increment has no condition and no lifetime");
        }
        byte[] sum = change(TableBytes.increment(key, amount), options).get(0).value();
        return Long.parseLong(new String(sum, StandardCharsets.US_ASCII));
    }

    /** All entries, in the order of the bytes of their keys. */
    public TableScan scan() {
        return TableScan.of(this, EMPTY);
    }

    /** The entries whose keys begin with a text, in the order of the bytes of their keys. */
    public TableScan scan(String prefix) {
        return TableScan.of(this, bytes(prefix));
    }

    /** The entries whose keys begin with these bytes, in the order of the bytes of their keys. */
    public TableScan scan(byte[] prefix) {
        return TableScan.of(this, prefix.clone());
    }

    /** The versions of a key, the newest first, as far as the namespace still has them; at most {@code limit}, and at most 1000. */
    public List<TableEntry> versions(String key, int limit) {
        return versions(bytes(key), limit);
    }

    /** The versions of a key, the newest first, as far as the namespace still has them; at most {@code limit}, and at most 1000. */
    public List<TableEntry> versions(byte[] key, int limit) {
        return versions(key, limit, 0);
    }

    /** The versions of a key below one of them, the newest first: what {@link #versions(byte[], int)} would list next. */
    public List<TableEntry> versions(byte[] key, int limit, long below) {
        if (limit < 0 || below < 0) {
            throw new IllegalArgumentException("a limit of " + limit + " versions below " + below);
        }
        return read(TableBytes.versions(key, below, limit)).rows().stream().map(row -> TableEntry.of(row, true)).toList();
    }

    /** The change that a record of the table's log is: a key with its value, or that the key was deleted. */
    public TableEntry change(LogRecord record) {
        return change(record.seqno());
    }

    /** The change that the record of the table's log with this number is. */
    public TableEntry change(long seqno) {
        return TableEntry.of(read(TableBytes.record(seqno)).rows().get(0), true);
    }

    TableBytes.Answer read(byte[] request) {
        Map<String, Object> message = message(request);
        if (after != null) {
            message.put("after", after);
        }
        return answer(client.insist(Messages.TABLE, message, null, DATABASE_MS));
    }

    private TableBytes.Answer answer(Frame frame) {
        byte[] named = frame.bytes("token");
        if (named != null) {
            token.set(EventId.text(named));
        }
        return TableBytes.answer(frame.bytes("answer"));
    }

    private List<TableBytes.Row> change(byte[] request, ChangeOptions options) {
        Map<String, Object> message = message(request);
        options.write(message);
        byte[] cause = EventId.bytes(options.cause());
        return answer(client.ask(Messages.TABLE, message, cause, DATABASE_MS)).rows();
    }

    private Map<String, Object> message(byte[] request) {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("table", name);
        message.put("request", request);
        return message;
    }

    static byte[] bytes(String key) {
        return encoded(key, KEY_INVALID);
    }

    /** Text in UTF-8. Half of a surrogate pair has no form in it: it would become another character, and a key another key. */
    private static byte[] encoded(String text, String code) {
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException error) {
            throw new MillraceException(code, "the text has half of a surrogate pair, so it has no form in UTF-8", error);
        }
    }

    @Override
    public String toString() {
        return "table " + name;
    }
}
