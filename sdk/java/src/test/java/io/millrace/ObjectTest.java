package io.millrace;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.concurrent.BlockingQueue;
import io.millrace.concurrent.ConcurrentMap;
import io.millrace.concurrent.Counter;
import io.millrace.concurrent.CountDownLatch;
import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.Future;
import io.millrace.concurrent.List;
import io.millrace.data.Matrix;
import io.millrace.concurrent.Semaphore;
import io.millrace.concurrent.Set;
import io.millrace.concurrent.atomic.AtomicBoolean;
import io.millrace.concurrent.atomic.AtomicInteger;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.concurrent.atomic.AtomicReference;
import io.millrace.concurrent.locks.Lock;
import io.millrace.space.Values;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Map;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/** Shared objects of one host, beside what java.util.concurrent does. */
class ObjectTest {
    private static final long PATIENCE_S = 120;

    @TempDir
    static Path folder;

    private static Host host;
    private static Millrace farm;

    @BeforeAll
    static void start() throws Exception {
        host = Host.start(folder);
        farm = Millrace.at(host.namespace.toString()).application("tests").connect();
    }

    @AfterAll
    static void end() throws Exception {
        farm.close();
        host.close();
    }

    /** Runs something on another thread. */
    private static <T> FutureTask<T> meanwhile(Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static <T> T of(FutureTask<T> task) throws Exception {
        return task.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** Waits until so many calls wait for an object: how many, another object of the host knows. */
    private static void until(Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!condition.call()) {
            assertTrue(System.nanoTime() - end < 0, "it did not happen in time");
            Thread.sleep(5);
        }
    }

    @Test
    void numbersAndValuesAreThoseOfJava() {
        AtomicLong number = new AtomicLong("number", 5);
        java.util.concurrent.atomic.AtomicLong model = new java.util.concurrent.atomic.AtomicLong(5);
        assertEquals(model.incrementAndGet(), number.incrementAndGet());
        assertEquals(model.getAndAdd(7), number.getAndAdd(7));
        assertEquals(model.decrementAndGet(), number.decrementAndGet());
        assertEquals(model.getAndIncrement(), number.getAndIncrement());
        assertEquals(model.getAndDecrement(), number.getAndDecrement());
        assertEquals(model.getAndSet(100), number.getAndSet(100));
        assertEquals(model.compareAndSet(100, 3), number.compareAndSet(100, 3));
        assertEquals(model.compareAndSet(100, 4), number.compareAndSet(100, 4));
        assertEquals(model.updateAndGet(x -> x * x), number.updateAndGet(x -> x * x));
        assertEquals(model.accumulateAndGet(5, Math::max), number.accumulateAndGet(5, Math::max));
        assertEquals(model.get(), number.longValue());
        assertEquals(45, number.multiplyAndGet(5));
        number.set(Long.MAX_VALUE);
        assertThrows(ArithmeticException.class, number::incrementAndGet);
        assertEquals(Long.MAX_VALUE, new AtomicLong("number").get(), "what failed changed nothing, and a second reference is the same object");

        AtomicInteger small = farm.atomicInteger("small");
        assertEquals(1, small.incrementAndGet());
        small.set(Integer.MAX_VALUE);
        assertThrows(ArithmeticException.class, small::incrementAndGet);

        AtomicBoolean truth = farm.atomicBoolean("truth");
        assertFalse(truth.getAndSet(true));
        assertTrue(truth.compareAndSet(true, false) && !truth.get());

        AtomicReference<java.util.List<String>> value = new AtomicReference<>("value", java.util.List.of("a"));
        assertEquals(java.util.List.of("a"), value.getAndSet(java.util.List.of("b")));
        assertTrue(value.compareAndSet(java.util.List.of("b"), null));
        assertNull(value.get());
        AtomicReference<Integer> whole = new AtomicReference<>("whole", 1, Integer.class);
        assertEquals(3, whole.updateAndGet(x -> x + 2));
    }

    @Test
    void mapsListsAndSetsAreThoseOfJava() {
        ConcurrentMap<String, Integer> map = new ConcurrentMap<>("map", String.class, Integer.class);
        assertNull(map.put("a", 1));
        assertEquals(1, map.put("a", 2));
        assertEquals(2, map.putIfAbsent("a", 9));
        assertNull(map.putIfAbsent("b", 3));
        assertEquals(5, map.merge("a", 3, Integer::sum));
        assertEquals(4, map.computeIfAbsent("c", key -> 4));
        assertEquals(8, map.computeIfPresent("c", (key, x) -> 2 * x));
        assertEquals(7, map.add("d", 7));
        assertTrue(map.replace("d", 7, 6) && !map.replace("d", 7, 5));
        assertEquals(6, map.replace("d", 1));
        assertNull(map.replace("x", 1));
        assertEquals(5, map.getOrDefault("a", 0));
        map.putAll(Map.of("e", 10));
        assertEquals(Map.of("a", 5, "b", 3, "c", 8, "d", 1, "e", 10), map.copy());
        assertEquals(new HashSet<>(Arrays.asList("a", "b", "c", "d", "e")), new HashSet<>(map.keySet()));
        assertTrue(map.containsKey("a") && map.containsValue(8) && map.size() == 5);
        assertEquals(5, map.remove("a"));
        assertNull(map.remove("a"));
        assertTrue(!map.remove("b", 4) && map.remove("b", 3) && !map.containsKey("b"));
        assertNull(map.compute("c", (key, x) -> null));
        map.put("b", 3);
        assertThrows(NullPointerException.class, () -> map.put("b", null));
        assertThrows(IllegalArgumentException.class, () -> map.get(new Object()));
        map.clear();
        assertTrue(map.isEmpty());

        List<Integer> list = new List<>("list", Integer.class);
        java.util.List<Integer> model = new ArrayList<>();
        for (java.util.List<Integer> each : java.util.List.of(list, model)) {
            each.add(1);
            each.addAll(java.util.List.of(2, 3, 4));
            each.add(1, 9);
            assertEquals(9, each.set(1, 8));
            assertEquals(8, each.remove(1));
            assertEquals(2, each.indexOf(3));
            assertTrue(each.contains(4) && !each.contains(5));
            assertThrows(IndexOutOfBoundsException.class, () -> each.get(-1));
            assertThrows(IndexOutOfBoundsException.class, () -> each.get(4));
            each.addAll(2, java.util.List.of(7, 3));
            assertTrue(each.remove((Integer) 7) && !each.remove((Integer) 77));
            assertEquals(3, each.lastIndexOf(3));
            each.sort(Comparator.reverseOrder());
            each.replaceAll(x -> x * 10);
            assertTrue(each.removeIf(x -> x == 20) && !each.removeIf(x -> x == 20));
            assertTrue(each.removeAll(java.util.List.of(10)) && each.retainAll(java.util.List.of(30)));
            each.addAll(java.util.List.of(3, 1));
        }
        assertEquals(model, list.copy());
        assertArrayEquals(model.toArray(), list.toArray());
        assertEquals(java.util.List.of(30, 30, 3, 1), list.copy());
        assertEquals(64, list.stream().mapToInt(Integer::intValue).sum());

        Set<String> set = new Set<>("set");
        assertTrue(set.add("a") && !set.add("a") && set.addAll(Arrays.asList("b", "c")));
        assertTrue(set.contains("b") && set.remove("b") && !set.remove("b"));
        set.removeIf(element -> element.equals("a"));
        assertEquals(java.util.Set.of("c"), set.copy());
        assertTrue(set.addAll(java.util.List.of("c", "d", "e")) && !set.addAll(java.util.List.of("c", "d")));
        assertTrue(set.removeAll(java.util.List.of("c", "z")) && !set.removeAll(java.util.List.of("c", "z")));
        assertTrue(set.retainAll(java.util.List.of("d", "q")) && !set.retainAll(java.util.List.of("d")));
        assertEquals(java.util.Set.of("d"), set.copy());

        Counter<String> counter = new Counter<>("counter");
        assertEquals(2, counter.add("x", 2));
        counter.addAll(Map.of("y", 5L));
        assertEquals(6, counter.increment("y"));
        assertEquals(8, counter.sum());
        assertEquals(Map.of("y", 6L), counter.mostCommon(1));
        assertEquals(0, counter.get("z"));

        Matrix matrix = new Matrix("matrix", 2, 3);
        matrix.setRow(1, new double[] {1, 2, 3});
        matrix.addAll(new double[][] {{1, 1, 1}, {1, 1, 1}});
        assertEquals(4.5, matrix.add(1, 2, 0.5));
        assertArrayEquals(new double[] {2, 3, 4.5}, matrix.row(1));
        assertEquals(1, matrix.all()[0][0]);
        assertEquals(2, matrix.rows());
    }

    @Test
    void aQueueHandsOutItemsInOrderAndBoundsThem() throws Exception {
        BlockingQueue<Integer> queue = new BlockingQueue<>("queue", 2, Integer.class);
        assertNull(queue.poll());
        assertTrue(queue.offer(1) && queue.offer(2) && !queue.offer(3));
        assertEquals(0, queue.remainingCapacity());
        assertFalse(queue.offer(3, 1, TimeUnit.MILLISECONDS));
        FutureTask<Void> put = meanwhile(() -> {
            queue.put(3);
            return null;
        });
        assertEquals(1, queue.take());
        of(put);
        assertEquals(2, queue.take());
        assertEquals(3, queue.take());
        assertNull(queue.poll(1, TimeUnit.MILLISECONDS));
        FutureTask<Integer> take = meanwhile(queue::take);
        queue.put(4);
        assertEquals(4, of(take));
        queue.addAll(java.util.List.of(5, 6));
        assertThrows(IllegalStateException.class, () -> queue.add(7));
        java.util.List<Integer> drained = new ArrayList<>();
        assertEquals(2, queue.drainTo(drained));
        assertEquals(java.util.List.of(5, 6), drained);
        for (int item = 1; item <= 6; item++) {
            queue.taskDone();
        }
        queue.join();
        assertNull(queue.peek());
        queue.addAll(java.util.List.of(7, 8));
        assertEquals(7, queue.peek());
        assertEquals(java.util.List.of(7, 8), new ArrayList<>(queue));
        assertTrue(queue.contains(8) && queue.size() == 2);
    }

    @Test
    void moreThreadsWaitThanAHostReadsRequestsOfOneConnection() throws Exception {
        int count = 5000;
        CountDownLatch waiting = new CountDownLatch("crowd/waiting", 1);
        java.util.concurrent.CountDownLatch done = new java.util.concurrent.CountDownLatch(count);
        AtomicLong begun = new AtomicLong("crowd/begun", 0);
        try (Millrace many = Millrace.at(host.namespace.toString()).application("tests").lease(Duration.ofSeconds(2)).connect()) {
            CountDownLatch latch = many.latch("crowd/waiting", 1);
            for (int at = 0; at < count; at++) {
                Thread thread = new Thread(null, () -> {
                    try {
                        latch.await();
                        done.countDown();
                    } catch (InterruptedException error) {
                        throw new AssertionError(error);
                    }
                }, "waits", 128 << 10);
                thread.setDaemon(true);
                thread.start();
            }
            // Longer than the lease.
            Thread.sleep(3000);
            assertEquals(1, many.atomicLong("crowd/begun").incrementAndGet());
            assertEquals(count, done.getCount());
            waiting.countDown();
            assertTrue(done.await(PATIENCE_S, TimeUnit.SECONDS));
            assertEquals(2, begun.incrementAndGet());
        }
    }

    @Test
    void locksSemaphoresAndLatchesWait() throws Exception {
        Lock lock = new Lock("lock");
        long first = lock.acquire();
        assertTrue(lock.isLocked() && !lock.tryLock() && !lock.tryLock(1, TimeUnit.MILLISECONDS));
        try (Millrace other = Millrace.at(host.address()).application("tests").lease(Duration.ofMillis(300)).connect()) {
            Lock theirs = other.lock("lock");
            assertThrows(IllegalMonitorStateException.class, theirs::unlock);
            FutureTask<Long> second = meanwhile(theirs::acquire);
            lock.unlock();
            assertTrue(of(second) > first, "tokens grow");
            assertEquals(of(second), lock.token());
        }
        lock.lock();
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);

        Semaphore semaphore = new Semaphore("semaphore", 1);
        semaphore.acquire();
        assertFalse(semaphore.tryAcquire() || semaphore.tryAcquire(1, TimeUnit.MILLISECONDS));
        FutureTask<Boolean> acquired = meanwhile(() -> semaphore.tryAcquire(PATIENCE_S, TimeUnit.SECONDS));
        semaphore.release();
        assertTrue(of(acquired));
        semaphore.release(2);
        assertEquals(2, semaphore.availablePermits());
        assertFalse(semaphore.tryAcquire(3) || semaphore.tryAcquire(3, 1, TimeUnit.MILLISECONDS));
        FutureTask<Boolean> three = meanwhile(() -> semaphore.tryAcquire(3, PATIENCE_S, TimeUnit.SECONDS));
        semaphore.release();
        assertTrue(of(three) && semaphore.tryAcquire(0));
        assertThrows(IllegalArgumentException.class, () -> semaphore.acquire(-1));
        semaphore.release(3);
        semaphore.acquire(2);
        semaphore.acquireUninterruptibly(1);
        semaphore.release(2);

        CountDownLatch latch = new CountDownLatch("latch", 2);
        assertFalse(latch.await(1, TimeUnit.MILLISECONDS));
        FutureTask<Boolean> waited = meanwhile(() -> latch.await(PATIENCE_S, TimeUnit.SECONDS));
        latch.countDown();
        assertEquals(1, latch.getCount());
        latch.countDown();
        assertTrue(of(waited));
        latch.await();
    }

    @Test
    void aBarrierPassesAllPartiesAndBreaks() throws Exception {
        AtomicInteger actions = farm.atomicInteger("actions");
        CyclicBarrier barrier = new CyclicBarrier("barrier", 3, (Runnable & java.io.Serializable) actions::incrementAndGet);
        for (int round = 1; round <= 2; round++) {
            java.util.List<FutureTask<Integer>> parties = new ArrayList<>();
            for (int party = 0; party < 3; party++) {
                parties.add(meanwhile(() -> barrier.await(PATIENCE_S, TimeUnit.SECONDS)));
            }
            java.util.Set<Integer> places = new HashSet<>();
            for (FutureTask<Integer> party : parties) {
                places.add(of(party));
            }
            assertEquals(java.util.Set.of(0, 1, 2), places);
            assertEquals(round, actions.get());
        }
        CyclicBarrier broken = farm.barrier("broken", 2);
        assertThrows(TimeoutException.class, () -> broken.await(1, TimeUnit.MILLISECONDS));
        assertTrue(broken.isBroken());
        assertThrows(BrokenBarrierException.class, broken::await);
        broken.reset();
        FutureTask<Integer> alone = meanwhile(broken::await);
        until(() -> broken.getNumberWaiting() == 1);
        broken.reset();
        ExecutionException error = assertThrows(ExecutionException.class, () -> of(alone));
        assertEquals(BrokenBarrierException.class, error.getCause().getClass());
    }

    @Test
    void aFutureHasOneOutcome() throws Exception {
        Future<Integer> future = new Future<>("future", Integer.class);
        assertThrows(TimeoutException.class, () -> future.get(1, TimeUnit.MILLISECONDS));
        FutureTask<Integer> waited = meanwhile(future::get);
        assertTrue(!future.isDone() && future.complete(7) && !future.complete(8) && future.isDone());
        assertEquals(7, of(waited));
        Future<Integer> failed = farm.future("failed");
        assertTrue(failed.completeExceptionally(new ArithmeticException("seven")));
        ExecutionException error = assertThrows(ExecutionException.class, failed::get);
        assertEquals("seven", ((ArithmeticException) error.getCause()).getMessage());
        Future<Integer> cancelled = farm.future("cancelled");
        assertTrue(cancelled.cancel(true) && cancelled.isCancelled());
        assertThrows(CancellationException.class, cancelled::get);
        Future<Integer> local = new Future<>("local", Integer.class);
        CompletableFuture<Integer> twice = local.toCompletableFuture().thenApply(x -> 2 * x);
        assertTrue(local.complete(4));
        assertEquals(8, twice.get(PATIENCE_S, TimeUnit.SECONDS));
        assertThrows(CancellationException.class, () -> cancelled.toCompletableFuture().get(PATIENCE_S, TimeUnit.SECONDS));
        ExecutionException seven =
                assertThrows(ExecutionException.class, () -> failed.toCompletableFuture().get(PATIENCE_S, TimeUnit.SECONDS));
        assertEquals(ArithmeticException.class, seven.getCause().getClass());
    }

    @Test
    void anInterruptedCallHasNoEffect() throws Exception {
        BlockingQueue<String> queue = farm.queue("interrupted");
        Semaphore semaphore = farm.semaphore("interrupted/semaphore", 0);
        for (Callable<Object> wait : java.util.List.<Callable<Object>>of(queue::take, () -> {
            semaphore.acquire();
            return null;
        })) {
            FutureTask<Object> waits = new FutureTask<>(wait);
            Thread thread = new Thread(waits);
            thread.start();
            until(() -> thread.getState() == Thread.State.TIMED_WAITING);
            thread.interrupt();
            ExecutionException error = assertThrows(ExecutionException.class, () -> of(waits));
            assertEquals(InterruptedException.class, error.getCause().getClass());
        }
        queue.put("x");
        semaphore.release();
        assertEquals("x", queue.take(), "the call that was interrupted did not take it");
        assertEquals(1, semaphore.availablePermits());
    }

    @Test
    void objectsAreGoneOrOfAnotherTypeAndSayIt() {
        AtomicLong gone = farm.atomicLong("gone");
        gone.incrementAndGet();
        assertTrue(farm.delete(gone) && !farm.delete(farm.atomicLong("gone")));
        assertEquals("MR7106", assertThrows(MillraceException.class, gone::get).code());
        AtomicLong updated = new AtomicLong("updated", 5);
        assertTrue(updated.getAndUpdate(x -> 2 * x) == 5 && updated.getAndAccumulate(3, Long::sum) == 10 && updated.get() == 13);
        Semaphore drained = new Semaphore("drained", 3);
        assertTrue(drained.drainPermits() == 3 && drained.drainPermits() == 0);
        new BlockingQueue<>("bounded", 3).size();
        new BlockingQueue<>("bounded").size();
        assertEquals("MR7125", assertThrows(MillraceException.class, () -> new BlockingQueue<>("bounded", 4).size()).code());
        farm.list("typed").size();
        assertEquals("MR7103", assertThrows(MillraceException.class, () -> farm.set("typed").size()).code());
    }

    @Test
    void callsCountOnceThoughTheHostIsKilledAndStartsAgain() throws Exception {
        try (Host mine = Host.start(folder.resolve("killed")); Millrace here = Millrace.at(mine.namespace.toString())
                .patience(Duration.ofSeconds(PATIENCE_S)).connect()) {
            AtomicLong visits = here.bindPersistent(new AtomicLong("visits"));
            visits.get();
            FutureTask<Long> counted = meanwhile(() -> {
                for (int at = 0; at < 200; at++) {
                    visits.incrementAndGet();
                }
                return visits.get();
            });
            for (int kill = 1; kill <= 2; kill++) {
                long seen = 50 * kill;
                until(() -> counted.isDone() || visits.get() >= seen);
                mine.kill();
                mine.serve("none");
            }
            assertEquals(200, of(counted));
        }
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "MILLRACE_PYTHON", matches = ".+")
    void pythonSeesTheSameObjects() throws Exception {
        farm.atomicLong("both/number").set(41);
        ConcurrentMap<String, Object> map = farm.map("both/map");
        map.set("java", Map.of("list", java.util.List.of(1, 2.5, true, "x"), "bytes", new byte[] {1, 2}));
        farm.queue("both/queue").put("to python");
        String program = """
                import sys, millrace
                with millrace.connect(sys.argv[1], app="tests") as farm:
                    assert farm.AtomicLong("both/number").add() == 42
                    assert farm.Dict("both/map")["java"] == {"list": [1, 2.5, True, "x"], "bytes": b"\\x01\\x02"}
                    farm.Dict("both/map")["python"] = [None, (1, "two"), -5, b"", {"deep": [1.0]}]
                    assert farm.Queue("both/queue").get() == "to python"
                    farm.Queue("both/queue").put({"to": "java"})
                    farm.Future("both/future").set_result(7)
                    farm.Future("both/failed").set_exception(ValueError("seven"))
                    farm.Dict("both/map")["pickle"] = object
                """;
        Process python = new ProcessBuilder(System.getenv("MILLRACE_PYTHON"), "-c", program, host.namespace.toString())
                .redirectErrorStream(true).start();
        String printed = new String(python.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, python.waitFor(), printed);
        assertEquals(42, farm.atomicLong("both/number").get());
        java.util.List<?> told = (java.util.List<?>) map.get("python");
        assertEquals(java.util.List.of(1L, "two"), told.get(1));
        assertEquals(-5L, told.get(2));
        assertEquals(Map.of("deep", java.util.List.of(1.0)), told.get(4));
        assertThrows(IllegalStateException.class, () -> map.get("pickle"));
        assertEquals(Map.of("to", "java"), farm.queue("both/queue").take());
        assertEquals(7L, farm.future("both/future").get());
        assertThrows(ExecutionException.class, () -> farm.future("both/failed").get());
    }

    @Test
    void referencesTravelInObjects() {
        AtomicLong number = farm.atomicLong("travelling");
        AtomicLong same = (AtomicLong) Values.decode(Values.encode(number));
        same.set(9);
        assertEquals(9, number.get());
        farm.delete(number);
        assertThrows(MillraceException.class, same::get);
    }
}
