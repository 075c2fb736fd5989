package io.millrace.shared;

import io.millrace.MillraceException;
import io.millrace.space.ClientSpace;
import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Space;
import io.millrace.space.Values;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.Serializable;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A class marked with {@link Shared} whose code a pool has. It can be passed to tasks, and so can references to its objects.
 *
 * @param <T> the interface of the references
 */
public final class SharedClass<T> implements Serializable {
    private static final long serialVersionUID = 1L;
    /** The index in {@code about} of the number of the class's description. */
    private static final int BODY = 3;
    /** The error that the hosts of a replicated object no longer have its class. */
    private static final String CLASS_MISSING = "MR7123";

    private final Class<T> face;
    private final Class<? extends T> type;
    private final Object[] about;
    private final int flags;
    /** The class as it is sent for replicated objects: every host that runs a method needs it. */
    private final byte[] body;
    private transient ClientSpace space;

    /** For other packages of Millrace: a class whose code is described by record {@code body} of the pool. */
    public SharedClass(Class<T> face, Class<? extends T> type, String pool, long body, ClientSpace space) {
        this(face, type, about(type, pool, body), 0, null, space);
    }

    private SharedClass(Class<T> face, Class<? extends T> type, Object[] about, int flags, byte[] body, ClientSpace space) {
        if (!face.isInterface()) {
            throw new IllegalArgumentException("references have the methods of an interface, and " + face.getName() + " is a class");
        }
        this.face = face;
        this.type = type;
        this.about = about;
        this.flags = flags;
        this.body = body;
        this.space = space;
    }

    private static Object[] about(Class<?> type, String pool, long body) {
        Members members = Members.of(type);
        return new Object[] {type.getName(), pool, members.settings().version(), body, members.code()};
    }

    /**
     * This class for persistent objects: their fields are in the journal, so they survive restarts of the host, and exist until they are
     * deleted.
     */
    public SharedClass<T> persistent() {
        return new SharedClass<>(face, type, about, flags | Space.PERSISTENT, body, space);
    }

    /**
     * This class for replicated objects: at least this many hosts of a cluster have a copy, 2 or 3. The leader of the group {@code
     * objects} runs a method; if it is lost before the answer, the next leader runs the method again, with the fields as before. All
     * hosts need the pool: an executor creates it on all hosts of the connection.
     */
    public SharedClass<T> persistent(int copies) {
        if (copies == 1) {
            return persistent();
        }
        byte[] description = Members.of(type).description();
        Object[] numbered = about.clone();
        numbered[BODY] = numberOf(description);
        SharedClass<T> copied = new SharedClass<>(face, type, numbered, ClientSpace.copied(copies), description, space);
        copied.ship();
        return copied;
    }

    /** The number of a body of a replicated class, which is computed from its content. */
    private static long numberOf(byte[] body) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            return ByteBuffer.wrap(digest).order(ByteOrder.LITTLE_ENDIAN).getLong() >>> 2 | 1;
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Sends the class to the hosts that have the objects. */
    private void ship() {
        Object[] sent = Arrays.copyOf(about, about.length + 1);
        sent[about.length] = body;
        Reference classes = new Reference("Shared", "class", type.getName(), sent, new byte[0], flags);
        if (space != null) {
            classes.use(space);
        }
        classes.call("class");
    }

    /** A reference to the object with this key. If the object does not exist, it is created with these arguments of the constructor. */
    public T get(String key, Object... arguments) {
        Class<?>[] types = new Class<?>[arguments.length];
        Arrays.fill(types, Object.class);
        Object[] created = Arrays.copyOf(about, about.length + 1);
        created[about.length] = Exact.array(types, arguments);
        Reference reference = new Reference("Shared", "version", key, about, Values.array(created), flags);
        if (space != null) {
            reference.use(space);
        }
        return face.cast(proxy(new Handler(this, reference, 0)));
    }

    /** For other packages of Millrace: the same object, whose calls wait for at most this long until their method begins. */
    public static Object withTimeout(SharedObject object, Duration timeout) {
        Handler handler = (Handler) Proxy.getInvocationHandler(object);
        return proxy(new Handler(handler.of, handler.reference, timeout.toNanos()));
    }

    private static Object proxy(Handler handler) {
        Class<?> face = handler.of.face;
        return Proxy.newProxyInstance(face.getClassLoader(), new Class<?>[] {face, SharedObject.class}, handler);
    }

    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        space = Space.program();
    }

    @Override
    public String toString() {
        return "shared class " + type.getName() + " version " + about[2];
    }

    /**
     * Handles a call of a reference.
     *
     * @param of the class of the object
     * @param reference which object it is
     * @param timeoutNs for how long each call may wait until its method begins; 0 is as the method says
     */
    private record Handler(SharedClass<?> of, Reference reference, long timeoutNs) implements InvocationHandler, Serializable {
        private static final String CALL = "call";
        private static final String READ = "read";

        @Override
        public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
            if (method.getDeclaringClass() == Object.class) {
                return switch (method.getName()) {
                    case "equals" -> proxy == given[0];
                    case "hashCode" -> System.identityHashCode(proxy);
                    default -> reference.toString();
                };
            } else if (method.getDeclaringClass() == SharedObject.class) {
                return given == null ? reference : proxy(new Handler(of, (Reference) given[0], timeoutNs));
            }
            Members members = Members.of(of.type);
            String name = members.nameOf(method);
            Method own = members.method(name);
            if (own == null) {
                throw new MillraceException("MR7120", of.type.getName() + " has no method " + name);
            }
            Object[] arguments = given == null ? new Object[0] : given;
            byte[] payload = Exact.array(own.getParameterTypes(), arguments);
            Object[] sent = {name, members.timeLimitMs(own), payload};
            long ownNs = TimeUnit.MILLISECONDS.toNanos(members.timeoutMs(own));
            long waitNs = timeoutNs > 0 ? timeoutNs : ownNs > 0 ? ownNs : Reference.FOREVER;
            List<Class<?>> thrown = Arrays.asList(method.getExceptionTypes());
            try {
                return Outcome.of(ask(members.isReadOnly(own) ? READ : CALL, thrown, waitNs, sent), method);
            } catch (Raised raised) {
                if (raised.is("TimeoutError") && thrown.contains(TimeoutException.class)) {
                    throw new TimeoutException(raised.getMessage());
                }
                throw raised.toRuntime();
            }
        }

        private Object ask(String way, List<Class<?>> thrown, long waitNs, Object[] arguments) throws Raised, InterruptedException {
            try {
                return askOnce(way, thrown, waitNs, arguments);
            } catch (MillraceException error) {
                if (of.body == null || !error.is(CLASS_MISSING)) {
                    throw error;
                }
            }
            of.ship();
            return askOnce(way, thrown, waitNs, arguments);
        }

        private Object askOnce(String way, List<Class<?>> thrown, long waitNs, Object[] arguments) throws Raised, InterruptedException {
            return thrown.contains(InterruptedException.class) ? reference.waitFor(waitNs, way, arguments)
                    : reference.waitUninterruptibly(waitNs, way, arguments);
        }
    }
}
