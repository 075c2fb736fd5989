package io.millrace.worker;

import io.millrace.MillraceException;
import io.millrace.executor.TaskException;
import io.millrace.space.Thrown;
import io.millrace.space.Values;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Tasks and their results, as they travel.
 *
 * <pre>
 * task    id: 24 bytes, body: 8 bytes, all zero, length of the application: 1 byte, application, the serialized call
 * result  kind: 1 byte, id: 24 bytes; 0 and the serialized value, 1 and the serialized exception, or 2, a code and a text
 * </pre>
 */
public final class Tasks {
    /** How many bytes of an id name the client. */
    public static final int CLIENT_BYTES = 16;
    /** The length of an id. */
    public static final int ID_BYTES = 24;
    /** The longest task, and the longest result: one record. */
    public static final int BYTES_MAX = (16 << 20) - 4096;
    private static final String TOO_LONG = "MR7115";
    private static final int BODY_BYTES = 8;
    private static final int CODE_BYTES = 6;
    private static final byte RETURNED = 0;
    private static final byte RAISED = 1;
    private static final byte FAILED = 2;

    /**
     * A task that arrived.
     *
     * @param id names it for its client
     * @param application whose objects it uses
     * @param call what to run, serialized
     */
    record Task(byte[] id, String application, byte[] call) {
        static Task of(byte[] record) {
            int at = ID_BYTES + BODY_BYTES;
            int end = at + 1 + (record[at] & 0xff);
            String application = new String(record, at + 1, end - at - 1, StandardCharsets.UTF_8);
            return new Task(Arrays.copyOf(record, ID_BYTES), application, Arrays.copyOfRange(record, end, record.length));
        }
    }

    /**
     * What a task came to.
     *
     * @param value what it returned
     * @param failure why it failed; null if it did not
     */
    public record Outcome(Object value, Throwable failure) {}

    /** The id of the task that this worker runs; null if it runs none. */
    private static volatile byte[] running;

    private Tasks() {}

    static void begin(byte[] id) {
        running = id;
    }

    /** The id of the task that this worker runs; null if this is no task. */
    public static byte[] running() {
        return running;
    }

    /** The id of a task. */
    public static byte[] id(byte[] client, long number) {
        return ByteBuffer.allocate(ID_BYTES).order(ByteOrder.LITTLE_ENDIAN).put(client).putLong(number).array();
    }

    /** A task as it is sent. */
    public static byte[] task(byte[] id, String application, Object call) {
        byte[] name = application.getBytes(StandardCharsets.UTF_8);
        byte[] serialized = serialize(call);
        int bytes = ID_BYTES + BODY_BYTES + 1 + name.length + serialized.length;
        if (bytes > BYTES_MAX) {
            throw new MillraceException(TOO_LONG, "a task of " + bytes + " bytes; the limit is " + BYTES_MAX);
        }
        return ByteBuffer.allocate(bytes).put(id).putLong(0).put((byte) name.length).put(name).put(serialized).array();
    }

    private static byte[] serialize(Object call) {
        try {
            return Values.serialize(call);
        } catch (IllegalArgumentException error) {
            String told = "the task " + call.getClass().getName() + ", or an object that it refers to, cannot be serialized. A class implements"
                    + " java.io.Serializable; a lambda is serializable if it is given to a ServerlessExecutorService itself, and not to a"
                    + " variable of type ExecutorService";
            throw new IllegalArgumentException(told, error);
        }
    }

    static byte[] returned(byte[] id, Object value) {
        byte[] result = joined(RETURNED, id, Values.serialize(value));
        if (result.length > BYTES_MAX) {
            throw new MillraceException(TOO_LONG, "a result of " + result.length + " bytes; the limit is " + BYTES_MAX);
        }
        return result;
    }

    static byte[] raised(byte[] id, Throwable thrown) {
        byte[] result = joined(RAISED, id, Thrown.packed(thrown));
        if (result.length > BYTES_MAX) {
            String told = TOO_LONG + "a raised exception of " + result.length + " bytes; the limit is " + BYTES_MAX;
            return joined(FAILED, id, told.getBytes(StandardCharsets.UTF_8));
        }
        return result;
    }

    private static byte[] joined(byte kind, byte[] id, byte[] rest) {
        return ByteBuffer.allocate(1 + id.length + rest.length).put(kind).put(id).put(rest).array();
    }

    /** The id of the task that a result is of. */
    public static byte[] idOf(byte[] result) {
        return Arrays.copyOfRange(result, 1, 1 + ID_BYTES);
    }

    /** What a result says. Called by the client whose task it was. */
    public static Outcome outcome(byte[] result) {
        byte[] rest = Arrays.copyOfRange(result, 1 + ID_BYTES, result.length);
        try {
            if (result[0] == RETURNED) {
                return new Outcome(Values.deserialize(rest), null);
            } else if (result[0] == RAISED) {
                return new Outcome(null, Thrown.opened(rest));
            }
        } catch (Throwable error) {
            // Code of the value's class ran, and may throw anything. The thread has to go on, for the results of other tasks.
            return new Outcome(null, new TaskException("the result of the task cannot be deserialized: " + error, "", error));
        }
        String code = new String(rest, 0, Math.min(CODE_BYTES, rest.length), StandardCharsets.US_ASCII);
        String text = new String(rest, code.length(), rest.length - code.length(), StandardCharsets.UTF_8);
        return new Outcome(null, new MillraceException(code, text));
    }
}
