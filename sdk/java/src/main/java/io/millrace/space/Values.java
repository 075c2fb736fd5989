package io.millrace.space;

import io.millrace.internal.MessagePack;
import io.millrace.internal.MessagePack.Extension;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Encodes values of calls of shared objects. Numbers, booleans, text, bytes, lists and maps have an encoding that every language can
 * read; other values are serialized by Java. The host does not deserialize values; only programs and tasks with a right to the object do.
 */
public final class Values {
    /** Extensions of MessagePack: a pickle of Python, the elements of a tuple, an object of Java. */
    private static final int PICKLE = 1;
    private static final int TUPLE = 2;
    private static final int SERIALIZED = 3;
    private static final int DEPTH_MAX = 512;

    private Values() {}

    /** The bytes of a value. */
    public static byte[] encode(Object value) {
        return MessagePack.encode(value, other -> new Extension(SERIALIZED, serialize(other)));
    }

    /** The bytes of an array of values. */
    public static byte[] array(Object... values) {
        return encode(Arrays.asList(values));
    }

    /** The value of these bytes. */
    public static Object decode(byte[] bytes) {
        return opened(MessagePack.decode(bytes, DEPTH_MAX));
    }

    private static Object opened(Object value) {
        if (value instanceof Extension extension) {
            return switch (extension.type()) {
                case TUPLE -> Collections.unmodifiableList((List<?>) decode(extension.data()));
                case SERIALIZED -> deserialize(extension.data());
                case PICKLE -> throw new IllegalStateException("the value is a pickle, which only Python can read");
                default -> throw new IllegalStateException("the value is an unknown extension, " + extension.type());
            };
        } else if (value instanceof List<?> list) {
            @SuppressWarnings("unchecked")
            List<Object> elements = (List<Object>) list;
            elements.replaceAll(Values::opened);
        } else if (value instanceof Map<?, ?> map) {
            Map<Object, Object> found = new LinkedHashMap<>();
            map.forEach((key, element) -> found.put(opened(key), opened(element)));
            return found;
        }
        return value;
    }

    /** A key of a map or an element of a set, as the host can find it again: equal numbers are one key, also {@code 1L}, {@code 1.0} and true. */
    public static Object key(Object key) {
        boolean plain = key instanceof String || key instanceof Boolean || key instanceof byte[] || key instanceof Long
                || key instanceof Integer || key instanceof Short || key instanceof Byte || key instanceof Double || key instanceof Float;
        if (key == null) {
            throw new NullPointerException("a key must not be null");
        } else if (!plain) {
            String name = key.getClass().getName();
            throw new IllegalArgumentException("keys of shared objects are numbers, text, bytes and booleans, not " + name);
        }
        return key;
    }

    /** The value as this class has it: numbers are converted, all others are left as they are. */
    public static Object as(Class<?> type, Object value) {
        if (type == null || !(value instanceof Number number) || type.isInstance(value)) {
            return value;
        } else if (type == Integer.class) {
            return Math.toIntExact(number.longValue());
        } else if (type == Short.class) {
            return number.shortValue();
        } else if (type == Byte.class) {
            return number.byteValue();
        } else if (type == Double.class) {
            return number.doubleValue();
        } else if (type == Float.class) {
            return number.floatValue();
        }
        return value;
    }

    /** An object as Java serializes it. */
    public static byte[] serialize(Object value) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (ObjectOutputStream objects = new ObjectOutputStream(out)) {
            objects.writeObject(value);
        } catch (IOException error) {
            throw new IllegalArgumentException("it cannot be serialized: " + error, error);
        }
        return out.toByteArray();
    }

    /** The object that Java serialized. */
    public static Object deserialize(byte[] bytes) {
        try (ObjectInputStream objects = new Reader(new ByteArrayInputStream(bytes))) {
            return objects.readObject();
        } catch (IOException | ClassNotFoundException error) {
            throw new IllegalStateException("it cannot be deserialized: " + error, error);
        }
    }

    /** Looks classes up as the program's own thread does. */
    private static final class Reader extends ObjectInputStream {
        Reader(InputStream from) throws IOException {
            super(from);
        }

        @Override
        protected Class<?> resolveClass(ObjectStreamClass description) throws IOException, ClassNotFoundException {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            try {
                return loader == null ? super.resolveClass(description) : Class.forName(description.getName(), false, loader);
            } catch (ClassNotFoundException error) {
                // Primitive types have names of their own.
                return super.resolveClass(description);
            }
        }

        @Override
        protected Class<?> resolveProxyClass(String[] names) throws IOException, ClassNotFoundException {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            Class<?>[] interfaces = new Class<?>[names.length];
            for (int at = 0; at < names.length; at++) {
                interfaces[at] = Class.forName(names[at], false, loader);
            }
            return Proxy.newProxyInstance(loader, interfaces, (proxy, method, arguments) -> null).getClass();
        }
    }
}
