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
    /** How many cancellations of it are going on that may end its run. */
    private int cancelling;
    private final OpenTasks open;
    private volatile Place place;
    /** The thread that completes it, because its host is lost and it gets no other one; null for none. */
    private Thread leaver;
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
        long left = PLACED_MS;
        while (place == null && leaver != Thread.currentThread() && !isDone() && left > 0) {
            try {
                wait(left);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                break;
            }
            left = (until - System.nanoTime()) / 1_000_000;
        }
        return place;
    }

    /** Its host is lost, so it is sent to another one. */
    void move() {
        isMoved = true;
        unplace();
    }

    /** Its host is lost, and it gets no other one. */
    synchronized void leave() {
        unplace();
        leaver = Thread.currentThread();
        notifyAll();
    }

    private void unplace() {
        host = null;
        place = null;
    }

    /**
     * Cancels the task if it has not started. A running task continues; with {@code mayInterruptIfRunning} its worker is ended, and the task is
     * not tried again, also not elsewhere if its host is lost meanwhile. Its calls of shared objects remain in effect.
     */
    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
        int ends = mayInterruptIfRunning ? 1 : 0;
        synchronized (open) {
            cancelling += ends;
        }
        try {
            Place tried = null;
            // If its host was lost just before, it has another place.
            for (Place at = next(tried); at != null; at = next(tried)) {
                if (endsAt(at, mayInterruptIfRunning)) {
                    open.end(this, this::cancelled);
                }
                tried = at;
            }
        } finally {
            synchronized (open) {
                cancelling -= ends;
            }
        }
        return isCancelled();
    }

    /** Where the task is, if that is not where its cancellation was tried already; null if it is, or if the task has ended. */
    private Place next(Place tried) {
        Place at = isDone() ? null : place();
        return at == tried ? null : at;
    }

    /** Whether the task is revoked, or its run is ended. */
    private boolean endsAt(Place at, boolean mayInterruptIfRunning) {
        if (at.host.revoke(at.number)) {
            return true;
        } else if (!mayInterruptIfRunning || isDone()) {
            return false;
        }
        isStopping = true;
        isStopping = at.host.stop(at.number);
        return isStopping;
    }

    /** Whether its run is to be ended; if its host is lost meanwhile, it is not sent to another one. */
    boolean isCancelling() {
        return cancelling > 0;
    }

    boolean isStopping() {
        return isStopping;
    }

    /** The task never starts, or not again. */
    void cancelled() {
        super.cancel(false);
    }

    /** It is done: a cancellation may wait for a place that the task will not have. */
    synchronized void ended() {
        notifyAll();
    }
}
