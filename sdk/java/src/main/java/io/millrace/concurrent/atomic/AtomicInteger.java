package io.millrace.concurrent.atomic;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.function.IntBinaryOperator;
import java.util.function.IntUnaryOperator;

/**
 * A number with the methods of {@link java.util.concurrent.atomic.AtomicInteger}. The host stores 64 bits. A result out of their range
 * throws {@link ArithmeticException} and changes nothing. A result that does not fit an {@code int} throws it after the change.
 */
public final class AtomicInteger extends Number implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A number without a name, initially 0. */
    public AtomicInteger() {
        this(Reference.unnamed(), 0);
    }

    /** A number without a name, initially {@code value}. */
    public AtomicInteger(int value) {
        this(Reference.unnamed(), value);
    }

    /** The number with this key, initially 0. */
    public AtomicInteger(String key) {
        self = new Reference("AtomicInt", "get", key);
    }

    /** The number with this key. If it does not exist, it is created with {@code value}. */
    public AtomicInteger(String key, int value) {
        self = new Reference("AtomicInt", "get", key, value);
    }

    private static int toInt(Object value) {
        return Math.toIntExact((Long) value);
    }

    private AtomicInteger(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public AtomicInteger withReference(Reference other) {
        return new AtomicInteger(other);
    }

    /** The value. */
    public int get() {
        return toInt(self.call("get"));
    }

    /** Sets the value. */
    public void set(int value) {
        self.call("set", value);
    }

    /** Sets the value; returns the previous one. */
    public int getAndSet(int value) {
        return toInt(self.call("get_and_set", value));
    }

    /** Sets the value if the current value is the expected one; returns whether it was. */
    public boolean compareAndSet(int expected, int value) {
        return (Boolean) self.call("compare_and_set", expected, value);
    }

    /** Adds to the value; returns the sum. */
    public int addAndGet(int delta) {
        return toInt(self.call("add_and_get", delta));
    }

    /** Adds to the value; returns the previous value. */
    public int getAndAdd(int delta) {
        return toInt(self.call("get_and_add", delta));
    }

    /** Multiplies the value; returns the product. */
    public int multiplyAndGet(int factor) {
        return toInt(self.call("multiply_and_get", factor));
    }

    public int incrementAndGet() {
        return addAndGet(1);
    }

    public int decrementAndGet() {
        return addAndGet(-1);
    }

    public int getAndIncrement() {
        return getAndAdd(1);
    }

    public int getAndDecrement() {
        return getAndAdd(-1);
    }

    /** Sets the value to the result of a function of it; returns the new value. The function may be called several times. */
    public int updateAndGet(IntUnaryOperator function) {
        while (true) {
            int before = get();
            int after = function.applyAsInt(before);
            if (compareAndSet(before, after)) {
                return after;
            }
        }
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the new value. The function may be called several times.
     */
    public int accumulateAndGet(int x, IntBinaryOperator function) {
        return updateAndGet(value -> function.applyAsInt(value, x));
    }

    /** Sets the value to the result of a function of it; returns the previous value. The function may be called several times. */
    public int getAndUpdate(IntUnaryOperator function) {
        while (true) {
            int before = get();
            if (compareAndSet(before, function.applyAsInt(before))) {
                return before;
            }
        }
    }

    /**
     * Sets the value to the result of a function of it and {@code x}; returns the previous value. The function may be called several
     * times.
     */
    public int getAndAccumulate(int x, IntBinaryOperator function) {
        return getAndUpdate(value -> function.applyAsInt(value, x));
    }

    @Override
    public int intValue() {
        return get();
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
