package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.concurrent.CountDownLatch;
import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.Set;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.executor.CloudThread;
import io.millrace.executor.RemoteCallable;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.executor.TaskException;
import java.io.Serializable;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tasks on workers of a real host. */
class ExecutorTest {
    private static final long PATIENCE_S = 120;

    @TempDir
    static Path folder;

    private static Host host;
    private static Millrace farm;
    private static ServerlessExecutorService executor;

    @BeforeAll
    static void start() throws Exception {
        host = Host.start(folder);
        farm = Millrace.connect(host.socket());
        executor = farm.executor().workers(3).retries(1).start();
    }

    @AfterAll
    static void end() throws Exception {
        farm.close();
        host.close();
    }

    private static <T> T of(Future<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static Throwable failure(Future<?> future) {
        return assertThrows(ExecutionException.class, () -> of(future)).getCause();
    }

    /** An exception whose field cannot be serialized. */
    private static final class Odd extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final Object field = new Object();

        Odd() {
            super("odd");
        }

        @Override
        public String getMessage() {
            return super.getMessage() + (field == null ? "" : "!");
        }
    }

    /** A value that the client's threads cannot read. Those of a worker can. */
    private static final class Bomb extends RuntimeException {
        private static final long serialVersionUID = 1L;

        private Object readResolve() {
            if (Thread.currentThread().getName().startsWith("millrace-")) {
                throw new AssertionError("it cannot be read");
            }
            return this;
        }
    }

    /** One that cannot be read anywhere, also not by the worker that packs it. */
    private static final class Broken extends RuntimeException {
        private static final long serialVersionUID = 1L;

        private Object readResolve() {
            throw new AssertionError("it cannot be read");
        }
    }

    @Test
    void aResultThatCannotBeReadFailsItsTaskOnly() throws Exception {
        Throwable thrown = failure(executor.submit(() -> new Bomb()));
        assertInstanceOf(TaskException.class, thrown);
        assertInstanceOf(AssertionError.class, thrown.getCause());
        assertEquals(1, of(executor.submit(() -> 1)), "later results arrive");
        for (RemoteCallable<Integer> raising : List.<RemoteCallable<Integer>>of(() -> {
            throw new Bomb();
        }, () -> {
            throw new Broken();
        })) {
            thrown = failure(executor.submit(raising));
            assertInstanceOf(TaskException.class, thrown);
            assertTrue(thrown.toString().contains("ExecutorTest"), thrown.toString());
        }
        io.millrace.concurrent.Future<Bomb> shared = farm.future("bomb");
        shared.complete(new Bomb());
        thrown = failure(shared.toCompletableFuture());
        assertInstanceOf(AssertionError.class, thrown);
    }

    @Test
    void tasksReturnAndThrow() throws Exception {
        int six = 6;
        assertEquals(42, of(executor.submit(() -> six * 7)));
        assertNull(of(executor.submit(() -> System.out.println("printed by a task"))));
        assertEquals("done", of(executor.submit((Runnable & Serializable) () -> { }, "done")));
        Throwable thrown = failure(executor.submit(() -> List.of().get(six)));
        assertInstanceOf(IndexOutOfBoundsException.class, thrown);
        assertTrue(Arrays.stream(thrown.getStackTrace()).anyMatch(frame -> frame.getClassName().equals("io.millrace.worker.Worker")),
                "the stack trace is the worker's");
        thrown = failure(executor.submit(() -> {
            throw new Odd();
        }));
        assertInstanceOf(TaskException.class, thrown);
        assertTrue(thrown.getMessage().contains("odd!") && thrown.toString().contains("ExecutorTest"), thrown.toString());
        thrown = failure(executor.submit(() -> new Object()));
        assertInstanceOf(IllegalArgumentException.class, thrown);
    }

    @Test
    void whatCannotTravelIsRefusedBeforeItIsSent() {
        ExecutorService plain = executor;
        Object local = new Object();
        IllegalArgumentException error = assertThrows(IllegalArgumentException.class, () -> plain.submit(() -> local.hashCode()));
        assertTrue(error.getMessage().contains("Serializable"), error.getMessage());
        byte[] large = new byte[17 << 20];
        assertEquals("MR7115", assertThrows(MillraceException.class, () -> executor.submit(() -> large.length)).code());
    }

    @Test
    void aResultThatIsLongerThanARecordIsRefused() throws Exception {
        AtomicLong attempts = farm.atomicLong("long/attempts");
        for (RemoteCallable<Object> tooLong : List.<RemoteCallable<Object>>of(() -> {
            attempts.incrementAndGet();
            return new byte[17 << 20];
        }, () -> {
            attempts.incrementAndGet();
            throw new IllegalStateException("x".repeat(17 << 20));
        })) {
            MillraceException error = assertInstanceOf(MillraceException.class, failure(executor.submit(tooLong)));
            assertEquals("MR7115", error.code());
            assertTrue(error.detail().contains("bytes; the limit is 16773120"), error.detail());
        }
        assertEquals(2, attempts.get());
        assertEquals(1 << 17, of(executor.submit(() -> new byte[1 << 17])).length);
    }

    @Test
    void manyTasksAndTheFirstOfSome() throws Exception {
        List<RemoteCallable<Integer>> tasks = new ArrayList<>();
        for (int at = 0; at < 50; at++) {
            int number = at;
            tasks.add(() -> {
                if (number == 13) {
                    throw new IllegalStateException("thirteen");
                }
                return number * number;
            });
        }
        List<Future<Integer>> futures = executor.invokeAll(tasks);
        for (int at = 0; at < futures.size(); at++) {
            assertTrue(futures.get(at).isDone());
            if (at == 13) {
                assertEquals("thirteen", failure(futures.get(at)).getMessage());
            } else {
                assertEquals(at * at, of(futures.get(at)));
            }
        }
        List<RemoteCallable<String>> some = List.of(() -> {
            throw new IllegalStateException("none");
        }, () -> "one");
        assertEquals("one", executor.invokeAny(some, PATIENCE_S, TimeUnit.SECONDS));
        assertThrows(ExecutionException.class, () -> executor.invokeAny(some.subList(0, 1)));
    }

    @Test
    void threadsAndLoopsUseSharedObjects() throws Exception {
        AtomicLong sum = farm.atomicLong("sum");
        CyclicBarrier barrier = farm.barrier("start", 3);
        List<Thread> threads = new ArrayList<>();
        for (int at = 1; at <= 3; at++) {
            int number = at;
            threads.add(new CloudThread(executor, () -> {
                try {
                    barrier.await();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
                sum.addAndGet(number);
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(6, sum.get());

        Set<Long> seen = farm.set("seen");
        executor.invokeIterativeTask(index -> seen.add((long) index), 3, 10, 60);
        assertEquals(50, seen.size());
        assertTrue(seen.contains(10L) && seen.contains(59L) && !seen.contains(60L));
        executor.invokeIterativeTask(index -> seen.add(-1L), 3, 5, 5);
        assertFalse(seen.contains(-1L));
        ExecutionException error = assertThrows(ExecutionException.class, () -> executor.invokeIterativeTask(index -> {
            throw new IllegalStateException("at " + index);
        }, 2, 0, 4));
        assertTrue(error.getCause().getMessage().startsWith("at "));
    }

    @Test
    void aLostWorkerIsReplacedAndItsCallsCountOnce() throws Exception {
        AtomicLong counted = farm.atomicLong("counted");
        CountDownLatch begun = farm.latch("lost/begun", 1);
        CountDownLatch go = farm.latch("lost/go", 1);
        Future<Long> value = executor.submit(() -> {
            counted.incrementAndGet();
            begun.countDown();
            go.await();
            return counted.get();
        });
        begun.await();
        assertTrue(host.killWorkers() > 0);
        go.countDown();
        assertEquals(1, of(value), "the second attempt made the same calls");
    }

    @Test
    void aTaskThatIsGivenUpFails() {
        MillraceException error = (MillraceException) failure(executor.submit(() -> Runtime.getRuntime().halt(3)));
        assertEquals("MR3111", error.code());
        assertTrue(error.detail().contains("3"), error.detail());
        error = (MillraceException) failure(executor.submit(() -> new long[1 << 28].length));
        assertEquals("MR3108", error.code());
        assertTrue(error.detail().contains("OutOfMemoryError"), error.detail());
    }

    @Test
    void aTaskThatTakesTooLongFailsAndOneThatHasNotStartedIsCancelled() throws Exception {
        try (ServerlessExecutorService one = farm.executor().workers(1).timeout(Duration.ofSeconds(20)).retries(0).start()) {
            CountDownLatch begun = farm.latch("begun", 1);
            CountDownLatch go = farm.latch("go", 1);
            Future<Boolean> first = one.submit(() -> {
                begun.countDown();
                go.await();
                return true;
            });
            begun.await();
            Future<Integer> second = one.submit(() -> 2);
            assertFalse(first.cancel(false), "it runs");
            assertTrue(second.cancel(true) && second.isCancelled());
            assertThrows(CancellationException.class, second::get);
            go.countDown();
            assertTrue(of(first));
        }
        try (ServerlessExecutorService brief = farm.executor().workers(1).timeout(Duration.ofMillis(300)).retries(0).start()) {
            MillraceException error = (MillraceException) failure(brief.submit(() -> {
                Thread.sleep(600_000);
                return 1;
            }));
            assertEquals("MR3107", error.code());
        }
    }

    @Test
    void aRunningTaskIsEndedAndNotTriedAgain() throws Exception {
        try (ServerlessExecutorService one = farm.executor().workers(1).timeout(Duration.ofSeconds(600)).start()) {
            AtomicLong attempts = farm.atomicLong("stop/attempts");
            CountDownLatch begun = farm.latch("stop/begun", 1);
            Future<Boolean> endless = one.submit(() -> {
                attempts.incrementAndGet();
                begun.countDown();
                Thread.sleep(3_600_000);
                return true;
            });
            begun.await();
            assertTrue(endless.cancel(true) && endless.isCancelled());
            assertThrows(CancellationException.class, () -> of(endless));
            Future<Long> next = one.submit(() -> attempts.get());
            assertEquals(1, of(next), "the worker is free again");
            assertFalse(next.cancel(true), "it has ended");
        }
    }

    @Test
    void aTaskHasAKey() throws Exception {
        String key = of(executor.submit(() -> ServerlessExecutorService.idempotencyKey()));
        assertEquals(48, key.length());
        assertNotEquals(key, of(executor.submit(() -> ServerlessExecutorService.idempotencyKey())));
        assertThrows(IllegalStateException.class, ServerlessExecutorService::idempotencyKey);
    }

    @Test
    void aPoolTakesTheRightToAdministerTheNamespace() throws Exception {
        Path file = folder.resolve("bind.cap");
        host.run("cap", "issue", "--allow", "bind,run=function:/", "--allow", "bind,create,read,append=/", "--out", file.toString());
        try (Millrace other = Millrace.at(host.address()).capability(file).connect()) {
            MillraceException error = assertThrows(MillraceException.class, () -> other.executor(1));
            assertEquals("MR6170", error.code());
            assertTrue(error.detail().contains("admin"), error.detail());
        }
    }

    @Test
    void whatCompletesAFutureMayCloseTheExecutor() throws Exception {
        for (String ended : List.of("returned", "raised", "cancelled")) {
            ServerlessExecutorService closed = farm.executor().workers(3).retries(1).start();
            CountDownLatch begun = farm.latch("close/begun/" + ended, 1);
            CountDownLatch go = farm.latch("close/go/" + ended, 1);
            CompletableFuture<Integer> future = (CompletableFuture<Integer>) closed.submit(() -> {
                begun.countDown();
                go.await();
                if (ended.equals("raised")) {
                    throw new IllegalStateException("raised");
                }
                return 1;
            });
            CompletableFuture<Void> after = future.handle((value, thrown) -> {
                closed.close();
                return null;
            });
            begun.await();
            if (ended.equals("cancelled")) {
                new Thread(() -> future.cancel(true)).start();
            } else {
                go.countDown();
            }
            after.get(20, TimeUnit.SECONDS);
            assertTrue(closed.isTerminated() && future.isDone(), ended);
        }
    }

    @Test
    void anExecutorEndsAndItsPoolIsMadeOnce() throws Exception {
        ServerlessExecutorService again = farm.executor().workers(3).retries(1).start();
        assertEquals(executor.pool(), again.pool());
        Future<Integer> last = again.submit(() -> 1);
        again.shutdown();
        assertThrows(RejectedExecutionException.class, () -> again.submit(() -> 2));
        assertTrue(again.awaitTermination(PATIENCE_S, TimeUnit.SECONDS) && again.isTerminated());
        assertEquals(1, last.get());
        assertFalse(executor.isShutdown());
        assertEquals("pool-" + executor.pool(), host.run("function", "ls").lines().filter(line -> line.contains(executor.pool()))
                .findFirst().orElseThrow().split(" ")[0]);
    }
}
