package io.millrace.shared;

import io.millrace.internal.MessagePack;
import io.millrace.internal.MessagePack.Extension;
import io.millrace.space.Values;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Encodes fields, arguments and results of shared classes without changing their types. Only Java reads them, so numbers that are not of
 * a primitive type are serialized and keep their class, and so does each element of a collection.
 */
public final class Exact {
    private static final int SERIALIZED = 3;
    private static final int DEPTH_MAX = 4;
    private static final Map<Class<?>, Class<?>> WRAPPERS = Map.of(int.class, Integer.class, long.class, Long.class, short.class, Short.class,
            byte.class, Byte.class, double.class, Double.class, float.class, Float.class, boolean.class, Boolean.class, char.class,
            Character.class);

    private Exact() {}

    /** The class whose objects a variable of this type has. */
    static Class<?> boxed(Class<?> type) {
        return WRAPPERS.getOrDefault(type, type);
    }

    /** The bytes of a value that a variable of this type has. */
    public static byte[] encode(Class<?> type, Object value) {
        if (type.isPrimitive()) {
            return MessagePack.encode(value instanceof Character letter ? (Object) (long) letter : value);
        } else if (value == null || value instanceof String || value instanceof Long || value instanceof Double || value instanceof Boolean
                || value instanceof byte[]) {
            return MessagePack.encode(value);
        }
        return MessagePack.encode(new Extension(SERIALIZED, Values.serialize(value)));
    }

    /** The value of these bytes for a variable of this type. */
    public static Object decode(Class<?> type, byte[] bytes) {
        return as(type, Values.decode(bytes));
    }

    /** Converts a number to the type of the variable; other values are unchanged. */
    public static Object as(Class<?> type, Object value) {
        if (type == char.class && value instanceof Long code) {
            return (char) code.longValue();
        }
        return Values.as(boxed(type), value);
    }

    /** The bytes of arguments for parameters of these types. */
    static byte[] array(Class<?>[] types, Object[] values) {
        List<byte[]> encoded = new ArrayList<>();
        for (int at = 0; at < types.length; at++) {
            encoded.add(encode(types[at], values[at]));
        }
        return MessagePack.encode(encoded);
    }

    /** The encoded arguments of these bytes. */
    public static List<byte[]> elements(byte[] bytes) {
        return ((List<?>) MessagePack.decode(bytes, DEPTH_MAX)).stream().map(element -> (byte[]) element).toList();
    }
}
