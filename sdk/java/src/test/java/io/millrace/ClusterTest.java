package io.millrace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.concurrent.BlockingQueue;
import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.concurrent.locks.Lock;
import io.millrace.executor.ServerlessExecutorService;
import io.millrace.shared.ReadOnly;
import io.millrace.shared.Shared;
import io.millrace.shared.SharedClass;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects that three hosts keep together, while one of them is killed. */
class ClusterTest {
    private static final int CALLS = 200;
    private static final long PATIENCE_S = 120;

    @TempDir
    static Path folder;

    interface Account {
        int pay(int cents);

        @ReadOnly
        int balance();
    }

    @Shared
    static class Current implements Account {
        private int cents;

        @Override
        public int pay(int more) {
            if (more < 0) {
                throw new IllegalArgumentException("less than nothing");
            }
            return cents += more;
        }

        @Override
        public int balance() {
            return cents;
        }
    }

    @Test
    void anObjectOfASharedClassSurvivesTheLossOfAHost() throws Exception {
        List<Host> hosts = Host.cluster(folder.resolve("shared"));
        Host first = hosts.get(0);
        String[] others = {hosts.get(1).address(), hosts.get(2).address()};
        try (Host second = hosts.get(1); Host third = hosts.get(2);
                Millrace farm = Millrace.at(first.address(), others).patience(Duration.ofSeconds(PATIENCE_S)).connect();
                ServerlessExecutorService executor = farm.executor(1)) {
            SharedClass<Account> accounts = executor.shared(Account.class, Current.class).persistent(2);
            Account ann = accounts.get("account/ann");
            assertEquals(5, ann.pay(5));
            assertEquals("less than nothing", assertThrows(IllegalArgumentException.class, () -> ann.pay(-1)).getMessage());
            first.kill();
            for (int more = 1; more <= 20; more++) {
                assertEquals(5 + more, ann.pay(1), "each call counts once, whichever host runs the method");
            }
            try (Millrace other = Millrace.at(third.address(), second.address()).patience(Duration.ofSeconds(PATIENCE_S)).connect()) {
                SharedClass<Account> same = other.executor().pool(executor.pool()).workers(1).start().shared(Account.class, Current.class);
                assertEquals(25, same.persistent(2).get("account/ann").balance());
            }
        }
    }

    @Test
    void callsGoToAnotherHostWhenOneIsLostAndCountOnce() throws Exception {
        List<Host> hosts = Host.cluster(folder.resolve("calls"));
        Host first = hosts.get(0);
        Host second = hosts.get(1);
        Host third = hosts.get(2);
        try (second; third; Millrace farm = Millrace.at(first.address(), second.address(), third.address())
                .patience(Duration.ofSeconds(PATIENCE_S)).connect()) {
            assertEquals(first.address(), farm.address());
            AtomicLong hits = farm.bindPersistent(new AtomicLong("hits"), 2);
            Lock till = farm.bindPersistent(new Lock("till"), 2);
            BlockingQueue<String> jobs = farm.bindPersistent(new BlockingQueue<>("jobs"), 2);
            assertEquals(1, hits.incrementAndGet());
            long token = till.acquire();
            assertTrue(first.run("entity", "ls").contains("hits"));

            CompletableFuture<String> taken = CompletableFuture.supplyAsync(() -> {
                try {
                    return jobs.take();
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
            CompletableFuture<Long> counted = CompletableFuture.supplyAsync(() -> {
                for (int call = 1; call < CALLS; call++) {
                    hits.incrementAndGet();
                }
                return hits.get();
            });
            while (hits.get() < 5) {
                Thread.sleep(1);
            }
            first.kill();
            assertEquals(CALLS, counted.get(PATIENCE_S, TimeUnit.SECONDS), "each call counts once, whichever host took it");
            assertNotEquals(first.address(), farm.address());
            jobs.put("bread");
            assertEquals("bread", taken.get(PATIENCE_S, TimeUnit.SECONDS), "a call that waited at the lost host waits on");

            // A second program, whose first host is the lost one.
            try (Millrace other = Millrace.at(first.address(), third.address()).patience(Duration.ofSeconds(PATIENCE_S)).connect()) {
                assertEquals(third.address(), other.address());
                assertEquals(CALLS, other.bindPersistent(new AtomicLong("hits"), 2).get());
                Lock theirs = other.bindPersistent(new Lock("till"), 2);
                assertTrue(!theirs.tryLock(), "the lock is still its owner's");
                till.unlock();
                assertTrue(theirs.acquire() > token);
            }
            assertEquals("MR7113", assertThrows(MillraceException.class,
                    () -> farm.bindPersistent(new AtomicLong("more"), 3).get()).code(), "three hosts keep two copies");
            assertEquals("MR7113", assertThrows(MillraceException.class, () -> farm.bindPersistent(new AtomicLong("more"), 4)).code());
        }
    }
}
