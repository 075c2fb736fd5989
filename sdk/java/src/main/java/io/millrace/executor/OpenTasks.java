package io.millrace.executor;

import io.millrace.MillraceException;
import io.millrace.worker.Tasks;
import java.nio.ByteBuffer;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;

/** The tasks of an executor that have no result yet. It is also the lock of what its tasks know of hosts. */
final class OpenTasks {
    private static final String CANCELLED = "MR7116";
    private static final long LOOK_MS = 1000;

    private final byte[] client = new byte[Tasks.CLIENT_BYTES];
    private final Map<ByteBuffer, TaskFuture<?>> futures = new LinkedHashMap<>();
    /** Tasks that have ended, whose futures are being completed. */
    private final Set<TaskFuture<?>> ending = new HashSet<>();
    private long count;

    OpenTasks() {
        new SecureRandom().nextBytes(client);
    }

    /** A new task, whose result is awaited from now on. */
    synchronized <T> TaskFuture<T> add(ServerlessExecutorService executor, Labels needs) {
        TaskFuture<T> future = new TaskFuture<>(Tasks.id(client, ++count), executor, needs, this);
        futures.put(ByteBuffer.wrap(future.id), future);
        return future;
    }

    /** Stops waiting for a result. */
    synchronized void remove(TaskFuture<?> future) {
        futures.remove(ByteBuffer.wrap(future.id));
        future.task = null;
        notifyAll();
    }

    /**
     * Stops waiting for a result, and completes the future with this. What depends on the future runs here, and may close the executor: that must
     * not wait for this task.
     */
    void end(TaskFuture<?> future, Runnable completes) {
        synchronized (this) {
            remove(future);
            ending.add(future);
        }
        try {
            completes.run();
        } finally {
            future.ended();
            synchronized (this) {
                ending.remove(future);
                notifyAll();
            }
        }
    }

    /** Whether all of these tasks have ended, and their futures are done. */
    synchronized boolean areOver(Predicate<TaskFuture<?>> which) {
        return futures.values().stream().noneMatch(which) && ending.stream().filter(which).allMatch(TaskFuture::isDone);
    }

    synchronized List<TaskFuture<?>> all(Predicate<TaskFuture<?>> which) {
        return futures.values().stream().filter(which).toList();
    }

    /** Those of these tasks that no host has. */
    synchronized <F extends TaskFuture<?>> List<F> unplaced(List<F> futures) {
        return futures.stream().filter(future -> future.host == null && !future.isDone()).toList();
    }

    /** Waits until something holds about these tasks, for so long at most; returns whether it does. */
    synchronized boolean await(BooleanSupplier holds, long ns) throws InterruptedException {
        long begun = System.nanoTime();
        while (!holds.getAsBoolean()) {
            long left = ns - (System.nanoTime() - begun);
            if (left <= 0) {
                return false;
            }
            wait(Math.min(LOOK_MS, TimeUnit.NANOSECONDS.toMillis(left) + 1));
        }
        return true;
    }

    /** Whether a result is that of a task of this executor. */
    boolean isOurs(byte[] result) {
        return Arrays.equals(client, 0, client.length, Tasks.idOf(result), 0, client.length);
    }

    private synchronized TaskFuture<?> of(byte[] id) {
        return futures.get(ByteBuffer.wrap(id));
    }

    /** Completes the future of a task. */
    void complete(byte[] result) {
        TaskFuture<?> future = of(Tasks.idOf(result));
        // A task whose end was reported twice, or that was cancelled meanwhile.
        if (future != null) {
            Tasks.Outcome outcome = Tasks.outcome(result);
            end(future, () -> finish(future, outcome));
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> void finish(TaskFuture<T> future, Tasks.Outcome outcome) {
        boolean isCancelled = outcome.failure() instanceof MillraceException error && error.is(CANCELLED);
        if (isCancelled || outcome.failure() != null && future.isStopping()) {
            future.cancelled();
        } else if (outcome.failure() != null) {
            future.completeExceptionally(outcome.failure());
        } else {
            future.complete((T) outcome.value());
        }
    }

    /** Completes the future of a task that has no result. */
    void fail(TaskFuture<?> future, MillraceException why) {
        end(future, () -> future.completeExceptionally(why));
    }
}
