package io.millrace.executor;

/** Thrown if a task threw an exception whose class this program does not have, or which cannot be serialized. */
public final class TaskException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String remoteStackTrace;

    /** An exception with this message; {@code remoteStackTrace} is the stack trace of the worker. */
    public TaskException(String text, String remoteStackTrace, Throwable cause) {
        super(text, cause);
        this.remoteStackTrace = remoteStackTrace;
    }

    /** The stack trace of the worker. */
    public String remoteStackTrace() {
        return remoteStackTrace;
    }

    @Override
    public String toString() {
        return remoteStackTrace.isEmpty() ? super.toString() : super.toString() + "\nin the worker:\n" + remoteStackTrace;
    }
}
