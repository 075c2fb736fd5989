package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.AbstractQueue;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * A queue with the methods of {@link java.util.concurrent.LinkedBlockingQueue}. A waiting call uses no thread of the host. An iterator
 * returns the items as of its creation, and cannot remove any. Python's {@code Queue} with the same key is the same object.
 */
public class BlockingQueue<E> extends AbstractQueue<E> implements java.util.concurrent.BlockingQueue<E>, SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;
    final Class<?> type;

    /** The queue with this key, without a limit; integers in it are read as {@link Long}. */
    public BlockingQueue(String key) {
        this(key, 0, null);
    }

    /** The queue with this key. If the queue does not exist, it is created with this capacity; 0 means no limit. */
    public BlockingQueue(String key, int capacity) {
        this(key, capacity, null);
    }

    /** The queue with this key and capacity, whose numbers are read as this class. */
    public BlockingQueue(String key, int capacity, Class<E> type) {
        self = capacity > 0 ? new Reference("Queue", "qsize", key, capacity) : new Reference("Queue", "qsize", key);
        this.type = type;
    }

    BlockingQueue(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public BlockingQueue<E> withReference(Reference other) {
        return new BlockingQueue<>(other, type);
    }

    private boolean offer(long timeoutNs, E item) throws InterruptedException {
        try {
            self.waitFor(timeoutNs, "put", Objects.requireNonNull(item));
            return true;
        } catch (Raised raised) {
            if (raised.is("queue.Full")) {
                return false;
            }
            throw raised.toRuntime();
        }
    }

    @SuppressWarnings("unchecked")
    private E poll(long timeoutNs) throws InterruptedException {
        try {
            return (E) Values.as(type, self.waitFor(timeoutNs, "get"));
        } catch (Raised raised) {
            if (raised.is("queue.Empty")) {
                return null;
            }
            throw raised.toRuntime();
        }
    }

    @Override
    public void put(E item) throws InterruptedException {
        offer(Reference.FOREVER, item);
    }

    @Override
    public boolean offer(E item, long timeout, TimeUnit unit) throws InterruptedException {
        return offer(Reference.nanos(timeout, unit), item);
    }

    @Override
    public boolean offer(E item) {
        try {
            return offer(0, item);
        } catch (InterruptedException error) {
            // Only a call that waits can be interrupted.
            throw new IllegalStateException(error);
        }
    }

    @Override
    public E take() throws InterruptedException {
        return poll(Reference.FOREVER);
    }

    @Override
    public E poll(long timeout, TimeUnit unit) throws InterruptedException {
        return poll(Reference.nanos(timeout, unit));
    }

    @Override
    public E poll() {
        try {
            return poll(0);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public int drainTo(Collection<? super E> to) {
        return drainTo(to, Integer.MAX_VALUE);
    }

    @Override
    public int drainTo(Collection<? super E> to, int most) {
        if (to == this) {
            throw new IllegalArgumentException("a queue cannot be drained into itself");
        }
        int taken = 0;
        while (taken < most) {
            E item = poll();
            if (item == null) {
                break;
            }
            to.add(item);
            taken++;
        }
        return taken;
    }

    @Override
    public int size() {
        return Math.toIntExact((Long) self.call("qsize"));
    }

    @Override
    public int remainingCapacity() {
        long capacity = (Long) self.call("maxsize");
        return capacity <= 0 ? Integer.MAX_VALUE : (int) Math.max(0, Math.min(Integer.MAX_VALUE, capacity - size()));
    }

    /** Marks an item that was taken as done. */
    public void taskDone() {
        self.call("task_done");
    }

    /** Waits until every item that was put in is done. */
    public void join() throws InterruptedException {
        self.await(Reference.FOREVER, "join");
    }

    @Override
    @SuppressWarnings("unchecked")
    public E peek() {
        try {
            return (E) Values.as(type, self.tryCall("peek"));
        } catch (Raised raised) {
            if (raised.is("queue.Empty")) {
                return null;
            }
            throw raised.toRuntime();
        }
    }

    /** The items at this moment, the oldest first. */
    @Override
    @SuppressWarnings("unchecked")
    public Iterator<E> iterator() {
        List<?> items = (List<?>) self.call("items");
        return items.stream().map(item -> (E) Values.as(type, item)).toList().iterator();
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
