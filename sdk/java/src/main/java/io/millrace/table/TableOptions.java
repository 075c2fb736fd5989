package io.millrace.table;

import java.time.Duration;
import java.util.Locale;
import java.util.Map;

/**
 * The attributes of a new table. By default, its keys are text and its values are JSON that does not expire, and the 10000 newest changes
 * can be read as a log.
 */
public final class TableOptions {
    /** The default attributes. */
    public static final TableOptions DEFAULT = new TableOptions(Codec.JSON, Keys.TEXT, 0, null);

    /** What the values of a table are. The host refuses other values (MR7304). */
    public enum Codec {
        /** One value of JSON. */
        JSON,
        /** Text in UTF-8. */
        TEXT,
        /** Any bytes. */
        BYTES
    }

    /** What the keys of a table are. The host refuses other keys (MR7303). */
    public enum Keys {
        /** Text in UTF-8 without the character NUL. */
        TEXT,
        /** Any bytes. */
        BYTES
    }

    private final Codec codec;
    private final Keys keys;
    private final long ttlMs;
    private final Long history;

    private TableOptions(Codec codec, Keys keys, long ttlMs, Long history) {
        this.codec = codec;
        this.keys = keys;
        this.ttlMs = ttlMs;
        this.history = history;
    }

    /** These attributes with a codec of the values. */
    public TableOptions withCodec(Codec codec) {
        return new TableOptions(codec, keys, ttlMs, history);
    }

    /** These attributes with a kind of keys. */
    public TableOptions withKeys(Keys keys) {
        return new TableOptions(codec, keys, ttlMs, history);
    }

    /** These attributes with the time after which a value expires that is put without a lifetime of its own. */
    public TableOptions withTtl(Duration ttl) {
        return new TableOptions(codec, keys, ChangeOptions.millis(ttl), history);
    }

    /**
     * These attributes with the number of the newest changes that can be read as a log; 0 for all until they are trimmed. The newest value
     * of each key is always kept.
     */
    public TableOptions withHistory(long history) {
        if (history < 0) {
            throw new IllegalArgumentException("a history of " + history + " changes");
        }
        return new TableOptions(codec, keys, ttlMs, history);
    }

    void write(Map<String, Object> order) {
        order.put("codec", codec.name().toLowerCase(Locale.ROOT));
        order.put("keys", keys.name().toLowerCase(Locale.ROOT));
        order.put("ttl_ms", ttlMs);
        if (history != null) {
            order.put("history", history);
        }
    }
}
