package io.millrace.executor;

import io.millrace.Log;
import io.millrace.MillraceException;
import io.millrace.Tail;
import io.millrace.internal.Client;
import io.millrace.internal.EventId;
import io.millrace.internal.Json;
import io.millrace.internal.Messages;
import io.millrace.internal.Place;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;

/** One of the hosts of an executor, with the results of its tasks. */
final class TaskHost implements AutoCloseable {
    private static final String LOG_NOT_FOUND = "MR2101";
    private static final String POOL_NOT_FOUND = "MR7114";
    private static final String RUN_OVER = "MR3141";
    private static final long BUSY_MS = 50;
    /** How often it is asked for its labels if tasks need some: it may start again with others. */
    private static final long LABELS_NS = TimeUnit.SECONDS.toNanos(5);

    private final Client client;
    private final boolean isOwn;
    private final Place place;
    private final String pool;
    private final Tail results;
    private final BiConsumer<TaskHost, MillraceException> onLoss;
    /** Its waiting tasks: as it said last, and those that were sent and have ended since. */
    private final AtomicLong waiting = new AtomicLong();
    private volatile Labels labels;
    private long labelsNs;
    private volatile MillraceException whyLost;

    /**
     * A host that this client reaches; the client is closed with it if it is its own. Refused with MR7114 if it does not have the pool.
     *
     * @param onLoss called if a cancellation cannot reach it
     */
    TaskHost(Client client, boolean isOwn, String pool, BiConsumer<TaskHost, MillraceException> onLoss) {
        this.client = client;
        this.isOwn = isOwn;
        this.pool = pool;
        this.onLoss = onLoss;
        place = client.place();
        Log log = Log.at(client, "_results/" + pool);
        try {
            results = log.tail(log.latest() + 1);
        } catch (MillraceException error) {
            throw error.is(LOG_NOT_FOUND) ? new MillraceException(POOL_NOT_FOUND, "no pool '" + pool + "' at '" + place + "'", error) : error;
        }
    }

    Place place() {
        return place;
    }

    /** Requests the number of waiting tasks and runs there, of all clients. */
    void look() {
        String shown = client.insist(Messages.SHOW, Map.of("path", "functions"), null, 0).text("json");
        waiting.set(((List<?>) Json.object(shown).get("functions")).stream()
                .mapToLong(function -> ((Number) ((Map<?, ?>) function).get("pending")).longValue()).sum());
    }

    /** Requests its labels, if the last ones are old. */
    synchronized void lookAtOldLabels() {
        if (labels == null || System.nanoTime() - labelsNs >= LABELS_NS) {
            lookAtLabels();
        }
    }

    /** Requests its labels. */
    synchronized void lookAtLabels() {
        labels = Labels.of(client);
        labelsNs = System.nanoTime();
    }

    /** Its labels; null if they are not known. */
    Labels labels() {
        return labels;
    }

    /** How many tasks and runs wait there. */
    long waiting() {
        return waiting.get();
    }

    /** It gets a task. */
    void expectMore() {
        waiting.incrementAndGet();
    }

    /** The next result of the pool; waits for it. */
    byte[] nextResult() throws InterruptedException {
        return results.next().data();
    }

    /** A task has ended there. It may already have been reported as one that does not wait. */
    void ended() {
        waiting.updateAndGet(now -> Math.max(0, now - 1));
    }

    /** Why it is lost; null if it is not. */
    MillraceException whyLost() {
        return whyLost;
    }

    void lose(MillraceException why) {
        whyLost = why;
    }

    /** Submits tasks to it; returns the number of the first. */
    long invoke(List<byte[]> tasks) {
        return invoke(client, pool, tasks, false);
    }

    /** Submits tasks, or records that describe code, to a pool; returns the number of the first. */
    static long invoke(Client client, String pool, List<byte[]> records, boolean bodies) {
        byte[] random = new byte[12];
        new SecureRandom().nextBytes(random);
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("pool", pool);
        if (bodies) {
            message.put("bodies", true);
        }
        message.put("tasks", records);
        // Sent again, it counts once.
        message.put("key", "task:" + HexFormat.of().formatHex(random));
        while (true) {
            try {
                return client.insist(Messages.INVOKE, message, null, 0).number("first");
            } catch (MillraceException error) {
                if (error.retryAfter().isEmpty() || Client.isLost(error)) {
                    throw error;
                }
                Client.pause(Math.max(BUSY_MS, error.retryAfter().get().toMillis()));
            }
        }
    }

    /** Cancels a task that has not started; returns whether it never will. */
    boolean revoke(long number) {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("pool", pool);
        message.put("task", number);
        try {
            return client.insist(Messages.REVOKE, message, null, 0).truth("cancelled");
        } catch (MillraceException error) {
            return lost(error);
        } catch (IllegalStateException error) {
            return cannotReach(error);
        }
    }

    /** A cancellation cannot reach it: what becomes of the task is decided before the cancellation continues. */
    private boolean lost(MillraceException error) {
        if (!Client.isLost(error)) {
            throw error;
        }
        onLoss.accept(this, error);
        return false;
    }

    /** A host that is lost has no connection any more once it is back: another one takes its place. */
    private boolean cannotReach(IllegalStateException error) {
        if (whyLost == null) {
            throw error;
        }
        return false;
    }

    /** Ends a task that runs: its worker is ended, and the task is not tried again. Returns whether it had not ended. */
    boolean stop(long number) {
        try {
            String run = runOf(number);
            if (run == null) {
                return false;
            }
            client.insist(Messages.CANCEL_RUN, Map.of("run", EventId.bytes(run)), null, 0);
            return true;
        } catch (MillraceException error) {
            // It ends with a result just now.
            if (error.is(RUN_OVER)) {
                return false;
            }
            return lost(error);
        } catch (IllegalStateException error) {
            return cannotReach(error);
        }
    }

    /** The run of a task that has started; null if it has ended. */
    private String runOf(long number) {
        String path = "runs?state=started&log=" + URLEncoder.encode("_tasks/" + pool, StandardCharsets.UTF_8);
        Object before = null;
        do {
            String page = before == null ? path : path + "&before=" + URLEncoder.encode(before.toString(), StandardCharsets.UTF_8);
            Map<String, Object> shown = Json.object(client.insist(Messages.SHOW, Map.of("path", page), null, 0).text("json"));
            for (Object run : (List<?>) shown.get("runs")) {
                Map<?, ?> each = (Map<?, ?>) run;
                if (((Number) each.get("seqno")).longValue() == number) {
                    return (String) each.get("id");
                }
            }
            before = shown.get("next");
        } while (before != null);
        return null;
    }

    /** Ends its connection, or at least the wait for results. */
    @Override
    public void close() {
        results.close();
        if (isOwn) {
            client.close();
        }
    }

    @Override
    public String toString() {
        return place.toString();
    }
}
