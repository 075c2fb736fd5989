package io.millrace.internal;

import io.millrace.MillraceException;
import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * MessagePack: values to bytes and back. Integers of 8 to 64 bits are read as {@link Long}, or as {@link BigInteger} from 2^63 on;
 * fractions as {@link Double}, bytes as {@code byte[]}, arrays as {@link List}, maps as {@link LinkedHashMap}, and extensions as
 * {@link Extension}. Numbers are written in their shortest form, so equal integers have equal bytes.
 */
public final class MessagePack {
    private static final BigInteger UNSIGNED_MAX = BigInteger.ONE.shiftLeft(64).subtract(BigInteger.ONE);

    /** An extension: a type from -128 to 127, and bytes. */
    public record Extension(int type, byte[] data) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Extension that && type == that.type && Arrays.equals(data, that.data);
        }

        @Override
        public int hashCode() {
            return 31 * type + Arrays.hashCode(data);
        }
    }

    /** Converts a value for which MessagePack has no form. */
    public interface Fallback {
        /** The value to write instead. */
        Object replace(Object value);
    }

    private MessagePack() {}

    /** The bytes of a value. */
    public static byte[] encode(Object value) {
        return encode(value, other -> {
            throw new IllegalArgumentException("a " + other.getClass().getName() + " has no form in MessagePack");
        });
    }

    /** The bytes of a value; {@code fallback} replaces the values that have no form in MessagePack. */
    public static byte[] encode(Object value, Fallback fallback) {
        Writer writer = new Writer(fallback);
        writer.write(value);
        return writer.out.toByteArray();
    }

    /** The number to write: a negative one stands for a number from 2^63 on. */
    public static Object unsigned(long bits) {
        return bits >= 0 ? (Object) bits : new BigInteger(Long.toUnsignedString(bits));
    }

    private static final class Writer {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream(128);
        private final Fallback fallback;

        Writer(Fallback fallback) {
            this.fallback = fallback;
        }

        void write(Object value) {
            if (value == null) {
                out.write(0xc0);
            } else if (value instanceof Boolean truth) {
                out.write(truth ? 0xc3 : 0xc2);
            } else if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
                integer(((Number) value).longValue());
            } else if (value instanceof Double || value instanceof Float) {
                out.write(0xcb);
                big(Double.doubleToRawLongBits(((Number) value).doubleValue()), 8);
            } else if (value instanceof CharSequence || value instanceof Character) {
                byte[] text = value.toString().getBytes(StandardCharsets.UTF_8);
                head(text.length, 0xa0, 32, 0xd9, 0xda, 0xdb);
                out.writeBytes(text);
            } else if (value instanceof byte[] bytes) {
                head(bytes.length, 0, 0, 0xc4, 0xc5, 0xc6);
                out.writeBytes(bytes);
            } else if (value instanceof BigInteger number && number.signum() >= 0 && number.compareTo(UNSIGNED_MAX) <= 0) {
                if (number.bitLength() < 64) {
                    integer(number.longValue());
                } else {
                    out.write(0xcf);
                    big(number.longValue(), 8);
                }
            } else if (value instanceof Extension extension) {
                head(extension.data.length, 0, 0, 0xc7, 0xc8, 0xc9);
                out.write(extension.type);
                out.writeBytes(extension.data);
            } else if (value instanceof List<?> list && isPlain(list)) {
                Object[] elements = list.toArray();
                head(elements.length, 0x90, 16, 0, 0xdc, 0xdd);
                for (Object element : elements) {
                    write(element);
                }
            } else if (value instanceof Map<?, ?> map && isPlain(map)) {
                List<Map.Entry<?, ?>> entries = new ArrayList<>(map.entrySet());
                head(entries.size(), 0x80, 16, 0, 0xde, 0xdf);
                for (Map.Entry<?, ?> entry : entries) {
                    write(entry.getKey());
                    write(entry.getValue());
                }
            } else {
                write(fallback.replace(value));
            }
        }

        /** Whether it is a collection of the JDK; another one may have further state. */
        private static boolean isPlain(Object collection) {
            return collection.getClass().getName().startsWith("java.util.");
        }

        private void head(int count, int fixed, int most, int one, int two, int four) {
            if (count < most) {
                out.write(fixed | count);
            } else if (one != 0 && count < 1 << 8) {
                out.write(one);
                out.write(count);
            } else if (count < 1 << 16) {
                out.write(two);
                big(count, 2);
            } else {
                out.write(four);
                big(count, 4);
            }
        }

        private void integer(long value) {
            if (value >= -32 && value < 128) {
                out.write((int) value);
            } else if (value >= 0) {
                int bytes = value < 1L << 8 ? 1 : value < 1L << 16 ? 2 : value < 1L << 32 ? 4 : 8;
                out.write(0xcc + Integer.numberOfTrailingZeros(bytes));
                big(value, bytes);
            } else {
                int bytes = value >= Byte.MIN_VALUE ? 1 : value >= Short.MIN_VALUE ? 2 : value >= Integer.MIN_VALUE ? 4 : 8;
                out.write(0xd0 + Integer.numberOfTrailingZeros(bytes));
                big(value, bytes);
            }
        }

        private void big(long value, int bytes) {
            for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
                out.write((int) (value >>> shift));
            }
        }
    }

    /** The value of these bytes, in which arrays and maps nest at most {@code depth} deep; nothing may follow it. */
    public static Object decode(byte[] bytes, int depth) {
        ByteBuffer from = ByteBuffer.wrap(bytes);
        Object value = read(from, depth);
        if (from.hasRemaining()) {
            throw malformed(from.remaining() + " bytes follow the value");
        }
        return value;
    }

    /** The next value of a buffer. */
    static Object read(ByteBuffer from, int depth) {
        try {
            return value(from, depth);
        } catch (BufferUnderflowException error) {
            throw malformed("it ends within a value");
        }
    }

    private static Object value(ByteBuffer from, int depth) {
        int marker = from.get() & 0xff;
        if (marker < 0x80) {
            return (long) marker;
        } else if (marker >= 0xe0) {
            return (long) (byte) marker;
        } else if (marker < 0x90) {
            return map(from, marker & 15, depth);
        } else if (marker < 0xa0) {
            return array(from, marker & 15, depth);
        } else if (marker < 0xc0) {
            return text(from, marker & 31);
        }
        return switch (marker) {
            case 0xc0 -> null;
            case 0xc2 -> false;
            case 0xc3 -> true;
            case 0xc4 -> bytes(from, unsigned(from, 1));
            case 0xc5 -> bytes(from, unsigned(from, 2));
            case 0xc6 -> bytes(from, unsigned(from, 4));
            case 0xc7 -> extension(from, unsigned(from, 1));
            case 0xc8 -> extension(from, unsigned(from, 2));
            case 0xc9 -> extension(from, unsigned(from, 4));
            case 0xca -> (double) from.getFloat();
            case 0xcb -> from.getDouble();
            case 0xcc -> unsigned(from, 1);
            case 0xcd -> unsigned(from, 2);
            case 0xce -> unsigned(from, 4);
            case 0xcf -> unsigned(from.getLong());
            case 0xd0 -> (long) from.get();
            case 0xd1 -> (long) from.getShort();
            case 0xd2 -> (long) from.getInt();
            case 0xd3 -> from.getLong();
            case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8 -> extension(from, 1L << marker - 0xd4);
            case 0xd9 -> text(from, unsigned(from, 1));
            case 0xda -> text(from, unsigned(from, 2));
            case 0xdb -> text(from, unsigned(from, 4));
            case 0xdc -> array(from, unsigned(from, 2), depth);
            case 0xdd -> array(from, unsigned(from, 4), depth);
            case 0xde -> map(from, unsigned(from, 2), depth);
            case 0xdf -> map(from, unsigned(from, 4), depth);
            default -> throw malformed("no value begins with 0x" + Integer.toHexString(marker));
        };
    }

    private static long unsigned(ByteBuffer from, int bytes) {
        return switch (bytes) {
            case 1 -> from.get() & 0xffL;
            case 2 -> from.getShort() & 0xffffL;
            default -> from.getInt() & 0xffff_ffffL;
        };
    }

    private static byte[] bytes(ByteBuffer from, long length) {
        if (length > from.remaining()) {
            throw malformed("it ends within a value");
        }
        byte[] bytes = new byte[(int) length];
        from.get(bytes);
        return bytes;
    }

    private static String text(ByteBuffer from, long length) {
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT).decode(ByteBuffer.wrap(bytes(from, length))).toString();
        } catch (CharacterCodingException error) {
            throw malformed("a text is not UTF-8");
        }
    }

    private static Extension extension(ByteBuffer from, long length) {
        return new Extension(from.get(), bytes(from, length));
    }

    private static List<Object> array(ByteBuffer from, long count, int depth) {
        checkNested(depth);
        // Each element takes a byte at least, so a length alone reserves no memory.
        List<Object> found = new ArrayList<>((int) Math.min(count, from.remaining()));
        for (long at = 0; at < count; at++) {
            found.add(value(from, depth - 1));
        }
        return found;
    }

    private static Map<Object, Object> map(ByteBuffer from, long count, int depth) {
        checkNested(depth);
        Map<Object, Object> found = new LinkedHashMap<>();
        for (long at = 0; at < count; at++) {
            Object key = value(from, depth - 1);
            if (found.containsKey(key)) {
                throw malformed("key '" + key + "' occurs twice");
            }
            found.put(key, value(from, depth - 1));
        }
        return found;
    }

    private static void checkNested(int depth) {
        if (depth == 0) {
            throw malformed("it nests too deep");
        }
    }

    /** The error for bytes that are not what they should be. */
    public static MillraceException malformed(String why) {
        return new MillraceException("MR6003", why);
    }
}
