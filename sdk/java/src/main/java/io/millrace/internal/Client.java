package io.millrace.internal;

import io.millrace.MillraceException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A host, over a connection that is opened again when it is lost; or several hosts of a cluster, of which one is used. Any number of threads
 * may use it.
 */
public final class Client implements AutoCloseable {
    /** Errors after which another connection may help. */
    private static final Set<String> LOST = Set.of("MR6008", "MR6009", "MR6053", "MR6121", "MR6122", "MR6123", "MR6127");
    private static final long PAUSE_FIRST_MS = 20;
    private static final long PAUSE_MOST_MS = 2000;
    /** How long a connection has to last so that its loss is a new one, and how often that counts for one request. */
    private static final long LASTED_MS = 1000;
    private static final int LOSSES_MAX = 10;

    /** Errors of a host without a majority: another host may have one. */
    private static final String NO_MAJORITY = "MR7208";

    private final List<Place> places;
    private final Options options;
    /** The host that is used. */
    private volatile int at;
    private volatile Connection connection;
    /** Further connections to this host, which are opened while so many requests wait. */
    private final List<Connection> further = new CopyOnWriteArrayList<>();
    private volatile boolean closed;

    /** Connects to the first of these hosts that can be reached. */
    public Client(List<Place> places, Options options) {
        this.places = List.copyOf(places);
        this.options = options;
        connection = first();
    }

    private Connection first() {
        for (at = 0;; at++) {
            try {
                return Connection.open(place(), options);
            } catch (MillraceException error) {
                if (at == places.size() - 1) {
                    throw error;
                }
            }
        }
    }

    /** Switches to the next host, unless another thread has already switched. */
    private synchronized void turn(int from) {
        if (at == from) {
            at = (from + 1) % places.size();
            connection.retire();
            further.forEach(Connection::retire);
        }
    }

    /** Whether another connection may help after this error. */
    public static boolean isLost(MillraceException error) {
        return LOST.contains(error.code());
    }

    /** The address of the host. */
    public Place place() {
        return places.get(at);
    }

    /** All hosts that may be used. */
    public List<Place> places() {
        return places;
    }

    /** The other hosts that may be used. */
    public List<Place> others() {
        Place asked = place();
        return places.stream().filter(place -> !place.equals(asked)).toList();
    }

    /** The options of the connection. */
    public Options options() {
        return options;
    }

    /** The host's WELCOME. */
    public Frame host() {
        return connection.host();
    }

    /** A connection that has room for another request. */
    private Connection free() {
        Connection now = connected();
        if (now.hasRoom()) {
            return now;
        }
        Connection other = furtherWithRoom();
        if (other != null) {
            return other;
        }
        synchronized (this) {
            other = furtherWithRoom();
            if (other == null) {
                if (closed) {
                    throw new IllegalStateException("the connection to " + place() + " is closed");
                }
                further.removeIf(ended -> !ended.isUsable());
                other = Connection.open(place(), options);
                further.add(other);
            }
            return other;
        }
    }

    private Connection furtherWithRoom() {
        return further.stream().filter(other -> other.isUsable() && other.hasRoom()).findFirst().orElse(null);
    }

    private Connection connected() {
        Connection now = connection;
        if (now.isUsable()) {
            return now;
        }
        synchronized (this) {
            if (closed) {
                throw new IllegalStateException("the connection to " + place() + " is closed");
            }
            if (!connection.isUsable()) {
                connection = Connection.open(place(), options);
            }
            return connection;
        }
    }

    /** A pending answer. */
    private static final class Pending implements Connection.Sink {
        private final CompletableFuture<Frame> answered = new CompletableFuture<>();

        @Override
        public boolean answer(Frame frame) {
            answered.complete(frame);
            return true;
        }

        @Override
        public void lost(MillraceException why) {
            answered.completeExceptionally(why);
        }
    }

    /** Sends a request that the host may answer after {@code waitMs}, and waits for its answer. */
    public Frame ask(int type, Map<String, Object> message, byte[] cause, long waitMs) {
        return ask(type, message, cause, waitMs, false);
    }

    /** The same; null if the thread was interrupted before the answer came. */
    public Frame askInterruptibly(int type, Map<String, Object> message, long waitMs) {
        return ask(type, message, null, waitMs, true);
    }

    private Frame ask(int type, Map<String, Object> message, byte[] cause, long waitMs, boolean interruptible) {
        Connection asked = free();
        Pending pending = new Pending();
        long number = asked.request(type, message, cause, pending);
        Frame answer;
        try {
            answer = await(asked, pending, options.requestMs() + waitMs, interruptible);
        } finally {
            asked.forget(number);
        }
        if (answer == null) {
            return null;
        }
        answer.checked();
        if (answer.type() == Messages.FAILURE) {
            throw Connection.failure(answer);
        }
        return answer;
    }

    private Frame await(Connection asked, Pending pending, long patienceMs, boolean interruptible) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        long silence = TimeUnit.MILLISECONDS.toNanos(options.silenceMs());
        long begun = System.nanoTime();
        boolean interrupted = false;
        boolean pinged = false;
        try {
            while (true) {
                long now = System.nanoTime();
                long quiet = now - Math.max(begun, asked.heardNs());
                if (now - until >= 0) {
                    throw new MillraceException("MR6124", asked.place() + " did not answer within " + patienceMs + " ms");
                } else if (quiet >= silence) {
                    throw asked.end(new MillraceException("MR6127", asked.place() + "  has been silent for  " + options.silenceMs() + " ms"));
                } else if (quiet < silence / 2) {
                    pinged = false;
                } else if (!pinged) {
                    asked.ping();
                    pinged = true;
                }
                try {
                    return pending.answered.get(Math.min(until - now, silence / 2), TimeUnit.NANOSECONDS);
                } catch (TimeoutException error) {
                    continue;
                } catch (InterruptedException error) {
                    if (interruptible) {
                        return null;
                    }
                    interrupted = true;
                } catch (ExecutionException error) {
                    throw (MillraceException) error.getCause();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** The same for a request that takes effect once, however often it is sent: it is sent again when the connection is lost. */
    public Frame insist(int type, Map<String, Object> message, byte[] cause, long waitMs) {
        return persist(() -> ask(type, message, cause, waitMs));
    }

    /** Repeats an action while connections are lost, for the time in the options. */
    public <T> T persist(Supplier<T> work) {
        return persist(work, false);
    }

    /** The same for an action that any of the hosts can do: the next one is used when one is lost. */
    public <T> T persistAnywhere(Supplier<T> work) {
        return persist(work, places.size() > 1);
    }

    private <T> T persist(Supplier<T> work, boolean anywhere) {
        // From the first error on, however long the request waited before, and again if a connection was lost that had lasted.
        long until = 0;
        boolean failed = false;
        int losses = 0;
        long pause = PAUSE_FIRST_MS;
        while (true) {
            int asked = at;
            long begun = System.nanoTime();
            try {
                return work.get();
            } catch (MillraceException error) {
                boolean again = isLost(error) || anywhere && error.is(NO_MAJORITY);
                boolean lasted = error.is("MR6123") && System.nanoTime() - begun > TimeUnit.MILLISECONDS.toNanos(LASTED_MS);
                if (!failed || lasted && losses++ < LOSSES_MAX) {
                    failed = true;
                    pause = PAUSE_FIRST_MS;
                    until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.reconnectMs());
                }
                if (closed || !again || System.nanoTime() - until >= 0) {
                    throw error;
                }
            }
            if (anywhere) {
                turn(asked);
            }
            pause(pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1));
            pause = Math.min(2 * pause, PAUSE_MOST_MS);
        }
    }

    /** Sleeps, whether the thread is interrupted or not. */
    public static void pause(long ms) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
        boolean interrupted = false;
        for (long left = ms; left > 0; left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime())) {
            try {
                Thread.sleep(left);
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** A request with a series of answers. */
    public final class Stream {
        private final Connection asked;
        private final long number;

        private Stream(Connection asked, long number) {
            this.asked = asked;
            this.number = number;
        }

        /** Sends a message about the request, such as more credit. */
        public void send(int type, Map<String, Object> message) {
            asked.send(type, number, message);
        }

        /** Cancels the request: no more answers follow. */
        public void cancel() {
            asked.forget(number);
            if (asked.isOpen()) {
                asked.send(Messages.CANCEL, number, Map.of());
            }
        }

        /** Checks whether the host still answers, and ends the connection if it was silent for too long. Call it every few seconds. */
        public void look() {
            long quiet = System.nanoTime() - asked.heardNs();
            if (quiet >= TimeUnit.MILLISECONDS.toNanos(options.silenceMs())) {
                asked.end(new MillraceException("MR6127", asked.place() + "  has been silent for  " + options.silenceMs() + " ms"));
            } else if (quiet >= TimeUnit.MILLISECONDS.toNanos(options.silenceMs()) / 2) {
                asked.ping();
            }
        }
    }

    /** Sends a request with many answers; {@code take} gets each on the connection's thread, and returns whether it was the last. */
    public Stream stream(int type, Map<String, Object> message, Function<Frame, Boolean> take,
            java.util.function.Consumer<MillraceException> lost) {
        Connection asked = connected();
        long number = asked.request(type, message, null, new Connection.Sink() {
            @Override
            public boolean answer(Frame frame) {
                return take.apply(frame);
            }

            @Override
            public void lost(MillraceException why) {
                lost.accept(why);
            }
        });
        return new Stream(asked, number);
    }

    @Override
    public void close() {
        synchronized (this) {
            closed = true;
        }
        connection.close();
        further.forEach(Connection::close);
    }
}
