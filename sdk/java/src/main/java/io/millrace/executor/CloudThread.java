package io.millrace.executor;

import java.util.concurrent.ExecutionException;

/**
 * A {@link Thread} whose task runs on a worker of a host. The local thread waits until the task has ended; an exception of the task ends
 * the thread. Without an executor, one is created, which ends with the program.
 */
public class CloudThread extends Thread {
    private final Runnable task;
    private final ServerlessExecutorService executor;

    /** A thread on the workers of the executor that was created last. */
    public CloudThread(RemoteRunnable task) {
        this(ServerlessExecutorService.newest(), (Runnable) task);
    }

    /** A thread on the workers of the executor that was created last; the task is serializable. */
    public CloudThread(Runnable task) {
        this(ServerlessExecutorService.newest(), task);
    }

    /** A thread on the workers of this executor. */
    public CloudThread(ServerlessExecutorService executor, RemoteRunnable task) {
        this(executor, (Runnable) task);
    }

    /** A thread on the workers of this executor; the task is serializable. */
    public CloudThread(ServerlessExecutorService executor, Runnable task) {
        this.executor = executor;
        this.task = task;
    }

    @Override
    public void run() {
        try {
            executor.submit(task).get();
        } catch (InterruptedException error) {
            interrupt();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RuntimeException thrown) {
                throw thrown;
            } else if (error.getCause() instanceof Error thrown) {
                throw thrown;
            }
            throw new TaskException(String.valueOf(error.getCause()), "", error.getCause());
        }
    }
}
