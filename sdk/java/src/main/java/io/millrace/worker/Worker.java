package io.millrace.worker;

import io.millrace.space.Space;
import io.millrace.space.Values;
import io.millrace.worker.Tasks.Task;
import java.io.IOException;
import java.util.concurrent.Callable;

/** Runs tasks, and methods of shared objects, for a host: the program of a pool. See spec/protocol/worker.md. */
public final class Worker {
    private static final String TASKS = "_tasks/";
    private static final String RESULTS = "_results/";
    private static final String FAILED = "MR3110";
    private static final String OUT_OF_MEMORY = "MR3108";

    private Worker() {}

    /** Runs tasks until the host needs this worker no more. */
    public static void main(String[] arguments) throws IOException {
        HostChannel channel = new HostChannel();
        for (HostChannel.Work work = channel.next(); work != null; work = channel.next()) {
            String code = "";
            String detail = "";
            byte[] result = new byte[0];
            try {
                if (work.kind() == HostChannel.STEP) {
                    result = Steps.run(channel, work.record());
                } else if (!work.name().startsWith(TASKS)) {
                    code = FAILED;
                    detail = "a pool runs only tasks and methods of shared objects, and no records of '" + work.name() + "'";
                } else {
                    byte[] outcome = run(channel, Task.of(work.record()));
                    channel.append(RESULTS + work.name().substring(TASKS.length()), outcome);
                }
            } catch (OutOfMemoryError error) {
                code = OUT_OF_MEMORY;
                detail = error.toString();
            }
            System.out.flush();
            System.err.flush();
            if (code.isEmpty()) {
                channel.done(result);
            } else {
                channel.failed(code, detail);
            }
        }
        // Threads that tasks started do not keep the worker.
        Runtime.getRuntime().halt(0);
    }

    private static byte[] run(HostChannel channel, Task task) {
        TaskSpace space = new TaskSpace(channel, task.application());
        Space.use(space);
        Tasks.begin(task.id());
        try {
            Object returned = ((Callable<?>) Values.deserialize(task.call())).call();
            return Tasks.returned(task.id(), returned);
        } catch (OutOfMemoryError error) {
            throw error;
        } catch (Throwable thrown) {
            return Tasks.raised(task.id(), thrown);
        } finally {
            space.end();
            Space.use(null);
            Tasks.begin(null);
        }
    }
}
