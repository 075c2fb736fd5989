package io.millrace.internal;

import io.millrace.MillraceException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A frame of the wire protocol: four bytes with the length, then the array [type, request, hlc, cause, message, slot].
 *
 * @param type which message it is
 * @param request the request that it makes or answers; 0 concerns the whole connection
 * @param hlc the sender's clock, 64 bits without a sign; 0 if it has none
 * @param cause the id of the event that caused it, 16 bytes; null for none
 * @param message its keys and values
 * @param slot which capability asks
 */
public record Frame(int type, long request, long hlc, byte[] cause, Map<String, Object> message, int slot) {
    /** The longest body. */
    public static final int BYTES_MAX = 16_842_752;
    /** The longest body before WELCOME. */
    public static final int HELLO_BYTES_MAX = 16 << 10;
    static final int LENGTH_BYTES = 4;
    private static final int ID_BYTES = 16;
    private static final int SLOT_MAX = 15;
    /** How deep arrays and maps of a message may nest. A body is the array around the message. */
    private static final int DEPTH_MAX = 8;

    /** A frame without a cause, for slot 0. */
    public Frame(int type, long request, long hlc, Map<String, Object> message) {
        this(type, request, hlc, null, message, 0);
    }

    /** The bytes of the frame, with their length. */
    public byte[] encode() {
        List<Object> elements = new ArrayList<>();
        elements.add(type);
        elements.add(MessagePack.unsigned(request));
        elements.add(MessagePack.unsigned(hlc));
        elements.add(cause);
        elements.add(message);
        if (slot != 0) {
            elements.add(slot);
        }
        byte[] body = MessagePack.encode(elements);
        if (body.length > BYTES_MAX) {
            throw new MillraceException("MR6002", "a request of " + body.length + " bytes; the limit is " + BYTES_MAX);
        }
        ByteBuffer frame = ByteBuffer.allocate(LENGTH_BYTES + body.length).order(ByteOrder.LITTLE_ENDIAN);
        return frame.putInt(body.length).put(body).array();
    }

    /** The length in the first four bytes. */
    static int length(byte[] head, int max) {
        int length = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getInt();
        if (length < 0 || length > max) {
            throw new MillraceException("MR6002", "a frame of " + Integer.toUnsignedString(length) + " bytes; the limit is " + max);
        }
        return length;
    }

    /** The frame with this body. */
    public static Frame decode(byte[] body) {
        if (!(MessagePack.decode(body, DEPTH_MAX + 1) instanceof List<?> elements) || elements.size() < 5 || elements.size() > 6) {
            throw MessagePack.malformed("a frame is an array of five or six elements");
        }
        long type = number(elements.get(0));
        if (type < 0 || type > 255) {
            throw new MillraceException("MR6004", "message type " + Long.toUnsignedString(type));
        }
        Object cause = elements.get(3);
        if (cause != null && !(cause instanceof byte[] id && id.length == ID_BYTES)) {
            throw MessagePack.malformed("a cause is an event id of 16 bytes");
        }
        int slot = 0;
        if (elements.size() == 6) {
            long given = number(elements.get(5));
            if (given < 1 || given > SLOT_MAX) {
                throw MessagePack.malformed("a slot is 1 to " + SLOT_MAX);
            }
            slot = (int) given;
        }
        Map<String, Object> message = Messages.keyed(elements.get(4));
        return new Frame((int) type, number(elements.get(1)), number(elements.get(2)), (byte[]) cause, message, slot);
    }

    /** A number of 64 bits without a sign. */
    static long number(Object value) {
        if (value instanceof Long number && number >= 0) {
            return number;
        } else if (value instanceof BigInteger number) {
            return number.longValue();
        }
        throw MessagePack.malformed("a number without a sign is expected");
    }

    /** The message; refused unless it has the keys and types that the protocol defines for its type. */
    public Frame checked() {
        Messages.check(type, message);
        return this;
    }

    /** A number of the message; 0 if it is missing. */
    public long number(String key) {
        Object value = message.get(key);
        return value == null ? 0 : number(value);
    }

    /** A text of the message; empty if it is missing. */
    public String text(String key) {
        return message.get(key) instanceof String text ? text : "";
    }

    /** Bytes of the message; null if they are missing. */
    public byte[] bytes(String key) {
        return message.get(key) instanceof byte[] bytes ? bytes : null;
    }

    /** A boolean of the message; false if it is not there. */
    public boolean truth(String key) {
        return Boolean.TRUE.equals(message.get(key));
    }

    /** The maps of an array of the message. */
    public List<Map<String, Object>> maps(String key) {
        List<Map<String, Object>> found = new ArrayList<>();
        if (message.get(key) instanceof List<?> list) {
            list.forEach(element -> found.add(Messages.keyed(element)));
        }
        return found;
    }
}
