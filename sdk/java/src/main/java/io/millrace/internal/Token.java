package io.millrace.internal;

import io.millrace.MillraceException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** A capability: a body, which is sent, and a signature, of which only derived keys are used. */
public final class Token {
    private static final String PREFIX = "mr1_";
    private static final int SIGNATURE_BYTES = 32;
    private static final int BYTES_MAX = 1024;
    private static final int FILE_BYTES_MAX = 64 << 10;

    private final byte[] body;
    private final byte[] signature;

    private Token(byte[] body, byte[] signature) {
        this.body = body;
        this.signature = signature;
    }

    /** The token with this text form. */
    public static Token parse(String text) {
        if (!text.startsWith(PREFIX)) {
            throw new MillraceException("MR6130", "a capability begins with " + PREFIX);
        }
        byte[] bytes;
        try {
            bytes = Base64.getUrlDecoder().decode(text.substring(PREFIX.length()));
        } catch (IllegalArgumentException error) {
            throw new MillraceException("MR6130", "it is not base64url", error);
        }
        if (bytes.length <= SIGNATURE_BYTES || bytes.length > BYTES_MAX) {
            throw new MillraceException("MR6130", "a capability of " + bytes.length + " bytes");
        }
        int end = bytes.length - SIGNATURE_BYTES;
        return new Token(Arrays.copyOf(bytes, end), Arrays.copyOfRange(bytes, end, bytes.length));
    }

    /** The token in a file, which nobody but this user may read or write. */
    public static Token read(Path path) {
        return parse(new String(ownFile(path), StandardCharsets.US_ASCII).strip());
    }

    /** The bytes of a file that nobody but this user may read or write. */
    public static byte[] ownFile(Path path) {
        try {
            Map<String, Object> about = Files.readAttributes(path, "unix:mode,uid,size,isRegularFile", LinkOption.NOFOLLOW_LINKS);
            int mode = (Integer) about.get("mode") & 07777;
            if (!(Boolean) about.get("isRegularFile")) {
                throw unusable(path, "it is not a regular file");
            }
            if (!about.get("uid").equals(Loopback.ownUser())) {
                throw unusable(path, "it belongs to user " + about.get("uid"));
            }
            if ((mode & 077) != 0) {
                throw unusable(path, String.format("its mode is %04o instead of 0600", mode));
            }
            if ((Long) about.get("size") > FILE_BYTES_MAX) {
                throw unusable(path, "it is too long");
            }
            return Files.readAllBytes(path);
        } catch (NoSuchFileException error) {
            throw unusable(path, "there is no such file");
        } catch (IOException error) {
            throw unusable(path, error.toString());
        }
    }

    /** The error of a file with credentials. */
    public static MillraceException unusable(Path path, String why) {
        return new MillraceException("MR6165", "'" + path + "': " + why);
    }

    /** The part of it that is sent. */
    public byte[] body() {
        return body.clone();
    }

    /** The proof for a challenge on a Unix socket. */
    public byte[] proof(byte[] challenge) {
        return hmac(use("proof"), "unix".getBytes(StandardCharsets.US_ASCII), challenge);
    }

    /** The proof over a TLS connection that exported this keying material. */
    byte[] proofOver(byte[] exported) {
        return hmac(use("proof"), exported);
    }

    /** The key for one purpose. */
    byte[] use(String purpose) {
        return hmac(signature, new byte[] {2}, purpose.getBytes(StandardCharsets.US_ASCII));
    }

    static byte[] hmac(byte[] key, byte[]... parts) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            for (byte[] part : parts) {
                mac.update(part);
            }
            return mac.doFinal();
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }
}
