package io.millrace.concurrent.locks;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A lock for programs and tasks, with the methods of {@link java.util.concurrent.locks.Lock}. It is not reentrant, and its owner is a
 * program or task, not a thread; the owner of a {@link ReentrantLock} is a thread. If the owner ends or loses its connection, it loses
 * the lock when its lease expires.
 *
 * <p>{@link #acquire} returns a fencing token, which is higher with each owner. A resource that gets the token with each request can
 * refuse requests of an earlier owner that does not know yet that it has lost the lock.
 */
public final class Lock implements java.util.concurrent.locks.Lock, SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;
    private int conditions;

    /** The lock with this key. */
    public Lock(String key) {
        self = new Reference("Lock", "locked", key);
    }

    private Lock(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Lock withReference(Reference other) {
        return new Lock(other);
    }

    /** Waits for the lock; returns its fencing token. */
    public long acquire() throws InterruptedException {
        try {
            return (Long) self.waitFor(Reference.FOREVER, "acquire");
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    @Override
    public void lock() {
        self.waitUninterruptibly("acquire");
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        acquire();
    }

    @Override
    public boolean tryLock() {
        return !Boolean.FALSE.equals(self.call("acquire"));
    }

    @Override
    public boolean tryLock(long timeout, TimeUnit unit) throws InterruptedException {
        try {
            return !Boolean.FALSE.equals(self.waitFor(Reference.nanos(timeout, unit), "acquire"));
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    /** Releases the lock; throws {@link IllegalMonitorStateException} if this program or task does not own it. */
    @Override
    public void unlock() {
        try {
            self.tryCall("release");
        } catch (Raised raised) {
            throw raised.is("RuntimeError") ? new IllegalMonitorStateException(raised.getMessage()) : raised.toRuntime();
        }
    }

    /** Whether any program or task owns the lock. */
    public boolean isLocked() {
        return (Boolean) self.call("locked");
    }

    /** The fencing token of the newest owner; 0 if there was none. */
    public long token() {
        return (Long) self.call("token");
    }

    /**
     * A condition of this lock. The first one that a program creates is the same for all programs that use the lock's key, and so is the
     * second one, and so on.
     */
    @Override
    public Condition newCondition() {
        return new SharedCondition(new Owned(this), waiters());
    }

    /** The object with the waiters of the next condition. */
    synchronized Reference waiters() {
        return self.beside("Condition", "locked", "condition-" + conditions++);
    }

    /** The lock for its conditions. */
    private record Owned(Lock lock) implements SharedCondition.Conditional {
        @Override
        public boolean isOwned() {
            // Only the host knows the owner: it refuses a release by another one.
            return lock.isLocked();
        }

        @Override
        public int releaseAll() {
            lock.unlock();
            return 1;
        }

        @Override
        public void acquireAgain(int holds) {
            lock.lock();
        }
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
