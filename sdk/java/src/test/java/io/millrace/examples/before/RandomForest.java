package io.millrace.examples.before;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** A random forest: each task grows a tree on a sample of the rows, and all trees vote on the rows that none of them has seen. */
public final class RandomForest implements Callable<int[]> {
    private static final int DEPTH_MAX = 12;
    private static final int ROWS_MIN = 2;

    private final long seed;
    private final double[][] rows;
    private final int[] labels;
    private final double[][] tested;

    RandomForest(long seed, double[][] rows, int[] labels, double[][] tested) {
        this.seed = seed;
        this.rows = rows;
        this.labels = labels;
        this.tested = tested;
    }

    /** A part of a tree: rows with less than a limit in a column go left. A leaf has no parts and says 0 or 1. */
    private record Node(int column, double limit, Node less, Node more, int says) {
        int of(double[] row) {
            return less == null ? says : (row[column] < limit ? less : more).of(row);
        }
    }

    @Override
    public int[] call() {
        Random random = new Random(seed);
        int[] sample = random.ints(rows.length, 0, rows.length).toArray();
        Node tree = grow(sample, DEPTH_MAX, random);
        return Arrays.stream(tested).mapToInt(tree::of).toArray();
    }

    private Node grow(int[] sample, int depth, Random random) {
        int ones = 0;
        for (int row : sample) {
            ones += labels[row];
        }
        Node leaf = new Node(0, 0, null, null, 2 * ones > sample.length ? 1 : 0);
        if (depth == 0 || sample.length < ROWS_MIN || ones == 0 || ones == sample.length) {
            return leaf;
        }
        int columns = rows[0].length;
        int column = 0;
        double limit = 0;
        double best = Double.MAX_VALUE;
        for (int tried = 0; tried < Math.sqrt(columns); tried++) {
            int at = random.nextInt(columns);
            int[] sorted = Arrays.stream(sample).boxed().sorted(Comparator.comparingDouble(row -> rows[row][at])).mapToInt(row -> row).toArray();
            int onesBelow = 0;
            for (int below = 1; below < sorted.length; below++) {
                onesBelow += labels[sorted[below - 1]];
                double impurity = impurity(onesBelow, below) + impurity(ones - onesBelow, sorted.length - below);
                if (impurity < best && rows[sorted[below - 1]][at] < rows[sorted[below]][at]) {
                    best = impurity;
                    column = at;
                    limit = rows[sorted[below]][at];
                }
            }
        }
        int split = column;
        double at = limit;
        int[] less = Arrays.stream(sample).filter(row -> rows[row][split] < at).toArray();
        int[] more = Arrays.stream(sample).filter(row -> rows[row][split] >= at).toArray();
        if (best == Double.MAX_VALUE || less.length == 0 || more.length == 0) {
            return leaf;
        }
        return new Node(column, limit, grow(less, depth - 1, random), grow(more, depth - 1, random), 0);
    }

    private static double impurity(int ones, int all) {
        return 2.0 * ones * (all - ones) / all;
    }

    /** What each of so many trees says of the tested rows. */
    public static List<int[]> answers(double[][] rows, int[] labels, double[][] tested, int trees, int workers) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(workers);
        List<RandomForest> tasks = new ArrayList<>();
        for (int seed = 0; seed < trees; seed++) {
            tasks.add(new RandomForest(seed, rows, labels, tested));
        }
        List<int[]> answers = new ArrayList<>();
        for (Future<int[]> answer : executor.invokeAll(tasks)) {
            answers.add(answer.get());
        }
        executor.shutdown();
        return answers;
    }

    /** What most trees say of each row. */
    public static int[] vote(List<int[]> answers) {
        int[] votes = new int[answers.get(0).length];
        answers.forEach(answer -> Arrays.setAll(votes, row -> votes[row] + answer[row]));
        return Arrays.stream(votes).map(ones -> 2 * ones > answers.size() ? 1 : 0).toArray();
    }
}
