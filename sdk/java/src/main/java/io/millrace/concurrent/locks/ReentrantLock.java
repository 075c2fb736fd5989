package io.millrace.concurrent.locks;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A lock for the threads of programs and tasks, with the methods of {@link java.util.concurrent.locks.ReentrantLock}. Its owner is a
 * thread, which can acquire it again. If the owner's program ends or loses its connection, it loses the lock when its lease expires. It
 * is the same object as the {@link Lock} with its key, so programs in Python use it as a {@code Lock}. The lock is fair: the caller that
 * has waited longest gets it.
 */
public final class ReentrantLock implements java.util.concurrent.locks.Lock, SharedObject {
    private static final long serialVersionUID = 1L;

    private final Lock lock;

    /** Which thread of this program or task has the lock, and how often. */
    private static final class Hold {
        private volatile Thread owner;
        private int count;
    }

    /** A lock without a name. */
    public ReentrantLock() {
        this(Reference.unnamed());
    }

    /** A lock without a name. It is always fair. */
    public ReentrantLock(boolean fair) {
        this();
    }

    /** The lock with this key. */
    public ReentrantLock(String key) {
        lock = new Lock(key);
    }

    private ReentrantLock(Lock lock) {
        this.lock = lock;
    }

    @Override
    public Reference reference() {
        return lock.reference();
    }

    @Override
    public ReentrantLock withReference(Reference other) {
        return new ReentrantLock(lock.withReference(other));
    }

    private Hold hold() {
        return (Hold) reference().local(Hold::new);
    }

    /** Whether the thread has it already; then it has it once more. */
    private boolean again(Hold hold) {
        if (hold.owner != Thread.currentThread()) {
            return false;
        }
        hold.count = Math.addExact(hold.count, 1);
        return true;
    }

    private void own(Hold hold, int count) {
        hold.count = count;
        hold.owner = Thread.currentThread();
    }

    @Override
    public void lock() {
        Hold hold = hold();
        if (!again(hold)) {
            lock.lock();
            own(hold, 1);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        Hold hold = hold();
        if (!again(hold)) {
            lock.lockInterruptibly();
            own(hold, 1);
        }
    }

    @Override
    public boolean tryLock() {
        Hold hold = hold();
        if (again(hold)) {
            return true;
        } else if (!lock.tryLock()) {
            return false;
        }
        own(hold, 1);
        return true;
    }

    @Override
    public boolean tryLock(long timeout, TimeUnit unit) throws InterruptedException {
        Hold hold = hold();
        if (again(hold)) {
            return true;
        } else if (!lock.tryLock(timeout, unit)) {
            return false;
        }
        own(hold, 1);
        return true;
    }

    private Hold held() {
        Hold hold = hold();
        if (hold.owner != Thread.currentThread()) {
            throw new IllegalMonitorStateException("this thread does not have the lock");
        }
        return hold;
    }

    /**
     * Releases the lock once. After as many releases as acquisitions, the lock is free. Throws {@link IllegalMonitorStateException} if
     * this thread does not own the lock, or no longer owns it because the program's lease has expired.
     */
    @Override
    public void unlock() {
        Hold hold = held();
        if (hold.count > 1) {
            hold.count--;
        } else {
            releaseAll();
        }
    }

    private int releaseAll() {
        Hold hold = held();
        int count = hold.count;
        // First, because another thread of the program may have the lock as soon as the host has released it.
        hold.count = 0;
        hold.owner = null;
        lock.unlock();
        return count;
    }

    /** The lock for its conditions. */
    private record Owned(ReentrantLock lock) implements SharedCondition.Conditional {
        @Override
        public boolean isOwned() {
            return lock.isHeldByCurrentThread();
        }

        @Override
        public int releaseAll() {
            return lock.releaseAll();
        }

        @Override
        public void acquireAgain(int holds) {
            lock.lock.lock();
            lock.own(lock.hold(), holds);
        }
    }

    /**
     * A condition of this lock. The first one that a program creates is the same for all programs that use the lock's key, and so is the
     * second one, and so on.
     */
    @Override
    public Condition newCondition() {
        return new SharedCondition(new Owned(this), lock.waiters());
    }

    /** Whether this thread owns the lock. */
    public boolean isHeldByCurrentThread() {
        return hold().owner == Thread.currentThread();
    }

    /** How often this thread has acquired the lock. */
    public int getHoldCount() {
        Hold hold = hold();
        return hold.owner == Thread.currentThread() ? hold.count : 0;
    }

    /** Whether any thread of a program or task owns the lock. */
    public boolean isLocked() {
        return lock.isLocked();
    }

    /** Always true. */
    public boolean isFair() {
        return true;
    }

    /** The fencing token of the newest owner; 0 if there was none. */
    public long token() {
        return lock.token();
    }

    @Override
    public String toString() {
        return lock.toString();
    }
}
