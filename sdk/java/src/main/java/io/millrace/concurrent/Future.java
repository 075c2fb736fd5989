package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A result that is set once and that any program can wait for, with methods of {@link java.util.concurrent.CompletableFuture}. Python's
 * {@code Future} with the same key is the same object.
 */
public final class Future<V> implements java.util.concurrent.Future<V>, SharedObject {
    private static final long serialVersionUID = 1L;
    private static final long PENDING = 0;
    private static final long RESULT = 1;
    private static final long CANCELLED = 3;

    private final Reference self;
    private final Class<?> type;

    /** The future with this key; an integer is read as {@link Long}. */
    public Future(String key) {
        this(key, null);
    }

    /** The future with this key; a number is read as this class. */
    public Future(String key, Class<V> type) {
        self = new Reference("Future", "done", key);
        this.type = type;
    }

    private Future(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Future<V> withReference(Reference other) {
        return new Future<>(other, type);
    }

    private boolean end(String method, Object... outcome) {
        try {
            return (Boolean) self.tryCall(method, outcome);
        } catch (Raised raised) {
            if (raised.is("concurrent.futures.InvalidStateError")) {
                return false;
            }
            throw raised.toRuntime();
        }
    }

    /** Sets the result; returns whether there was no outcome yet. */
    public boolean complete(V result) {
        return end("set_result", result);
    }

    /** Sets an exception as the outcome; returns whether there was none yet. */
    public boolean completeExceptionally(Throwable exception) {
        return end("set_exception", exception);
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
        return end("cancel");
    }

    @Override
    public boolean isDone() {
        return (Long) self.call("done") != PENDING;
    }

    @Override
    public boolean isCancelled() {
        return (Long) self.call("done") == CANCELLED;
    }

    @Override
    public V get() throws InterruptedException, ExecutionException {
        try {
            return get(Reference.FOREVER);
        } catch (TimeoutException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public V get(long timeout, TimeUnit unit) throws InterruptedException, ExecutionException, TimeoutException {
        return get(Reference.nanos(timeout, unit));
    }

    @SuppressWarnings("unchecked")
    private V get(long timeoutNs) throws InterruptedException, ExecutionException, TimeoutException {
        List<?> outcome;
        try {
            outcome = (List<?>) self.waitFor(timeoutNs, "result");
        } catch (Raised raised) {
            if (raised.is("TimeoutError")) {
                throw new TimeoutException();
            }
            throw raised.toRuntime();
        }
        long status = (Long) outcome.get(0);
        if (status == CANCELLED) {
            throw new CancellationException();
        } else if (status == RESULT) {
            return (V) Values.as(type, outcome.get(1));
        } else if (outcome.get(1) instanceof Throwable exception) {
            throw new ExecutionException(exception);
        }
        throw new ExecutionException(new IllegalStateException("a Python program has set an exception, which only Python can read"));
    }

    /**
     * A future of this program that has the outcome of this one, with all methods of {@link CompletableFuture}: {@code thenAccept} and the
     * like. A thread of the program waits for the outcome.
     */
    public CompletableFuture<V> toCompletableFuture() {
        CompletableFuture<V> local = new CompletableFuture<>();
        Thread waiting = new Thread(() -> {
            try {
                local.complete(get());
            } catch (CancellationException cancelled) {
                local.cancel(false);
            } catch (ExecutionException failed) {
                local.completeExceptionally(failed.getCause());
            } catch (Throwable error) {
                // Code of the value's class ran, and may throw anything.
                local.completeExceptionally(error);
            }
        }, "millrace-future");
        waiting.setDaemon(true);
        waiting.start();
        return local;
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
