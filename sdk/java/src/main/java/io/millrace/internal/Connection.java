package io.millrace.internal;

import io.millrace.MillraceException;
import io.millrace.tls.Credentials;
import io.millrace.tls.Tls;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;
import javax.net.ssl.SSLSocket;

/** One connection to a host: a thread reads it, and the threads of callers write it. */
final class Connection implements Closeable {
    /** Receives the host's answers to a request. */
    interface Sink {
        /** Receives an answer; returns whether it was the last one. Called on the connection's thread. */
        boolean answer(Frame frame);

        /** The connection ended before the last answer. */
        void lost(MillraceException why);
    }

    private static final byte[] PREFACE = "MR/2".getBytes(StandardCharsets.US_ASCII);
    private static final int VERSION = 2;
    private static final long HANDSHAKE = 1;
    private static final int BUFFER_BYTES = 64 << 10;
    private static final Map<String, Object> NOTHING = Map.of();

    /** How many requests may wait on one connection until another one is opened, unless the host allows only twice as many at most. */
    private static final int REQUESTS_MAX = 2048;

    private final Place place;
    private final Options options;
    private final SocketChannel socket;
    private final ReentrantLock writing = new ReentrantLock();
    private final Map<Long, Sink> sinks = new ConcurrentHashMap<>();
    private final AtomicLong numbers = new AtomicLong(HANDSHAKE);
    private final AtomicLong clock = new AtomicLong();
    private final CompletableFuture<Frame> welcome = new CompletableFuture<>();
    private final ByteBuffer received = ByteBuffer.allocate(BUFFER_BYTES).flip();
    private ByteBuffer opened = ByteBuffer.allocate(0);
    private SecureChannel channel;
    private SSLSocket tls;
    private volatile MillraceException ended;
    private volatile boolean retired;
    private volatile long heardNs = System.nanoTime();

    private Connection(Place place, Options options, SocketChannel socket) {
        this.place = place;
        this.options = options;
        this.socket = socket;
    }

    /** Connects, and does the handshake. */
    static Connection open(Place place, Options options) {
        Connection connection = new Connection(place, options, dial(place, options));
        Thread reader = new Thread(connection::run, "millrace-connection");
        reader.setDaemon(true);
        reader.start();
        boolean interrupted = false;
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.connectMs());
        try {
            while (true) {
                try {
                    connection.welcome.get(until - System.nanoTime(), TimeUnit.NANOSECONDS);
                    return connection;
                } catch (InterruptedException error) {
                    interrupted = true;
                } catch (TimeoutException error) {
                    connection.close();
                    throw new MillraceException("MR6122", place + " did not answer the greeting", error);
                } catch (ExecutionException error) {
                    connection.close();
                    throw (MillraceException) error.getCause();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static SocketChannel dial(Place place, Options options) {
        SocketChannel socket = null;
        try {
            if (place.socket() != null) {
                return SocketChannel.open(UnixDomainSocketAddress.of(place.socket()));
            }
            socket = SocketChannel.open();
            InetSocketAddress address = new InetSocketAddress(place.host(), place.port());
            if (address.isUnresolved()) {
                throw new IOException("the name of the host is not known");
            }
            socket.socket().connect(address, (int) options.connectMs());
            socket.socket().setTcpNoDelay(true);
            return socket;
        } catch (IOException | IllegalArgumentException error) {
            if (socket != null) {
                try {
                    socket.close();
                } catch (IOException unclosed) {
                    error.addSuppressed(unclosed);
                }
            }
            String code = error instanceof java.net.SocketTimeoutException ? "MR6122" : "MR6121";
            throw new MillraceException(code, place + ": " + error.getMessage(), error);
        }
    }

    /** The host's WELCOME. */
    Frame host() {
        return welcome.join();
    }

    /** Whether it is open, as far as this program knows. */
    boolean isOpen() {
        return ended == null;
    }

    /** Whether it accepts requests. */
    boolean isUsable() {
        return ended == null && !retired;
    }

    /** Whether so few requests wait for answers that the host reads further ones, also if many threads find this out at once. */
    boolean hasRoom() {
        return sinks.size() < Math.min(host().number("requests_max") / 2, REQUESTS_MAX);
    }

    /** Stops accepting requests; the connection ends with the last answer. */
    void retire() {
        retired = true;
        endIfDone();
    }

    private void endIfDone() {
        if (retired && sinks.isEmpty()) {
            close();
        }
    }

    /** Where the host is. */
    Place place() {
        return place;
    }

    /** When the last bytes of the host arrived, in nanoseconds of this program's clock. */
    long heardNs() {
        return heardNs;
    }

    /** Sends a request; returns its number. */
    long request(int type, Map<String, Object> message, byte[] cause, Sink sink) {
        long number = numbers.incrementAndGet();
        byte[] bytes = new Frame(type, number, clock.get(), cause, message, 0).encode();
        sinks.put(number, sink);
        try {
            // A connection that ends from now on reports it to the sink, too.
            if (ended != null) {
                throw ended;
            }
            send(bytes);
        } catch (MillraceException error) {
            sinks.remove(number);
            throw error;
        }
        return number;
    }

    /** Sends a message that concerns a request. */
    void send(int type, long number, Map<String, Object> message) {
        send(new Frame(type, number, clock.get(), message).encode());
    }

    /** Forgets a request: later answers to it are ignored. */
    void forget(long number) {
        sinks.remove(number);
        endIfDone();
    }

    void ping() {
        send(Messages.PING, 0, NOTHING);
    }

    private void send(byte[] bytes) {
        // An interrupt during a write would close the connection for all threads.
        boolean interrupted = Thread.interrupted();
        writing.lock();
        try {
            ByteBuffer rest = ByteBuffer.wrap(channel == null ? bytes : channel.seal(bytes));
            write(rest);
        } catch (IOException error) {
            throw end(new MillraceException("MR6123", "the connection to " + place + " broke: " + error, error));
        } finally {
            writing.unlock();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Records why it ended; all requests without an answer fail with the first reason. */
    MillraceException end(MillraceException why) {
        MillraceException first;
        synchronized (this) {
            if (ended == null) {
                ended = why;
            }
            first = ended;
        }
        try {
            socket.close();
        } catch (IOException error) {
            first.addSuppressed(error);
        }
        welcome.completeExceptionally(first);
        for (Long number : List.copyOf(sinks.keySet())) {
            Sink sink = sinks.remove(number);
            if (sink != null) {
                sink.lost(first);
            }
        }
        return first;
    }

    @Override
    public void close() {
        end(new MillraceException("MR6123", "the connection to " + place + " was closed"));
    }

    private void run() {
        try {
            shake();
            while (true) {
                take(receive(Frame.BYTES_MAX));
            }
        } catch (EOFException error) {
            end(new MillraceException("MR6123", place + " closed the connection"));
        } catch (ClosedChannelException error) {
            end(new MillraceException("MR6123", "the connection to " + place + " was closed"));
        } catch (IOException error) {
            end(new MillraceException("MR6123", "the connection to " + place + " broke: " + error, error));
        } catch (MillraceException error) {
            end(error);
        } catch (RuntimeException | Error error) {
            end(new MillraceException("MR6123", "the connection to " + place + " cannot be read: " + error, error));
        }
    }

    private void take(Frame frame) {
        clock.accumulateAndGet(frame.hlc(), (ours, theirs) -> Long.compareUnsigned(ours, theirs) >= 0 ? ours : theirs);
        heardNs = System.nanoTime();
        if (frame.type() == Messages.PING) {
            send(Messages.PONG, frame.request(), NOTHING);
        } else if (frame.request() != 0) {
            Sink sink = sinks.get(frame.request());
            if (sink != null && sink.answer(frame)) {
                sinks.remove(frame.request());
            }
        } else if (frame.type() == Messages.FAILURE) {
            throw failure(frame.checked());
        }
    }

    /** The error in a FAILURE. */
    static MillraceException failure(Frame frame) {
        return new MillraceException(frame.text("code"), frame.text("detail"), (int) frame.number("retry_after_ms"), null);
    }

    private void shake() throws IOException {
        boolean loopback = place.socket() == null && ((InetSocketAddress) socket.getRemoteAddress()).getAddress().isLoopbackAddress();
        Credentials credentials = Credentials.find(place, options, loopback);
        Token token = credentials.capability();
        boolean onSocket = place.socket() != null;
        if (credentials.isTls()) {
            tls = Tls.open(socket.socket(), place, credentials);
            write(ByteBuffer.wrap(PREFACE));
        } else if (!onSocket && token != null) {
            openChannel(token);
        } else {
            write(ByteBuffer.wrap(PREFACE));
        }
        Map<String, Object> hello = new LinkedHashMap<>();
        hello.put("oldest", VERSION);
        hello.put("newest", VERSION);
        hello.put("namespace", place.namespace());
        hello.put("client", options.client());
        if (token != null && (onSocket || tls != null)) {
            byte[] proof = tls == null ? new byte[0] : token.proofOver(Tls.exported(tls));
            hello.put("capabilities", List.of(Map.of("capability", token.body(), "proof", proof)));
        }
        send(Messages.HELLO, HANDSHAKE, hello);
        Frame answer = receive(Frame.HELLO_BYTES_MAX).checked();
        if (answer.type() == Messages.CHALLENGE && onSocket) {
            if (token == null) {
                throw new MillraceException("MR6163", place + "  requires a capability, and none is stored for it");
            }
            Map<String, Object> offer = new LinkedHashMap<>();
            offer.put("capability", token.body());
            offer.put("proof", token.proof(answer.bytes("challenge")));
            hello.put("capabilities", List.of(offer));
            send(Messages.HELLO, HANDSHAKE, hello);
            answer = receive(Frame.HELLO_BYTES_MAX).checked();
        }
        if (answer.type() == Messages.FAILURE) {
            throw failure(answer);
        }
        if (answer.type() != Messages.WELCOME || answer.request() != HANDSHAKE) {
            throw new MillraceException("MR6125", "message of type " + answer.type() + "  instead of WELCOME");
        }
        if (answer.number("version") != VERSION) {
            String told = "the host uses protocol version  " + answer.number("version") + ", this client " + VERSION;
            throw new MillraceException("MR6006", told);
        }
        if (!onSocket && channel == null && tls == null) {
            checkNear();
        }
        clock.set(answer.hlc());
        welcome.complete(answer);
    }

    private void checkNear() throws IOException {
        InetSocketAddress theirs = (InetSocketAddress) socket.getRemoteAddress();
        if (!theirs.getAddress().isLoopbackAddress()) {
            throw new MillraceException("MR6163", place + "  is on another machine, and no capability is stored for it");
        }
        Loopback.check(theirs, (InetSocketAddress) socket.getLocalAddress());
    }

    private void openChannel(Token token) throws IOException {
        byte[] nonce = new byte[SecureChannel.NONCE_BYTES];
        new SecureRandom().nextBytes(nonce);
        byte[] m1 = SecureChannel.first(token, nonce, SecureChannel.RECORD_MAX);
        write(ByteBuffer.wrap(m1));
        byte[] head = plain(2);
        byte[] m2 = head;
        if (head[0] != 0 || head[1] != 0) {
            byte[] rest = plain(SecureChannel.M2_BYTES);
            m2 = Arrays.copyOf(head, head.length + rest.length);
            System.arraycopy(rest, 0, m2, head.length, rest.length);
        }
        channel = SecureChannel.open(token, m1, m2);
    }

    private void write(ByteBuffer rest) throws IOException {
        if (tls != null) {
            tls.getOutputStream().write(rest.array());
            return;
        }
        while (rest.hasRemaining()) {
            socket.write(rest);
        }
    }

    /** Fills the buffer of received bytes; returns below 0 at the end. */
    private int read() throws IOException {
        if (tls == null) {
            return socket.read(received);
        }
        int read = tls.getInputStream().read(received.array());
        received.position(Math.max(0, read));
        return read;
    }

    private Frame receive(int max) throws IOException {
        return Frame.decode(bytes(Frame.length(bytes(Frame.LENGTH_BYTES), max)));
    }

    private byte[] bytes(int count) throws IOException {
        if (channel == null) {
            return plain(count);
        }
        byte[] found = new byte[count];
        int at = 0;
        while (at < count) {
            if (!opened.hasRemaining()) {
                byte[] head = plain(2);
                opened = ByteBuffer.wrap(channel.open(head, plain(SecureChannel.recordLength(head))));
            }
            int part = Math.min(count - at, opened.remaining());
            opened.get(found, at, part);
            at += part;
        }
        return found;
    }

    private byte[] plain(int count) throws IOException {
        byte[] found = new byte[count];
        int at = Math.min(count, received.remaining());
        received.get(found, 0, at);
        while (at < count) {
            received.clear();
            int read = read();
            received.flip();
            if (read < 0) {
                throw new EOFException();
            }
            int part = Math.min(count - at, received.remaining());
            received.get(found, at, part);
            at += part;
        }
        return found;
    }
}
