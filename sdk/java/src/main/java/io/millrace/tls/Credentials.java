package io.millrace.tls;

import io.millrace.MillraceException;
import io.millrace.internal.Options;
import io.millrace.internal.Place;
import io.millrace.internal.Token;
import java.io.ByteArrayInputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * The credentials of a program for one host: a capability, and the data with which it verifies the host. {@code millrace join} stores a
 * host's key and a capability.
 *
 * @param capability null if there is none
 * @param pin the SHA-256 of the host's public key; null if it is not known
 * @param authorities a file with the certificates of authorities that vouch for the host, or {@code system}; null for none
 * @param identity the key that is shown to the host; null for none
 */
public record Credentials(Token capability, byte[] pin, Path authorities, Identity identity) {
    private static final String PIN = "key ";
    private static final String CAPABILITY = "capability ";
    private static final byte[] IDENTITY = "MRHOST1\n".getBytes(StandardCharsets.US_ASCII);
    private static final int PIN_DIGITS = 64;

    /** A key of this user, and the certificate that shows it. */
    record Identity(X509Certificate certificate, PrivateKey key) {}

    /**
     * The credentials for a host. A given capability takes precedence over all, and what {@code millrace join} stored for the host over
     * authorities. At a loopback address without a capability, the kernel identifies the host, so authorities are not used.
     */
    public static Credentials find(Place place, Options options, boolean loopback) {
        Token given = options.capability() == null ? null : Token.read(options.capability());
        Path state = state();
        if (place.socket() != null || state == null) {
            return new Credentials(given, null, null, null);
        }
        Path identity = state.resolve("identity");
        Path stored = state.resolve("peers").resolve(place.authority()).resolve(place.namespace());
        if (!Files.exists(stored)) {
            Path authorities = loopback && given == null ? null : options.authorities();
            return new Credentials(given, null, authorities, authorities == null ? null : identity(identity));
        }
        Token capability = null;
        byte[] pin = null;
        for (String line : new String(Token.ownFile(stored), StandardCharsets.US_ASCII).lines().toList()) {
            if (line.startsWith(PIN) && line.length() == PIN.length() + PIN_DIGITS) {
                pin = HexFormat.of().parseHex(line.substring(PIN.length()));
            } else if (line.startsWith(CAPABILITY)) {
                capability = Token.parse(line.substring(CAPABILITY.length()));
            } else {
                throw Token.unusable(stored, "it was changed, or written only in part");
            }
        }
        return new Credentials(given == null ? capability : given, pin, null, identity(identity));
    }

    /** Whether the host is known by a key or by a certificate, so that TLS is spoken with it. */
    public boolean isTls() {
        return pin != null || authorities != null;
    }

    private static Path state() {
        String state = System.getenv("XDG_STATE_HOME");
        if (state != null && state.startsWith("/")) {
            return Path.of(state, "millrace");
        }
        String home = System.getenv("HOME");
        return home == null || !home.startsWith("/") ? null : Path.of(home, ".local/state/millrace");
    }

    private static Identity identity(Path file) {
        if (!Files.exists(file)) {
            return null;
        }
        ByteBuffer bytes = ByteBuffer.wrap(Token.ownFile(file)).order(ByteOrder.LITTLE_ENDIAN);
        try {
            byte[] head = new byte[IDENTITY.length];
            bytes.get(head);
            byte[] certificate = new byte[bytes.getInt()];
            bytes.get(certificate);
            byte[] key = new byte[bytes.getInt()];
            bytes.get(key);
            if (!Arrays.equals(head, IDENTITY)) {
                throw Token.unusable(file, "it was changed, or written only in part");
            }
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            X509Certificate shown = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(certificate));
            return new Identity(shown, KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(key)));
        } catch (GeneralSecurityException | java.nio.BufferUnderflowException | NegativeArraySizeException error) {
            throw new MillraceException("MR6165", "'" + file + "': it was changed, or written only in part", error);
        }
    }
}
