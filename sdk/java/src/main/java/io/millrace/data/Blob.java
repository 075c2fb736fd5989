package io.millrace.data;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;

/** Bytes that are read and written in parts. Python's {@code Blob} of the same key is the same object. */
public final class Blob implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** The blob with this key, which is empty when it is created. */
    public Blob(String key) {
        self = new Reference("Blob", "len", key);
    }

    /** The blob with this key; it has these bytes when it is created. */
    public Blob(String key, byte[] bytes) {
        self = new Reference("Blob", "len", key, bytes);
    }

    private Blob(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Blob withReference(Reference other) {
        return new Blob(other);
    }

    /** All bytes. */
    public byte[] read() {
        return (byte[]) self.call("read", 0, -1);
    }

    /** Up to {@code size} bytes from a place on; fewer at the end. */
    public byte[] read(long offset, int size) {
        return (byte[]) self.call("read", offset, size);
    }

    /** Puts bytes at a place; what is between there and the end before is 0. */
    public void write(long offset, byte[] bytes) {
        self.call("write", offset, bytes);
    }

    /** Puts bytes at the end; returns where they begin. */
    public long append(byte[] bytes) {
        return (Long) self.call("append", bytes);
    }

    /** Truncates it to so many bytes. */
    public void truncate(long size) {
        self.call("truncate", size);
    }

    /** Puts other bytes there. */
    public void replace(byte[] bytes) {
        self.call("replace", bytes);
    }

    /** How many bytes it has. */
    public long size() {
        return (Long) self.call("len");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
