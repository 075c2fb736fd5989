package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;

/**
 * A semaphore, shaped like {@link java.util.concurrent.Semaphore}. Permits of a program that is gone are released when its lease
 * expires; those of a task are, when it ends.
 */
public final class Semaphore implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A semaphore without a name. */
    public Semaphore(int permits) {
        this(Reference.unnamed(), permits);
    }

    /** A semaphore without a name; it is fair in any case. */
    public Semaphore(int permits, boolean fair) {
        this(permits);
    }

    /** The semaphore with this key; it has this many permits when it is created. */
    public Semaphore(String key, int permits) {
        self = new Reference("Semaphore", "value", key, permits);
    }

    @Override
    public Reference reference() {
        return self;
    }

    private boolean acquire(long timeoutNs) throws InterruptedException {
        try {
            return (Boolean) self.waitFor(timeoutNs, "acquire");
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    /** Waits for a permit. */
    public void acquire() throws InterruptedException {
        acquire(Reference.FOREVER);
    }

    /** Waits for a permit; the wait cannot be interrupted. */
    public void acquireUninterruptibly() {
        self.waitUninterruptibly("acquire");
    }

    /** Acquires a permit if one is free; returns whether it did. */
    public boolean tryAcquire() {
        return (Boolean) self.call("acquire");
    }

    /** Waits at most this long for a permit; returns whether it acquired one. */
    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return acquire(Reference.nanos(timeout, unit));
    }

    /** Releases a permit. */
    public void release() {
        release(1);
    }

    /** Releases this many permits. */
    public void release(int permits) {
        self.call("release", permits);
    }

    /** Acquires all permits that are free, one after the other; returns how many. */
    public int drainPermits() {
        int drained = 0;
        while (tryAcquire()) {
            drained++;
        }
        return drained;
    }

    /** True: the caller that has waited longest gets a permit. */
    public boolean isFair() {
        return true;
    }

    /** How many permits are free. */
    public int availablePermits() {
        return Math.toIntExact((Long) self.call("value"));
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
