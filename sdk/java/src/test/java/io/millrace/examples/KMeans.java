package io.millrace.examples;

import io.millrace.concurrent.CyclicBarrier;
import io.millrace.data.Matrix;
import io.millrace.executor.Executors;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;

/** k-means: each worker assigns its points to the nearest centres and adds them up; a barrier separates the rounds. */
public final class KMeans implements Callable<Void>, Serializable {
    private final double[][] points;
    private final Matrix centres;
    private final List<Matrix> rounds;
    private final CyclicBarrier barrier;

    KMeans(double[][] points, Matrix centres, List<Matrix> rounds, CyclicBarrier barrier) {
        this.points = points;
        this.centres = centres;
        this.rounds = rounds;
        this.barrier = barrier;
    }

    @Override
    public Void call() throws Exception {
        for (Matrix round : rounds) {
            double[][] now = centres.all();
            round.addAll(sums(points, now));
            if (barrier.await() == 0) {
                centres.setAll(moved(now, round.all()));
            }
            barrier.await();
        }
        return null;
    }

    /** The sums of the points of each centre, and their number. */
    private static double[][] sums(double[][] points, double[][] centres) {
        int dimensions = centres[0].length;
        double[][] found = new double[centres.length][dimensions + 1];
        for (double[] point : points) {
            double[] nearest = found[nearest(point, centres)];
            for (int at = 0; at < dimensions; at++) {
                nearest[at] += point[at];
            }
            nearest[dimensions]++;
        }
        return found;
    }

    private static int nearest(double[] point, double[][] centres) {
        int nearest = 0;
        double least = Double.MAX_VALUE;
        for (int centre = 0; centre < centres.length; centre++) {
            double distance = 0;
            for (int at = 0; at < point.length; at++) {
                double apart = point[at] - centres[centre][at];
                distance += apart * apart;
            }
            if (distance < least) {
                least = distance;
                nearest = centre;
            }
        }
        return nearest;
    }

    /** The means of the centres' points; a centre without points stays. */
    private static double[][] moved(double[][] centres, double[][] sums) {
        double[][] moved = new double[centres.length][];
        for (int centre = 0; centre < centres.length; centre++) {
            double[] sum = sums[centre];
            double count = sum[sum.length - 1];
            double[] mean = Arrays.copyOf(sum, sum.length - 1);
            moved[centre] = count == 0 ? centres[centre] : Arrays.stream(mean).map(total -> total / count).toArray();
        }
        return moved;
    }

    /** The centres after some rounds; the first points are the first centres. */
    public static double[][] cluster(double[][] points, int count, int rounds, int workers) throws Exception {
        int dimensions = points[0].length;
        ExecutorService executor = Executors.newFixedThreadPool(workers);
        Matrix centres = new Matrix("centres", count, dimensions);
        centres.setAll(Arrays.copyOf(points, count));
        List<Matrix> sums = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            sums.add(new Matrix("round-" + round, count, dimensions + 1));
        }
        CyclicBarrier barrier = new CyclicBarrier(workers);
        List<KMeans> parts = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            int from = points.length * worker / workers;
            int to = points.length * (worker + 1) / workers;
            parts.add(new KMeans(Arrays.copyOfRange(points, from, to), centres, sums, barrier));
        }
        for (Future<Void> part : executor.invokeAll(parts)) {
            part.get();
        }
        double[][] found = centres.all();
        executor.shutdown();
        return found;
    }
}
