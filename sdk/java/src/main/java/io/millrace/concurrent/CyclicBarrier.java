package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A barrier with the methods of {@link java.util.concurrent.CyclicBarrier}. It breaks when a waiting thread is interrupted or gives up,
 * or when its program ends or loses its connection.
 */
public final class CyclicBarrier implements SharedObject {
    private static final long serialVersionUID = 1L;
    /** The answer to the thread that runs the action. */
    private static final long ACT = -1;

    private final Reference self;
    private final int parties;
    private final Runnable action;

    /** A barrier without a name, for this many parties. */
    public CyclicBarrier(int parties) {
        this(Reference.unnamed(), parties);
    }

    /**
     * A barrier whose last party to arrive runs the action before any of them continues. An action that is sent to another program must
     * be serializable.
     */
    public CyclicBarrier(int parties, Runnable action) {
        this(Reference.unnamed(), parties, action);
    }

    /** The barrier with this key, for this many parties. */
    public CyclicBarrier(String key, int parties) {
        this(key, parties, null);
    }

    /**
     * A barrier whose last party to arrive runs the action before any of them continues. An action that is sent to another program must
     * be serializable.
     */
    public CyclicBarrier(String key, int parties, Runnable action) {
        self = new Reference("Barrier", "n_waiting", key, parties);
        this.parties = parties;
        this.action = action;
    }

    private CyclicBarrier(Reference self, int parties, Runnable action) {
        this.self = self;
        this.parties = parties;
        this.action = action;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public CyclicBarrier withReference(Reference other) {
        return new CyclicBarrier(other, parties, action);
    }

    /** Waits for all other parties; returns the arrival index: {@code parties - 1} for the first, 0 for the last. */
    public int await() throws InterruptedException, BrokenBarrierException {
        try {
            return await(Reference.FOREVER);
        } catch (TimeoutException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits for all other parties, at most this long; then the barrier breaks. Returns the arrival index. */
    public int await(long timeout, TimeUnit unit) throws InterruptedException, BrokenBarrierException, TimeoutException {
        return await(Reference.nanos(timeout, unit));
    }

    private int await(long timeoutNs) throws InterruptedException, BrokenBarrierException, TimeoutException {
        long until = System.nanoTime() + timeoutNs;
        try {
            long place = (Long) (action == null ? self.waitFor(timeoutNs, "wait") : self.waitFor(timeoutNs, "wait", true));
            if (place == ACT && action != null) {
                try {
                    action.run();
                } catch (Throwable error) {
                    self.call("abort");
                    throw error;
                }
                place = (Long) self.tryCall("acted");
            }
            return parties - 1 - (int) place;
        } catch (Raised raised) {
            if (!raised.is("threading.BrokenBarrierError")) {
                throw raised.toRuntime();
            }
            if (timeoutNs >= 0 && System.nanoTime() - until >= 0) {
                throw new TimeoutException("the barrier broke after " + TimeUnit.NANOSECONDS.toMillis(timeoutNs) + " ms");
            }
            throw new BrokenBarrierException();
        }
    }

    /** Resets the barrier; waiting parties get {@link BrokenBarrierException}. */
    public void reset() {
        self.call("reset");
    }

    /** The number of parties. */
    public int getParties() {
        return parties;
    }

    /** How many parties wait. */
    public int getNumberWaiting() {
        return Math.toIntExact((Long) self.call("n_waiting"));
    }

    /** Whether the barrier is broken. */
    public boolean isBroken() {
        return (Boolean) self.call("broken");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
