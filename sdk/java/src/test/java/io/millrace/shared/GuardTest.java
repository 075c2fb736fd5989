package io.millrace.shared;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.CallOptions;
import io.millrace.Host;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.concurrent.atomic.AtomicBoolean;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.internal.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Guarded methods of shared classes: calls wait, as entries of their object at the host, until a condition on its fields holds. */
class GuardTest {
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
        executor = farm.executor(2);
    }

    @AfterAll
    static void end() throws Exception {
        farm.close();
        host.close();
    }

    interface Buffer<T> {
        void put(T item);

        T get();

        T getInterruptibly() throws InterruptedException;

        T getSoon() throws TimeoutException;

        @ReadOnly
        int has(int count);

        @ReadOnly
        int most();
    }

    /** Keeps as many items as fit. */
    @Shared
    static class Bounded implements Buffer<String> {
        private final int size;
        private final List<String> items = new ArrayList<>();
        private int most;

        Bounded(int size) {
            this.size = size;
        }

        private boolean fits(String item) {
            return items.size() < size && !item.isEmpty();
        }

        boolean isFilled() {
            return !items.isEmpty();
        }

        private boolean has(Integer count) {
            throw new IllegalStateException("the guard has the parameters of the method");
        }

        private boolean reaches(int count) {
            return items.size() >= count;
        }

        @Override
        @When("fits")
        public void put(String item) {
            items.add(item);
            most = Math.max(most, items.size());
        }

        @Override
        @When("isFilled")
        public String get() {
            return items.remove(0);
        }

        @Override
        @When("isFilled")
        public String getInterruptibly() {
            return items.remove(0);
        }

        @Override
        @When(value = "isFilled", timeoutMs = 200)
        public String getSoon() {
            return items.remove(0);
        }

        @Override
        @When("reaches")
        public int has(int count) {
            return items.size();
        }

        @Override
        public int most() {
            return most;
        }
    }

    @SuppressWarnings("unchecked")
    private static Buffer<String> buffer(String key, int size) {
        return (Buffer<String>) executor.shared(Buffer.class, Bounded.class).get(key, size);
    }

    /** How many calls wait for an object. */
    private static long waiting(Millrace at, String key) {
        return ((List<?>) Json.object(at.show("objects")).get("objects")).stream().map(object -> (Map<?, ?>) object)
                .filter(object -> key.equals(object.get("key"))).mapToLong(object -> ((Number) object.get("waiting")).longValue()).sum();
    }

    private static void until(Callable<Boolean> holds, String what) throws Exception {
        long patience = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!holds.call()) {
            assertTrue(System.nanoTime() < patience, what);
            Thread.sleep(10);
        }
    }

    private static void until(Millrace at, String key, int calls) throws Exception {
        until(() -> waiting(at, key) == calls, calls + " calls wait for " + key);
    }

    private static <T> CompletableFuture<T> begin(Callable<T> work) {
        CompletableFuture<T> future = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                future.complete(work.call());
            } catch (Throwable thrown) {
                future.completeExceptionally(thrown);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return future;
    }

    private static <T> T of(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    @Test
    void aBoundedBuffer() throws Exception {
        Buffer<String> buffer = buffer("buffer", 3);
        List<CompletableFuture<List<String>>> all = new ArrayList<>();
        for (String name : List.of("a", "b")) {
            all.add(begin(() -> {
                IntStream.range(0, 20).forEach(item -> buffer.put(name + item));
                return List.<String>of();
            }));
            all.add(begin(() -> Stream.generate(buffer::get).limit(20).toList()));
        }
        List<String> found = new ArrayList<>();
        for (CompletableFuture<List<String>> each : all) {
            found.addAll(of(each));
        }
        List<String> expected = new ArrayList<>(IntStream.range(0, 20).boxed().flatMap(item -> Stream.of("a" + item, "b" + item)).toList());
        expected.sort(null);
        found.sort(null);
        assertEquals(expected, found);
        assertTrue(buffer.most() >= 1 && buffer.most() <= 3, buffer.most() + " items at once");
    }

    interface Table {
        void pick(int seat);

        void drop(int seat);
    }

    /** Forks of philosophers. One that eats has both beside it. */
    @Shared
    static class Forks implements Table {
        private final boolean[] taken;

        Forks(int seats) {
            taken = new boolean[seats];
        }

        private boolean areFree(int seat) {
            return !taken[seat] && !taken[(seat + 1) % taken.length];
        }

        private void set(int seat, boolean now) {
            for (int fork : new int[] {seat, (seat + 1) % taken.length}) {
                if (taken[fork] == now) {
                    throw new IllegalStateException("fork " + fork + " is " + now);
                }
                taken[fork] = now;
            }
        }

        @Override
        @When("areFree")
        public void pick(int seat) {
            set(seat, true);
        }

        @Override
        public void drop(int seat) {
            set(seat, false);
        }
    }

    @Test
    void diningPhilosophers() throws Exception {
        Table table = executor.shared(Table.class, Forks.class).get("table", 5);
        List<CompletableFuture<Integer>> all = new ArrayList<>();
        for (int at = 0; at < 5; at++) {
            int seat = at;
            all.add(begin(() -> {
                int meals = 0;
                for (; meals < 8; meals++) {
                    table.pick(seat);
                    table.drop(seat);
                }
                return meals;
            }));
        }
        for (CompletableFuture<Integer> each : all) {
            assertEquals(8, of(each));
        }
    }

    @Test
    void waitingCallsAreTriedInTheirOrderAndOvertakenByThoseWhoseGuardHolds() throws Exception {
        Buffer<String> buffer = buffer("order", 9);
        ConcurrentLinkedQueue<String> found = new ConcurrentLinkedQueue<>();
        CompletableFuture<Boolean> two = begin(() -> found.add("two " + buffer.has(2)));
        until(farm, "order", 1);
        CompletableFuture<Boolean> first = begin(() -> found.add("first " + buffer.get()));
        until(farm, "order", 2);
        CompletableFuture<Boolean> second = begin(() -> found.add("second " + buffer.get()));
        until(farm, "order", 3);
        buffer.put("a");
        of(first);
        assertEquals(2, waiting(farm, "order"));
        buffer.put("b");
        of(second);
        buffer.put("c");
        buffer.put("d");
        of(two);
        assertEquals(List.of("first a", "second b", "two 2"), List.copyOf(found));
    }

    @Test
    void waitingCallsTakeNoWorker() throws Exception {
        List<CompletableFuture<String>> all = new ArrayList<>();
        for (int at = 0; at < 12; at++) {
            String key = "idle/" + at;
            all.add(begin(() -> buffer(key, 1).get()));
            until(farm, key, 1);
        }
        assertEquals(2, executor.submit(() -> 2).get(PATIENCE_S, TimeUnit.SECONDS), "both workers are free");
        for (int at = 0; at < 12; at++) {
            buffer("idle/" + at, 1).put("x" + at);
            assertEquals("x" + at, of(all.get(at)));
        }
    }

    @Test
    void aCallThatWaitsTooLongThrowsAndLeaves() throws Exception {
        Buffer<String> buffer = buffer("timeout", 1);
        // On a busy machine, the first calls may end before the guard was asked at all.
        String message = "";
        for (int attempt = 0; attempt < 100 && !message.startsWith("the guard"); attempt++) {
            message = assertThrows(TimeoutException.class, buffer::getSoon).getMessage();
        }
        assertEquals("the guard of the method did not hold", message);
        Buffer<String> brief = CallOptions.timeout(Duration.ofMillis(100)).on(buffer);
        IllegalStateException late = assertThrows(IllegalStateException.class, brief::get);
        assertInstanceOf(TimeoutException.class, late.getCause());
        assertThrows(ExecutionException.class, () -> executor.submit(() -> brief.get()).get(PATIENCE_S, TimeUnit.SECONDS),
                "a task gets the reference with its timeout");
        assertEquals(0, waiting(farm, "timeout"));
        buffer.put("x");
        assertEquals("x", CallOptions.timeout(Duration.ofSeconds(PATIENCE_S)).on(buffer).getSoon());
        assertThrows(IllegalArgumentException.class, () -> CallOptions.timeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> CallOptions.timeout(Duration.ofMillis(1)).on(new AtomicBoolean("open")));
        assertThrows(IllegalArgumentException.class, () -> CallOptions.fence("tick", 1).on("text"));
    }

    @Test
    void aThreadThatIsInterruptedWhileItWaitsTakesNothing() throws Exception {
        Buffer<String> buffer = buffer("interrupted", 1);
        CompletableFuture<Thread> thread = new CompletableFuture<>();
        CompletableFuture<String> taken = begin(() -> {
            thread.complete(Thread.currentThread());
            return buffer.getInterruptibly();
        });
        until(farm, "interrupted", 1);
        thread.get().interrupt();
        assertInstanceOf(InterruptedException.class, assertThrows(ExecutionException.class, () -> of(taken)).getCause());
        until(farm, "interrupted", 0);
        buffer.put("x");
        assertEquals("x", buffer.get());
    }

    interface Odd {
        void counts();

        void fails();

        void calls();

        void spins();

        void know(AtomicBoolean other);

        int tries();
    }

    /** Has guards that do what they must not. */
    @Shared
    static class Careless implements Odd {
        private int tries;
        private AtomicBoolean other;

        private boolean count() {
            tries++;
            return true;
        }

        private boolean fail() {
            throw new IllegalArgumentException("missing");
        }

        private boolean call() {
            return other.get();
        }

        private boolean spin() {
            while (!Thread.currentThread().isInterrupted()) {
                Thread.onSpinWait();
            }
            throw new IllegalStateException("interrupted");
        }

        @Override
        @When("count")
        public void counts() {}

        @Override
        @When("fail")
        public void fails() {}

        @Override
        @When("call")
        public void calls() {}

        @Override
        @TimeLimit(300)
        @When("spin")
        public void spins() {}

        @Override
        public void know(AtomicBoolean other) {
            this.other = other;
        }

        @Override
        public int tries() {
            return tries;
        }
    }

    @Test
    void guardsOnlyRead() {
        Odd careless = executor.shared(Odd.class, Careless.class).get("careless");
        String spoilt = assertThrows(IllegalStateException.class, careless::counts).getMessage();
        assertEquals("the guard count of counts has changed tries", spoilt, "of an object that is made for the call");
        assertEquals(0, careless.tries());
        assertEquals(spoilt, assertThrows(IllegalStateException.class, careless::counts).getMessage());
        assertEquals(0, careless.tries());
        assertEquals("missing", assertThrows(IllegalArgumentException.class, careless::fails).getMessage());
        careless.know(farm.atomicBoolean("open"));
        String called = assertThrows(IllegalStateException.class, careless::calls).getMessage();
        assertTrue(called.contains("calls no other object"), called);
        assertInstanceOf(TimeoutException.class, assertThrows(IllegalStateException.class, careless::spins).getCause());
        assertEquals(0, careless.tries());
    }

    interface Gate {
        void enter();
    }

    @Shared
    static class NoGuard implements Gate {
        boolean isOpen(int count) {
            return true;
        }

        static boolean isOpen() {
            return true;
        }

        @Override
        @When("isOpen")
        public void enter() {}
    }

    @Shared
    static class NoTimeout implements Gate {
        private boolean isOpen() {
            return true;
        }

        @Override
        @When(value = "isOpen", timeoutMs = -1)
        public void enter() {}
    }

    @Test
    void aGuardThatCannotBeAskedIsRefusedAtOnce() {
        for (Class<? extends Gate> type : List.<Class<? extends Gate>>of(NoGuard.class, NoTimeout.class)) {
            String told = assertThrows(IllegalArgumentException.class, () -> executor.shared(Gate.class, type)).getMessage();
            assertTrue(told.startsWith("@When of " + type.getName() + ".enter: "), told);
        }
    }

    interface Store {
        void fill(int entries);

        @ReadOnly
        int size();
    }

    /** Its map has a capacity that depends on what it had. */
    @Shared
    static class Shelf implements Store {
        private final HashMap<String, String> entries = new HashMap<>();

        @Override
        public void fill(int count) {
            for (int at = 0; at < 100; at++) {
                entries.put("k" + at, "v");
            }
            entries.keySet().removeIf(key -> Integer.parseInt(key.substring(1)) >= count);
        }

        @Override
        @When("isSmall")
        public int size() {
            return entries.size();
        }

        private boolean isSmall() {
            return entries.size() < 9;
        }
    }

    @Test
    void fieldsThatAnotherWorkerHasReadAreNotChanged() throws Exception {
        Store shelf = executor.shared(Store.class, Shelf.class).get("shelf");
        shelf.fill(3);
        assertEquals(3, shelf.size());
        assertTrue(host.killWorkers() > 0);
        // The host may not have noticed yet that a worker has ended.
        until(() -> {
            try {
                return shelf.size() == 3;
            } catch (MillraceException error) {
                assertEquals("MR7119", error.code());
                return false;
            }
        }, "a worker that has read the map finds that neither guard nor method has changed it");
    }

    /** Waits for an item that never comes, or puts one in. */
    private static final String PROGRAM = """
            import io.millrace.*;
            import io.millrace.executor.*;
            import io.millrace.shared.*;
            import java.time.Duration;
            import java.util.ArrayList;

            public class Doomed {
                interface Items {
                    void put(String item);

                    String get();
                }

                @Shared
                static class Kept implements Items {
                    private final ArrayList<String> items = new ArrayList<>();

                    private boolean isFilled() {
                        return !items.isEmpty();
                    }

                    public void put(String item) {
                        items.add(item);
                    }

                    @When("isFilled")
                    public String get() {
                        return items.remove(0);
                    }
                }

                public static void main(String[] arguments) {
                    try (Millrace farm = Millrace.at(arguments[0]).application("doomed").lease(Duration.ofSeconds(3)).connect();
                            ServerlessExecutorService executor = farm.executor().workers(1).pool("doomed").start()) {
                        Items items = executor.shared(Items.class, Kept.class).get("doomed");
                        if (arguments.length > 1) {
                            items.put(arguments[1]);
                        }
                        System.out.println("got " + items.get());
                    }
                }
            }
            """;

    @Test
    void aWaiterWhoseProgramIsKilledTakesNothing() throws Exception {
        Path classes = Files.createTempDirectory(folder, "program");
        Path source = Files.writeString(classes.resolve("Doomed.java"), PROGRAM);
        String own = Path.of(Millrace.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        assertEquals(0, javax.tools.ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", own, "-d", classes.toString(),
                source.toString()));
        List<String> command = List.of("java", "-cp", classes + ":" + own, "Doomed", host.socket());
        // The application lives as long as this connection.
        try (Millrace same = Millrace.at(host.socket()).application("doomed").connect()) {
            same.application();
            Process killed = new ProcessBuilder(command).redirectErrorStream(true).start();
            until(() -> waiting(farm, "doomed") == 1 || !killed.isAlive(), "the program's call waits");
            assertTrue(killed.isAlive(), () -> killed.inputReader().lines().toList().toString());
            killed.destroyForcibly().waitFor();
            until(farm, "doomed", 0);
            List<String> putting = new ArrayList<>(command);
            putting.add("x");
            Process other = new ProcessBuilder(putting).redirectErrorStream(true).start();
            assertEquals("got x", new String(other.getInputStream().readAllBytes()).strip(), "the killed program's call did not take it");
        }
    }

    @Test
    void waitingCallsSurviveARestart() throws Exception {
        try (Host other = Host.start(folder.resolve("restart"));
                Millrace at = Millrace.at(other.socket()).patience(Duration.ofSeconds(PATIENCE_S)).connect();
                ServerlessExecutorService workers = at.executor(1)) {
            @SuppressWarnings("unchecked")
            Buffer<String> buffer = (Buffer<String>) workers.shared(Buffer.class, Bounded.class).persistent().get("kept", 2);
            CompletableFuture<String> taken = begin(buffer::get);
            until(at, "kept", 1);
            other.kill();
            other.serve("none");
            buffer.put("x");
            assertEquals("x", of(taken));
        }
    }

    @Test
    void waitingCallsSurviveTheLossOfTheirHost() throws Exception {
        List<Host> hosts = Host.cluster(folder.resolve("cluster"));
        String[] others = {hosts.get(1).address(), hosts.get(2).address()};
        try (Host second = hosts.get(1); Host third = hosts.get(2);
                Millrace at = Millrace.at(hosts.get(0).address(), others).patience(Duration.ofSeconds(PATIENCE_S)).lease(Duration.ofMinutes(1)).connect();
                ServerlessExecutorService workers = at.executor(1)) {
            @SuppressWarnings("unchecked")
            Buffer<String> buffer = (Buffer<String>) workers.shared(Buffer.class, Bounded.class).persistent(2).get("copied", 2);
            CompletableFuture<String> taken = begin(buffer::get);
            until(() -> third.run("entity", "ls").lines().anyMatch(line -> line.contains("copied") && Arrays.asList(line.split(" +")).contains("1")),
                    "a copy of the waiting call is at another host");
            hosts.get(0).kill();
            buffer.put("x");
            assertEquals("x", of(taken));
        }
    }
}
