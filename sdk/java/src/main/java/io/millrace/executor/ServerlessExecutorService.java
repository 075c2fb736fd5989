package io.millrace.executor;

import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.internal.Client;
import io.millrace.internal.Place;
import io.millrace.shared.Members;
import io.millrace.shared.Shared;
import io.millrace.shared.SharedClass;
import io.millrace.worker.Pool;
import io.millrace.worker.Tasks;
import java.io.Serializable;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/**
 * An {@link ExecutorService} whose threads are workers of a host: processes in a sandbox with limits. A task is a run, so it is in the
 * journal, and is not lost if a worker or the host ends. Tasks and their results are serialized. The class path of this program is sent
 * to the host once for each version.
 */
public final class ServerlessExecutorService implements ExecutorService, AutoCloseable {
    /** How much is serialized before it is sent. */
    private static final int BATCH_MAX = 1024;
    private static final int BATCH_BYTES = 4 << 20;
    private static final Duration LOST_AFTER = Duration.ofSeconds(10);
    /** About how many parts of a loop each worker gets: enough that no worker waits long for another. */
    private static final int PARTS_PER_WORKER = 16;

    private static volatile ServerlessExecutorService newest;

    private final Millrace farm;
    private final boolean owned;
    private final int workers;
    private final String application;
    private final String pool;
    private final Hosts hosts;
    private final OpenTasks open;
    /** By class: the record of the pool that describes it. */
    private final Map<Class<?>, Long> bodies;
    /** The executor that this one restricts to hosts with labels; null for none. */
    private final ServerlessExecutorService whole;
    private final Labels needs;
    private volatile boolean shut;
    private boolean ended;

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
        private boolean exists;
        private List<Place> places;
        private Duration lostAfter;
        private Labels needs = Labels.NONE;

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

        /**
         * A pool that the hosts have, with its settings and code: those of this builder are not used, and no pool is created. So the
         * client does not need {@code admin}: only {@code run} on the function {@code pool-NAME}, {@code call} and {@code create} on
         * all objects, {@code read} on the namespace, and, for several hosts, {@code observe}. Refused with MR7114 if no host has it.
         */
        public Builder existingPool(String name) {
            pool = name;
            exists = true;
            return this;
        }

        /** The hosts that tasks are sent to; by default all that the connection names. */
        public Builder hosts(String first, String... others) {
            places = Stream.concat(Stream.of(first), Stream.of(others)).map(Place::parse).toList();
            return this;
        }

        /**
         * For how long one of several hosts cannot be reached until it is lost; by default 10 s. Its tasks without a result run once more on
         * other hosts, so they may run twice. A connection to one host has {@link Millrace.Builder#patience} for it.
         */
        public Builder lostAfter(Duration time) {
            lostAfter = time;
            return this;
        }

        /**
         * Labels, such as {@code gpu=a100}: tasks are sent only to hosts that were started with all of them ({@code serve --label}). Refused with
         * MR7126 if no host has them.
         */
        public Builder label(String... labels) {
            needs = needs.and(labels);
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
        whole = null;
        needs = builder.needs;
        bodies = new ConcurrentHashMap<>();
        open = new OpenTasks();
        Client client = farm.client();
        try {
            Pool.Prepared prepared = builder.exists ? null : settings.prepare();
            pool = prepared == null ? settings.named() : prepared.name();
            List<Place> places = builder.places == null ? client.places() : builder.places;
            if (prepared != null) {
                makeAtOthers(prepared, places);
            }
            Duration lostAfter = builder.lostAfter == null ? LOST_AFTER : builder.lostAfter;
            hosts = new Hosts(new Hosts.Settings(client, places, pool, prepared, lostAfter, needs), open);
            application = application(farm, hosts);
        } catch (RuntimeException error) {
            if (owned) {
                farm.close();
            }
            throw error;
        }
        newest = this;
        farm.attach(this);
    }

    private static String application(Millrace farm, Hosts hosts) {
        try {
            return farm.application();
        } catch (RuntimeException error) {
            hosts.close();
            throw error;
        }
    }

    /** The same executor for tasks that need more labels. */
    private ServerlessExecutorService(ServerlessExecutorService whole, Labels needs) {
        this.whole = whole;
        this.needs = needs;
        farm = whole.farm;
        owned = false;
        workers = whole.workers;
        application = whole.application;
        pool = whole.pool;
        hosts = whole.hosts;
        open = whole.open;
        bodies = whole.bodies;
    }

    /** Creates the pool on all hosts: any of them may become the leader of the objects, and then runs the methods of shared classes. */
    private void makeAtOthers(Pool.Prepared prepared, List<Place> used) {
        for (Place place : farm.client().places()) {
            if (used.contains(place)) {
                continue;
            }
            try (Client other = new Client(List.of(place), farm.client().options())) {
                prepared.make(other);
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
        long body = bodies.computeIfAbsent(type, added -> TaskHost.invoke(farm.client(), pool, List.of(Members.of(added).description()), true));
        return new SharedClass<>(face, type, pool, body, farm.space());
    }

    /**
     * This executor for tasks that run only on hosts with a label, or with all of several: {@code executor.on("gpu=a100").submit(task)}.
     * Refused with MR7126 if no host has them. The tasks are those of this executor as well; shutting down the one that is returned only refuses
     * more of them.
     */
    public ServerlessExecutorService on(String... labels) {
        Labels all = needs.and(labels);
        hosts.checkLabels(all);
        return new ServerlessExecutorService(whole == null ? this : whole, all);
    }

    /**
     * In a task: a text that is the same in every attempt of this task, on every host, and different for every other task. Pass it to services
     * that accept an idempotency key.
     */
    public static String idempotencyKey() {
        byte[] id = Tasks.running();
        if (id == null) {
            throw new IllegalStateException("there is no task here; only a task that an executor runs has a key");
        }
        return HexFormat.of().formatHex(id);
    }

    private boolean isOwn(TaskFuture<?> future) {
        return whole == null || future.executor == this;
    }

    private <T> TaskFuture<T> future() {
        synchronized (open) {
            if (isShutdown()) {
                throw new RejectedExecutionException("the executor is shut down");
            }
            return open.add(this, needs);
        }
    }

    /** Submits calls, many in one request. */
    private <T> List<Future<T>> begin(Collection<? extends Callable<T>> calls) {
        List<TaskFuture<T>> all = new ArrayList<>();
        int placed = 0;
        int bytes = 0;
        try {
            for (Callable<T> call : calls) {
                TaskFuture<T> future = future();
                all.add(future);
                future.task = Tasks.task(future.id, application, call);
                bytes += future.task.length;
                // What was sent need not be kept if there is one host.
                if (bytes > BATCH_BYTES || all.size() - placed == BATCH_MAX) {
                    hosts.place(List.copyOf(all.subList(placed, all.size())));
                    placed = all.size();
                    bytes = 0;
                }
            }
            hosts.place(List.copyOf(all.subList(placed, all.size())));
        } catch (RuntimeException error) {
            open.unplaced(all).forEach(open::remove);
            if (error instanceof MillraceException lost && Client.isLost(lost)) {
                throw new RejectedExecutionException(lost.detail(), lost);
            }
            throw error;
        }
        return List.copyOf(all);
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
     * takes further iterations whenever it has finished some; on several hosts, this program sends them. An exception of an iteration ends
     * the loop.
     */
    public void invokeIterativeTask(IterativeTask task, int workers, int fromInclusive, int toExclusive)
            throws InterruptedException, ExecutionException {
        if (workers < 1 || toExclusive < fromInclusive) {
            throw new IllegalArgumentException(workers + " workers for the iterations from " + fromInclusive + " to " + toExclusive);
        }
        long iterations = (long) toExclusive - fromInclusive;
        int shares = (int) Math.min(workers, iterations);
        long part = Math.max(1, iterations / ((long) workers * PARTS_PER_WORKER));
        if (!hosts.areConnection()) {
            // A counter that the workers share would be an object of one host.
            fromHere(task, shares, part, fromInclusive, toExclusive);
            return;
        }
        byte[] random = new byte[8];
        new SecureRandom().nextBytes(random);
        AtomicLong index = farm.atomicLong("iterations-" + HexFormat.of().formatHex(random), fromInclusive);
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

    /** The same with a task for each part: whenever one has ended, the next part is submitted. */
    private void fromHere(IterativeTask task, int shares, long part, int from, int to) throws InterruptedException, ExecutionException {
        BlockingQueue<Future<Long>> ended = new LinkedBlockingQueue<>();
        List<Future<Long>> futures = new ArrayList<>();
        long next = from;
        int running = 0;
        try {
            while (next < to || running > 0) {
                List<Callable<Long>> calls = new ArrayList<>();
                for (; running + calls.size() < shares && next < to; next += part) {
                    calls.add(new Part(task, next, Math.min(next + part, to)));
                }
                for (Future<Long> future : this.<Long>begin(calls)) {
                    futures.add(future);
                    running++;
                    ((CompletableFuture<Long>) future).whenComplete((ran, thrown) -> ended.add(future));
                }
                ended.take().get();
                running--;
            }
        } finally {
            futures.forEach(future -> future.cancel(false));
        }
    }

    /** Runs the iterations from one index up to, but not including, another on all workers of the executor, and waits for all of them. */
    public void invokeIterativeTask(IterativeTask task, int fromInclusive, int toExclusive) throws InterruptedException, ExecutionException {
        invokeIterativeTask(task, workers, fromInclusive, toExclusive);
    }

    /** A part of a loop; returns how many iterations it ran. */
    private record Part(IterativeTask task, long from, long to) implements Callable<Long>, Serializable {
        @Override
        public Long call() throws Exception {
            for (long at = from; at < to; at++) {
                task.call((int) at);
            }
            return to - from;
        }
    }

    /** A worker's share of a loop; returns how many iterations it ran. */
    private record Share(IterativeTask task, AtomicLong index, long part, int to) implements Callable<Long>, Serializable {
        @Override
        public Long call() throws Exception {
            long ran = 0;
            for (long from = index.getAndAdd(part); from < to; from = index.getAndAdd(part)) {
                ran += new Part(task, from, Math.min(from + part, to)).call();
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
        if (whole == null) {
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
    }

    /** Accepts no more tasks, and cancels those that have not started. Running tasks continue. */
    @Override
    public List<Runnable> shutdownNow() {
        shutdown();
        open.all(this::isOwn).forEach(future -> future.cancel(false));
        return List.of();
    }

    @Override
    public boolean isShutdown() {
        return shut || whole != null && whole.shut;
    }

    @Override
    public boolean isTerminated() {
        return isShutdown() && open.areOver(this::isOwn);
    }

    @Override
    public boolean awaitTermination(long timeout, TimeUnit unit) throws InterruptedException {
        if (!open.await(() -> isTerminated(), unit.toNanos(timeout))) {
            return false;
        } else if (whole != null) {
            return true;
        }
        synchronized (open) {
            if (ended) {
                return true;
            }
            ended = true;
        }
        hosts.close();
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
        return "ServerlessExecutorService of pool " + pool + " at " + hosts + (needs.isEmpty() ? "" : " with " + needs);
    }
}
