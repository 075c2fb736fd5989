package io.millrace.space;

import io.millrace.MillraceException;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.TimeoutException;

/** Thrown if a method of a shared object raised an exception. The host uses Python's names of exceptions. */
public final class Raised extends Exception {
    private static final long serialVersionUID = 1L;
    /** Exceptions that are errors of Millrace. */
    private static final Map<String, String> CODES = Map.of("millrace.NotFound", "MR7106", "millrace.TooLarge", "MR7108",
            "millrace.Busy", "MR7109", "millrace.StepFailed", "MR7119", "millrace.ClassChanged", "MR7120",
            "millrace.PoolMissing", "MR7124", "millrace.FenceStale", "MR7127", "millrace.AnswerForgotten", "MR7111");

    private final String kind;

    /** An exception of this class. */
    public Raised(String kind, String text) {
        super(text);
        this.kind = kind;
    }

    /** Whether it has this class. */
    public boolean is(String other) {
        return kind.equals(other);
    }

    /** The exception of Java that it corresponds to. */
    public RuntimeException toRuntime() {
        String text = getMessage();
        RuntimeException found = switch (kind) {
            case "IndexError" -> new IndexOutOfBoundsException(text);
            case "KeyError", "queue.Empty" -> new NoSuchElementException(text);
            case "OverflowError" -> new ArithmeticException(text);
            case "TypeError", "ValueError", "AttributeError" -> new IllegalArgumentException(text);
            case "queue.Full", "concurrent.futures.InvalidStateError", "RuntimeError" -> new IllegalStateException(text);
            case "threading.BrokenBarrierError" -> new IllegalStateException("the barrier is broken", new BrokenBarrierException());
            case "TimeoutError" -> new IllegalStateException(text, new TimeoutException(text));
            default -> kind.startsWith("millrace.") ? new MillraceException(CODES.getOrDefault(kind, "MR7117"), text)
                    : new IllegalStateException(kind + ": " + text);
        };
        found.addSuppressed(this);
        return found;
    }
}
