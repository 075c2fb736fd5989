package io.millrace.executor;

import io.millrace.MillraceException;
import io.millrace.internal.Client;
import io.millrace.internal.Options;
import io.millrace.internal.Place;
import io.millrace.worker.Pool;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The hosts of an executor. Each task is sent to the host with the fewest waiting tasks, and once more to another one if that host is lost. A
 * lost host is tried again after pauses that double, and gets tasks again when it is back.
 */
final class Hosts implements AutoCloseable {
    private static final Logger LOG = System.getLogger("io.millrace");
    private static final int BATCH_MAX = 1024;
    private static final int BATCH_BYTES = 4 << 20;
    private static final String POOL_NOT_FOUND = "MR7114";
    /** How often hosts are asked for their waiting tasks while this program submits some. */
    private static final Duration LOOK = Duration.ofMillis(200);
    /** The first and the longest pause before a lost host is tried again, and how long it stays until the next pause is the first one again. */
    private static final Duration RETURN = Duration.ofSeconds(1);
    private static final Duration RETURN_MAX = Duration.ofSeconds(30);
    private static final Duration STAYED = Duration.ofSeconds(60);

    private final Settings settings;
    private final OpenTasks open;
    private final List<TaskHost> hosts = new CopyOnWriteArrayList<>();
    private final List<Thread> listeners = new CopyOnWriteArrayList<>();
    /** The hosts that are tried again, and the pauses of those that have been back since when; guarded by {@link #open}. */
    private final Map<Place, Absent> absent = new LinkedHashMap<>();
    private final Map<Place, Returned> returned = new LinkedHashMap<>();
    private final ScheduledExecutorService looks = scheduler("millrace-load");
    private final ScheduledExecutorService returns = scheduler("millrace-return");
    private final AtomicBoolean looksSoon = new AtomicBoolean();
    private volatile long lookedNs = System.nanoTime();
    /** Whether tasks need labels. */
    private volatile boolean isLabelled;
    private volatile boolean isOver;

    /**
     * What an executor says of its hosts.
     *
     * @param farm the client of the executor's connection
     * @param places the hosts that it may use
     * @param pool the name of its pool
     * @param prepared the pool itself; null for one that hosts have already
     * @param lostAfter for how long a host cannot be reached until it is lost
     * @param needs the labels that all tasks need
     */
    record Settings(Client farm, List<Place> places, String pool, Pool.Prepared prepared, Duration lostAfter, Labels needs) {
        /** Whether tasks go to the host of the connection, and to no other one. */
        boolean isConnection() {
            return places.size() == 1 && places.equals(farm.places());
        }
    }

    /** A lost host, and the pause before it is tried again. */
    private record Absent(Place place, Duration pause) {
        Absent later() {
            return new Absent(place, shorter(pause.multipliedBy(2), RETURN_MAX));
        }
    }

    /** The last pause of a host that is back, and since when it is. */
    private record Returned(Duration pause, long sinceNs) {}

    /** Reaches the hosts. One that is unreachable, or does not have the pool, is not used unless no host remains. */
    Hosts(Settings settings, OpenTasks open) {
        this.settings = settings;
        this.open = open;
        isLabelled = !settings.needs.isEmpty();
        try {
            reachAll();
        } catch (RuntimeException error) {
            close();
            throw error;
        }
        hosts.forEach(this::attend);
    }

    private static ScheduledExecutorService scheduler(String name) {
        return Executors.newSingleThreadScheduledExecutor(work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    private static Duration shorter(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? one : other;
    }

    private void reachAll() {
        Map<Place, MillraceException> refused = new LinkedHashMap<>();
        for (Place place : settings.places) {
            try {
                hosts.add(reach(place));
            } catch (MillraceException error) {
                if (!Client.isLost(error) && !error.is(POOL_NOT_FOUND)) {
                    throw error;
                }
                refused.put(place, error);
            }
        }
        if (hosts.isEmpty()) {
            throw refused.values().iterator().next();
        }
        refused.forEach((place, error) -> {
            LOG.log(Level.WARNING, "no tasks are sent to {0}: {1}", place, error.getMessage());
            if (Client.isLost(error)) {
                tryLater(new Absent(place, RETURN));
            }
        });
        checkLabels(settings.needs);
    }

    private TaskHost reach(Place place) {
        if (settings.isConnection()) {
            return reached(settings.farm, false);
        }
        Options options = settings.farm.options().withReconnect(settings.lostAfter.toMillis());
        Client client = new Client(List.of(place), options);
        try {
            return reached(client, true);
        } catch (RuntimeException error) {
            client.close();
            throw error;
        }
    }

    /** Whether tasks go to the host of the connection, and to no other one. */
    boolean areConnection() {
        return settings.isConnection();
    }

    private TaskHost reached(Client client, boolean isOwn) {
        if (settings.prepared != null) {
            settings.prepared.make(client);
        }
        TaskHost host = new TaskHost(client, isOwn, settings.pool, this::lose);
        try {
            look(host);
        } catch (RuntimeException error) {
            host.close();
            throw error;
        }
        return host;
    }

    private void look(TaskHost host) {
        if (settings.places.size() > 1) {
            host.look();
        }
        if (isLabelled) {
            host.lookAtOldLabels();
        }
    }

    /** Begins to wait for its results. */
    private void attend(TaskHost host) {
        Thread listener = new Thread(() -> listen(host), "millrace-results");
        listener.setDaemon(true);
        listeners.add(listener);
        listener.start();
    }

    private void listen(TaskHost host) {
        try {
            while (true) {
                byte[] result = host.nextResult();
                if (open.isOurs(result)) {
                    host.ended();
                    open.complete(result);
                }
            }
        } catch (MillraceException error) {
            lose(host, error);
        } catch (Throwable error) {
            lose(host, new MillraceException("MR6129", "results are not followed any more: " + error, error));
        } finally {
            listeners.remove(Thread.currentThread());
        }
    }

    private List<TaskHost> living() {
        return hosts.stream().filter(host -> host.whyLost() == null).toList();
    }

    /** Refuses labels that no host has. From now on, hosts are asked for theirs. */
    void checkLabels(Labels needs) {
        isLabelled |= !needs.isEmpty();
        if (hosts.stream().noneMatch(host -> needs.areAmong(host.labels()))) {
            // Labels that were read once may be others now.
            for (TaskHost host : living()) {
                try {
                    host.lookAtLabels();
                } catch (MillraceException error) {
                    if (!Client.isLost(error)) {
                        throw error;
                    }
                    lose(host, error);
                }
            }
        }
        if (hosts.stream().noneMatch(host -> needs.areAmong(host.labels()))) {
            throw noHostWith(needs);
        }
    }

    private MillraceException noHostWith(Labels needs) {
        Map<String, Labels> seen = new LinkedHashMap<>();
        hosts.forEach(host -> seen.put(host.toString(), host.labels()));
        synchronized (open) {
            absent.keySet().forEach(place -> seen.putIfAbsent(place.toString(), null));
        }
        return needs.missing(seen);
    }

    /** The host with the fewest waiting tasks, of those with these labels. */
    private TaskHost choose(Labels needs) {
        synchronized (open) {
            TaskHost least = living().stream().filter(host -> needs.areAmong(host.labels())).min(Comparator.comparingLong(TaskHost::waiting))
                    .orElseThrow(() -> noneLeft(needs));
            least.expectMore();
            return least;
        }
    }

    private MillraceException noneLeft(Labels needs) {
        return hosts.stream().filter(host -> needs.areAmong(host.labels())).findFirst().map(lost -> {
            String which = "every host" + (needs.isEmpty() ? "" : " with " + needs) + " is lost: ";
            return new MillraceException(lost.whyLost().code(), which + lost.whyLost().detail(), lost.whyLost());
        }).orElseGet(() -> noHostWith(needs));
    }

    /**
     * Sends tasks, each to the host that has the fewest, and many in one request. Fails if no host is left, or if one refuses a task; tasks that
     * were not sent then have no host.
     */
    void place(Collection<? extends TaskFuture<?>> futures) {
        Map<TaskHost, List<TaskFuture<?>>> batches = new LinkedHashMap<>();
        Map<TaskHost, Integer> sizes = new LinkedHashMap<>();
        for (TaskFuture<?> future : futures) {
            TaskHost host = choose(future.needs);
            byte[] task = future.task;
            // One that was cancelled, or whose result came from its lost host, needs no host any more.
            int bytes = task == null ? 0 : task.length;
            List<TaskFuture<?>> batch = batches.computeIfAbsent(host, any -> new ArrayList<>());
            if (!batch.isEmpty() && (batch.size() == BATCH_MAX || sizes.get(host) + bytes > BATCH_BYTES)) {
                send(host, List.copyOf(batch));
                batch.clear();
                sizes.remove(host);
            }
            batch.add(future);
            sizes.merge(host, bytes, Integer::sum);
        }
        batches.forEach(this::send);
        lookSoon();
    }

    private void send(TaskHost host, List<TaskFuture<?>> batch) {
        List<TaskFuture<?>> sent = new ArrayList<>();
        List<byte[]> tasks = new ArrayList<>();
        boolean isLost;
        synchronized (open) {
            isLost = host.whyLost() != null;
            for (TaskFuture<?> future : batch) {
                if (future.task != null) {
                    future.host = isLost ? null : host;
                    sent.add(future);
                    tasks.add(future.task);
                }
            }
        }
        if (sent.isEmpty()) {
            return;
        } else if (isLost) {
            place(sent);
            return;
        }
        long first;
        try {
            first = host.invoke(tasks);
        } catch (MillraceException error) {
            if (!Client.isLost(error)) {
                synchronized (open) {
                    sent.forEach(future -> future.host = null);
                }
                throw error;
            }
            lose(host, error);
            return;
        }
        synchronized (open) {
            for (TaskFuture<?> future : sent) {
                if (future.host == host) {
                    future.accepted(host, first);
                    future.task = settings.places.size() > 1 ? future.task : null;
                }
                first++;
            }
        }
    }

    /** Sends the tasks that a host has not ended to others, each only once. Those whose run was to be ended are cancelled. */
    private void lose(TaskHost host, MillraceException why) {
        List<TaskFuture<?>> cancelled;
        List<TaskFuture<?>> failed;
        List<TaskFuture<?>> again;
        Absent lost;
        synchronized (open) {
            if (isOver || host.whyLost() != null) {
                return;
            }
            host.lose(why);
            List<TaskFuture<?>> theirs = open.all(future -> future.host == host);
            cancelled = theirs.stream().filter(TaskFuture::isCancelling).toList();
            theirs = theirs.stream().filter(future -> !future.isCancelling()).toList();
            boolean isOnly = settings.places.size() == 1;
            failed = theirs.stream().filter(future -> future.isMoved || isOnly).toList();
            again = theirs.stream().filter(future -> !future.isMoved && !isOnly).toList();
            again.forEach(TaskFuture::move);
            cancelled.forEach(TaskFuture::leave);
            failed.forEach(TaskFuture::leave);
            Returned last = returned.remove(host.place());
            boolean stayed = last == null || System.nanoTime() - last.sinceNs >= STAYED.toNanos();
            lost = new Absent(host.place(), stayed ? RETURN : shorter(last.pause.multipliedBy(2), RETURN_MAX));
        }
        LOG.log(Level.WARNING, "the host {0} is lost, and {1} tasks are repeated elsewhere: {2}", host, again.size(), why.getMessage());
        tryLater(lost);
        MillraceException broken = new MillraceException(why.code(), "the hosts that had the task were lost: " + why.detail(), why);
        Map<Labels, List<TaskFuture<?>>> byNeeds = new LinkedHashMap<>();
        again.forEach(future -> byNeeds.computeIfAbsent(future.needs, any -> new ArrayList<>()).add(future));
        byNeeds.values().forEach(this::placeAgain);
        // Last: what depends on them may take long, or cancel one that was sent again.
        cancelled.forEach(future -> open.end(future, future::cancelled));
        failed.forEach(future -> open.fail(future, broken));
    }

    private void placeAgain(List<TaskFuture<?>> futures) {
        try {
            place(futures);
        } catch (MillraceException error) {
            open.unplaced(futures).forEach(future -> open.fail(future, error));
        }
    }

    private void lookSoon() {
        if ((settings.places.size() > 1 || isLabelled) && looksSoon.compareAndSet(false, true)) {
            synchronized (open) {
                if (!isOver) {
                    long leftNs = LOOK.toNanos() - (System.nanoTime() - lookedNs);
                    looks.schedule(this::lookAtAll, Math.max(0, leftNs), TimeUnit.NANOSECONDS);
                }
            }
        }
    }

    /** Requests the load of hosts, and their labels if tasks need some. */
    private void lookAtAll() {
        looksSoon.set(false);
        for (TaskHost host : living()) {
            try {
                look(host);
            } catch (MillraceException error) {
                lose(host, error);
            } catch (IllegalStateException error) {
                // The executor ends, and its connections are closed.
                return;
            }
        }
        lookedNs = System.nanoTime();
    }

    private void tryLater(Absent lost) {
        synchronized (open) {
            if (!isOver) {
                absent.put(lost.place, lost);
                returns.schedule(() -> tryAgain(lost), lost.pause.toMillis(), TimeUnit.MILLISECONDS);
            }
        }
    }

    private void tryAgain(Absent lost) {
        TaskHost host;
        try {
            host = reach(lost.place);
        } catch (RuntimeException error) {
            LOG.log(Level.DEBUG, "the host {0} is not back: {1}", lost.place, error.getMessage());
            tryLater(lost.later());
            return;
        }
        List<TaskHost> before;
        synchronized (open) {
            before = isOver ? List.of(host) : hosts.stream().filter(one -> one.place().equals(lost.place)).toList();
            if (!isOver) {
                hosts.removeAll(before);
                hosts.add(host);
                absent.remove(lost.place);
                returned.put(lost.place, new Returned(lost.pause, System.nanoTime()));
                attend(host);
                LOG.log(Level.WARNING, "the host {0} is back, and tasks are sent to it", host);
            }
        }
        before.forEach(TaskHost::close);
    }

    /** Ends the connections, and waits for no result any more. */
    @Override
    public void close() {
        synchronized (open) {
            isOver = true;
        }
        looks.shutdownNow();
        returns.shutdownNow();
        hosts.forEach(TaskHost::close);
        boolean interrupted = false;
        for (Thread listener : listeners) {
            try {
                // What completes a future may close the executor.
                if (listener != Thread.currentThread()) {
                    listener.join();
                }
            } catch (InterruptedException error) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public String toString() {
        return settings.places.size() == 1 ? settings.places.get(0).toString() : settings.places.toString();
    }
}
