package io.millrace.shared;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** A digest of the code of a class: of its class file and those of its superclasses, without line numbers. */
final class ClassCode {
    private static final int BYTES = 16;
    private static final String LINES = "LineNumberTable";
    private static final String CODE = "Code";
    private static final int EXCEPTION_BYTES = 8;
    private static final int UTF8 = 1;
    private static final int LONG = 5;
    private static final int DOUBLE = 6;
    /** By tag of a constant: its length. */
    private static final int[] CONSTANT_BYTES = {0, 0, 0, 4, 4, 8, 8, 2, 2, 4, 4, 4, 4, 0, 0, 3, 2, 4, 4, 2, 2};

    private final MessageDigest digest;
    private final DataInputStream in;
    private final Set<Integer> lines = new HashSet<>();
    private final Set<Integer> codes = new HashSet<>();

    private ClassCode(MessageDigest digest, byte[] file) {
        this.digest = digest;
        in = new DataInputStream(new ByteArrayInputStream(file));
    }

    /** The digest of the code of this class. */
    static byte[] of(Class<?> type) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (Class<?> at = type; at.getClassLoader() != null; at = at.getSuperclass()) {
                new ClassCode(digest, file(at)).read();
            }
            return Arrays.copyOf(digest.digest(), BYTES);
        } catch (IOException error) {
            throw new UncheckedIOException("the class file of " + type.getName() + " cannot be read", error);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static byte[] file(Class<?> type) throws IOException {
        String name = type.getName();
        try (InputStream file = type.getResourceAsStream(name.substring(name.lastIndexOf('.') + 1) + ".class")) {
            if (file == null) {
                throw new IOException("there is none");
            }
            return file.readAllBytes();
        }
    }

    private byte[] take(int bytes) throws IOException {
        byte[] taken = new byte[bytes];
        in.readFully(taken);
        digest.update(taken);
        return taken;
    }

    private int two() throws IOException {
        byte[] taken = take(2);
        return (taken[0] & 0xff) << 8 | taken[1] & 0xff;
    }

    private void read() throws IOException {
        // The magic number and the version of the format.
        in.readFully(new byte[8]);
        constants();
        take(6);
        take(2 * two());
        for (int kind = 0; kind < 2; kind++) {
            for (int left = two(); left > 0; left--) {
                take(6);
                attributes();
            }
        }
        attributes();
    }

    private void constants() throws IOException {
        int count = two();
        for (int at = 1; at < count; at++) {
            int tag = take(1)[0];
            if (tag == UTF8) {
                String text = new String(take(two()), StandardCharsets.UTF_8);
                if (text.equals(LINES)) {
                    lines.add(at);
                } else if (text.equals(CODE)) {
                    codes.add(at);
                }
            } else if (tag > 0 && tag < CONSTANT_BYTES.length && CONSTANT_BYTES[tag] > 0) {
                take(CONSTANT_BYTES[tag]);
            } else {
                throw new IOException("a constant of kind " + tag);
            }
            at += tag == LONG || tag == DOUBLE ? 1 : 0;
        }
    }

    private void attributes() throws IOException {
        for (int left = two(); left > 0; left--) {
            int name = in.readUnsignedShort();
            int bytes = in.readInt();
            if (lines.contains(name)) {
                in.skipNBytes(bytes);
            } else if (codes.contains(name)) {
                take(4);
                int code = in.readInt();
                take(code);
                take(EXCEPTION_BYTES * two());
                attributes();
            } else {
                digest.update((byte) name);
                take(bytes);
            }
        }
    }
}
