package io.millrace.worker;

import io.millrace.space.Space;
import io.millrace.space.Values;
import io.millrace.worker.Tasks.Task;
import java.io.IOException;
import java.util.concurrent.Callable;

/** Runs tasks, and methods of shared objects, for a host: the program of a pool. See spec/protocol/worker.md. */
public final class Worker {
    private static final String TASKS = "_tasks/";
    private static final String STEPS = "_steps/";
    private static final String STEP_RESULT = "_step/result";
    private static final String RESULTS = "_results/";
    private static final String FAILED = "MR3110";
    private static final String OUT_OF_MEMORY = "MR3108";

    private Worker() {}

    /** Runs tasks until the host needs this worker no more. */
    public static void main(String[] arguments) throws IOException {
        HostChannel channel = new HostChannel();
        for (HostChannel.Run run = channel.next(); run != null; run = channel.next()) {
            String code = "";
            String detail = "";
            try {
                if (run.log().startsWith(STEPS)) {
                    channel.append(STEP_RESULT, Steps.run(channel, run.record()));
                } else if (!run.log().startsWith(TASKS)) {
                    code = FAILED;
                    detail = "a pool runs only tasks and methods of shared objects, and no records of '" + run.log() + "'";
                } else {
                    byte[] result = run(channel, Task.of(run.record()));
                    channel.append(RESULTS + run.log().substring(TASKS.length()), result);
                }
            } catch (OutOfMemoryError error) {
                code = OUT_OF_MEMORY;
                detail = error.toString();
            }
            System.out.flush();
            System.err.flush();
            channel.done(run.serial(), code, detail);
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
