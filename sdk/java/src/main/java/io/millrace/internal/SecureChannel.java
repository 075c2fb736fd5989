package io.millrace.internal;

import io.millrace.MillraceException;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import javax.crypto.Cipher;
import javax.crypto.spec.IvParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** The client's side of the encrypted channel of spec/formats/capability.md. No I/O. */
public final class SecureChannel {
    /** The longest record that this client accepts. */
    static final int RECORD_MAX = 16384;
    static final int NONCE_BYTES = 16;
    /** The length of M2 without its two bytes of length. */
    static final int M2_BYTES = 35;
    private static final int VERSION = 1;
    private static final int LENGTH_BYTES = 2;
    private static final int TAG_BYTES = 16;
    private static final int MAC_BYTES = 16;
    private static final int RECORD_MIN = 64;
    private static final int KEY_BYTES = 32;
    private static final int IV_BYTES = 12;
    private static final byte[] MAGIC = "MR/P".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] INFO = "millrace channel 1".getBytes(StandardCharsets.US_ASCII);

    /** The keys of one direction and how many records it had. */
    private static final class Direction {
        private final byte[] key;
        private final byte[] iv;
        private long count;

        Direction(byte[] key, byte[] iv) {
            this.key = key;
            this.iv = iv;
        }

        byte[] run(int mode, byte[] length, byte[] data, int from, int bytes) throws GeneralSecurityException {
            ByteBuffer nonce = ByteBuffer.wrap(iv.clone()).order(ByteOrder.LITTLE_ENDIAN);
            nonce.putLong(IV_BYTES - 8, nonce.getLong(IV_BYTES - 8) ^ count);
            count++;
            Cipher cipher = Cipher.getInstance("ChaCha20-Poly1305");
            cipher.init(mode, new SecretKeySpec(key, "ChaCha20"), new IvParameterSpec(nonce.array()));
            cipher.updateAAD(length);
            return cipher.doFinal(data, from, bytes);
        }
    }

    private final Direction out;
    private final Direction in;
    private final int plainMax;

    private SecureChannel(Direction out, Direction in, int plainMax) {
        this.out = out;
        this.in = in;
        this.plainMax = plainMax;
    }

    /** The client's first message. */
    public static byte[] first(Token token, byte[] nonce, int recordMax) {
        byte[] body = token.body();
        int length = 3 + NONCE_BYTES + body.length;
        ByteBuffer m1 = ByteBuffer.allocate(MAGIC.length + LENGTH_BYTES + length).order(ByteOrder.LITTLE_ENDIAN);
        return m1.put(MAGIC).putShort((short) length).put((byte) VERSION).putShort((short) recordMax).put(nonce).put(body).array();
    }

    /** The channel, once the host has answered M1 with M2; refused unless the host has the authority's key. */
    public static SecureChannel open(Token token, byte[] m1, byte[] m2) {
        if (m2.length == LENGTH_BYTES && m2[0] == 0 && m2[1] == 0) {
            throw new MillraceException("MR6138", "the host refused the channel");
        }
        ByteBuffer fields = ByteBuffer.wrap(m2).order(ByteOrder.LITTLE_ENDIAN);
        if (m2.length != LENGTH_BYTES + M2_BYTES || fields.getShort() != M2_BYTES || fields.get() != VERSION) {
            throw new MillraceException("MR6139", "the host's answer is malformed");
        }
        int recordMax = fields.getShort() & 0xffff;
        if (recordMax < RECORD_MIN || recordMax > RECORD_MAX) {
            throw new MillraceException("MR6139", "the host takes records of " + recordMax + " bytes");
        }
        byte[] transcript = sha256(m1, Arrays.copyOf(m2, m2.length - MAC_BYTES));
        byte[] master = Token.hmac(transcript, token.use("channel"));
        byte[] keys = expand(master, 3 * KEY_BYTES + 2 * IV_BYTES);
        byte[] mac = Arrays.copyOf(Token.hmac(Arrays.copyOf(keys, KEY_BYTES), transcript), MAC_BYTES);
        if (!MessageDigest.isEqual(mac, Arrays.copyOfRange(m2, m2.length - MAC_BYTES, m2.length))) {
            throw new MillraceException("MR6138", "the host does not have the key of the capability's authority");
        }
        int ivs = 3 * KEY_BYTES;
        Direction client = new Direction(Arrays.copyOfRange(keys, KEY_BYTES, 2 * KEY_BYTES), Arrays.copyOfRange(keys, ivs, ivs + IV_BYTES));
        byte[] hostIv = Arrays.copyOfRange(keys, ivs + IV_BYTES, ivs + 2 * IV_BYTES);
        Direction host = new Direction(Arrays.copyOfRange(keys, 2 * KEY_BYTES, 3 * KEY_BYTES), hostIv);
        return new SecureChannel(client, host, recordMax - TAG_BYTES);
    }

    private static byte[] sha256(byte[]... parts) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (byte[] part : parts) {
                digest.update(part);
            }
            return digest.digest();
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    /** HKDF-Expand of RFC 5869. */
    private static byte[] expand(byte[] key, int bytes) {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        byte[] block = {};
        for (int at = 1; found.size() < bytes; at++) {
            block = Token.hmac(key, block, INFO, new byte[] {(byte) at});
            found.writeBytes(block);
        }
        return Arrays.copyOf(found.toByteArray(), bytes);
    }

    /** Encrypts these bytes as records for the host. */
    public byte[] seal(byte[] plain) {
        ByteArrayOutputStream sealed = new ByteArrayOutputStream(plain.length + plain.length / plainMax * 18 + 64);
        int from = 0;
        do {
            int bytes = Math.min(plainMax, plain.length - from);
            int length = bytes + TAG_BYTES;
            byte[] head = {(byte) length, (byte) (length >>> 8)};
            try {
                sealed.writeBytes(head);
                sealed.writeBytes(out.run(Cipher.ENCRYPT_MODE, head, plain, from, bytes));
            } catch (GeneralSecurityException error) {
                throw new IllegalStateException(error);
            }
            from += bytes;
        } while (from < plain.length);
        return sealed.toByteArray();
    }

    /** The length of the record that begins with these two bytes. */
    public static int recordLength(byte[] head) {
        int length = head[0] & 0xff | (head[1] & 0xff) << 8;
        if (length < TAG_BYTES || length > RECORD_MAX) {
            throw new MillraceException("MR6139", "a record of " + length + " bytes");
        }
        return length;
    }

    /** Decrypts a record of the host, given with its two bytes of length. */
    public byte[] open(byte[] head, byte[] record) {
        try {
            return in.run(Cipher.DECRYPT_MODE, head, record, 0, record.length);
        } catch (GeneralSecurityException error) {
            throw new MillraceException("MR6139", "a record cannot be opened", error);
        }
    }
}
