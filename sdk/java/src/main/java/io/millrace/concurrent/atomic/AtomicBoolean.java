package io.millrace.concurrent.atomic;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;

/** A boolean, shaped like {@link java.util.concurrent.atomic.AtomicBoolean}. */
public final class AtomicBoolean implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** A value without a name, initially false. */
    public AtomicBoolean() {
        this(Reference.unnamed(), false);
    }

    /** A value without a name, initially this. */
    public AtomicBoolean(boolean value) {
        this(Reference.unnamed(), value);
    }

    /** The value with this key, initially false. */
    public AtomicBoolean(String key) {
        self = new Reference("AtomicBool", "get", key);
    }

    /** The value with this key; it has this value when it is created. */
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

    /** Sets the value if the current one is the expected one; returns whether it was. */
    public boolean compareAndSet(boolean expected, boolean value) {
        return (Boolean) self.call("compare_and_set", expected, value);
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
