package io.millrace.space;

import io.millrace.executor.TaskException;
import java.io.PrintWriter;
import java.io.Serializable;
import java.io.StringWriter;

/**
 * An exception on its way from a worker, with its stack trace for programs that lack its class.
 *
 * @param serialized the exception; null if it cannot be serialized
 * @param name its class
 * @param text its message
 * @param trace its stack trace
 */
public record Thrown(byte[] serialized, String name, String text, String trace) implements Serializable {
    /** The bytes of an exception. */
    public static byte[] packed(Throwable thrown) {
        StringWriter trace = new StringWriter();
        thrown.printStackTrace(new PrintWriter(trace));
        byte[] serialized = null;
        try {
            serialized = Values.serialize(thrown);
            Values.deserialize(serialized);
        } catch (OutOfMemoryError error) {
            throw error;
        } catch (Throwable error) {
            // The client gets its name, text and stack trace.
            serialized = null;
        }
        return Values.serialize(new Thrown(serialized, thrown.getClass().getName(), String.valueOf(thrown.getMessage()), trace.toString()));
    }

    /** The exception of these bytes; a {@link TaskException} in place of one that cannot be made here. */
    public static Throwable opened(byte[] bytes) {
        Thrown told = (Thrown) Values.deserialize(bytes);
        TaskException unknown = new TaskException(told.name + ": " + told.text, told.trace, null);
        if (told.serialized == null) {
            return unknown;
        }
        try {
            return (Throwable) Values.deserialize(told.serialized);
        } catch (Throwable error) {
            unknown.addSuppressed(error);
            return unknown;
        }
    }
}
