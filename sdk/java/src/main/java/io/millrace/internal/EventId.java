package io.millrace.internal;

import io.millrace.MillraceException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Ids of events: NAMESPACE-EPOCH-SEQUENCE in hexadecimal, and 16 bytes. */
public final class EventId {
    private static final Pattern TEXT = Pattern.compile("([0-9a-f]{1,12})-([0-9a-f]{1,6})-([0-9a-f]{1,14})");
    private static final long SEQUENCE_MASK = (1L << 56) - 1;

    private EventId() {}

    /** The text of an id; null for none. */
    public static String text(byte[] id) {
        if (id == null) {
            return null;
        }
        ByteBuffer halves = ByteBuffer.wrap(id).order(ByteOrder.LITTLE_ENDIAN);
        long low = halves.getLong();
        long high = halves.getLong();
        if (low == 0 && high == 0) {
            return null;
        }
        return String.format("%012x-%x-%x", high >>> 16, (high & 0xffff) << 8 | low >>> 56, low & SEQUENCE_MASK);
    }

    /** The bytes of an id; null for none. */
    public static byte[] bytes(String text) {
        if (text == null || text.equals("-")) {
            return null;
        }
        Matcher parts = TEXT.matcher(text);
        if (!parts.matches()) {
            throw new MillraceException("MR1005", "'" + text + "' is not the id of an event");
        }
        long epoch = Long.parseLong(parts.group(2), 16);
        long high = Long.parseLong(parts.group(1), 16) << 16 | epoch >>> 8;
        long low = epoch << 56 | Long.parseLong(parts.group(3), 16);
        return ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN).putLong(low).putLong(high).array();
    }
}
