package io.millrace.concurrent.locks;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import java.io.Serializable;
import java.util.Date;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A condition of a shared lock. Its waiters are an object of the host, so that programs and tasks on other machines wake them. It travels in
 * arguments of tasks, with its lock.
 */
final class SharedCondition implements Condition, Serializable {
    private static final long serialVersionUID = 1L;
    private static final long ALL = (1L << 62) - 1;

    private final Conditional lock;
    private final Reference waiters;

    /** What a lock with conditions can do besides. */
    interface Conditional extends Serializable {
        /** Whether the caller may have the lock. */
        boolean isOwned();

        /** Releases the lock, however often it was acquired; returns how often that was. */
        int releaseAll();

        /** Acquires the lock as often as before. */
        void acquireAgain(int holds);
    }

    /** What waits until the condition is signalled. */
    private interface Wait {
        boolean run() throws InterruptedException;
    }

    SharedCondition(Conditional lock, Reference waiters) {
        this.lock = lock;
        this.waiters = waiters;
    }

    private boolean waitFor(Wait wait) throws InterruptedException {
        if (!lock.isOwned()) {
            throw new IllegalMonitorStateException("the caller does not have the lock");
        }
        // Whoever signals has the lock first and then this one: no signal comes between the release and the wait.
        waiters.waitUninterruptibly("acquire");
        int holds;
        try {
            holds = lock.releaseAll();
        } catch (RuntimeException error) {
            waiters.call("release");
            throw error;
        }
        try {
            return wait.run();
        } finally {
            waiters.call("release");
            lock.acquireAgain(holds);
        }
    }

    private boolean waitFor(long timeoutNs) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        return waitFor(() -> {
            try {
                return (Boolean) waiters.waitFor(timeoutNs, "wait");
            } catch (Raised raised) {
                throw raised.toRuntime();
            }
        });
    }

    @Override
    public void await() throws InterruptedException {
        waitFor(Reference.FOREVER);
    }

    @Override
    public void awaitUninterruptibly() {
        try {
            waitFor(() -> (Boolean) waiters.waitUninterruptibly("wait"));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public long awaitNanos(long timeoutNs) throws InterruptedException {
        long until = System.nanoTime() + timeoutNs;
        boolean signalled = waitFor(Math.max(0, timeoutNs));
        long left = until - System.nanoTime();
        // A signal that came in time is one, however long the lock took.
        return signalled ? Math.max(1, left) : Math.min(0, left);
    }

    @Override
    public boolean await(long timeout, TimeUnit unit) throws InterruptedException {
        return waitFor(Reference.nanos(timeout, unit));
    }

    @Override
    public boolean awaitUntil(Date deadline) throws InterruptedException {
        return await(deadline.getTime() - System.currentTimeMillis(), TimeUnit.MILLISECONDS);
    }

    private void wake(long count) {
        if (!lock.isOwned()) {
            throw new IllegalMonitorStateException("the caller does not have the lock");
        }
        waiters.waitUninterruptibly("acquire");
        try {
            waiters.call("notify", count);
        } finally {
            waiters.call("release");
        }
    }

    @Override
    public void signal() {
        wake(1);
    }

    @Override
    public void signalAll() {
        wake(ALL);
    }

    @Override
    public String toString() {
        return waiters.toString();
    }
}
