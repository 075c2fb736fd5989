package io.millrace.data;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.util.concurrent.TimeUnit;

/** A flag that programs can wait for. Unlike a latch, it can be reset. Python's {@code Event} with the same key is the same object. */
public final class Event implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** An event without a name. */
    public Event() {
        this(Reference.unnamed());
    }

    /** The event with this key. If it does not exist, it is created, not set. */
    public Event(String key) {
        self = new Reference("Event", "is_set", key);
    }

    private Event(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Event withReference(Reference other) {
        return new Event(other);
    }

    /** Sets the event: all waiting threads go on. */
    public void set() {
        self.call("set");
    }

    /** Resets the event. */
    public void clear() {
        self.call("clear");
    }

    /** Whether the event is set. */
    public boolean isSet() {
        return (Boolean) self.call("is_set");
    }

    /** Waits until the event is set. */
    public void await() throws InterruptedException {
        self.await(Reference.FOREVER, "wait");
    }

    /** Waits at most this long until the event is set; returns whether it is. */
    public boolean await(long timeout, TimeUnit unit) throws InterruptedException {
        return (Boolean) self.await(Reference.nanos(timeout, unit), "wait");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
