package io.millrace;

import io.millrace.internal.Client;
import io.millrace.internal.Frame;
import io.millrace.internal.MessagePack;
import io.millrace.internal.Messages;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Follows a log: the host sends records as they are appended. After a lost connection it connects again, and no record is missed or repeated. */
public final class Tail implements AutoCloseable {
    /** How many records the host may send ahead. */
    private static final int CREDIT = 512;
    /** How often a silent host is pinged. */
    private static final long LOOK_MS = 4000;

    /**
     * Where a tail continues.
     *
     * @param incarnation the incarnation of the log, to detect that it was deleted and recreated
     * @param next the number of the next record
     */
    public record Cursor(int incarnation, long next) {}

    private final Client client;
    private final Log log;
    /** Records; before them, or at the end, a cursor or an error. */
    private LinkedBlockingQueue<Object> arrived;
    private Client.Stream stream;
    private long from;
    private int incarnation;
    private int taken;
    private volatile boolean closed;

    Tail(Client client, Log log, long from, int incarnation) {
        this.client = client;
        this.log = log;
        this.from = from;
        this.incarnation = incarnation;
        client.persist(() -> {
            open();
            return begin();
        });
    }

    private void open() {
        Map<String, Object> message = new LinkedHashMap<>();
        message.put("log", log.name());
        message.put("from", MessagePack.unsigned(from));
        if (incarnation != 0) {
            message.put("incarnation", incarnation & 0xffff_ffffL);
        }
        message.put("credit", CREDIT);
        LinkedBlockingQueue<Object> queue = new LinkedBlockingQueue<>();
        arrived = queue;
        taken = 0;
        stream = client.stream(Messages.TAIL, message, frame -> take(queue, frame), queue::add);
    }

    /** Handles a frame on the connection's thread; returns whether it was the last one. */
    private boolean take(LinkedBlockingQueue<Object> queue, Frame frame) {
        try {
            frame.checked();
            if (frame.type() == Messages.RECORDS) {
                log.records(frame).forEach(queue::add);
                queue.add(new Cursor((int) frame.number("incarnation"), frame.number("next")));
                return false;
            }
            if (frame.type() == Messages.FAILURE) {
                queue.add(new MillraceException(frame.text("code"), frame.text("detail")));
            } else {
                queue.add(new MillraceException("MR6129", "the host ended the tail of " + log));
            }
        } catch (MillraceException error) {
            queue.add(error);
        }
        return true;
    }

    /** Waits for the first answer, which has the start of the tail. */
    private Void begin() {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    Object first = arrived.poll(LOOK_MS, TimeUnit.MILLISECONDS);
                    if (first instanceof Cursor cursor) {
                        at(cursor);
                        return null;
                    } else if (first instanceof MillraceException error) {
                        throw error;
                    }
                    stream.look();
                } catch (InterruptedException error) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void at(Cursor cursor) {
        incarnation = cursor.incarnation;
        from = cursor.next;
    }

    /** Waits for the next record, and returns it. */
    public LogRecord next() throws InterruptedException {
        while (true) {
            Optional<LogRecord> record = next(Duration.ofMillis(LOOK_MS));
            if (record.isPresent()) {
                return record.get();
            }
        }
    }

    /** The next record; empty if none arrives within this time. */
    public Optional<LogRecord> next(Duration timeout) throws InterruptedException {
        long until = System.nanoTime() + timeout.toNanos();
        while (true) {
            long left = until - System.nanoTime();
            Object found = left <= 0 ? arrived.poll() : arrived.poll(Math.min(left, TimeUnit.MILLISECONDS.toNanos(LOOK_MS)), TimeUnit.NANOSECONDS);
            if (closed) {
                throw new IllegalStateException("the tail is closed");
            } else if (found instanceof LogRecord record) {
                from = record.seqno() + 1;
                if (++taken == CREDIT / 2) {
                    taken = 0;
                    credit();
                }
                return Optional.of(record);
            } else if (found instanceof Cursor cursor) {
                at(cursor);
            } else if (found instanceof MillraceException error) {
                if (!Client.isLost(error)) {
                    arrived.add(error);
                    throw error;
                }
                client.persist(() -> {
                    open();
                    return begin();
                });
            } else if (left <= 0) {
                return Optional.empty();
            } else {
                stream.look();
            }
        }
    }

    private void credit() {
        try {
            stream.send(Messages.CREDIT, Map.of("records", CREDIT / 2));
        } catch (MillraceException error) {
            // The queue has the end of the connection behind the records.
            if (!Client.isLost(error)) {
                throw error;
            }
        }
    }

    /** The cursor after the last record that {@link #next} has returned. */
    public Cursor cursor() {
        return new Cursor(incarnation, from);
    }

    @Override
    public void close() {
        closed = true;
        try {
            stream.cancel();
        } catch (MillraceException error) {
            // A connection that has ended has ended its tails.
            if (!Client.isLost(error)) {
                throw error;
            }
        }
        arrived.add(new MillraceException("MR6129", "the tail of " + log + " was closed"));
    }
}
