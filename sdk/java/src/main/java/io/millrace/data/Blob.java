package io.millrace.data;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;

/** Bytes that are read and written in parts. Python's {@code Blob} with the same key is the same object. */
public final class Blob implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** The blob with this key. If it does not exist, it is created empty. */
    public Blob(String key) {
        self = new Reference("Blob", "len", key);
    }

    /** The blob with this key. If it does not exist, it is created with these bytes. */
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

    /** Up to {@code size} bytes from an offset on; fewer at the end. */
    public byte[] read(long offset, int size) {
        return (byte[]) self.call("read", offset, size);
    }

    /** Writes bytes at an offset. A gap after the previous end is filled with zeros. */
    public void write(long offset, byte[] bytes) {
        self.call("write", offset, bytes);
    }

    /** Appends bytes; returns their offset. */
    public long append(byte[] bytes) {
        return (Long) self.call("append", bytes);
    }

    /** Truncates the blob to this many bytes. */
    public void truncate(long size) {
        self.call("truncate", size);
    }

    /** Replaces all bytes. */
    public void replace(byte[] bytes) {
        self.call("replace", bytes);
    }

    /** How many bytes the blob has. */
    public long size() {
        return (Long) self.call("len");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
