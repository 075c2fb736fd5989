package io.millrace.executor;

import io.millrace.Millrace;
import java.util.concurrent.ExecutorService;

/**
 * Creates executors, as {@link java.util.concurrent.Executors} does. Each executor connects to the namespace that MILLRACE_NAMESPACE
 * names, or starts a private host, and closes the connection after its last task. Shared objects that are not bound to a connection use
 * the newest one.
 */
public final class Executors {
    private Executors() {}

    /** An executor with this many workers, 1 to 64. */
    public static ExecutorService newFixedThreadPool(int threads) {
        return new ServerlessExecutorService.Builder(Millrace.connect()).owned().workers(threads).start();
    }

    /** An executor with one worker, which runs tasks one after another. */
    public static ExecutorService newSingleThreadExecutor() {
        return newFixedThreadPool(1);
    }
}
