package io.millrace.concurrent;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;

/**
 * A semaphore with the methods of {@link java.util.concurrent.Semaphore}. If a program or task is killed, or loses its connection, its
 * permits are released when its lease expires. If it ends well, they stay acquired.
 */
public final class Semaphore implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A semaphore without a name. */
    public Semaphore(int permits) {
        this(Reference.unnamed(), permits);
    }

    /** A semaphore without a name. It is always fair. */
    public Semaphore(int permits, boolean fair) {
        this(permits);
    }

    /** The semaphore with this key. If it does not exist, it is created with this many permits. */
    public Semaphore(String key, int permits) {
        self = new Reference("Semaphore", "value", key, permits);
    }

    private Semaphore(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Semaphore withReference(Reference other) {
        return new Semaphore(other);
    }

    private boolean acquire(int permits, long timeoutNs) throws InterruptedException {
        return checked(permits) == 0 || (Boolean) self.await(timeoutNs, "acquire", permits);
    }

    private static int checked(int permits) {
        if (permits < 0) {
            throw new IllegalArgumentException(permits + " permits");
        }
        return permits;
    }

    /** Waits for a permit. */
    public void acquire() throws InterruptedException {
        acquire(1, Reference.FOREVER);
    }

    /** Waits for this many permits at once. Calls are served in order, so a later call for fewer permits waits behind this one. */
    public void acquire(int permits) throws InterruptedException {
        acquire(permits, Reference.FOREVER);
    }

    /** Waits for a permit; the wait cannot be interrupted. */
    public void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    /** Waits for this many permits at once; the wait cannot be interrupted. */
    public void acquireUninterruptibly(int permits) {
        if (checked(permits) > 0) {
            self.waitUninterruptibly("acquire", permits);
        }
    }

    /** Acquires a permit if one is free; returns whether it did. */
    public boolean tryAcquire() {
        return tryAcquire(1);
    }

    /** Acquires this many permits if they are free and no other call waits; returns whether it did. */
    public boolean tryAcquire(int permits) {
        return checked(permits) == 0 || (Boolean) self.call("acquire", permits);
    }

    /** Waits at most this long for a permit; returns whether it acquired one. */
    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return acquire(1, Reference.nanos(timeout, unit));
    }

    /** Waits at most this long for this many permits at once; returns whether it acquired them. */
    public boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        return acquire(permits, Reference.nanos(timeout, unit));
    }

    /** Releases a permit. */
    public void release() {
        release(1);
    }

    /** Releases this many permits. */
    public void release(int permits) {
        if (checked(permits) > 0) {
            self.call("release", permits);
        }
    }

    /** Acquires all permits that are free, one after the other; returns how many. */
    public int drainPermits() {
        int drained = 0;
        while (tryAcquire()) {
            drained++;
        }
        return drained;
    }

    /** Always true: the caller that has waited longest gets a permit. */
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
