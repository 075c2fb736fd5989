package io.millrace.executor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.Host;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.concurrent.CountDownLatch;
import io.millrace.concurrent.atomic.AtomicLong;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Executors over several hosts: tasks go where the fewest wait and the labels are, and once more elsewhere if their host is lost. */
class SpreadTest {
    private static final long PATIENCE_S = 120;
    private static final Duration SOON = Duration.ofSeconds(1);

    /** A cluster, two of whose hosts have a label {@code gpu}. */
    private static final List<Host> HOSTS = new ArrayList<>();

    /** The JDK keeps no logger that nothing refers to. */
    private static final Logger LOGGER = Logger.getLogger("io.millrace");

    @TempDir
    static Path folder;

    /** What executors warn of. */
    private final ConcurrentLinkedQueue<String> warned = new ConcurrentLinkedQueue<>();
    private final Handler handler = new Handler() {
        private final SimpleFormatter formatter = new SimpleFormatter();

        @Override
        public void publish(LogRecord record) {
            if (record.getLevel() == Level.WARNING) {
                warned.add(formatter.formatMessage(record));
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    };

    @BeforeAll
    static void start() throws Exception {
        HOSTS.addAll(Host.cluster(folder.resolve("labels"), "", "gpu=a100", "gpu=h100"));
    }

    @AfterAll
    static void end() {
        HOSTS.forEach(Host::close);
    }

    @BeforeEach
    void listen() {
        LOGGER.addHandler(handler);
    }

    @AfterEach
    void forget() {
        LOGGER.removeHandler(handler);
    }

    private static Millrace connect(List<Host> hosts) {
        String[] others = hosts.stream().skip(1).map(Host::socket).toArray(String[]::new);
        return Millrace.at(hosts.get(0).socket(), others).patience(Duration.ofSeconds(10)).connect();
    }

    private static <T> T of(Future<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static void until(Callable<Boolean> holds, String what) throws Exception {
        long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!holds.call()) {
            assertTrue(System.nanoTime() < patience, what);
            Thread.sleep(50);
        }
    }

    /** Tasks that return the squares of numbers up to this one. */
    private static List<RemoteCallable<Integer>> squares(int count) {
        return IntStream.range(0, count).mapToObj(number -> (RemoteCallable<Integer>) () -> number * number).toList();
    }

    private static int sum(Collection<Future<Integer>> futures) throws Exception {
        int sum = 0;
        for (Future<Integer> future : futures) {
            sum += of(future);
        }
        return sum;
    }

    /** How many tasks of an executor a host has run, is running, or has waiting; 0 if it does not have the pool. */
    private static int had(Host host, ServerlessExecutorService executor) throws Exception {
        try {
            return (int) host.run("--json", "run", "ls", "--function", "pool-" + executor.pool(), "-l", "1000").lines()
                    .filter(line -> !line.isBlank()).count();
        } catch (IllegalStateException failed) {
            if (failed.getMessage().contains("\"MR3001\"")) {
                return 0;
            }
            throw failed;
        }
    }

    private static List<Integer> had(List<Host> hosts, ServerlessExecutorService executor) throws Exception {
        List<Integer> found = new ArrayList<>();
        for (Host host : hosts) {
            found.add(had(host, executor));
        }
        return found;
    }

    /** Three hosts that know nothing of each other. */
    private static List<Host> three(String name) throws Exception {
        List<Host> hosts = new ArrayList<>();
        for (int at = 0; at < 3; at++) {
            hosts.add(Host.start(folder.resolve(name + at)));
        }
        return hosts;
    }

    @Test
    void aBusyHostGetsFewerTasks() throws Exception {
        List<Host> hosts = three("busy");
        try (Host first = hosts.get(0); Host busy = hosts.get(1); Host third = hosts.get(2);
                Millrace farm = connect(hosts); ServerlessExecutorService executor = farm.executor(1)) {
            assertEquals(sumOfSquares(60), sum(executor.invokeAll(squares(60))));
            assertEquals(List.of(20, 20, 20), had(hosts, executor));
            try (Millrace one = Millrace.connect(busy.socket());
                    ServerlessExecutorService others = one.executor().existingPool(executor.pool()).start()) {
                CountDownLatch go = one.latch("go", 1);
                List<Future<Boolean>> blocked = new ArrayList<>();
                List<Future<Integer>> behind = new ArrayList<>();
                // A failure must not wait for the blocked tasks, as `close` does.
                try (AutoCloseable unblocked = go::countDown) {
                    for (int at = 0; at < 30; at++) {
                        blocked.add(others.submit(() -> {
                            go.await();
                            return true;
                        }));
                    }
                    // While it submits tasks, it asks how many wait. Those of the busy host wait behind the others.
                    until(() -> {
                        int before = had(busy, executor);
                        squares(3).forEach(task -> behind.add(executor.submit(task)));
                        return had(busy, executor) == before;
                    }, "the load of the busy host is known");
                    List<Integer> before = had(hosts, executor);
                    executor.invokeAll(squares(40));
                    List<Integer> after = had(hosts, executor);
                    assertEquals(before.get(1), after.get(1));
                    assertEquals(before.get(0) + before.get(2) + 40, after.get(0) + after.get(2));
                }
                assertEquals(behind.size() / 3 * 5, sum(behind));
                for (Future<Boolean> future : blocked) {
                    assertTrue(of(future));
                }
            }
            try (ServerlessExecutorService alone = farm.executor().workers(1).timeout(Duration.ofMinutes(9)).hosts(busy.socket()).start()) {
                assertEquals(sumOfSquares(9), sum(alone.invokeAll(squares(9))));
                assertEquals(9, had(busy, alone));
            }
        }
    }

    @Test
    void aLoopRunsOnSeveralHosts() throws Exception {
        try (Millrace farm = connect(HOSTS);
                ServerlessExecutorService executor = farm.executor().workers(2).timeout(Duration.ofMinutes(6)).start()) {
            AtomicLong sum = farm.bindPersistent(new AtomicLong("loop/sum"), 2);
            executor.invokeIterativeTask(index -> sum.addAndGet(index), 3, 10, 110);
            assertEquals(IntStream.range(10, 110).sum(), sum.get());
            List<Integer> had = had(HOSTS, executor);
            assertTrue(had.stream().allMatch(tasks -> tasks > 0), "each host runs parts: " + had);
            executor.invokeIterativeTask(index -> sum.addAndGet(1), 3, 5, 5);
            ExecutionException error = assertThrows(ExecutionException.class, () -> executor.invokeIterativeTask(index -> {
                throw new IllegalStateException("at " + index);
            }, 2, 0, 4));
            assertTrue(error.getCause().getMessage().startsWith("at "));
            assertEquals(IntStream.range(10, 110).sum(), sum.get());
            farm.delete(sum);
        }
    }

    private static int sumOfSquares(int count) {
        return IntStream.range(0, count).map(number -> number * number).sum();
    }

    @Test
    void tasksOfAHostThatDiesAreRepeatedElsewhereOnce() throws Exception {
        List<Host> hosts = three("dies");
        try (Host first = hosts.get(0); Host second = hosts.get(1); Host third = hosts.get(2); Millrace farm = connect(hosts);
                ServerlessExecutorService executor = farm.executor().workers(4).lostAfter(SOON).start()) {
            List<RemoteCallable<String>> slow = IntStream.range(0, 12).mapToObj(number -> (RemoteCallable<String>) () -> {
                // Longer than it takes to submit all, even on a busy machine.
                Thread.sleep(5000);
                return number + " " + ServerlessExecutorService.idempotencyKey();
            }).toList();
            List<Future<String>> running = slow.stream().map(executor::submit).toList();
            until(() -> had(hosts, executor).stream().mapToInt(Integer::intValue).sum() == 12, "the hosts have all tasks");
            int lost = had(second, executor);
            second.kill();
            Set<String> keys = new HashSet<>();
            for (int at = 0; at < 12; at++) {
                String[] found = of(running.get(at)).split(" ");
                assertEquals(String.valueOf(at), found[0]);
                keys.add(found[1]);
            }
            assertEquals(12, keys.size(), "each task has its own key");
            assertTrue(warned.stream().anyMatch(told -> told.contains(second.socket() + " is lost, and " + lost + " tasks")), warned.toString());
            assertTrue(lost > 0, "each host has its share");
            int ended = had(first, executor) + had(third, executor);
            assertEquals(12, ended, "the tasks of the lost host were repeated");

            int before = had(first, executor);
            // Longer than all waits of this test.
            List<Future<Integer>> left = IntStream.range(0, 4).mapToObj(number -> executor.submit(() -> {
                Thread.sleep(8 * PATIENCE_S * 1000);
                return number;
            })).toList();
            until(() -> had(first, executor) + had(third, executor) == ended + 4, "the hosts have all of them");
            // How they share them depends on when they last said how many tasks wait.
            int theirs = had(first, executor) - before;
            first.kill();
            String expected = first.socket() + " is lost, and " + theirs + " tasks";
            until(() -> warned.stream().anyMatch(told -> told.contains(expected)), "the second host is lost: " + expected + " in " + warned);
            third.kill();
            for (Future<Integer> future : left) {
                ExecutionException failed = assertThrows(ExecutionException.class, () -> of(future));
                assertEquals(MillraceException.Kind.UNAVAILABLE, assertInstanceOf(MillraceException.class, failed.getCause()).kind());
            }
            RejectedExecutionException refused = assertThrows(RejectedExecutionException.class, () -> executor.submit(() -> 1));
            assertTrue(refused.getMessage().startsWith("every host is lost: "), refused.getMessage());
        }
    }

    @Test
    void aTaskThatIsCancelledWhileItsHostIsAwayIsNotRepeated() throws Exception {
        List<Host> hosts = Host.cluster(folder.resolve("away"), "host=0", "host=1", "");
        try (Host first = hosts.get(0); Host second = hosts.get(1); Host third = hosts.get(2); Millrace farm = connect(List.of(first, second));
                ServerlessExecutorService executor = farm.executor().workers(2).lostAfter(SOON).start()) {
            List<Future<Integer>> futures = IntStream.range(0, 2).mapToObj(number -> executor.on("host=" + number).submit(() -> {
                Thread.sleep(3_600_000);
                return number;
            })).toList();
            until(() -> had(List.of(first, second), executor).equals(List.of(1, 1)), "each host has a task");
            second.kill();
            // One of the two is at the host that is away.
            for (Future<Integer> future : futures) {
                assertTrue(future.cancel(true) && future.isCancelled());
            }
            until(() -> warned.stream().anyMatch(told -> told.contains(second.socket() + " is lost, and 0 tasks")), "nothing is repeated");
            assertEquals(1, had(first, executor));
        }
    }

    @Test
    void aCancellationIsTheFirstToNoticeThatAHostIsLost() throws Exception {
        Thread test = Thread.currentThread();
        Semaphore waiting = new Semaphore(0);
        Semaphore heard = new Semaphore(0);
        List<Host> hosts = Host.cluster(folder.resolve("first"), "host=0", "host=1", "");
        try (Host first = hosts.get(0); Host second = hosts.get(1); Host third = hosts.get(2); Millrace farm = connect(List.of(first, second));
                ServerlessExecutorService executor = farm.executor().workers(2).lostAfter(SOON).start()) {
            try {
                // What depends on a future runs in the thread that receives the results of its host, which waits from now on.
                for (int at = 0; at < 2; at++) {
                    CompletableFuture<Boolean> quick = (CompletableFuture<Boolean>) executor.on("host=" + at).submit(() -> {
                        Thread.sleep(15_000); // until `thenRun` is called, however busy the machine is
                        return true;
                    });
                    quick.thenRun(() -> {
                        waiting.release();
                        if (Thread.currentThread() != test) {
                            heard.acquireUninterruptibly();
                        }
                    });
                }
                List<Future<Integer>> futures = IntStream.range(0, 2).mapToObj(number -> executor.on("host=" + number).submit(() -> {
                    Thread.sleep(300_000);
                    return number;
                })).toList();
                until(() -> had(List.of(first, second), executor).equals(List.of(2, 2)), "each host has two tasks");
                waiting.acquire(2);
                second.kill();
                for (Future<Integer> future : futures) {
                    assertTrue(future.cancel(true) && future.isCancelled());
                }
                assertTrue(warned.stream().anyMatch(told -> told.contains(second.socket() + " is lost, and 0 tasks")), warned.toString());
                assertEquals(2, had(first, executor));
            } finally {
                heard.release(2);
            }
        }
    }

    @Test
    void aHostWithoutThePoolIsNotUsed() throws Exception {
        Host first = HOSTS.get(0);
        try (Millrace one = Millrace.connect(first.socket());
                ServerlessExecutorService there = one.executor().workers(1).timeout(Duration.ofMinutes(8)).start(); Millrace farm = connect(HOSTS)) {
            try (ServerlessExecutorService executor = farm.executor().existingPool(there.pool()).start()) {
                assertEquals(sumOfSquares(9), sum(executor.invokeAll(squares(9))));
            }
            assertEquals(9, had(first, there));
            for (Host host : HOSTS.subList(1, 3)) {
                assertTrue(warned.stream().anyMatch(told -> told.startsWith("no tasks are sent to " + host.socket()) && told.contains("MR7114")),
                        warned.toString());
            }
            MillraceException none = assertThrows(MillraceException.class, () -> farm.executor().existingPool("none").start());
            assertEquals("MR7114", none.code());
            assertTrue(none.detail().contains("no pool 'none' at"), none.detail());
        }
    }

    @Test
    void tasksGoToHostsWithTheirLabel() throws Exception {
        try (Millrace farm = connect(HOSTS)) {
            try (ServerlessExecutorService executor = farm.executor().workers(2).label("gpu=a100").start()) {
                assertEquals(sumOfSquares(20), sum(executor.invokeAll(squares(20))));
                assertEquals(List.of(0, 20, 0), had(HOSTS, executor));
            }
            // Any host, unless the executor for a call says otherwise.
            try (ServerlessExecutorService executor = farm.executor().workers(2).timeout(Duration.ofMinutes(10)).start()) {
                ServerlessExecutorService h100 = executor.on("gpu=h100");
                try (h100) {
                    assertEquals(sumOfSquares(9), sum(h100.invokeAll(squares(9))));
                }
                assertEquals(List.of(0, 0, 9), had(HOSTS, executor));
                assertThrows(RejectedExecutionException.class, () -> h100.submit(() -> 1));
                assertTrue(h100.isTerminated() && !executor.isShutdown());
                Thread thread = new CloudThread(executor.on("gpu=a100"), () -> { });
                thread.start();
                thread.join();
                assertEquals(List.of(0, 1, 9), had(HOSTS, executor));
                assertEquals(sumOfSquares(60), sum(executor.invokeAll(squares(60))));
                assertFalse(had(HOSTS, executor).contains(0), "the others go to any host");
                for (String[] labels : List.of(new String[] {"gpu=t4"}, new String[] {"gpu=a100", "zone=barn"})) {
                    MillraceException missing = assertThrows(MillraceException.class, () -> executor.on(labels));
                    assertTrue(missing.is("MR7126") && missing.detail().contains("gpu=h100"), missing.detail());
                }
                MillraceException two = assertThrows(MillraceException.class, () -> h100.on("gpu=a100"));
                assertTrue(two.is("MR7130") && two.detail().contains("one label 'gpu'"), two.detail());
            }
            MillraceException none = assertThrows(MillraceException.class, () -> farm.executor().workers(2).label("gpu=t4").start());
            assertEquals("MR7126", none.code());
            assertTrue(none.detail().matches("gpu=t4; .*: no labels; .*: gpu=a100; .*: gpu=h100"), none.detail());
            for (String wrong : List.of("gpu", "=a100", "gpu=", "g pu=x")) {
                assertEquals("MR7130", assertThrows(MillraceException.class, () -> farm.executor().label(wrong)).code());
            }
        }
        // One host has the label or not.
        try (Millrace one = Millrace.connect(HOSTS.get(1).socket()); ServerlessExecutorService executor = one.executor(2)) {
            assertEquals(16, of(executor.on("gpu=a100").submit(() -> 16)));
            assertEquals("MR7126", assertThrows(MillraceException.class, () -> executor.on("gpu=h100")).code());
        }
    }

    @Test
    void aHostThatIsBackGetsTasksAgainWithTheLabelsThatItHasThen() throws Exception {
        List<Host> hosts = Host.cluster(folder.resolve("back"), "", "", "gpu=h100");
        Host lost = hosts.get(2);
        try (Host first = hosts.get(0); Host second = hosts.get(1); lost; Millrace farm = connect(hosts);
                ServerlessExecutorService executor = farm.executor().workers(2).lostAfter(SOON).start()) {
            ServerlessExecutorService h100 = executor.on("gpu=h100");
            assertEquals(4, of(h100.submit(() -> 4)));
            lost.kill();
            assertEquals(sumOfSquares(30), sum(executor.invokeAll(squares(30))));
            until(() -> warned.stream().anyMatch(told -> told.contains(lost.socket() + " is lost")), "the host is lost");
            // No other host has the label; the others have the rest.
            RejectedExecutionException refused = assertThrows(RejectedExecutionException.class, () -> h100.submit(() -> 4));
            assertTrue(refused.getMessage().startsWith("every host with gpu=h100 is lost"), refused.getMessage());
            assertEquals(sumOfSquares(30), sum(executor.invokeAll(squares(30))));
            lost.serve("127.0.0.1:0", "--election", "500ms", "--label", "gpu=t4");
            until(() -> warned.stream().anyMatch(told -> told.contains(lost.socket() + " is back")), "the host is back");
            assertEquals(8, of(executor.on("gpu=t4").submit(() -> 8)));
            MillraceException missing = assertThrows(MillraceException.class, () -> h100.submit(() -> 4));
            assertTrue(missing.is("MR7126") && missing.detail().contains("gpu=t4"), missing.detail());
            int before = had(lost, executor);
            assertEquals(sumOfSquares(60), sum(executor.invokeAll(squares(60))));
            assertTrue(had(lost, executor) >= before + 10, had(hosts, executor).toString());
            // One that is away at the start is not used until it is there, and then gets the pool.
            lost.kill();
            try (ServerlessExecutorService other = farm.executor().workers(1).timeout(Duration.ofMinutes(7)).lostAfter(SOON).start()) {
                assertNotEquals(executor.pool(), other.pool());
                assertEquals(sumOfSquares(9), sum(other.invokeAll(squares(9))));
                lost.serve("127.0.0.1:0", "--election", "500ms");
                until(() -> sum(other.invokeAll(squares(3))) == 5 && warned.stream().filter(told -> told.contains("is back")).count() >= 2
                        && had(lost, other) > 0, "the host is used");
            }
        }
    }
}
