package io.millrace;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.concurrent.ConcurrentHashMap;
import io.millrace.concurrent.ConcurrentSkipListMap;
import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.Semaphore;
import io.millrace.concurrent.atomic.AtomicBoolean;
import io.millrace.concurrent.atomic.AtomicReference;
import io.millrace.concurrent.locks.Lock;
import io.millrace.concurrent.locks.ReentrantLock;
import io.millrace.data.Blob;
import io.millrace.data.Event;
import io.millrace.data.SharedLog;
import io.millrace.executor.ServerlessExecutorService;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Locks with conditions, and the other names of java.util.concurrent, beside what they do there. */
class NamesTest {
    private static final long PATIENCE_S = 120;
    /** A lease that no load of the machine outlasts. */
    private static final Duration LEASE = Duration.ofSeconds(PATIENCE_S);

    @TempDir
    static Path folder;

    private static Host host;
    private static Millrace farm;
    private static Millrace other;

    @BeforeAll
    static void start() throws Exception {
        host = Host.start(folder);
        other = Millrace.at(host.namespace.toString()).application("names").lease(LEASE).connect();
        farm = Millrace.at(host.namespace.toString()).application("names").lease(LEASE).connect();
    }

    @AfterAll
    static void end() throws Exception {
        farm.close();
        other.close();
        host.close();
    }

    private static <T> FutureTask<T> meanwhile(Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static <T> T of(Future<T> task) throws Exception {
        return task.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** The buffer of the documentation of java.util.concurrent.locks.Condition. */
    private static final class Buffer implements Serializable {
        private static final long serialVersionUID = 1L;
        private final java.util.concurrent.locks.Lock lock;
        private final Condition notFull;
        private final Condition notEmpty;
        private final io.millrace.concurrent.List<Long> items;

        Buffer(java.util.concurrent.locks.Lock lock, io.millrace.concurrent.List<Long> items) {
            this.lock = lock;
            this.items = items;
            notFull = lock.newCondition();
            notEmpty = lock.newCondition();
        }

        void put(long item) throws InterruptedException {
            lock.lock();
            try {
                while (items.size() == 2) {
                    notFull.await();
                }
                items.add(item);
                notEmpty.signal();
            } finally {
                lock.unlock();
            }
        }

        long take() throws InterruptedException {
            lock.lock();
            try {
                while (items.isEmpty()) {
                    notEmpty.await();
                }
                long item = items.remove(0);
                notFull.signal();
                return item;
            } finally {
                lock.unlock();
            }
        }
    }

    @Test
    void aBufferWithTwoConditionsIsSharedByPrograms() throws Exception {
        for (String kind : List.of("plain", "reentrant")) {
            boolean plain = kind.equals("plain");
            Buffer here = new Buffer(plain ? farm.lock(kind) : farm.reentrantLock(kind), farm.list(kind + "/items"));
            Buffer there = new Buffer(plain ? other.lock(kind) : other.reentrantLock(kind), other.list(kind + "/items"));
            FutureTask<Long> taken = meanwhile(() -> {
                long sum = 0;
                for (int at = 0; at < 20; at++) {
                    sum += there.take();
                }
                return sum;
            });
            for (long item = 0; item < 20; item++) {
                here.put(item);
            }
            assertEquals(190, of(taken));
        }
    }

    @Test
    void aTaskUsesALockAndItsConditionThatTravelled() throws Exception {
        Buffer buffer = new Buffer(farm.reentrantLock("travels"), farm.list("travels/items"));
        try (ServerlessExecutorService executor = farm.executor(1)) {
            Future<Long> taken = executor.submit((Callable<Long> & Serializable) () -> {
                long sum = 0;
                for (int at = 0; at < 5; at++) {
                    sum += buffer.take();
                }
                return sum;
            });
            for (long item = 1; item <= 5; item++) {
                buffer.put(item);
            }
            assertEquals(15, of(taken));
        }
    }

    @Test
    void aReentrantLockBelongsToAThread() throws Exception {
        ReentrantLock lock = farm.reentrantLock("mine");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        lock.lock();
        assertTrue(lock.tryLock());
        assertEquals(2, lock.getHoldCount());
        assertTrue(lock.isHeldByCurrentThread() && lock.isLocked() && lock.token() > 0);
        ReentrantLock same = farm.reentrantLock("mine");
        assertTrue(same.isHeldByCurrentThread(), "all references of a program to a lock know who has it");
        FutureTask<Boolean> tried = meanwhile(() -> lock.tryLock() || lock.tryLock(10, TimeUnit.MILLISECONDS) || lock.isHeldByCurrentThread());
        assertFalse(of(tried), "another thread of the same program");
        assertFalse(other.reentrantLock("mine").tryLock(), "another program");
        FutureTask<Object> stolen = meanwhile(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock));
        of(stolen);
        FutureTask<Integer> next = meanwhile(() -> {
            lock.lockInterruptibly();
            int held = lock.getHoldCount();
            lock.unlock();
            return held;
        });
        lock.unlock();
        assertFalse(next.isDone());
        lock.unlock();
        assertEquals(1, of(next));
        assertEquals(0, lock.getHoldCount());
    }

    @Test
    void aConditionEndsByTimeAndByInterruptionAndNeedsTheLock() throws Exception {
        ReentrantLock lock = farm.reentrantLock("timed");
        Condition condition = lock.newCondition();
        assertThrows(IllegalMonitorStateException.class, condition::await);
        assertThrows(IllegalMonitorStateException.class, condition::signal);
        lock.lock();
        lock.lock();
        assertFalse(condition.await(1, TimeUnit.MILLISECONDS));
        assertTrue(condition.awaitNanos(1_000_000) <= 0);
        assertFalse(condition.awaitUntil(new Date(System.currentTimeMillis() + 1)));
        assertEquals(2, lock.getHoldCount());
        Thread waiting = Thread.currentThread();
        FutureTask<Boolean> interrupts = meanwhile(() -> {
            // The lock is free only while the other thread waits.
            lock.lock();
            waiting.interrupt();
            lock.unlock();
            return true;
        });
        assertThrows(InterruptedException.class, condition::await);
        assertTrue(of(interrupts));
        assertEquals(2, lock.getHoldCount(), "it has the lock again, as often as before");
        FutureTask<Boolean> signals = meanwhile(() -> {
            lock.lock();
            condition.signalAll();
            lock.unlock();
            return true;
        });
        assertTrue(condition.awaitNanos(TimeUnit.SECONDS.toNanos(PATIENCE_S)) > 0);
        assertTrue(of(signals));
        lock.unlock();
        lock.unlock();
        Lock plain = farm.lock("timed/plain");
        assertThrows(IllegalMonitorStateException.class, plain.newCondition()::await);
    }

    @Test
    void aSortedMapIsThatOfJava() {
        ConcurrentSkipListMap<Long, String> map = farm.sortedMap("sorted");
        java.util.concurrent.ConcurrentSkipListMap<Long, String> model = new java.util.concurrent.ConcurrentSkipListMap<>();
        for (NavigableMap<Long, String> one : List.of(map, model)) {
            assertNull(one.firstEntry());
            assertNull(one.pollFirstEntry());
            assertNull(one.pollLastEntry());
            assertThrows(NoSuchElementException.class, one::firstKey);
            for (long key : new long[] {5, 1, -7, 9, 3}) {
                one.put(key, "v" + key);
            }
        }
        assertEquals(model, map.copy());
        assertEquals(List.copyOf(model.keySet()), List.copyOf(map.keySet()));
        assertEquals(List.copyOf(model.values()), List.copyOf(map.values()));
        assertEquals(model.descendingMap(), map.descendingMap());
        assertEquals(List.copyOf(model.descendingKeySet()), List.copyOf(map.descendingKeySet()));
        for (long key = -8; key <= 10; key++) {
            assertEquals(model.lowerEntry(key), map.lowerEntry(key));
            assertEquals(model.floorEntry(key), map.floorEntry(key));
            assertEquals(model.ceilingEntry(key), map.ceilingEntry(key));
            assertEquals(model.higherKey(key), map.higherKey(key));
            assertEquals(model.headMap(key), map.headMap(key));
            assertEquals(model.tailMap(key, false), map.tailMap(key, false));
            assertEquals(model.subMap(-7L, key < -7 ? -7L : key), map.subMap(-7L, key < -7 ? -7L : key));
        }
        assertThrows(IllegalArgumentException.class, () -> map.subMap(2L, 1L));
        assertThrows(UnsupportedOperationException.class, () -> map.tailMap(0L).clear());
        assertEquals(model.pollFirstEntry(), map.pollFirstEntry());
        assertEquals(model.pollLastEntry(), map.pollLastEntry());
        assertEquals(model.merge(3L, "x", String::concat), map.merge(3L, "x", String::concat));
        assertEquals(model, map.copy());
        ConcurrentSkipListMap<String, Integer> texts = farm.bind(new ConcurrentSkipListMap<>("sorted/texts", String.class, Integer.class));
        texts.put("\uD83D\uDE00", 3);
        texts.put("\uFF5E", 2);
        texts.put("a", 1);
        assertEquals(List.of(1, 2, 3), List.copyOf(texts.values()), "the host orders text by code points");
        assertEquals(List.of("a", "\uFF5E", "\uD83D\uDE00"), List.copyOf(texts.keySet()));
    }

    @Test
    void bytesEventsAndLogsAreShared() throws Exception {
        Blob blob = farm.bind(new Blob("blob", "hello".getBytes(StandardCharsets.UTF_8)));
        assertEquals(5, blob.append(new byte[] {1}));
        blob.write(7, new byte[] {2});
        assertArrayEquals(new byte[] {1, 0, 2}, other.blob("blob").read(5, 100));
        blob.truncate(2);
        assertEquals("he", new String(blob.read(), StandardCharsets.UTF_8));
        blob.replace(new byte[3]);
        assertEquals(3, blob.size());

        Event event = farm.event("event");
        assertFalse(event.await(1, TimeUnit.MILLISECONDS) || event.isSet());
        FutureTask<Boolean> waits = meanwhile(() -> other.event("event").await(PATIENCE_S, TimeUnit.SECONDS));
        event.set();
        assertTrue(of(waits));
        event.await();
        event.clear();
        assertFalse(event.isSet());

        SharedLog<Integer> log = farm.bind(new SharedLog<>("shared/log", Integer.class));
        FutureTask<Boolean> two = meanwhile(() -> other.<Long>sharedLog("shared/log").waitFor(2, PATIENCE_S, TimeUnit.SECONDS));
        assertEquals(0, log.append(7));
        assertEquals(1, log.append(8));
        assertTrue(of(two));
        assertEquals(8, log.get(1));
        assertEquals(List.of(7, 8), log.copy());
        assertEquals(List.of(8), log.range(1, 9));
        assertEquals(2, log.size());
        assertFalse(log.waitFor(3, 1, TimeUnit.MILLISECONDS));
        assertThrows(IndexOutOfBoundsException.class, () -> log.get(2));
        assertThrows(IndexOutOfBoundsException.class, () -> log.get(-1));
    }

    @Test
    void constructorsOfAPortedProgramAreThere() throws Exception {
        assertTrue(new AtomicBoolean(true).get());
        AtomicReference<String> nothing = new AtomicReference<>();
        assertNull(nothing.get());
        assertTrue(nothing.compareAndSet(null, "now"));
        assertEquals("now", nothing.get());
        assertTrue(new Semaphore(2, true).isFair());
        ConcurrentHashMap<String, Long> map = new ConcurrentHashMap<>(Map.of("a", 1L));
        assertEquals(1, map.mappingCount());
        assertEquals(0, new ConcurrentHashMap<String, Long>(16).size());
        assertTrue(ConcurrentHashMap.<Long>newKeySet().add(1L));
        List<String> ran = new ArrayList<>();
        CyclicBarrier barrier = new CyclicBarrier(2, () -> ran.add("action"));
        FutureTask<Integer> waits = meanwhile(barrier::await);
        int place = barrier.await(PATIENCE_S, TimeUnit.SECONDS);
        assertEquals(1, place + of(waits));
        assertEquals(List.of("action"), ran);
    }
}
