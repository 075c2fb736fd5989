package io.millrace.data;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A list in the host's memory that only grows, and whose length programs can wait for. It is not a log of the namespace; see {@link
 * io.millrace.Log}. Python's {@code Log} with the same key is the same object.
 */
public final class SharedLog<E> implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;
    private final Class<?> type;

    /** The log with this key; integers in it are read as {@link Long}. */
    public SharedLog(String key) {
        this(key, null);
    }

    /** The log with this key, whose numbers are read as this class. */
    public SharedLog(String key, Class<E> type) {
        self = new Reference("Log", "len", key);
        this.type = type;
    }

    private SharedLog(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public SharedLog<E> withReference(Reference other) {
        return new SharedLog<>(other, type);
    }

    @SuppressWarnings("unchecked")
    private E element(Object value) {
        return (E) Values.as(type, value);
    }

    /** Appends an element; returns its index, from 0. */
    public long append(E element) {
        return (Long) self.call("append", element);
    }

    /** The element at an index. */
    public E get(long index) {
        if (index < 0) {
            // The host counts it from the end; Java does not.
            throw new IndexOutOfBoundsException(index);
        }
        return element(self.call("get", index));
    }

    /** A copy of the elements from one index up to, but not including, another; fewer if the log ends before. */
    public List<E> range(long fromInclusive, long toExclusive) {
        if (fromInclusive < 0 || toExclusive < fromInclusive) {
            throw new IndexOutOfBoundsException("from " + fromInclusive + " to " + toExclusive);
        }
        List<E> found = new ArrayList<>();
        ((List<?>) self.call("slice", fromInclusive, toExclusive)).forEach(value -> found.add(element(value)));
        return found;
    }

    /** A copy of all elements. */
    public List<E> copy() {
        return range(0, Long.MAX_VALUE);
    }

    /** How many elements the log has. */
    public long size() {
        return (Long) self.call("len");
    }

    /** Waits at most this long until the log has at least {@code count} elements; returns whether it has. */
    public boolean waitFor(long count, long timeout, TimeUnit unit) throws InterruptedException {
        try {
            return (Boolean) self.waitFor(Reference.nanos(timeout, unit), "wait_for", count);
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
