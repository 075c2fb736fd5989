package io.millrace.examples;

import io.millrace.concurrent.CyclicBarrier;
import io.millrace.concurrent.LinkedBlockingQueue;
import io.millrace.concurrent.Semaphore;
import io.millrace.executor.Executors;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * The Santa Claus problem: nine reindeer and ten elves, of whom Santa helps three at a time; reindeer go first. All of them are threads,
 * which meet at barriers and in queues.
 */
public final class Santa implements Callable<Void>, Serializable {
    private static final int REINDEER = 9;
    private static final int ELVES = 10;
    private static final int GROUP = 3;
    private static final int DELIVERIES = 15;
    private static final int MEETINGS = 20;
    private static final long LOOK_MS = 20;

    private final Village village;

    /** Where they meet, and a diary of what happened. */
    private static final class Village implements Serializable {
        private final CyclicBarrier home = new CyclicBarrier(REINDEER);
        private final CyclicBarrier harness = new CyclicBarrier(REINDEER + 1);
        private final BlockingQueue<String> wake = new LinkedBlockingQueue<>();
        private final BlockingQueue<String> waiting = new LinkedBlockingQueue<>();
        private final BlockingQueue<String> answers = new LinkedBlockingQueue<>();
        private final BlockingQueue<String> diary = new LinkedBlockingQueue<>();
        private final Semaphore problems = new Semaphore(MEETINGS * GROUP);
    }

    private Santa(Village village) {
        this.village = village;
    }

    /** Comes back from holidays, delivers toys, and goes on holidays again. */
    private record Reindeer(int number, Village village) implements Callable<Void>, Serializable {
        @Override
        public Void call() throws Exception {
            for (int ride = 0; ride < DELIVERIES; ride++) {
                if (village.home.await() == 0) {
                    // One of them wakes Santa for all.
                    village.wake.put("reindeer");
                }
                village.harness.await();
                village.diary.put("ride " + number);
            }
            return null;
        }
    }

    /** Works until it meets a problem, and waits for Santa with two others. */
    private record Elf(Village village) implements Callable<Void>, Serializable {
        @Override
        public Void call() throws Exception {
            while (village.problems.tryAcquire()) {
                village.waiting.put("elf");
                village.answers.take();
            }
            return null;
        }
    }

    /** Helps three elves, if three wait; returns the number of groups. */
    private int helpElves() throws InterruptedException {
        if (village.waiting.size() < GROUP) {
            return 0;
        }
        for (int elf = 0; elf < GROUP; elf++) {
            village.waiting.take();
            village.answers.put("helped");
            village.diary.put("helped");
        }
        village.diary.put("meeting");
        return 1;
    }

    /** Sleeps until somebody wakes him; reindeer before elves. */
    @Override
    public Void call() throws Exception {
        int meetings = 0;
        for (int delivery = 0; delivery < DELIVERIES; delivery++) {
            while (village.wake.poll(LOOK_MS, TimeUnit.MILLISECONDS) == null) {
                meetings += helpElves();
            }
            village.harness.await();
            village.diary.put("delivery");
        }
        while (meetings < MEETINGS) {
            meetings += helpElves();
        }
        return null;
    }

    /** How often each thing happened. */
    public static Map<String, Integer> year() throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(1 + REINDEER + ELVES);
        Village village = new Village();
        List<Callable<Void>> all = new ArrayList<>(List.of(new Santa(village)));
        for (int number = 0; number < REINDEER; number++) {
            all.add(new Reindeer(number, village));
        }
        for (int elf = 0; elf < ELVES; elf++) {
            all.add(new Elf(village));
        }
        for (Future<Void> each : executor.invokeAll(all)) {
            each.get();
        }
        Map<String, Integer> told = new TreeMap<>();
        for (String line = village.diary.poll(); line != null; line = village.diary.poll()) {
            told.merge(line, 1, Integer::sum);
        }
        executor.shutdown();
        return told;
    }
}
