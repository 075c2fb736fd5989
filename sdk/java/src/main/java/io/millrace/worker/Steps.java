package io.millrace.worker;

import io.millrace.MillraceException;
import io.millrace.internal.MessagePack;
import io.millrace.shared.Exact;
import io.millrace.shared.Members;
import io.millrace.space.Space;
import io.millrace.space.Thrown;
import io.millrace.space.Values;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs methods of shared objects: one method of one object at a time.
 *
 * <pre>
 * asked   [key, incarnation, changed, number, reads, pool, body, older, new, application, [method, milliseconds, arguments]]
 *         changed: which step has changed the fields last; number: this one's; older: the version that the fields are of if the body is
 *         of a newer one; new: the constructor's arguments if it has not run
 * left    [kind, value, fields that changed]; 0 and the value, 1 and the exception, or 2 and the exception before the method began; 3 if
 *         its guard does not hold, and then the call waits until a field changes
 * </pre>
 *
 * A worker keeps objects. It asks for the fields of an object if it has none, or if another worker has changed them since.
 */
final class Steps {
    private static final int RETURNED = 0;
    private static final int RAISED = 1;
    private static final int NOT_BEGUN = 2;
    private static final int BLOCKED = 3;
    private static final int DEPTH_MAX = 8;
    /** Objects that a worker keeps. */
    private static final int KEPT_MAX = 256;
    private static final Map<String, byte[]> NOTHING = Map.of();

    /** Which object, and of which code. */
    private record Place(String key, long incarnation, long body) {}

    /**
     * An object, the step that has changed it last, and its fields as they were after that step. They are encoded here: other bytes of the host
     * may mean the same, since a map that was read has another capacity than the one that was written.
     */
    private static final class Kept {
        private final Class<?> type;
        private final Object object;
        private long changed;
        private Map<String, byte[]> fields;

        Kept(Class<?> type, Object object, long changed, Map<String, byte[]> fields) {
            this.type = type;
            this.object = object;
            this.changed = changed;
            this.fields = fields;
        }
    }

    private static final Map<Place, Kept> KEPT = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Place, Kept> eldest) {
            return size() > KEPT_MAX;
        }
    };
    private static final Map<String, Class<?>> CLASSES = new HashMap<>();
    private static final Timer TIMER = Timer.started();

    private final HostChannel channel;
    private final TaskSpace space;
    private final Place place;
    private final long changed;
    private final long number;
    private final boolean reads;
    private final String pool;
    private final Long older;
    private final byte[] created;
    private final String name;
    private final long milliseconds;
    private final byte[] payload;

    private Steps(HostChannel channel, List<?> asked) {
        this.channel = channel;
        place = new Place((String) asked.get(0), (Long) asked.get(1), (Long) asked.get(6));
        changed = (Long) asked.get(2);
        number = (Long) asked.get(3);
        reads = (Boolean) asked.get(4);
        pool = (String) asked.get(5);
        older = (Long) asked.get(7);
        created = (byte[]) asked.get(8);
        space = new TaskSpace(channel, (String) asked.get(9));
        List<?> call = (List<?>) asked.get(10);
        name = (String) call.get(0);
        milliseconds = (Long) call.get(1);
        payload = (byte[]) call.get(2);
    }

    /** Interrupts a method whose time is over. */
    private final class Limit implements AutoCloseable {
        private final Thread thread = Thread.currentThread();
        private boolean ended;
        private boolean expired;

        Limit() {
            TIMER.begin(this, milliseconds);
        }

        synchronized void expire() {
            if (!ended) {
                expired = true;
                space.expire();
                thread.interrupt();
            }
        }

        /** Ends it; returns whether the time was over. */
        synchronized boolean end() {
            ended = true;
            TIMER.end(this);
            Thread.interrupted();
            return expired;
        }

        @Override
        public void close() {
            end();
        }
    }

    /**
     * The thread that interrupts methods: one runs at a time. It is woken by a method only if it would look too late for it, so that a short
     * call wakes no thread.
     */
    private static final class Timer extends Thread {
        private Limit current;
        private long dueNs;
        private long lookNs = Long.MAX_VALUE;

        private Timer() {
            super("millrace-limit");
            setDaemon(true);
        }

        private static Timer started() {
            Timer timer = new Timer();
            timer.start();
            return timer;
        }

        synchronized void begin(Limit limit, long milliseconds) {
            current = limit;
            dueNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
            if (lookNs == Long.MAX_VALUE || dueNs - lookNs < 0) {
                notify();
            }
        }

        /** Forgets a method that has ended. Whoever holds the lock of this limit may call it: this never waits for one. */
        void end(Limit limit) {
            synchronized (this) {
                current = current == limit ? null : current;
            }
        }

        private synchronized Limit next() throws InterruptedException {
            while (true) {
                if (current == null) {
                    // What it waits for is over; the next method looks at when this wakes.
                    sleepUntil(Long.MAX_VALUE);
                } else if (System.nanoTime() - dueNs < 0) {
                    sleepUntil(dueNs);
                } else {
                    Limit found = current;
                    current = null;
                    return found;
                }
            }
        }

        private void sleepUntil(long whenNs) throws InterruptedException {
            lookNs = whenNs;
            if (whenNs == Long.MAX_VALUE) {
                wait();
            } else {
                TimeUnit.NANOSECONDS.timedWait(this, whenNs - System.nanoTime());
            }
        }

        @Override
        public void run() {
            try {
                while (true) {
                    // Outside of the lock: the method may end just now.
                    next().expire();
                }
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Runs a method; what came of it. */
    static byte[] run(HostChannel channel, byte[] record) {
        Steps step = new Steps(channel, (List<?>) MessagePack.decode(record, DEPTH_MAX));
        Space.use(step.space);
        try {
            byte[] left = step.run();
            if (left.length <= Tasks.BYTES_MAX) {
                return left;
            }
            String told = step.name + " left " + left.length + " bytes of fields and answer; the limit of a call is " + Tasks.BYTES_MAX;
            return step.notBegun(new MillraceException("MR7108", told));
        } finally {
            step.space.end();
            Space.use(null);
        }
    }

    private static byte[] left(int kind, byte[] value, Map<String, byte[]> changes) {
        return MessagePack.encode(Arrays.asList(kind, value, changes));
    }

    private byte[] notBegun(Throwable why) {
        KEPT.remove(place);
        return left(NOT_BEGUN, Thrown.packed(why), NOTHING);
    }

    /** The class that record {@code body} of the pool describes. */
    private Class<?> type() throws ClassNotFoundException {
        Class<?> known = CLASSES.get(pool + "/" + place.body);
        if (known != null) {
            return known;
        }
        // From now on, the host allows for the time that loading takes.
        List<?> described = (List<?>) MessagePack.decode(channel.described(place.body), DEPTH_MAX);
        Class<?> type = Class.forName((String) described.get(0), true, Thread.currentThread().getContextClassLoader());
        if (!Arrays.equals((byte[]) described.get(1), Members.of(type).code())) {
            throw new MillraceException("MR7120", "the workers of pool '" + pool + "' have other code of " + type.getName());
        }
        CLASSES.put(pool + "/" + place.body, type);
        return type;
    }

    private Method method(Members members) {
        Method method = members.method(name);
        if (method == null) {
            throw new MillraceException("MR7120", "the class has no method " + name);
        } else if (reads && !members.isReadOnly(method)) {
            throw new IllegalArgumentException(method + " is not marked with @ReadOnly");
        }
        return method;
    }

    private static Object[] decoded(List<byte[]> encoded, Class<?>[] types) {
        Object[] values = new Object[encoded.size()];
        for (int at = 0; at < values.length; at++) {
            values[at] = Exact.decode(types == null ? Object.class : types[at], encoded.get(at));
        }
        return values;
    }

    /** The object, from the fields that the host has, or made here. */
    private Kept kept(Class<?> type) throws ReflectiveOperationException {
        Kept found = KEPT.get(place);
        if (found != null && found.changed == changed && older == null && created == null) {
            return found;
        }
        Map<String, byte[]> fields = new LinkedHashMap<>();
        Object made;
        if (created != null) {
            Object[] arguments = decoded(Exact.elements(created), null);
            Constructor<?> constructor = Members.of(type).constructor(arguments);
            for (int at = 0; at < arguments.length; at++) {
                arguments[at] = Exact.as(constructor.getParameterTypes()[at], arguments[at]);
            }
            made = constructor.newInstance(arguments);
        } else {
            List<?> flat = (List<?>) MessagePack.decode(channel.fields(), DEPTH_MAX);
            Map<String, Object> values = new LinkedHashMap<>();
            for (int at = 0; at < flat.size(); at += 2) {
                fields.put((String) flat.get(at), (byte[]) flat.get(at + 1));
                values.put((String) flat.get(at), Values.decode((byte[]) flat.get(at + 1)));
            }
            made = Fields.of(type).object(older == null ? values : migrated(type, values));
            fields = older == null ? Fields.of(type).encoded(made) : fields;
        }
        Kept kept = new Kept(type, made, changed, fields);
        KEPT.put(place, kept);
        return kept;
    }

    private Map<String, Object> migrated(Class<?> type, Map<String, Object> values) throws ReflectiveOperationException {
        Method migration = Members.of(type).migration();
        if (migration == null) {
            String told = "the object has version " + older + "; " + type.getName() + " has a newer version and no @Migration";
            throw new MillraceException("MR7120", told);
        }
        Map<String, Object> found = new LinkedHashMap<>();
        ((Map<?, ?>) migration.invoke(null, values, Math.toIntExact(older))).forEach((key, value) -> found.put((String) key, value));
        return found;
    }

    private byte[] run() {
        Kept kept = null;
        Throwable thrown = null;
        byte[] value = null;
        boolean begun = false;
        boolean rollback = false;
        boolean expired = false;
        try {
            Class<?> type = type();
            rollback = Members.of(type).settings().rollback();
            Method method = method(Members.of(type));
            Object[] arguments = decoded(Exact.elements(payload), method.getParameterTypes());
            try (Limit limit = new Limit()) {
                try {
                    kept = kept(type);
                    Method guard = Members.of(type).guard(method);
                    if (guard != null && !holds(guard, kept, arguments)) {
                        return blocked(kept);
                    }
                    begun = true;
                    value = Exact.encode(method.getReturnType(), method.invoke(kept.object, arguments));
                } finally {
                    expired = limit.end();
                }
            }
        } catch (InvocationTargetException error) {
            thrown = error.getCause();
        } catch (ReflectiveOperationException | RuntimeException | Error error) {
            thrown = error;
        }
        if (thrown instanceof OutOfMemoryError error) {
            KEPT.remove(place);
            throw error;
        } else if (thrown != null && expired) {
            IllegalStateException late = new IllegalStateException("the method did not end within " + milliseconds + " ms",
                    new TimeoutException(name));
            late.setStackTrace(thrown.getStackTrace());
            return notBegun(late);
        } else if (thrown != null && (!begun || rollback)) {
            return notBegun(thrown);
        }
        try {
            return ended(kept, thrown == null ? RETURNED : RAISED, thrown == null ? value : Thrown.packed(thrown));
        } catch (ReflectiveOperationException | RuntimeException error) {
            return notBegun(error);
        }
    }

    /** Whether the host has no fields of this version of the class: the constructor or a migration ran just now. */
    private boolean isNew() {
        return created != null || older != null;
    }

    private boolean holds(Method guard, Kept kept, Object[] arguments) throws ReflectiveOperationException {
        Fields fields = Fields.of(kept.type);
        Map<String, byte[]> before = isNew() ? fields.encoded(kept.object) : kept.fields;
        space.guard(true);
        try {
            boolean holds = (Boolean) guard.invoke(kept.object, guard.getParameterCount() == 0 ? new Object[0] : arguments);
            Map<String, byte[]> spoilt = Fields.changes(before, fields.encoded(kept.object));
            if (!spoilt.isEmpty()) {
                throw new IllegalStateException("the guard " + guard.getName() + " of " + name + " has changed " + String.join(", ", spoilt.keySet()));
            }
            return holds;
        } finally {
            space.guard(false);
        }
    }

    /** The call waits until a field changes. An object that was made or migrated just now is kept nevertheless. */
    private byte[] blocked(Kept kept) throws IllegalAccessException {
        Map<String, byte[]> made = NOTHING;
        if (isNew()) {
            Map<String, byte[]> now = Fields.of(kept.type).encoded(kept.object);
            made = Fields.changes(kept.fields, now);
            kept.fields = now;
            kept.changed = made.isEmpty() ? kept.changed : number;
        }
        return left(BLOCKED, new byte[0], made);
    }

    private byte[] ended(Kept kept, int kind, byte[] value) throws ReflectiveOperationException {
        Map<String, byte[]> now = Fields.of(kept.type).encoded(kept.object);
        Map<String, byte[]> changes = Fields.changes(kept.fields, now);
        if (!changes.isEmpty() && reads && !isNew()) {
            throw new IllegalStateException(name + " is marked with @ReadOnly and has changed " + String.join(", ", changes.keySet()));
        }
        kept.fields = now;
        if (!changes.isEmpty()) {
            kept.changed = number;
        }
        return left(kind, value, changes);
    }
}
