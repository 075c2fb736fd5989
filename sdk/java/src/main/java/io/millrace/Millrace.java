package io.millrace;

import io.millrace.concurrent.BlockingQueue;
import io.millrace.concurrent.ConcurrentMap;
import io.millrace.concurrent.ConcurrentSkipListMap;
import io.millrace.concurrent.Counter;
import io.millrace.concurrent.CountDownLatch;
import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.Semaphore;
import io.millrace.concurrent.atomic.AtomicBoolean;
import io.millrace.concurrent.atomic.AtomicInteger;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.concurrent.atomic.AtomicReference;
import io.millrace.concurrent.locks.Lock;
import io.millrace.concurrent.locks.ReentrantLock;
import io.millrace.data.Blob;
import io.millrace.data.Event;
import io.millrace.data.Matrix;
import io.millrace.data.SharedLog;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.internal.Client;
import io.millrace.internal.EventId;
import io.millrace.internal.Frame;
import io.millrace.internal.MessagePack;
import io.millrace.internal.Messages;
import io.millrace.internal.Options;
import io.millrace.internal.Place;
import io.millrace.shared.SharedClass;
import io.millrace.space.ClientSpace;
import io.millrace.space.SharedObject;
import io.millrace.space.Space;
import io.millrace.table.Table;
import io.millrace.table.TableOptions;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A namespace of a host: its logs, its tables, its shared objects, and its workers.
 *
 * <pre>{@code
 * try (Millrace farm = Millrace.connect(".millrace")) {
 *     farm.log("raw/kitchen").append("21.5");
 *     farm.atomicLong("hits").incrementAndGet();
 * }
 * }</pre>
 *
 * Any number of threads can use it. After a lost connection, it connects again, and repeats reads and calls of shared objects, which take effect only once.
 */
public final class Millrace implements AutoCloseable {
    private static final String NAMESPACE = "MILLRACE_NAMESPACE";
    /** The history of a log that keeps records until they are trimmed. */
    private static final long KEEP_ALL = 1L << 62;

    private final PrivateHost host;
    private final Client client;
    private final Set<ServerlessExecutorService> attached = ConcurrentHashMap.newKeySet();
    private ServerlessExecutorService newest;
    private final ClientSpace space;
    private final Space before;
    private boolean closed;

    /** The options of a connection. */
    public static final class Builder {
        private final List<String> places;
        private String application;
        private Duration lease = Duration.ofSeconds(10);
        private Duration patience = Duration.ofSeconds(30);
        private Path capability;
        private Path authorities;
        private Duration connectTimeout = Duration.ofSeconds(10);

        private Builder(List<String> places) {
            this.places = places;
        }

        /**
         * The application of the shared objects: they are deleted when its last connection is closed. Without an application, they are
         * deleted when this connection is closed.
         */
        public Builder application(String name) {
            application = name;
            return this;
        }

        /** How long this program keeps its locks after the host received its last request; by default 10 s. */
        public Builder lease(Duration lease) {
            this.lease = lease;
            return this;
        }

        /** How long the client tries to reconnect after a lost connection; by default 30 s. */
        public Builder patience(Duration patience) {
            this.patience = patience;
            return this;
        }

        /** The time limit for connecting to a host, including the handshake; by default 10 s. */
        public Builder connectTimeout(Duration timeout) {
            connectTimeout = timeout;
            return this;
        }

        /** A file with the capability to use; by default the one that MILLRACE_CAPABILITY names, if it is set. */
        public Builder capability(Path file) {
            capability = file;
            return this;
        }

        /**
         * A PEM file with the certificate authorities to trust for a host whose key is not stored, or {@code system} for those of this
         * machine; by default the value of MILLRACE_CA, if no capability is given. The connection then uses TLS, which needs Java 25.
         */
        public Builder authorities(Path file) {
            authorities = file;
            return this;
        }

        /** Connects to the host. */
        public Millrace connect() {
            return new Millrace(this);
        }
    }

    private Millrace(Builder builder) {
        host = builder.places.isEmpty() ? new PrivateHost() : null;
        try {
            List<String> places = host == null ? builder.places : List.of(host.address());
            Options options = Options.with(builder.capability, builder.authorities, builder.connectTimeout, builder.patience);
            client = new Client(places.stream().map(Place::parse).toList(), options);
        } catch (RuntimeException error) {
            if (host != null) {
                host.close();
            }
            throw error;
        }
        space = new ClientSpace(client, builder.application, builder.lease);
        // References without a connection of their own mean the newest.
        before = Space.use(space);
    }

    /**
     * Connects to the namespace that MILLRACE_NAMESPACE names. If it is not set, starts a host that ends with this program, and connects
     * to it.
     */
    public static Millrace connect() {
        String named = System.getenv(NAMESPACE);
        return new Builder(named == null || named.isEmpty() ? List.of() : List.of(named)).connect();
    }

    /** Connects to a namespace that a host serves: its directory, {@code unix:PATH}, or {@code mr://HOST:PORT/NAME}. */
    public static Millrace connect(String place) {
        return at(place).connect();
    }

    /**
     * A connection with options to a namespace, named as in {@link #connect(String)}. With several hosts of one cluster, the first
     * one that can be reached is used. If it is lost, the client sends calls of shared objects and all later requests to the next one.
     */
    public static Builder at(String place, String... others) {
        List<String> places = new ArrayList<>(List.of(place));
        places.addAll(List.of(others));
        return new Builder(places);
    }

    /** For other packages of Millrace: the connection. */
    public Client client() {
        return client;
    }

    /** The name of the namespace. */
    public String name() {
        return client.host().text("name");
    }

    /** The address of the host. */
    public String address() {
        return client.place().toString();
    }

    /** A log of the namespace; it need not exist. */
    public Log log(String name) {
        return new Log(client, name);
    }

    /** Creates a log that keeps this many records. */
    public Log createLog(String name, long history) {
        change(Messages.CREATE_LOG, name, history);
        return log(name);
    }

    /** Creates a log that keeps records until they are trimmed. */
    public Log createLog(String name) {
        return createLog(name, KEEP_ALL);
    }

    /** Sets how many records a log keeps from now on. */
    public void setHistory(String log, long history) {
        change(Messages.SET_LOG, log, history);
    }

    private void change(int type, String log, long history) {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("log", log);
        message.put("history", MessagePack.unsigned(history));
        client.ask(type, message, null, 0);
    }

    /** Removes a log with its records. */
    public void removeLog(String name) {
        client.ask(Messages.REMOVE_LOG, Map.of("log", name), null, 0);
    }

    /** A table of the namespace; it need not exist. */
    public Table table(String name) {
        return new Table(client, name);
    }

    /** Creates a table whose keys are text and whose values are JSON. If it exists with these attributes, nothing changes. */
    public Table createTable(String name) {
        return createTable(name, TableOptions.DEFAULT);
    }

    /**
     * Creates a table with these attributes. If it exists with the same, nothing changes; with others, fails with MR2102. {@link #removeLog}
     * removes it.
     */
    public Table createTable(String name, TableOptions options) {
        return Table.create(client, name, options);
    }

    /** Cancels a run that has not ended. */
    public void cancelRun(String run) {
        client.ask(Messages.CANCEL_RUN, Map.of("run", EventId.bytes(run)), null, 0);
    }

    /**
     * A record to append.
     *
     * @param log the log
     * @param data its bytes
     */
    public record NewRecord(String log, byte[] data) {}

    /** Appends 1 to 1024 records: all of them or none. */
    public List<Receipt> appendMany(List<NewRecord> records) {
        return appendMany(records, AppendOptions.DEFAULT);
    }

    /** Appends 1 to 1024 records with these options: all of them or none. A batch cannot name a function. */
    public List<Receipt> appendMany(List<NewRecord> records, AppendOptions options) {
        List<Map<String, Object>> told = new ArrayList<>();
        for (NewRecord record : records) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("log", record.log);
            one.put("data", record.data);
            told.add(one);
        }
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("records", told);
        options.write(message);
        if (message.remove("function") != null) {
            throw new IllegalArgumentException("a batch of records cannot name a function");
        }
        byte[] cause = EventId.bytes(options.cause());
        Frame answer = options.isKeyed() ? client.insist(Messages.APPEND_MANY, message, cause, 0)
                : client.ask(Messages.APPEND_MANY, message, cause, 0);
        List<Receipt> receipts = new ArrayList<>();
        for (Map<String, Object> receipt : answer.maps("records")) {
            String log = records.get(receipts.size()).log;
            long seqno = ((Number) receipt.get("seqno")).longValue();
            receipts.add(new Receipt(log, seqno, EventId.text((byte[]) receipt.get("id"))));
        }
        return receipts;
    }

    /** A document about the namespace in JSON, by its path as in HTTP: {@code status}, {@code logs}, {@code runs}. */
    public String show(String path) {
        return client.insist(Messages.SHOW, Map.of("path", path), null, 0).text("json");
    }

    /** For other packages of Millrace: the application of the shared objects. From now on, the application exists. */
    public String application() {
        return space.open();
    }

    /** Binds a shared object to this host, and returns it. Objects that are not bound use the newest connection. */
    public <T extends SharedObject> T bind(T object) {
        return space.bind(object, false);
    }

    /**
     * Binds a persistent object to this host, and returns it. Its state is in the journal, so it survives restarts of the host, and
     * exists until it is deleted.
     */
    public <T extends SharedObject> T bindPersistent(T object) {
        return space.bind(object, true);
    }

    /**
     * Binds a replicated object to this cluster, and returns it. At least this many hosts have a copy, 2 or 3, so the object survives the
     * loss of one or two hosts. For shared classes, use {@code SharedClass.persistent(copies)}.
     */
    public <T extends SharedObject> T bindPersistent(T object, int copies) {
        return space.bindCopied(object, copies);
    }

    /** Deletes a shared object; returns whether it existed. Waiting calls fail with MR7106. */
    public boolean delete(SharedObject object) {
        return ClientSpace.delete(object);
    }

    /** Deletes an object of a shared class; returns whether it existed. Waiting calls fail with MR7106. */
    public boolean delete(Object object) {
        if (object instanceof SharedObject shared) {
            return ClientSpace.delete(shared);
        }
        throw new IllegalArgumentException(object.getClass().getName() + "  is not a shared object");
    }

    /** For other packages of Millrace: the space to which the calls of this connection's objects are sent. */
    public ClientSpace space() {
        return space;
    }

    public AtomicInteger atomicInteger(String key) {
        return bind(new AtomicInteger(key));
    }

    public AtomicLong atomicLong(String key) {
        return bind(new AtomicLong(key));
    }

    public AtomicLong atomicLong(String key, long value) {
        return bind(new AtomicLong(key, value));
    }

    public AtomicBoolean atomicBoolean(String key) {
        return bind(new AtomicBoolean(key));
    }

    public <V> AtomicReference<V> atomicReference(String key) {
        return bind(new AtomicReference<V>(key));
    }

    public <K> Counter<K> counter(String key) {
        return bind(new Counter<K>(key));
    }

    public <K, V> ConcurrentMap<K, V> map(String key) {
        return bind(new ConcurrentMap<K, V>(key));
    }

    public <E> io.millrace.concurrent.List<E> list(String key) {
        return bind(new io.millrace.concurrent.List<E>(key));
    }

    public <E> io.millrace.concurrent.Set<E> set(String key) {
        return bind(new io.millrace.concurrent.Set<E>(key));
    }

    public <E> BlockingQueue<E> queue(String key) {
        return bind(new BlockingQueue<E>(key));
    }

    public Semaphore semaphore(String key, int permits) {
        return bind(new Semaphore(key, permits));
    }

    public Lock lock(String key) {
        return bind(new Lock(key));
    }

    public ReentrantLock reentrantLock(String key) {
        return bind(new ReentrantLock(key));
    }

    public <K, V> ConcurrentSkipListMap<K, V> sortedMap(String key) {
        return bind(new ConcurrentSkipListMap<K, V>(key));
    }

    public Blob blob(String key) {
        return bind(new Blob(key));
    }

    public Event event(String key) {
        return bind(new Event(key));
    }

    public <E> SharedLog<E> sharedLog(String key) {
        return bind(new SharedLog<E>(key));
    }

    public CyclicBarrier barrier(String key, int parties) {
        return bind(new CyclicBarrier(key, parties));
    }

    public CountDownLatch latch(String key, int count) {
        return bind(new CountDownLatch(key, count));
    }

    public <V> io.millrace.concurrent.Future<V> future(String key) {
        return bind(new io.millrace.concurrent.Future<V>(key));
    }

    public Matrix matrix(String key, int rows, int columns) {
        return bind(new Matrix(key, rows, columns));
    }

    /**
     * A class marked with {@link io.millrace.shared.Shared}, for objects whose methods run on the workers of this connection's newest
     * executor; without one, on those of an executor that this call creates. References have the methods of the interface.
     */
    public <T> SharedClass<T> shared(Class<T> face, Class<? extends T> type) {
        ServerlessExecutorService executor;
        synchronized (this) {
            executor = newest;
        }
        return (executor == null ? executor().start() : executor).shared(face, type);
    }

    /** An executor with workers of this host. */
    public ServerlessExecutorService.Builder executor() {
        return new ServerlessExecutorService.Builder(this);
    }

    /** An executor with this many workers of this host. */
    public ServerlessExecutorService executor(int workers) {
        return executor().workers(workers).start();
    }

    /** For other packages of Millrace: registers an object that is closed before the connection. */
    public synchronized void attach(ServerlessExecutorService executor) {
        attached.add(executor);
        newest = executor;
    }

    /** For other packages of Millrace: removes an object that has been closed. */
    public synchronized void detach(ServerlessExecutorService executor) {
        attached.remove(executor);
        newest = newest == executor ? null : newest;
    }

    /**
     * Closes the executors, releases the locks and permits of this program, and deletes its objects unless they belong to an application.
     */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
        }
        attached.forEach(ServerlessExecutorService::close);
        synchronized (this) {
            closed = true;
        }
        if (space.isCurrent()) {
            Space.use(before);
        }
        space.close();
        client.close();
        if (host != null) {
            host.close();
        }
    }

    @Override
    public String toString() {
        return address();
    }
}
