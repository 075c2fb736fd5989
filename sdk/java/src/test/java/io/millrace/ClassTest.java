package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.concurrent.CyclicBarrier;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.internal.Json;
import io.millrace.shared.Migration;
import io.millrace.shared.ReadOnly;
import io.millrace.shared.Shared;
import io.millrace.shared.SharedClass;
import io.millrace.shared.TimeLimit;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects of shared classes: their methods run in workers of a real host, next to their fields. */
class ClassTest {
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

    interface Door {
        int enter(String name) throws IOException;

        List<String> who();

        @ReadOnly
        void cheat();

        int fill(Door other, String name) throws IOException;

        int handOver(Door other, Door me) throws IOException;

        String tryCircle(Door me) throws IOException;

        void half();

        Number add(Integer number);

        Number add(long number);
    }

    /** Lets as many in as fit. */
    @Shared
    static class Gate implements Door {
        private final int size;
        private final List<String> names = new ArrayList<>();
        private final List<Object> numbers = new ArrayList<>();
        private int inside;

        Gate(int size) {
            this.size = size;
        }

        @Override
        public int enter(String name) throws IOException {
            if (inside >= size) {
                throw new IOException(name + " does not fit");
            }
            inside++;
            names.add(name);
            return inside;
        }

        @Override
        @ReadOnly
        public List<String> who() {
            return names;
        }

        @Override
        public void cheat() {
            inside = 0;
        }

        @Override
        public int fill(Door other, String name) throws IOException {
            return other.enter(name);
        }

        @Override
        public int handOver(Door other, Door me) throws IOException {
            return other.fill(me, "again");
        }

        @Override
        public String tryCircle(Door me) throws IOException {
            try {
                me.enter("again");
            } catch (MillraceException error) {
                return error.code();
            }
            return "";
        }

        @Override
        public void half() {
            inside = 99;
            throw new IllegalStateException("half done");
        }

        @Override
        public Integer add(Integer number) {
            numbers.add(number);
            return numbers.stream().mapToInt(each -> (Integer) each).sum();
        }

        @Override
        public Long add(long number) {
            return number + 1;
        }
    }

    /** The same, but a method that throws changes nothing. */
    @Shared(rollback = true)
    static class Careful extends Gate {
        Careful(int size) {
            super(size);
        }
    }

    @Test
    void methodsRunElsewhereOneAtATimeAndTheHostKeepsTheFields() throws Exception {
        SharedClass<Door> gates = farm.shared(Door.class, Gate.class);
        Door gate = gates.get("front", 300);
        assertEquals(1, gate.enter("ann"));
        assertEquals(2, gates.get("front", 5).enter("bob"));
        assertEquals(List.of("ann", "bob"), gate.who());
        ConcurrentLinkedQueue<Integer> seen = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < 4; at++) {
            threads.add(new Thread(() -> {
                for (int call = 0; call < 20; call++) {
                    try {
                        seen.add(gate.enter("x"));
                    } catch (IOException error) {
                        seen.add(-1);
                    }
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        List<Integer> expected = new ArrayList<>();
        for (int at = 3; at < 83; at++) {
            expected.add(at);
        }
        assertEquals(expected, seen.stream().sorted().toList());
        assertEquals(5, gate.add(Integer.valueOf(5)));
        assertEquals(12, gate.add(Integer.valueOf(7)), "numbers keep their class in collections");
        assertEquals(9L, gate.add(8L));
        assertTrue(host.run("entity", "ls").contains("front"));
        assertTrue(farm.delete((Object) gate));
        assertEquals("MR7106", assertThrows(MillraceException.class, () -> gate.enter("late")).code());
        assertEquals(1, gates.get("front", 1).enter("again"));
    }

    @Test
    void anExceptionArrivesWithItsStackTraceAndKeepsWhatWasChanged() throws Exception {
        Door gate = farm.shared(Door.class, Gate.class).get("small", 1);
        gate.enter("ann");
        IOException full = assertThrows(IOException.class, () -> gate.enter("bob"));
        assertEquals("bob does not fit", full.getMessage());
        List<String> frames = Arrays.stream(full.getStackTrace()).map(StackTraceElement::toString).toList();
        assertTrue(frames.get(0).contains("Gate.enter") && frames.toString().contains("worker.Worker.main"), frames.toString());
        assertTrue(frames.toString().contains("anExceptionArrives"), "the caller's frames follow: " + frames);
        assertEquals("half done", assertThrows(IllegalStateException.class, gate::half).getMessage());
        assertThrows(IOException.class, () -> gate.enter("carl"));
        Door careful = farm.shared(Door.class, Careful.class).get("careful", 1);
        assertThrows(IllegalStateException.class, careful::half);
        assertEquals(1, careful.enter("ann"), "the step that threw has changed nothing");
    }

    @Test
    void aMethodMarkedReadOnlyChangesNothing() throws Exception {
        Door gate = farm.shared(Door.class, Gate.class).get("readonly", 2);
        gate.enter("ann");
        IllegalStateException error = assertThrows(IllegalStateException.class, gate::cheat);
        assertTrue(error.getMessage().contains("has changed inside"), error.getMessage());
        assertEquals(2, gate.enter("bob"));
    }

    @Test
    void methodsCallOtherObjectsAndACircleIsRefused() throws Exception {
        SharedClass<Door> gates = farm.shared(Door.class, Gate.class);
        Door one = gates.get("one", 9);
        Door two = gates.get("two", 9);
        assertEquals(1, one.fill(two, "ann"));
        assertEquals(List.of("ann"), two.who());
        MillraceException circle = assertThrows(MillraceException.class, () -> one.handOver(two, one));
        assertEquals("MR7118", circle.code());
        assertTrue(circle.detail().contains("'one' and 'two'"), circle.detail());
        assertEquals("MR7118", one.tryCircle(one));
        assertEquals(1, one.enter("after"));
    }

    interface Clock {
        void sleep();

        void spin();

        void waitFor(CyclicBarrier barrier) throws Exception;

        void die();

        int value();
    }

    /** Its methods do not end, in several ways. */
    @Shared
    static class Stuck implements Clock {
        private int value = 1;

        @Override
        @TimeLimit(200)
        public void sleep() {
            value = 2;
            try {
                TimeUnit.HOURS.sleep(1);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        @TimeLimit(200)
        public void spin() {
            value = 3;
            while (value == 3) {
                Thread.onSpinWait();
            }
        }

        @Override
        @TimeLimit(200)
        public void waitFor(CyclicBarrier barrier) throws Exception {
            value = 4;
            barrier.await();
        }

        @Override
        public void die() {
            value = 5;
            Runtime.getRuntime().halt(1);
        }

        @Override
        public int value() {
            return value;
        }
    }

    @Test
    void aMethodThatDoesNotEndIsEndedAndChangesNothing() throws Exception {
        Clock stuck = farm.shared(Clock.class, Stuck.class).get("stuck");
        IllegalStateException late = assertThrows(IllegalStateException.class, stuck::sleep);
        assertInstanceOf(TimeoutException.class, late.getCause());
        assertTrue(late.getMessage().contains("200 ms") && late.getStackTrace().length > 0, late.toString());
        assertEquals(1, stuck.value());
        assertEquals("MR7119", assertThrows(MillraceException.class, stuck::spin).code());
        assertEquals(1, stuck.value());
        CyclicBarrier barrier = farm.barrier("never", 2);
        // On a busy machine its time may be over before it waits.
        RuntimeException over = assertThrows(RuntimeException.class, () -> stuck.waitFor(barrier));
        assertTrue(over.getCause() instanceof TimeoutException || over instanceof MillraceException error && error.is("MR7119"), over.toString());
        assertEquals("MR7119", assertThrows(MillraceException.class, stuck::die).code());
        assertEquals(1, stuck.value());
    }

    interface Table {
        int count();

        int size();
    }

    /** One large field, and one that changes. */
    @Shared
    static class Large implements Table {
        private final byte[] large = new byte[100 << 10];
        private int small;

        @Override
        public int count() {
            return ++small;
        }

        @Override
        public int size() {
            return large.length;
        }
    }

    /** How long the journal of the host is. */
    private static long tail() {
        return ((Number) Json.object(farm.show("status")).get("tail")).longValue();
    }

    @Test
    void onlyChangedFieldsTravel() throws Exception {
        Table table = farm.shared(Table.class, Large.class).persistent().get("table");
        long before = tail();
        assertEquals(1, table.count());
        assertTrue(tail() - before > 100 << 10, "the first step sends all fields");
        before = tail();
        for (int count = 2; count <= 5; count++) {
            assertEquals(count, table.count());
        }
        long bytes = tail() - before;
        assertTrue(bytes < 10_000, bytes + " bytes in the journal for four steps that changed a number");
        assertEquals(100 << 10, table.size());
    }

    @Test
    void persistentObjectsAreThereAfterARestart() throws Exception {
        try (Host other = Host.start(folder.resolve("other")); Millrace shop = Millrace.connect(other.socket())) {
            Table table = shop.shared(Table.class, Large.class).persistent().get("table");
            assertEquals(1, table.count());
            other.kill();
            other.serve("none");
            assertEquals(2, table.count());
            assertEquals(100 << 10, table.size());
        }
    }

    interface Balance {
        String get();
    }

    /** A first version. */
    @Shared(version = 1)
    static class Cents implements Balance {
        private final int cents = Integer.parseInt("100");

        @Override
        public String get() {
            return "cents " + cents;
        }
    }

    /** Opens a class under the name of an older one, as a later version of the program would. */
    private static <T> SharedClass<T> as(Class<?> older, Class<T> face, Class<? extends T> type) throws Exception {
        SharedClass<T> found = farm.shared(face, type);
        java.lang.reflect.Field about = SharedClass.class.getDeclaredField("about");
        about.setAccessible(true);
        ((Object[]) about.get(found))[0] = older.getName();
        return found;
    }

    /** A later version of it. */
    @Shared(version = 2)
    static class Euros implements Balance {
        private double euros;
        private int was;

        @Migration
        static Map<String, Object> migrate(Map<String, Object> fields, int version) {
            return Map.of("euros", (Long) fields.get("cents") / 100.0, "was", version);
        }

        @Override
        public String get() {
            return "euros " + euros + " was " + was;
        }
    }

    /** A later version that does not know the older one. */
    @Shared(version = 3)
    static class Forgetful implements Balance {
        @Override
        public String get() {
            return "";
        }
    }

    /** Other code with the same version. */
    @Shared(version = 2)
    static class Other implements Balance {
        @Override
        public String get() {
            return "other";
        }
    }

    @Test
    void aNewerClassMigratesTheFieldsAndOthersAreRefused() throws Exception {
        Balance old = farm.shared(Balance.class, Cents.class).get("account");
        assertEquals("cents 100", old.get());
        Balance forgetful = as(Cents.class, Balance.class, Forgetful.class).get("account");
        MillraceException error = assertThrows(MillraceException.class, forgetful::get);
        assertTrue(error.is("MR7120") && error.detail().contains("no @Migration"), error.toString());
        assertEquals("cents 100", old.get());
        Balance euros = as(Cents.class, Balance.class, Euros.class).get("account");
        assertEquals("euros 1.0 was 1", euros.get());
        error = assertThrows(MillraceException.class, old::get);
        assertTrue(error.is("MR7120") && error.detail().contains("the object has version 2"), error.toString());
        Balance other = as(Cents.class, Balance.class, Other.class).get("account");
        error = assertThrows(MillraceException.class, other::get);
        assertTrue(error.is("MR7120") && error.detail().contains("the code of the class differs"), error.toString());
    }

    @Test
    void aConstructorThatThrowsLeavesNoObject() throws Exception {
        Door unmade = farm.shared(Door.class, Gate.class).get("unmade", "three");
        assertThrows(IllegalArgumentException.class, unmade::who);
        assertEquals(1, farm.shared(Door.class, Gate.class).get("unmade", 1).enter("ann"));
    }

    @Test
    void tasksUseReferencesAndClasses() throws Exception {
        SharedClass<Door> gates = farm.shared(Door.class, Gate.class);
        Door gate = gates.get("tasks", 100);
        List<Integer> inside = new ArrayList<>();
        for (int at = 0; at < 3; at++) {
            inside.add(executor.submit(() -> gate.enter("task")).get(PATIENCE_S, TimeUnit.SECONDS));
        }
        assertEquals(List.of(1, 2, 3), inside);
        assertEquals(1, executor.submit(() -> gates.get("made-by-a-task", 3).enter("x")).get(PATIENCE_S, TimeUnit.SECONDS));
        assertEquals(List.of("x"), gates.get("made-by-a-task", 3).who());
    }

    private static final String PROGRAM = """
            import io.millrace.*;
            import io.millrace.executor.*;
            import io.millrace.shared.*;
            import java.util.Map;

            public class Visit {
                interface Counts {
                    String next();
                }

                VERSION

                public static void main(String[] arguments) {
                    try (Millrace farm = Millrace.connect(arguments[0]);
                            ServerlessExecutorService executor = farm.executor().workers(1).pool("shop").start()) {
                        System.out.println(executor.shared(Counts.class, Visits.class).persistent().get("visits").next());
                    } catch (MillraceException error) {
                        System.out.println(error.code());
                    }
                }
            }
            """;
    private static final String FIRST = """
            @Shared(version = 1)
            static class Visits implements Counts {
                private int count;

                public String next() {
                    return ++count + " visits";
                }
            }
            """;
    private static final String SECOND = """
            @Shared(version = 2)
            static class Visits implements Counts {
                private long total;

                @Migration
                static Map<String, Object> migrate(Map<String, Object> fields, int version) {
                    return Map.of("total", fields.get("count"));
                }

                public String next() {
                    return ++total + " in all";
                }
            }
            """;

    /** Compiles a version of a program, and returns the class path to run it with. */
    private static String compiled(String version) throws Exception {
        Path classes = java.nio.file.Files.createTempDirectory(folder, "program");
        Path source = java.nio.file.Files.writeString(classes.resolve("Visit.java"), PROGRAM.replace("VERSION", version));
        String own = Path.of(Millrace.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        int failed = javax.tools.ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", own, "-d", classes.toString(),
                source.toString());
        assertEquals(0, failed);
        return classes + ":" + own;
    }

    private static String ran(String classPath) throws Exception {
        Process process = new ProcessBuilder("java", "-cp", classPath, "Visit", host.socket()).redirectErrorStream(true).start();
        String printed = new String(process.getInputStream().readAllBytes());
        process.waitFor();
        return printed.strip();
    }

    @Test
    void aNewVersionOfAProgramTakesTheObjectsOfAPoolOver() throws Exception {
        String first = compiled(FIRST);
        String second = compiled(SECOND);
        assertEquals("1 visits", ran(first));
        assertEquals("2 visits", ran(first));
        assertEquals("3 in all", ran(second));
        assertEquals("MR7120", ran(first));
        assertEquals("4 in all", ran(second));
        // Additional empty lines do not make it other code.
        assertEquals("5 in all", ran(compiled("\n\n" + SECOND)));
        assertEquals("MR7120", ran(compiled(SECOND.replace("in all", "altogether"))));
    }

    /** A class without {@code @Shared}. */
    static class Plain implements Balance {
        @Override
        public String get() {
            return "";
        }
    }

    /** Refers to the object that made it. */
    @Shared
    class Inner implements Balance {
        @Override
        public String get() {
            return "";
        }
    }

    @Shared
    static class Queue extends ArrayList<String> implements Balance {
        private static final long serialVersionUID = 1L;

        @Override
        public String get() {
            return "";
        }
    }

    @Test
    void whatIsNoSharedClassIsRefused() {
        for (Class<? extends Balance> type : List.<Class<? extends Balance>>of(Plain.class, Inner.class, Queue.class)) {
            IllegalArgumentException error = assertThrows(IllegalArgumentException.class, () -> farm.shared(Balance.class, type));
            assertTrue(error.getMessage().contains(type.getName()), error.getMessage());
        }
        assertThrows(IllegalArgumentException.class, () -> farm.shared(Stuck.class, Stuck.class));
        assertThrows(IllegalArgumentException.class, () -> farm.delete("text"));
    }

    interface Store {
        byte[] give(int bytes);

        void keep(int bytes);

        void fail(int bytes);

        @ReadOnly
        int calls();
    }

    /** Keeps and gives bytes. */
    @Shared
    static class Shelf implements Store {
        private int calls;
        private byte[] kept = {};

        @Override
        public byte[] give(int bytes) {
            calls++;
            return new byte[bytes];
        }

        @Override
        public void keep(int bytes) {
            calls++;
            kept = new byte[bytes];
        }

        @Override
        public void fail(int bytes) {
            calls++;
            throw new IllegalStateException("x".repeat(bytes));
        }

        @Override
        @ReadOnly
        public int calls() {
            return calls + kept.length;
        }
    }

    @Test
    void whatIsTooLongForACallIsRefusedAndChangesNothing() {
        Store store = farm.shared(Store.class, Shelf.class).get("shelf");
        store.keep(1);
        for (int bytes : new int[] {17 << 20, (16 << 20) - 100}) {
            for (Runnable call : List.<Runnable>of(() -> store.give(bytes), () -> store.keep(bytes), () -> store.fail(bytes))) {
                MillraceException error = assertThrows(MillraceException.class, call::run);
                assertEquals("MR7108", error.code());
                assertTrue(error.detail().contains("the limit of a call is 16773120"), error.detail());
                assertEquals(2, store.calls());
            }
        }
        assertEquals(1 << 20, store.give(1 << 20).length);
    }
}
