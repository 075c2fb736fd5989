package io.millrace.executor;

import java.util.concurrent.CompletableFuture;

/** The future of a task. What it has of hosts is guarded by {@link OpenTasks}. */
final class TaskFuture<T> extends CompletableFuture<T> {
    /** How long a cancellation waits until a host has accepted the task, in milliseconds. */
    private static final long PLACED_MS = 10_000;

    /** Names the task for its client. */
    final byte[] id;
    /** The executor that the task was given to, and the labels of the hosts that may run it. */
    final ServerlessExecutorService executor;
    final Labels needs;
    /** The task as it is sent; null when it will not be sent again. */
    byte[] task;
    /** The host that has the task, or is about to get it; null for none. */
    TaskHost host;
    /** Whether a host was lost with it. */
    boolean isMoved;
    private final OpenTasks open;
    private volatile Place place;
    /** Whether its run is being ended: any failure that is reported then is the cancellation. */
    private volatile boolean isStopping;

    /** Where the task is: its host, and its number there. */
    private record Place(TaskHost host, long number) {}

    TaskFuture(byte[] id, ServerlessExecutorService executor, Labels needs, OpenTasks open) {
        this.id = id;
        this.executor = executor;
        this.needs = needs;
        this.open = open;
    }

    /** A host has accepted the task under this number. */
    synchronized void accepted(TaskHost by, long number) {
        place = new Place(by, number);
        notifyAll();
    }

    /** Where the task is. A host may run it before its answer to the submission is here, so the answer is awaited for a while. */
    private synchronized Place place() {
        long until = System.nanoTime() + PLACED_MS * 1_000_000;
        for (long left = PLACED_MS; place == null && !isDone() && left > 0; left = (until - System.nanoTime()) / 1_000_000) {
            try {
                wait(left);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                break;
            }
        }
        return place;
    }

    /** Its host is lost, so it is sent to another one. */
    void move() {
        isMoved = true;
        host = null;
        place = null;
    }

    /**
     * Cancels the task if it has not started. A running task continues; with {@code mayInterruptIfRunning} its worker is ended, and the task is
     * not tried again. Its calls of shared objects remain in effect.
     */
    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
        Place at = isDone() ? null : place();
        if (at == null) {
            return isCancelled();
        } else if (!at.host.revoke(at.number)) {
            isStopping = mayInterruptIfRunning;
            if (!mayInterruptIfRunning || !at.host.stop(at.number)) {
                isStopping = false;
                return isCancelled();
            }
        }
        open.end(this, this::cancelled);
        return isCancelled();
    }

    boolean isStopping() {
        return isStopping;
    }

    /** The host reports that the task never starts. */
    void cancelled() {
        super.cancel(false);
    }
}
