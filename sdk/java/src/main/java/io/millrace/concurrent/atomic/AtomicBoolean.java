package io.millrace.concurrent.atomic;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;

/** A boolean with the methods of {@link java.util.concurrent.atomic.AtomicBoolean}. */
public final class AtomicBoolean implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A value without a name, initially false. */
    public AtomicBoolean() {
        this(Reference.unnamed(), false);
    }

    /** A value without a name, initially {@code value}. */
    public AtomicBoolean(boolean value) {
        this(Reference.unnamed(), value);
    }

    /** The value with this key, initially false. */
    public AtomicBoolean(String key) {
        self = new Reference("AtomicBool", "get", key);
    }

    /** The value with this key. If it does not exist, it is created with {@code value}. */
    public AtomicBoolean(String key, boolean value) {
        self = new Reference("AtomicBool", "get", key, value);
    }

    private AtomicBoolean(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public AtomicBoolean withReference(Reference other) {
        return new AtomicBoolean(other);
    }

    /** The value. */
    public boolean get() {
        return (Boolean) self.call("get");
    }

    /** Sets the value. */
    public void set(boolean value) {
        self.call("set", value);
    }

    /** Sets the value; returns the previous one. */
    public boolean getAndSet(boolean value) {
        return (Boolean) self.call("get_and_set", value);
    }

    /** Sets the value if the current value is the expected one; returns whether it was. */
    public boolean compareAndSet(boolean expected, boolean value) {
        return (Boolean) self.call("compare_and_set", expected, value);
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
