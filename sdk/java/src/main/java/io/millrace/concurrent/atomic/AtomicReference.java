package io.millrace.concurrent.atomic;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.function.BinaryOperator;
import java.util.function.UnaryOperator;

/**
 * A value of any type, with the methods of {@link java.util.concurrent.atomic.AtomicReference}; initially null. Values are compared by
 * their encoded form. Python's {@code AtomicBytes} with the same key is the same object.
 */
public final class AtomicReference<V> implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;
    private final Class<?> type;

    /** A value without a name, initially null; integers are read as {@link Long}. For another initial value, use a key. */
    public AtomicReference() {
        self = new Reference("AtomicBytes", "get", Reference.unnamed(), (Object) null);
        type = null;
    }

    /** The value with this key; integers are read as {@link Long}. */
    public AtomicReference(String key) {
        this(key, null, null);
    }

    /** The value with this key. If it does not exist, it is created with {@code value}. */
    public AtomicReference(String key, V value) {
        this(key, value, null);
    }

    /** The value with this key, whose numbers are read as this class. If it does not exist, it is created with {@code value}. */
    public AtomicReference(String key, V value, Class<V> type) {
        self = value == null ? new Reference("AtomicBytes", "get", key) : new Reference("AtomicBytes", "get", key, value);
        this.type = type;
    }

    private AtomicReference(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public AtomicReference<V> withReference(Reference other) {
        return new AtomicReference<>(other, type);
    }

    @SuppressWarnings("unchecked")
    private V value(Object value) {
        return (V) Values.as(type, value);
    }

    /** The value. */
    public V get() {
        return value(self.call("get"));
    }

    /** Sets the value. */
    public void set(V value) {
        self.call("set", value);
    }

    /** Sets the value; returns the previous one. */
    public V getAndSet(V value) {
        return value(self.call("get_and_set", value));
    }

    /** Sets the value if the current value is the expected one; returns whether it was. */
    public boolean compareAndSet(V expected, V value) {
        return (Boolean) self.call("compare_and_set", expected, value);
    }

    /** Sets the value to the result of a function of it; returns the new value. The function may be called several times. */
    public V updateAndGet(UnaryOperator<V> function) {
        while (true) {
            V before = get();
            V after = function.apply(before);
            if (compareAndSet(before, after)) {
                return after;
            }
        }
    }

    /** Sets the value to the result of a function of it; returns the previous value. The function may be called several times. */
    public V getAndUpdate(UnaryOperator<V> function) {
        while (true) {
            V before = get();
            if (compareAndSet(before, function.apply(before))) {
                return before;
            }
        }
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the new value. The function may be called several times.
     */
    public V accumulateAndGet(V x, BinaryOperator<V> function) {
        return updateAndGet(value -> function.apply(value, x));
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the previous value. The function may be called several
     * times.
     */
    public V getAndAccumulate(V x, BinaryOperator<V> function) {
        return getAndUpdate(value -> function.apply(value, x));
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
