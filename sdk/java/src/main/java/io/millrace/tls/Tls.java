package io.millrace.tls;

import io.millrace.MillraceException;
import io.millrace.internal.Place;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * TLS 1.3 with a host whose public key is known, or whose certificate a trusted authority has signed. With a known key, the names and times
 * of the certificate are ignored. A capability is proved with keying material of the connection, which JDKs export from version 25 on.
 */
public final class Tls {
    private static final String ALPN = "millrace/2";
    private static final String VERSION = "TLSv1.3";
    /** The name that a client sends to a host whose key it knows. */
    private static final String NO_NAME = "millrace.invalid";
    private static final String EXPORTER = "EXPORTER-Channel-Binding";
    private static final int EXPORTED_BYTES = 32;
    private static final String SYSTEM = "system";
    private static final List<String> SYSTEM_AUTHORITIES = List.of("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
            "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem");
    private static final String OWN = "own";
    private static final Method EXPORT = export();

    private Tls() {}

    private static Method export() {
        try {
            return ExtendedSSLSession.class.getMethod("exportKeyingMaterialData", String.class, byte[].class, int.class);
        } catch (NoSuchMethodException error) {
            return null;
        }
    }

    /** Speaks TLS over a connection. */
    public static SSLSocket open(Socket plain, Place place, Credentials credentials) throws IOException {
        if (EXPORT == null) {
            throw new MillraceException("MR6161", place + ": TLS needs Java 25 or newer, and this is Java  " + Runtime.version().feature()
                    + ". In every version, a capability of `millrace cap issue` opens the encrypted channel, if no key of the host is stored");
        }
        try {
            SSLContext context = SSLContext.getInstance(VERSION);
            KeyManager[] keys = credentials.identity() == null ? null : new KeyManager[] {new Own(credentials.identity())};
            byte[] pin = credentials.pin();
            TrustManager[] trusted = pin == null ? authorities(credentials.authorities()) : new TrustManager[] {new Pinned(pin)};
            context.init(keys, trusted, null);
            SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, place.host(), place.port(), true);
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setProtocols(new String[] {VERSION});
            parameters.setApplicationProtocols(new String[] {ALPN});
            if (pin == null) {
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
            } else {
                parameters.setServerNames(List.of(new SNIHostName(NO_NAME)));
            }
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            return socket;
        } catch (SSLException error) {
            throw failed(place, error);
        } catch (GeneralSecurityException error) {
            throw new MillraceException("MR6161", place + ": " + error.getMessage(), error);
        }
    }

    private static MillraceException failed(Place place, SSLException error) {
        for (Throwable at = error; at != null; at = at.getCause()) {
            if (at instanceof WrongKey) {
                return new MillraceException("MR6162", place + ": " + at.getMessage(), error);
            } else if (at instanceof CertificateException) {
                return new MillraceException("MR6196", place + ": " + at.getMessage(), error);
            }
        }
        return new MillraceException("MR6161", place + ": " + error.getMessage(), error);
    }

    /** What proofs over this connection are bound to. */
    public static byte[] exported(SSLSocket socket) throws IOException {
        try {
            return (byte[]) EXPORT.invoke(socket.getSession(), EXPORTER, null, EXPORTED_BYTES);
        } catch (InvocationTargetException | IllegalAccessException error) {
            throw new IOException("this JDK cannot export keying material", error);
        }
    }

    private static TrustManager[] authorities(Path named) throws GeneralSecurityException {
        Path file = named;
        if (named.toString().equals(SYSTEM)) {
            file = SYSTEM_AUTHORITIES.stream().map(Path::of).filter(Files::exists).findFirst()
                    .orElseThrow(() -> new MillraceException("MR6195", "'system': this machine has no certificates of authorities in a known place"));
        }
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        try {
            store.load(null, null);
            byte[] text = Files.readAllBytes(file);
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(text))) {
                store.setCertificateEntry("authority-" + store.size(), each);
            }
        } catch (IOException | CertificateException error) {
            throw new MillraceException("MR6195", "'" + file + "': " + error.getMessage(), error);
        }
        if (store.size() == 0) {
            throw new MillraceException("MR6195", "'" + file + "': it contains no certificate of an authority in PEM");
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    /** The host has another key than the one that it is known by. */
    private static final class WrongKey extends CertificateException {
        private static final long serialVersionUID = 1L;

        WrongKey() {
            super("the host's public key is not the stored one");
        }
    }

    /** Takes the host that has this key. That it has the key, the signature of its handshake shows. */
    private static final class Pinned extends X509ExtendedTrustManager {
        private final byte[] pin;

        Pinned(byte[] pin) {
            this.pin = pin;
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            try {
                byte[] key = MessageDigest.getInstance("SHA-256").digest(chain[0].getPublicKey().getEncoded());
                if (!MessageDigest.isEqual(key, pin)) {
                    throw new WrongKey();
                }
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new CertificateException(error);
            }
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) throws CertificateException {
            throw new CertificateException("this is a client");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) throws CertificateException {
            throw new CertificateException("this is a client");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) throws CertificateException {
            throw new CertificateException("this is a client");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }

    /** Shows this user's key to any host. */
    private static final class Own extends X509ExtendedKeyManager {
        private final Credentials.Identity identity;

        Own(Credentials.Identity identity) {
            this.identity = identity;
        }

        @Override
        public String[] getClientAliases(String type, Principal[] issuers) {
            return new String[] {OWN};
        }

        @Override
        public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
            return OWN;
        }

        @Override
        public String[] getServerAliases(String type, Principal[] issuers) {
            return null;
        }

        @Override
        public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
            return null;
        }

        @Override
        public X509Certificate[] getCertificateChain(String alias) {
            return new X509Certificate[] {identity.certificate()};
        }

        @Override
        public PrivateKey getPrivateKey(String alias) {
            return identity.key();
        }
    }
}
