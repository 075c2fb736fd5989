package io.millrace.space;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Where calls of shared objects go: from a program over its connection, or from a task to the host that runs it. */
public abstract class Space {
    /** A call that may not wait. */
    public static final int GIVE_UP = 1;
    /** A call that does not create its object. */
    public static final int MUST_EXIST = 2;
    /** A call of a persistent object. */
    public static final int PERSISTENT = 8;
    /** Above the flags is how many hosts of a cluster have a copy of the object. */
    static final int COPIES_SHIFT = 8;
    static final int COPIES_MAX = 3;

    private static volatile Space current;

    /** What the program or task knows of its objects: by type and key. */
    final Map<String, Object> known = new ConcurrentHashMap<>();

    /**
     * A call of a method.
     *
     * @param type the type of the object
     * @param key its key
     * @param method the method
     * @param arguments an array, as it travels
     * @param created the constructor's arguments likewise; empty for none
     * @param incarnation that of an earlier answer; 0 for any
     * @param flags those above
     * @param fence the token of a lock; null for none
     */
    public record Call(String type, String key, String method, byte[] arguments, byte[] created, long incarnation, int flags, Fence fence) {}

    /**
     * What a call came to.
     *
     * @param incarnation the object's incarnation
     * @param value the value, as it travels
     */
    public record Answer(long incarnation, byte[] value) {}

    /**
     * Calls a method.
     *
     * @param timeoutNs how long the call may wait: 0 for not at all, below 0 without end
     * @throws Raised if the method raised an exception
     * @throws InterruptedException if the thread was interrupted while the call waited; the call then had no effect
     */
    public abstract Answer call(Call call, long timeoutNs) throws Raised, InterruptedException;

    /** The space of this task, or of the program's newest connection. */
    static Space current() {
        Space found = current;
        if (found == null) {
            throw new IllegalStateException("there is no connection; create one with Millrace.connect()");
        }
        return found;
    }

    /** The space of the program's newest connection, which its new objects belong to; null in a task, and without a connection. */
    public static ClientSpace program() {
        return current instanceof ClientSpace client ? client : null;
    }

    /** From now on, objects without a space of their own are those of this space; returns the space before. */
    public static Space use(Space space) {
        Space before = current;
        current = space;
        return before;
    }

    /** Whether objects without a space of their own are those of this space. */
    public boolean isCurrent() {
        return current == this;
    }
}
