package io.millrace.table;

import io.millrace.internal.Json;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/**
 * A version of a key of a table.
 *
 * @param keyBytes the bytes of the key
 * @param data the bytes of the value; null if the key was deleted with this version, or if the scan left values out
 * @param version its version: the number of its record in the table's log
 * @param time when it was written
 * @param expires when it expires; null for never
 * @param deleted whether the key was deleted with this version
 */
public record TableEntry(byte[] keyBytes, byte[] data, long version, Instant time, Instant expires, boolean deleted) {
    private static final long SECOND_US = 1_000_000;

    static TableEntry of(TableBytes.Row row, boolean hasValue) {
        byte[] data = hasValue && !row.deleted() ? row.value() : null;
        Instant expires = row.expiresUs() == 0 ? null : instant(row.expiresUs());
        return new TableEntry(row.key(), data, row.version(), instant(row.timeUs()), expires, row.deleted());
    }

    private static Instant instant(long us) {
        Instant seconds = Instant.ofEpochSecond(Long.divideUnsigned(us, SECOND_US));
        return seconds.plus(Long.remainderUnsigned(us, SECOND_US), ChronoUnit.MICROS);
    }

    /** The key as text; for a table whose keys are text. */
    public String key() {
        return new String(keyBytes, StandardCharsets.UTF_8);
    }

    /** The bytes of the value as UTF-8 text; null if there are none. */
    public String text() {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    /**
     * The value of JSON that the bytes are: a {@link java.util.Map}, a {@link java.util.List}, a text, a {@link Long} or {@link
     * java.math.BigInteger} or {@link Double}, a boolean, or null; also null if there are no bytes. Throws an {@link
     * IllegalArgumentException} if the bytes are no JSON, or if it nests deeper than 64 levels.
     */
    public Object json() {
        return data == null ? null : Json.parse(text());
    }

    @Override
    public String toString() {
        return "version " + version + " of key " + key() + (deleted ? ", deleted" : "");
    }
}
