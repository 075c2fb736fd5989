package io.millrace.concurrent;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;

/** A latch with the methods of {@link java.util.concurrent.CountDownLatch}. */
public final class CountDownLatch implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A latch without a name. */
    public CountDownLatch(int count) {
        this(Reference.unnamed(), count);
    }

    /** The latch with this key. If it does not exist, it is created with this count. */
    public CountDownLatch(String key, int count) {
        self = new Reference("CountDownLatch", "get_count", key, count);
    }

    private CountDownLatch(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public CountDownLatch withReference(Reference other) {
        return new CountDownLatch(other);
    }

    /** Lowers the count by 1. At 0, all waiting threads continue. */
    public void countDown() {
        self.call("count_down");
    }

    /** The count. */
    public long getCount() {
        return (Long) self.call("get_count");
    }

    /** Waits until the count is 0. */
    public void await() throws InterruptedException {
        self.await(Reference.FOREVER, "wait");
    }

    /** Waits at most this long until the count is 0; returns whether it is. */
    public boolean await(long timeout, TimeUnit unit) throws InterruptedException {
        return (Boolean) self.await(Reference.nanos(timeout, unit), "wait");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
