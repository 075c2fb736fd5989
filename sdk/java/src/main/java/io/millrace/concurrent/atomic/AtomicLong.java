package io.millrace.concurrent.atomic;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.function.LongBinaryOperator;
import java.util.function.LongUnaryOperator;

/**
 * A number of 64 bits with the methods of {@link java.util.concurrent.atomic.AtomicLong}. A result out of range throws {@link
 * ArithmeticException} and changes nothing.
 */
public final class AtomicLong extends Number implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A number without a name, initially 0. */
    public AtomicLong() {
        this(Reference.unnamed(), 0);
    }

    /** A number without a name, initially {@code value}. */
    public AtomicLong(long value) {
        this(Reference.unnamed(), value);
    }

    /** The number with this key, initially 0. */
    public AtomicLong(String key) {
        self = new Reference("AtomicLong", "get", key);
    }

    /** The number with this key. If it does not exist, it is created with {@code value}. */
    public AtomicLong(String key, long value) {
        self = new Reference("AtomicLong", "get", key, value);
    }

    private AtomicLong(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public AtomicLong withReference(Reference other) {
        return new AtomicLong(other);
    }

    /** The value. */
    public long get() {
        return (Long) self.call("get");
    }

    /** Sets the value. */
    public void set(long value) {
        self.call("set", value);
    }

    /** Sets the value; returns the previous one. */
    public long getAndSet(long value) {
        return (Long) self.call("get_and_set", value);
    }

    /** Sets the value if the current value is the expected one; returns whether it was. */
    public boolean compareAndSet(long expected, long value) {
        return (Boolean) self.call("compare_and_set", expected, value);
    }

    /** Adds to the value; returns the sum. */
    public long addAndGet(long delta) {
        return (Long) self.call("add_and_get", delta);
    }

    /** Adds to the value; returns the previous value. */
    public long getAndAdd(long delta) {
        return (Long) self.call("get_and_add", delta);
    }

    /** Multiplies the value; returns the product. */
    public long multiplyAndGet(long factor) {
        return (Long) self.call("multiply_and_get", factor);
    }

    public long incrementAndGet() {
        return addAndGet(1);
    }

    public long decrementAndGet() {
        return addAndGet(-1);
    }

    public long getAndIncrement() {
        return getAndAdd(1);
    }

    public long getAndDecrement() {
        return getAndAdd(-1);
    }

    /** Sets the value to the result of a function of it; returns the new value. The function may be called several times. */
    public long updateAndGet(LongUnaryOperator function) {
        while (true) {
            long before = get();
            long after = function.applyAsLong(before);
            if (compareAndSet(before, after)) {
                return after;
            }
        }
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the new value. The function may be called several times.
     */
    public long accumulateAndGet(long x, LongBinaryOperator function) {
        return updateAndGet(value -> function.applyAsLong(value, x));
    }

    /** Sets the value to the result of a function of it; returns the previous value. The function may be called several times. */
    public long getAndUpdate(LongUnaryOperator function) {
        while (true) {
            long before = get();
            if (compareAndSet(before, function.applyAsLong(before))) {
                return before;
            }
        }
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the previous value. The function may be called several
     * times.
     */
    public long getAndAccumulate(long x, LongBinaryOperator function) {
        return getAndUpdate(value -> function.applyAsLong(value, x));
    }

    @Override
    public int intValue() {
        return (int) get();
    }

    @Override
    public long longValue() {
        return get();
    }

    @Override
    public float floatValue() {
        return get();
    }

    @Override
    public double doubleValue() {
        return get();
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
