package io.millrace.executor;

import io.millrace.Log;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.Tail;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.internal.Client;
import io.millrace.internal.Messages;
import io.millrace.internal.Place;
import io.millrace.shared.Members;
import io.millrace.shared.Shared;
import io.millrace.shared.SharedClass;
import io.millrace.worker.Pool;
import io.millrace.worker.Tasks;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * An {@link ExecutorService} whose threads are workers of a host: processes in a sandbox with limits. A task is a run, so it is in the
 * journal, and is not lost if a worker or the host ends. Tasks and their results are serialized. The class path of this program is sent
 * to the host once for each version.
 */
public final class ServerlessExecutorService implements ExecutorService, AutoCloseable {
    private static final int BATCH_MAX = 1024;
    private static final int BATCH_BYTES = 4 << 20;
    private static final long BUSY_MS = 50;
    /** About how many parts of a loop each worker gets: enough that no worker waits long for another. */
    private static final int PARTS_PER_WORKER = 16;
    private static final String CANCELLED = "MR7116";
    private static final Duration LOOK = Duration.ofSeconds(1);

    private static volatile ServerlessExecutorService newest;

    private final Millrace farm;
    private final boolean owned;
    private final int workers;
    private final String application;
    private final String pool;
    private final byte[] client = new byte[Tasks.CLIENT_BYTES];
    private final Tail results;
    private final Thread listener;
    private final Map<ByteBuffer, TaskFuture<?>> open = new LinkedHashMap<>();
    /** By class: the record of the pool that describes it. */
    private final Map<Class<?>, Long> bodies = new ConcurrentHashMap<>();
    private long count;
    private boolean shut;
    private boolean ended;
    private MillraceException broken;

    /** The options of an executor. See {@link Millrace#executor()}. */
    public static final class Builder {
        private final Millrace farm;
        private boolean owned;
        private int workers = Math.min(64, Runtime.getRuntime().availableProcessors());
        private long memoryBytes = 1L << 30;
        private Duration timeout = Duration.ofHours(1);
        private int retries = 3;
        private boolean network;
        private Map<String, String> environment = Map.of();
        private String java = "java";
        private List<String> options = List.of();
        private List<Path> classPath;
        private String pool = "";

        /** An executor on the workers of this host. */
        public Builder(Millrace farm) {
            this.farm = farm;
        }

        Builder owned() {
            owned = true;
            return this;
        }

        /** How many tasks run at the same time, 1 to 64; by default as many as this machine has processors. */
        public Builder workers(int workers) {
            this.workers = workers;
            return this;
        }

        /** How much memory a worker may use, in bytes; half of it is for the heap. By default 1 GiB. */
        public Builder memory(long bytes) {
            memoryBytes = bytes;
            return this;
        }

        /** The time limit of a task; by default one hour. */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** How often a task is retried whose worker was lost; by default 3 times. A task that throws an exception is not retried. */
        public Builder retries(int retries) {
            this.retries = retries;
            return this;
        }

        /** Whether tasks may use the host's network. */
        public Builder network(boolean network) {
            this.network = network;
            return this;
        }

        /** Environment variables of the workers. */
        public Builder environment(Map<String, String> environment) {
            this.environment = Map.copyOf(environment);
            return this;
        }

        /** The program that runs workers, and its additional options; by default the {@code java} that the host finds in its PATH. */
        public Builder java(String java, String... options) {
            this.java = java;
            this.options = List.of(options);
            return this;
        }

        /** The class path of the workers; by default that of this program. */
        public Builder classPath(List<Path> elements) {
            classPath = elements.stream().map(Path::toAbsolutePath).toList();
            return this;
        }

        /**
         * The name of the pool; by default one that is computed from its settings and code. An existing pool with this name gets the
         * settings and the code of this executor. Objects of shared classes belong to a pool, so name the pool if several versions of a
         * program use the same objects.
         */
        public Builder pool(String name) {
            pool = name;
            return this;
        }

        private Pool settings() {
            return new Pool(pool, workers, memoryBytes, timeout, retries, network, new java.util.TreeMap<>(environment), java, options,
                    classPath);
        }

        /** Creates the executor, and its pool if it does not exist. */
        public ServerlessExecutorService start() {
            return new ServerlessExecutorService(this, settings());
        }
    }

    /** An executor on a host that this program starts and that ends with it. */
    public ServerlessExecutorService() {
        this(new Builder(Millrace.connect()).owned());
    }

    private ServerlessExecutorService(Builder builder) {
        this(builder, builder.settings());
    }

    private ServerlessExecutorService(Builder builder, Pool settings) {
        farm = builder.farm;
        owned = builder.owned;
        workers = settings.workers();
        try {
            pool = settings.make(farm.client());
            makeAtOthers(settings);
            application = farm.application();
            new SecureRandom().nextBytes(client);
            Log log = farm.log("_results/" + pool);
            results = log.tail(log.latest() + 1);
        } catch (RuntimeException error) {
            if (owned) {
                farm.close();
            }
            throw error;
        }
        listener = new Thread(this::listen, "millrace-results");
        listener.setDaemon(true);
        listener.start();
        newest = this;
        farm.attach(this);
    }

    /** Creates the pool on all hosts: any of them may become the leader of the objects, and then runs the methods of shared classes. */
    private void makeAtOthers(Pool settings) {
        for (Place place : farm.client().others()) {
            try (Client other = new Client(List.of(place), farm.client().options())) {
                settings.make(other);
            } catch (MillraceException error) {
                // One that is away gets the pool from the next executor; until then, it refuses these methods with MR7124.
                if (!Client.isLost(error)) {
                    throw error;
                }
            }
        }
    }

    /** The executor that was created last; one that ends with this program if there is none. */
    static synchronized ServerlessExecutorService newest() {
        ServerlessExecutorService found = newest;
        return found == null || found.isShutdown() ? new ServerlessExecutorService() : found;
    }

    /** The name of the executor's pool; the pool's function is {@code pool-NAME}. */
    public String pool() {
        return pool;
    }

    /**
     * A class marked with {@link Shared} for objects whose methods run on this executor's workers. References to its objects have the
     * methods of the interface, which the class implements.
     */
    public <T> SharedClass<T> shared(Class<T> face, Class<? extends T> type) {
        long body = bodies.computeIfAbsent(type, added -> invoke(List.of(Members.of(added).description()), true));
        return new SharedClass<>(face, type, pool, body, farm.space());
    }

    /** The future of a task. */
    private final class TaskFuture<T> extends CompletableFuture<T> {
        private final byte[] id;
        private volatile long number;

        TaskFuture(byte[] id) {
            this.id = id;
        }

        /** Cancels the task if it has not started; a running task continues. */
        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            if (isDone() || number == 0) {
                return isCancelled();
            }
            Map<String, Object> message = new LinkedHashMap<>();
            message.put("pool", pool);
            message.put("task", number);
            if (!farm.client().insist(Messages.REVOKE, message, null, 0).truth("cancelled")) {
                return false;
            }
            cancelled();
            done(id);
            return isCancelled();
        }

        /** The host reports that the task never starts. */
        void cancelled() {
            super.cancel(false);
        }
    }

    private void listen() {
        try {
            while (true) {
                byte[] result = results.next().data();
                byte[] id = Tasks.idOf(result);
                if (Arrays.equals(client, 0, client.length, id, 0, client.length)) {
                    complete(id, result);
                }
            }
        } catch (MillraceException error) {
            fail(error);
        } catch (InterruptedException | RuntimeException error) {
            // An executor that has ended waits for no task.
            fail(new MillraceException("MR6129", "results can no longer be received: " + error, error));
        }
    }

    private void complete(byte[] id, byte[] result) {
        TaskFuture<?> future;
        synchronized (open) {
            future = open.get(ByteBuffer.wrap(id));
        }
        // A task whose end was reported twice, or that was cancelled meanwhile.
        if (future == null) {
            return;
        }
        finish(future, Tasks.outcome(result));
        done(id);
    }

    @SuppressWarnings("unchecked")
    private static <T> void finish(TaskFuture<T> future, Tasks.Outcome outcome) {
        if (outcome.failure() instanceof MillraceException error && error.is(CANCELLED)) {
            future.cancelled();
        } else if (outcome.failure() != null) {
            future.completeExceptionally(outcome.failure());
        } else {
            future.complete((T) outcome.value());
        }
    }

    private void done(byte[] id) {
        synchronized (open) {
            open.remove(ByteBuffer.wrap(id));
            open.notifyAll();
        }
    }

    private void fail(MillraceException why) {
        List<TaskFuture<?>> left;
        synchronized (open) {
            broken = why;
            left = new ArrayList<>(open.values());
            open.clear();
            open.notifyAll();
        }
        left.forEach(future -> future.completeExceptionally(why));
    }

    private <T> TaskFuture<T> future() {
        synchronized (open) {
            if (broken != null) {
                throw new RejectedExecutionException("results can no longer be received", broken);
            }
            if (shut) {
                throw new RejectedExecutionException("the executor is shut down");
            }
            TaskFuture<T> future = new TaskFuture<>(Tasks.id(client, ++count));
            open.put(ByteBuffer.wrap(future.id), future);
            return future;
        }
    }

    /** Submits calls, many in one request. */
    private <T> List<Future<T>> begin(Collection<? extends Callable<T>> calls) {
        List<Future<T>> all = new ArrayList<>();
        List<TaskFuture<T>> batch = new ArrayList<>();
        List<byte[]> tasks = new ArrayList<>();
        int bytes = 0;
        try {
            for (Callable<T> call : calls) {
                TaskFuture<T> future = future();
                batch.add(future);
                byte[] task = Tasks.task(future.id, application, call);
                if (!tasks.isEmpty() && (tasks.size() == BATCH_MAX || bytes + task.length > BATCH_BYTES)) {
                    send(batch.subList(0, tasks.size()), tasks);
                    batch.subList(0, tasks.size()).clear();
                    tasks.clear();
                    bytes = 0;
                }
                tasks.add(task);
                bytes += task.length;
                all.add(future);
            }
            send(batch, tasks);
        } catch (RuntimeException error) {
            batch.forEach(future -> done(future.id));
            throw error;
        }
        return all;
    }

    private <T> void send(List<TaskFuture<T>> futures, List<byte[]> tasks) {
        if (tasks.isEmpty()) {
            return;
        }
        long first = invoke(List.copyOf(tasks), false);
        for (TaskFuture<T> future : futures) {
            future.number = first++;
        }
    }

    /** Sends tasks, or records that describe code; returns the number of the first. */
    private long invoke(List<byte[]> records, boolean bodies) {
        byte[] random = new byte[12];
        new SecureRandom().nextBytes(random);
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("pool", pool);
        if (bodies) {
            message.put("bodies", true);
        }
        message.put("tasks", records);
        // Sent again, it counts once.
        message.put("key", "task:" + java.util.HexFormat.of().formatHex(random));
        while (true) {
            try {
                return farm.client().insist(Messages.INVOKE, message, null, 0).number("first");
            } catch (MillraceException error) {
                if (error.retryAfter().isEmpty()) {
                    throw error;
                }
                Client.pause(Math.max(BUSY_MS, error.retryAfter().get().toMillis()));
            }
        }
    }

    /** Runs a task; it is serializable. */
    @Override
    public <T> Future<T> submit(Callable<T> task) {
        return this.<T>begin(List.of(task)).get(0);
    }

    /** Runs a task that is a lambda. */
    public <T> Future<T> submit(RemoteCallable<T> task) {
        return submit((Callable<T>) task);
    }

    /** Runs a task; it is serializable. */
    @Override
    public Future<?> submit(Runnable task) {
        return submit(task, null);
    }

    /** Runs a task that is a lambda. */
    public Future<?> submit(RemoteRunnable task) {
        return submit((Runnable) task, null);
    }

    /** Runs a task; both are serializable. */
    @Override
    public <T> Future<T> submit(Runnable task, T result) {
        return submit((Callable<T>) new Ran<>(task, result));
    }

    /** Runs a task; its exception is discarded. */
    @Override
    public void execute(Runnable task) {
        submit(task);
    }

    /** Runs a task that is a lambda. */
    public void execute(RemoteRunnable task) {
        submit((Runnable) task);
    }

    /** A runnable as a callable. */
    private record Ran<T>(Runnable task, T result) implements Callable<T>, Serializable {
        @Override
        public T call() {
            task.run();
            return result;
        }
    }

    @Override
    public <T> List<Future<T>> invokeAll(Collection<? extends Callable<T>> tasks) throws InterruptedException {
        List<Future<T>> futures = this.<T>begin(new ArrayList<>(tasks));
        try {
            for (Future<T> future : futures) {
                settled(future, Long.MAX_VALUE);
            }
        } catch (InterruptedException error) {
            futures.forEach(future -> future.cancel(false));
            throw error;
        }
        return futures;
    }

    @Override
    public <T> List<Future<T>> invokeAll(Collection<? extends Callable<T>> tasks, long timeout, TimeUnit unit) throws InterruptedException {
        long until = System.nanoTime() + unit.toNanos(timeout);
        List<Future<T>> futures = this.<T>begin(new ArrayList<>(tasks));
        boolean all = true;
        for (Future<T> future : futures) {
            all &= settled(future, until - System.nanoTime());
        }
        if (!all) {
            // As the interface has it: what has not ended is cancelled, and its result is not waited for.
            for (Future<T> future : futures) {
                if (!future.isDone() && !future.cancel(false)) {
                    ((CompletableFuture<T>) future).completeExceptionally(new CancellationException());
                }
            }
        }
        return futures;
    }

    /** Waits until a task has ended, in any way; returns whether it ended in time. */
    private static boolean settled(Future<?> future, long ns) throws InterruptedException {
        try {
            future.get(ns, TimeUnit.NANOSECONDS);
        } catch (TimeoutException error) {
            return future.isDone();
        } catch (ExecutionException | CancellationException error) {
            return true;
        }
        return true;
    }

    @Override
    public <T> T invokeAny(Collection<? extends Callable<T>> tasks) throws InterruptedException, ExecutionException {
        try {
            return any(tasks, Long.MAX_VALUE);
        } catch (TimeoutException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public <T> T invokeAny(Collection<? extends Callable<T>> tasks, long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        return any(tasks, unit.toNanos(timeout));
    }

    private <T> T any(Collection<? extends Callable<T>> tasks, long ns) throws InterruptedException, ExecutionException, TimeoutException {
        if (tasks.isEmpty()) {
            throw new IllegalArgumentException("no tasks were given");
        }
        List<Future<T>> futures = this.<T>begin(new ArrayList<>(tasks));
        CompletableFuture<T> first = new CompletableFuture<>();
        java.util.concurrent.atomic.AtomicInteger left = new java.util.concurrent.atomic.AtomicInteger(futures.size());
        for (Future<T> future : futures) {
            ((CompletableFuture<T>) future).whenComplete((value, thrown) -> {
                if (thrown == null) {
                    first.complete(value);
                } else if (left.decrementAndGet() == 0) {
                    first.completeExceptionally(thrown);
                }
            });
        }
        try {
            return first.get(ns, TimeUnit.NANOSECONDS);
        } finally {
            futures.forEach(future -> future.cancel(false));
        }
    }

    /**
     * Runs the iterations from one index up to, but not including, another on this many workers, and waits for all of them. A worker
     * takes further iterations whenever it has finished some. An exception of an iteration ends the loop.
     */
    public void invokeIterativeTask(IterativeTask task, int workers, int fromInclusive, int toExclusive)
            throws InterruptedException, ExecutionException {
        if (workers < 1 || toExclusive < fromInclusive) {
            throw new IllegalArgumentException(workers + " workers for the iterations from " + fromInclusive + " to " + toExclusive);
        }
        long iterations = (long) toExclusive - fromInclusive;
        int shares = (int) Math.min(workers, iterations);
        long part = Math.max(1, iterations / ((long) workers * PARTS_PER_WORKER));
        byte[] random = new byte[8];
        new SecureRandom().nextBytes(random);
        AtomicLong index = farm.atomicLong("iterations-" + java.util.HexFormat.of().formatHex(random), fromInclusive);
        List<Callable<Long>> calls = new ArrayList<>();
        for (int share = 0; share < shares; share++) {
            calls.add(new Share(task, index, part, toExclusive));
        }
        List<Future<Long>> futures = this.<Long>begin(calls);
        try {
            for (Future<Long> future : futures) {
                future.get();
            }
        } finally {
            futures.forEach(future -> future.cancel(false));
            farm.delete(index);
        }
    }

    /** Runs the iterations from one index up to, but not including, another on all workers of the executor, and waits for all of them. */
    public void invokeIterativeTask(IterativeTask task, int fromInclusive, int toExclusive) throws InterruptedException, ExecutionException {
        invokeIterativeTask(task, workers, fromInclusive, toExclusive);
    }

    /** A worker's share of a loop; returns how many iterations it ran. */
    private record Share(IterativeTask task, AtomicLong index, long part, int to) implements Callable<Long>, Serializable {
        @Override
        public Long call() throws Exception {
            long ran = 0;
            for (long from = index.getAndAdd(part); from < to; from = index.getAndAdd(part)) {
                for (long at = from; at < Math.min(from + part, to); at++) {
                    task.call((int) at);
                    ran++;
                }
            }
            return ran;
        }
    }

    /** Accepts no more tasks; submitted ones are still run. */
    @Override
    public void shutdown() {
        synchronized (open) {
            shut = true;
            open.notifyAll();
        }
        Thread ending = new Thread(() -> {
            try {
                awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
            } catch (InterruptedException error) {
                // Nobody interrupts it.
                Thread.currentThread().interrupt();
            }
        }, "millrace-shutdown");
        ending.setDaemon(true);
        ending.start();
    }

    /** Accepts no more tasks, and cancels those that have not started. Running tasks continue. */
    @Override
    public List<Runnable> shutdownNow() {
        shutdown();
        List<TaskFuture<?>> left;
        synchronized (open) {
            left = new ArrayList<>(open.values());
        }
        left.forEach(future -> future.cancel(false));
        return List.of();
    }

    @Override
    public boolean isShutdown() {
        synchronized (open) {
            return shut;
        }
    }

    @Override
    public boolean isTerminated() {
        synchronized (open) {
            return shut && open.isEmpty();
        }
    }

    @Override
    public boolean awaitTermination(long timeout, TimeUnit unit) throws InterruptedException {
        long begun = System.nanoTime();
        long ns = unit.toNanos(timeout);
        synchronized (open) {
            while (!(shut && open.isEmpty())) {
                long left = ns - (System.nanoTime() - begun);
                if (left <= 0) {
                    return false;
                }
                open.wait(Math.min(LOOK.toMillis(), left / 1_000_000 + 1));
            }
            if (ended) {
                return true;
            }
            ended = true;
        }
        results.close();
        listener.join();
        farm.detach(this);
        if (owned) {
            farm.close();
        }
        return true;
    }

    /** Accepts no more tasks, and waits until all have ended. */
    @Override
    public void close() {
        shutdown();
        boolean interrupted = false;
        while (true) {
            try {
                awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
                break;
            } catch (InterruptedException error) {
                interrupted = true;
                shutdownNow();
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public String toString() {
        return "ServerlessExecutorService of pool " + pool + " at " + farm;
    }
}
