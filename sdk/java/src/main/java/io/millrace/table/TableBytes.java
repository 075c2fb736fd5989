package io.millrace.table;

import io.millrace.internal.MessagePack;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The bytes of requests to tables and of their answers, as {@code spec/protocol/table.md} defines them. */
public final class TableBytes {
    /** The condition of a change that has none. */
    public static final long ALWAYS = -1;
    /** The condition that the key has no value. */
    public static final long ABSENT = 0;
    /** Most entries of an answer. */
    public static final int PAGE = 1000;

    private static final int KIND_GET = 0;
    private static final int KIND_PUT = 1;
    private static final int KIND_DELETE = 2;
    private static final int KIND_INCREMENT = 3;
    private static final int KIND_SCAN = 4;
    private static final int KIND_VERSIONS = 5;
    private static final int KIND_RECORD = 7;

    private static final int LENGTH_MAX = 0xffff;
    private static final int LENGTH_BYTES = 2;
    private static final int DELETED = 1;

    /**
     * An entry of an answer.
     *
     * @param key the key
     * @param version the number of its record
     * @param expiresUs when it expires, in microseconds since 1970; 0 for never
     * @param timeUs when it was written, in microseconds since 1970
     * @param deleted whether the key was deleted with this version
     * @param value the value; empty if values are left out
     */
    public record Row(byte[] key, long version, long expiresUs, long timeUs, boolean deleted, byte[] value) {}

    /**
     * An answer.
     *
     * @param more whether there are more entries
     * @param rows the entries
     */
    public record Answer(boolean more, List<Row> rows) {}

    private TableBytes() {}

    public static byte[] get(byte[] key) {
        return request(KIND_GET, 0, key).array();
    }

    public static byte[] put(byte[] key, long condition, long ttlMs, byte[] value) {
        return request(KIND_PUT, 2 * Long.BYTES + value.length, key).putLong(condition).putLong(ttlMs).put(value).array();
    }

    public static byte[] delete(byte[] key, long condition) {
        return request(KIND_DELETE, Long.BYTES, key).putLong(condition).array();
    }

    public static byte[] increment(byte[] key, long amount) {
        return request(KIND_INCREMENT, Long.BYTES, key).putLong(amount).array();
    }

    public static byte[] scan(byte[] from, byte[] to, int limit, boolean keysOnly) {
        return request(KIND_SCAN, Integer.BYTES + 1, from, to).putInt(limit).put((byte) (keysOnly ? 1 : 0)).array();
    }

    public static byte[] versions(byte[] key, long below, int limit) {
        return request(KIND_VERSIONS, Long.BYTES + Integer.BYTES, key).putLong(below).putInt(limit).array();
    }

    public static byte[] record(long seqno) {
        return request(KIND_RECORD, Long.BYTES).putLong(seqno).array();
    }

    /** A request that begins with keys, and has room for more bytes. */
    private static ByteBuffer request(int kind, int more, byte[]... keys) {
        int bytes = 1 + more;
        for (byte[] key : keys) {
            bytes += LENGTH_BYTES + counted(key);
        }
        ByteBuffer request = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN).put((byte) kind);
        for (byte[] key : keys) {
            request.putShort((short) counted(key)).put(key, 0, counted(key));
        }
        return request;
    }

    /** How much of a key is sent. One that is longer than its length can say is longer than any key, so its beginning is refused, too. */
    private static int counted(byte[] key) {
        return Math.min(key.length, LENGTH_MAX);
    }

    /** The answer with these bytes. */
    public static Answer answer(byte[] bytes) {
        ByteBuffer from = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        try {
            boolean more = flag(from);
            List<Row> rows = new ArrayList<>();
            while (from.hasRemaining()) {
                byte[] key = bytes(from, Short.toUnsignedInt(from.getShort()));
                rows.add(new Row(key, from.getLong(), from.getLong(), from.getLong(), flag(from), bytes(from, from.getInt())));
            }
            return new Answer(more, rows);
        } catch (BufferUnderflowException error) {
            throw MessagePack.malformed("the answer of a table ends within an entry");
        }
    }

    private static boolean flag(ByteBuffer from) {
        byte flag = from.get();
        if (flag != 0 && flag != DELETED) {
            throw MessagePack.malformed("the answer of a table has a flag " + Byte.toUnsignedInt(flag));
        }
        return flag == DELETED;
    }

    private static byte[] bytes(ByteBuffer from, int length) {
        // A length of 2^31 or more is negative here.
        if (length < 0 || length > from.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] found = new byte[length];
        from.get(found);
        return found;
    }

    /** The first bytes that come after all those with this prefix; empty if there are none. */
    public static byte[] after(byte[] prefix) {
        int kept = prefix.length;
        while (kept > 0 && prefix[kept - 1] == (byte) 0xff) {
            kept--;
        }
        byte[] end = Arrays.copyOf(prefix, kept);
        if (kept > 0) {
            end[kept - 1]++;
        }
        return end;
    }

    /** The smallest key that comes after this one. */
    public static byte[] next(byte[] key) {
        return Arrays.copyOf(key, key.length + 1);
    }
}
