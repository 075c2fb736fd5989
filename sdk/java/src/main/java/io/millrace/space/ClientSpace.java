package io.millrace.space;

import io.millrace.MillraceException;
import io.millrace.internal.Client;
import io.millrace.internal.Frame;
import io.millrace.internal.MessagePack;
import io.millrace.internal.Messages;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** The objects of a host, over a connection. This program keeps its locks and permits while it runs, and for one lease longer. */
public final class ClientSpace extends Space implements AutoCloseable {
    private static final int SESSION_BYTES = 16;
    /** How long a call waits in one request before the client repeats it, so that each side notices if the other is gone. */
    private static final long SLICE_MS = 20_000;
    private static final long LEASE_MIN_MS = 100;

    private final Client client;
    private final byte[] session = new byte[SESSION_BYTES];
    private final String application;
    private final long leaseMs;
    private final TreeSet<Long> calls = new TreeSet<>();
    private final CountDownLatch closed = new CountDownLatch(1);
    private long last;
    private volatile Thread renewing;
    /** Whether the host has the session in its journal, and whether the hosts of its cluster have it. */
    private volatile boolean proven;
    private volatile boolean provenByCluster;
    private final ThreadLocal<Boolean> proving = ThreadLocal.withInitial(() -> false);

    /** A session, which is opened by the first call; without a name of its own, the application is this program alone. */
    public ClientSpace(Client client, String application, Duration lease) {
        this.client = client;
        SecureRandom random = new SecureRandom();
        random.nextBytes(session);
        this.application = application == null ? String.format("client-%016x", random.nextLong()) : application;
        leaseMs = Math.max(LEASE_MIN_MS, lease.toMillis());
    }

    /** Opens the session, unless it is open; returns the name of its application. */
    public synchronized String open() {
        if (closed.getCount() == 0) {
            throw new IllegalStateException("the connection to " + client.place() + " is closed");
        }
        if (renewing == null) {
            renew(leaseMs, false);
            keepOpen();
        }
        return application;
    }

    /** Binds an object to this space. */
    public <T extends SharedObject> T bind(T object, boolean persistent) {
        return bind(object, persistent ? PERSISTENT : 0);
    }

    /** The same for an object of which this many hosts of the cluster have a copy. */
    public <T extends SharedObject> T bindCopied(T object, int copies) {
        return bind(object, copied(copies));
    }

    /** The flags of calls of an object of which this many hosts have a copy. */
    public static int copied(int copies) {
        if (copies < 1 || copies > COPIES_MAX) {
            throw new MillraceException("MR7113", copies + " copies; there are from 1 to " + COPIES_MAX);
        }
        return copies == 1 ? PERSISTENT : PERSISTENT | copies << COPIES_SHIFT;
    }

    private <T extends SharedObject> T bind(T object, int flags) {
        object.reference().bind(this, flags);
        return object;
    }

    /** Deletes an object; returns whether it existed. */
    public static boolean delete(SharedObject object) {
        return object.reference().delete();
    }

    private void renew(long lease, boolean resume) {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("session", session);
        message.put("application", application);
        message.put("lease_ms", lease);
        if (resume) {
            message.put("resume", true);
        }
        client.persistAnywhere(() -> client.ask(Messages.SESSION, message, null, 0));
    }

    private synchronized void keepOpen() {
        if (renewing != null && renewing.isAlive()) {
            return;
        }
        renewing = new Thread(() -> {
            try {
                boolean refused = false;
                while (!closed.await(leaseMs / 3, TimeUnit.MILLISECONDS)) {
                    try {
                        renew(leaseMs, true);
                        refused = false;
                    } catch (MillraceException error) {
                        // What the session held is lost: its calls report it, and do not begin again as if nothing had happened. But a
                        // host that takes the place of another one may hear of the session only now.
                        if (error.is("MR7110") && (refused || !provenByCluster)) {
                            return;
                        }
                        refused = error.is("MR7110");
                    }
                }
            } catch (InterruptedException | IllegalStateException error) {
                // The program ends the session, or the lease does.
            }
        }, "millrace-lease");
        renewing.setDaemon(true);
        renewing.start();
    }

    /**
     * Before the first call of a persistent object, and of one that several hosts have: has the host, or its cluster, record the session, by a
     * call that changes nothing. From then on, a restarted host and the others know the session, and a call that is sent again takes effect once.
     */
    void prove(Reference object, boolean copied) {
        if ((copied ? provenByCluster : proven) || proving.get()) {
            return;
        }
        proving.set(true);
        try {
            while (true) {
                try {
                    object.touch();
                    if (copied) {
                        provenByCluster = true;
                    } else {
                        proven = true;
                    }
                    return;
                } catch (MillraceException error) {
                    if (!error.is("MR7110")) {
                        throw error;
                    }
                    renew(leaseMs, false);
                    keepOpen();
                }
            }
        } finally {
            proving.set(false);
        }
    }

    @Override
    public Answer call(Call call, long timeoutNs) throws Raised, InterruptedException {
        if (renewing == null) {
            open();
        }
        long number;
        long acked;
        synchronized (calls) {
            number = ++last;
            calls.add(number);
            // Every answer below has arrived.
            acked = calls.first();
        }
        long until = System.nanoTime() + timeoutNs;
        boolean interrupted = false;
        try {
            Map<String, Object> message = message(call);
            message.put("call", number);
            message.put("acked", acked);
            while (true) {
                interrupted |= Thread.interrupted();
                long leftMs = timeoutNs < 0 ? SLICE_MS : (until - System.nanoTime()) / 1_000_000;
                boolean gives = timeoutNs >= 0 && until - System.nanoTime() <= 0 || interrupted && timeoutNs != 0;
                long waitMs = gives ? SLICE_MS : Math.min(Math.max(leftMs, 0), SLICE_MS) + 1;
                message.remove("give_up");
                if (gives) {
                    message.put("give_up", true);
                }
                message.put("wait_ms", waitMs);
                Frame answer = ask(message, waitMs, gives);
                if (answer == null) {
                    interrupted = true;
                } else if (answer.type() == Messages.RAISED) {
                    Raised raised = new Raised(answer.text("class"), answer.text("text"));
                    if (interrupted && isTimeout(raised)) {
                        interrupted = false;
                        throw new InterruptedException();
                    }
                    throw raised;
                } else if (!answer.truth("waiting")) {
                    byte[] value = answer.bytes("value");
                    if (interrupted && timeoutNs != 0 && isFalse(call, value)) {
                        interrupted = false;
                        throw new InterruptedException();
                    }
                    return new Answer(answer.number("incarnation"), value);
                }
            }
        } finally {
            synchronized (calls) {
                calls.remove(number);
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Whether a call raises this because it gave up. */
    private static boolean isTimeout(Raised raised) {
        return raised.is("queue.Empty") || raised.is("queue.Full") || raised.is("TimeoutError") || raised.is("threading.BrokenBarrierError");
    }

    /** Whether a call answers this because it gave up; the answer of a queue is an item. */
    private static boolean isFalse(Call call, byte[] value) {
        return value.length == 1 && value[0] == (byte) 0xc2 && !call.method().equals("get");
    }

    private Map<String, Object> message(Call call) {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("session", session);
        message.put("kind", call.type());
        message.put("key", call.key());
        message.put("method", call.method());
        message.put("arguments", call.arguments());
        if (call.created().length > 0) {
            message.put("new", call.created());
        }
        if (call.incarnation() != 0) {
            message.put("incarnation", MessagePack.unsigned(call.incarnation()));
        }
        if ((call.flags() & MUST_EXIST) != 0) {
            message.put("must_exist", true);
        }
        if ((call.flags() & PERSISTENT) != 0) {
            message.put("persistent", true);
        }
        if (call.flags() >> COPIES_SHIFT > 1) {
            message.put("rf", call.flags() >> COPIES_SHIFT);
        }
        if (call.fence() != null) {
            message.put("fence", call.fence().message());
        }
        return message;
    }

    /** The answer; null if the thread was interrupted before it came. A call that gives up is answered in any case. */
    private Frame ask(Map<String, Object> message, long waitMs, boolean gives) {
        return client.persistAnywhere(() -> gives ? client.ask(Messages.CALL, message, null, waitMs)
                : client.askInterruptibly(Messages.CALL, message, waitMs));
    }

    @Override
    public void close() {
        if (closed.getCount() > 0) {
            closed.countDown();
            if (renewing == null) {
                return;
            }
            try {
                renew(0, true);
            } catch (MillraceException error) {
                // The lease ends it.
            }
        }
    }
}
