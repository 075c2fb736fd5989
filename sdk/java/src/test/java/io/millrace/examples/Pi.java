package io.millrace.examples;

import io.millrace.concurrent.atomic.AtomicLong;
import io.millrace.executor.CloudThread;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Monte Carlo estimation of pi: threads throw points, and count those within the circle. */
public final class Pi implements Runnable, Serializable {
    private final long seed;
    private final int points;
    private final AtomicLong hits;

    Pi(long seed, int points, AtomicLong hits) {
        this.seed = seed;
        this.points = points;
        this.hits = hits;
    }

    @Override
    public void run() {
        Random random = new Random(seed);
        long count = 0;
        for (int at = 0; at < points; at++) {
            double x = random.nextDouble();
            double y = random.nextDouble();
            if (x * x + y * y <= 1) {
                count++;
            }
        }
        hits.addAndGet(count);
    }

    /** The estimate from all threads. */
    public static double estimate(int workers, int points) throws InterruptedException {
        AtomicLong hits = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < workers; at++) {
            threads.add(new CloudThread(new Pi(at, points, hits)));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return 4.0 * hits.get() / ((long) workers * points);
    }

    public static void main(String[] arguments) throws InterruptedException {
        System.out.println("pi is about " + estimate(8, 200_000));
    }
}
