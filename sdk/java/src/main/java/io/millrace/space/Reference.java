package io.millrace.space;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The identity of a shared object, and its calls. Each call is atomic and takes effect once, even if a connection is lost. */
public final class Reference implements Serializable {
    private static final long serialVersionUID = 1L;
    /** A call that waits without end. */
    public static final long FOREVER = -1;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final String type;
    private final String probe;
    private final String key;
    private final byte[] created;
    /** The first arguments of each call. */
    private final Object[] about;
    private long incarnation;
    private int flags;
    /** The fence of each call; null for none. */
    private Fence fence;
    private transient Space space;

    /**
     * The object with this key, created with these arguments unless it exists.
     *
     * @param type the name of its type at the host
     * @param probe a method without arguments that changes nothing
     */
    public Reference(String type, String probe, String key, Object... created) {
        this(type, probe, key, new Object[0], created.length == 0 ? new byte[0] : Values.array(created), 0);
    }

    /** The same for an object each of whose calls begins with the arguments {@code about}; {@code created} is an array as it travels. */
    public Reference(String type, String probe, String key, Object[] about, byte[] created, int flags) {
        this.type = type;
        this.probe = probe;
        this.key = key;
        this.about = about;
        this.created = created;
        this.flags = flags;
        space = Space.program();
    }

    /** From now on its calls go to this space. */
    public void use(Space to) {
        space = to;
    }

    /**
     * A key that no other object has, for an object without a name. A retried task gets another key, so tasks should name their objects.
     */
    public static String unnamed() {
        return String.format("unnamed-%016x", RANDOM.nextLong());
    }

    /** From now on its calls go to this space. */
    void bind(Space to, int flags) {
        space = to;
        this.flags = flags;
    }

    /** The same object, whose calls carry this fence. */
    public Reference with(Fence carried) {
        Reference made = new Reference(type, probe, key, about, created, flags);
        made.incarnation = incarnation;
        made.space = space;
        made.fence = carried;
        return made;
    }

    /** Its key. */
    public String key() {
        return key;
    }

    /** An object that belongs to this one: its key begins with this one's, and it is kept as this one is. */
    public Reference beside(String otherType, String otherProbe, String name) {
        Reference made = new Reference(otherType, otherProbe, key + "/" + name);
        made.space = space;
        made.flags = flags;
        return made;
    }

    /** What this program or task knows of the object, made once for all references to it. */
    public Object local(Supplier<Object> make) {
        return space().known.computeIfAbsent(type + "/" + key, any -> make.get());
    }

    private Space space() {
        return space == null ? Space.current() : space;
    }

    /** Calls a method that does not wait. */
    public Object call(String method, Object... arguments) {
        try {
            return tryCall(method, arguments);
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    /** The same, with the exception as the host names it. */
    public Object tryCall(String method, Object... arguments) throws Raised {
        try {
            return waitFor(0, method, arguments);
        } catch (InterruptedException error) {
            // Only calls that wait are given up.
            throw new IllegalStateException(error);
        }
    }

    /** Calls a method that may wait so long: 0 for not at all, {@link #FOREVER} without end. */
    public Object waitFor(long timeoutNs, String method, Object... arguments) throws Raised, InterruptedException {
        Space to = space();
        if (to instanceof ClientSpace client && flags != 0) {
            client.prove(this, flags >> Space.COPIES_SHIFT > 1);
        }
        Space.Call call = new Space.Call(type, key, method, Values.array(all(arguments)), created, incarnation, flags, fence);
        Space.Answer answer = to.call(call, timeoutNs);
        // The answer to a deletion has none: the reference still means the object that is gone.
        if (answer.incarnation() != 0) {
            incarnation = answer.incarnation();
        }
        return Values.decode(answer.value());
    }

    /** The same, with what the object raises as an exception of Java. */
    public Object await(long timeoutNs, String method, Object... arguments) throws InterruptedException {
        try {
            return waitFor(timeoutNs, method, arguments);
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    private Object[] all(Object[] arguments) {
        if (about.length == 0) {
            return arguments;
        }
        Object[] all = Arrays.copyOf(about, about.length + arguments.length);
        System.arraycopy(arguments, 0, all, about.length, arguments.length);
        return all;
    }

    /** Calls a method that waits without end, and is not interrupted. */
    public Object waitUninterruptibly(String method, Object... arguments) {
        try {
            return waitUninterruptibly(FOREVER, method, arguments);
        } catch (Raised raised) {
            throw raised.toRuntime();
        }
    }

    /** The same for a method that may wait so long, with the exception as the host names it. */
    public Object waitUninterruptibly(long timeoutNs, String method, Object... arguments) throws Raised {
        boolean interrupted = false;
        long until = System.nanoTime() + timeoutNs;
        try {
            for (long leftNs = timeoutNs;; leftNs = timeoutNs < 0 ? FOREVER : Math.max(0, until - System.nanoTime())) {
                try {
                    return waitFor(leftNs, method, arguments);
                } catch (InterruptedException error) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** How many nanoseconds to wait: none for a time of 0 or below. */
    public static long nanos(long timeout, TimeUnit unit) {
        return Math.max(0, unit.toNanos(timeout));
    }

    /** Creates the object if it does not exist. */
    void touch() {
        call(probe);
    }

    /** Deletes the object; returns whether it existed. Waiting calls fail with MR7106. */
    boolean delete() {
        return (Boolean) call("delete");
    }

    // A reference means this very object, and never another one that has its key later.
    private void writeObject(ObjectOutputStream out) throws IOException {
        if (incarnation == 0) {
            touch();
        }
        out.defaultWriteObject();
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        space = Space.program();
    }

    @Override
    public String toString() {
        return type + " " + key;
    }
}
