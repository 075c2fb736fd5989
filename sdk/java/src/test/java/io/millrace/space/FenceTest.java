package io.millrace.space;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.millrace.AppendOptions;
import io.millrace.CallOptions;
import io.millrace.Host;
import io.millrace.Millrace;
import io.millrace.MillraceException;
import io.millrace.concurrent.BlockingQueue;
import io.millrace.concurrent.ConcurrentHashMap;
import io.millrace.concurrent.ConcurrentMap;
import io.millrace.concurrent.ConcurrentSkipListMap;
import io.millrace.concurrent.CountDownLatch;
import io.millrace.concurrent.Counter;
import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.Future;
import io.millrace.concurrent.LinkedBlockingQueue;
import io.millrace.concurrent.List;
import io.millrace.concurrent.Semaphore;
import io.millrace.concurrent.Set;
import io.millrace.concurrent.atomic.AtomicBoolean;
import io.millrace.concurrent.atomic.AtomicInteger;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.concurrent.atomic.AtomicReference;
import io.millrace.concurrent.locks.Lock;
import io.millrace.concurrent.locks.ReentrantLock;
import io.millrace.data.Blob;
import io.millrace.data.Event;
import io.millrace.data.Matrix;
import io.millrace.data.SharedLog;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.shared.Shared;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Calls with tokens of locks: those of a former owner, whose lease has ended without its knowledge, are refused. */
class FenceTest {
    private static final long PATIENCE_S = 120;
    private static final CallOptions OLD = CallOptions.fence("tick", 6);
    private static final CallOptions NEW = CallOptions.fence("tick", 7);

    @TempDir
    static Path folder;

    private static Host host;
    private static Millrace farm;

    @BeforeAll
    static void start() throws Exception {
        host = Host.start(folder);
        farm = Millrace.at(host.socket()).patience(Duration.ofSeconds(PATIENCE_S)).connect();
    }

    @AfterAll
    static void end() throws Exception {
        farm.close();
        host.close();
    }

    private static void assertStale(Executable call) {
        assertEquals("MR7127", assertThrows(MillraceException.class, call).code());
    }

    @Test
    void anObjectRefusesCallsWithLowerTokensThanItHasSeen() throws Exception {
        try (Host own = Host.start(folder.resolve("own"));
                Millrace at = Millrace.at(own.socket()).patience(Duration.ofSeconds(PATIENCE_S)).connect()) {
            AtomicLong hits = at.bindPersistent(new AtomicLong("hits"));
            AtomicLong before = OLD.on(hits);
            assertEquals(1, before.incrementAndGet());
            assertEquals(2, NEW.on(hits).incrementAndGet());
            assertStale(before::incrementAndGet);
            assertStale(() -> OLD.on(at.bindPersistent(new AtomicLong("hits"))).get());
            assertEquals(3, hits.incrementAndGet(), "a call without a token is not refused");
            assertEquals(4, CallOptions.fence("tock", 1).on(hits).incrementAndGet(), "each name has its tokens");
            own.kill();
            own.serve("none");
            assertStale(before::incrementAndGet);
            assertEquals(5, NEW.on(hits).incrementAndGet());
        }
    }

    @Test
    void theTokenOfALockIsThatOfItsOwner() throws Exception {
        Lock lock = farm.lock("till");
        long former = lock.acquire();
        lock.unlock();
        long token = lock.acquire();
        AtomicInteger cents = farm.atomicInteger("cents");
        assertEquals(5, CallOptions.fence("till", token).on(cents).addAndGet(5));
        assertStale(() -> CallOptions.fence("till", former).on(cents).addAndGet(5));
        assertEquals(5, cents.get());
        lock.unlock();
    }

    @Test
    void everyObjectCanHaveAFence() throws Exception {
        for (SharedObject object : java.util.List.of(new AtomicBoolean("a"), new AtomicInteger("b"), new AtomicLong("c"),
                new AtomicReference<>("d"), new BlockingQueue<>("e"), new Blob("f"), new ConcurrentHashMap<>("g"), new ConcurrentMap<>("h"),
                new ConcurrentSkipListMap<>("i"), new CountDownLatch("j", 1), new Counter<>("k"), new CyclicBarrier("l", 2), new Event("m"),
                new Future<>("n"), new LinkedBlockingQueue<>("o"), new List<>("p"), new Lock("q"), new Matrix("r", 2, 2), new ReentrantLock("s"),
                new Semaphore("t", 1), new Set<>("u"), new SharedLog<>("v"))) {
            SharedObject fenced = NEW.on(object);
            assertNotSame(object, fenced);
            assertSame(object.getClass(), fenced.getClass());
            fenced.reference().touch();
        }
        BlockingQueue<Integer> items = NEW.on(new BlockingQueue<>("items", 0, Integer.class));
        items.put(1);
        assertEquals(1, items.peek(), "numbers are read as the class that the queue was given");
        assertStale(() -> OLD.on(items).poll(0, TimeUnit.SECONDS));
        ConcurrentMap<String, Integer> map = NEW.on(new ConcurrentMap<>("map", String.class, Integer.class));
        map.put("one", 1);
        assertEquals(1, map.get("one"));
        assertStale(() -> OLD.on(map).put("two", 2));
        ReentrantLock door = new ReentrantLock("door");
        NEW.on(door).lock();
        assertEquals(true, door.isHeldByCurrentThread(), "all references of a program to a lock know who has it");
        NEW.on(door).unlock();
        assertStale(OLD.on(door)::lock);
    }

    @Test
    void aFenceThatNoLockHasIsRefused() {
        for (Executable odd : java.util.List.<Executable>of(() -> CallOptions.fence("", 1), () -> CallOptions.fence("tick", 0),
                () -> NEW.withFence("x".repeat(256), 1), () -> AppendOptions.DEFAULT.withFence("tick", -1))) {
            assertEquals("MR7128", assertThrows(MillraceException.class, odd).code());
        }
    }

    interface Account {
        int pay(int cents);
    }

    @Shared
    static class Current implements Account {
        private int cents;

        @Override
        public int pay(int more) {
            return cents += more;
        }
    }

    @Test
    void aTaskPassesTheTokenOn() throws Exception {
        try (ServerlessExecutorService executor = farm.executor(1)) {
            AtomicLong hits = farm.atomicLong("passed");
            AtomicLong now = NEW.on(hits);
            AtomicLong before = OLD.on(hits);
            assertEquals(1, before.incrementAndGet());
            assertEquals(2, executor.submit(() -> now.incrementAndGet()).get(PATIENCE_S, TimeUnit.SECONDS));
            ExecutionException stale = assertThrows(ExecutionException.class,
                    () -> executor.submit(() -> before.incrementAndGet()).get(PATIENCE_S, TimeUnit.SECONDS));
            assertEquals("MR7127", assertInstanceOf(MillraceException.class, stale.getCause()).code());
            assertEquals("MR7127", executor.submit(() -> {
                try {
                    return String.valueOf(OLD.on(hits).incrementAndGet());
                } catch (MillraceException error) {
                    return error.code();
                }
            }).get(PATIENCE_S, TimeUnit.SECONDS), "a task gives an object a fence");
            assertEquals(3, hits.incrementAndGet());

            Account account = executor.shared(Account.class, Current.class).get("account");
            assertEquals(1, account.pay(1));
            assertEquals(6, NEW.on(account).pay(5));
            Account former = OLD.on(account);
            assertStale(() -> former.pay(5));
            assertEquals("MR7127", assertInstanceOf(MillraceException.class, assertThrows(ExecutionException.class,
                    () -> executor.submit(() -> former.pay(5)).get(PATIENCE_S, TimeUnit.SECONDS)).getCause()).code());
            assertEquals(11, account.pay(5));
        }
    }
}
