package io.millrace.examples.before;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Logistic regression by Newton's method: tasks add up the gradient and the Hessian of the loss on their part of the data. The last
 * feature of each row is 1; its weight, the intercept, is not penalized.
 */
public final class LogisticRegression implements Callable<double[][]> {
    private static final double PENALTY = 1;

    private final double[][] features;
    private final double[] labels;
    private final double[] weights;

    LogisticRegression(double[][] features, double[] labels, double[] weights) {
        this.features = features;
        this.labels = labels;
        this.weights = weights;
    }

    /** The Hessian, and the gradient in the row behind it. */
    @Override
    public double[][] call() {
        int columns = weights.length;
        double[][] slopes = new double[columns + 1][columns];
        for (int row = 0; row < labels.length; row++) {
            double[] feature = features[row];
            double guess = 1 / (1 + Math.exp(-dot(feature, weights)));
            for (int left = 0; left < columns; left++) {
                for (int right = 0; right < columns; right++) {
                    slopes[left][right] += feature[left] * guess * (1 - guess) * feature[right];
                }
                slopes[columns][left] += feature[left] * (guess - labels[row]);
            }
        }
        return slopes;
    }

    private static double dot(double[] left, double[] right) {
        double sum = 0;
        for (int at = 0; at < left.length; at++) {
            sum += left[at] * right[at];
        }
        return sum;
    }

    private static void add(double[][] to, double[][] more) {
        for (int row = 0; row < to.length; row++) {
            for (int column = 0; column < to[row].length; column++) {
                to[row][column] += more[row][column];
            }
        }
    }

    /** The solution of linear equations, by Gauss's elimination with pivots; both arguments change. */
    private static double[] solved(double[][] matrix, double[] right) {
        int size = right.length;
        for (int pivot = 0; pivot < size; pivot++) {
            int best = pivot;
            for (int row = pivot + 1; row < size; row++) {
                best = Math.abs(matrix[row][pivot]) > Math.abs(matrix[best][pivot]) ? row : best;
            }
            double[] swapped = matrix[pivot];
            matrix[pivot] = matrix[best];
            matrix[best] = swapped;
            double value = right[pivot];
            right[pivot] = right[best];
            right[best] = value;
            for (int row = pivot + 1; row < size; row++) {
                double factor = matrix[row][pivot] / matrix[pivot][pivot];
                for (int column = pivot; column < size; column++) {
                    matrix[row][column] -= factor * matrix[pivot][column];
                }
                right[row] -= factor * right[pivot];
            }
        }
        double[] solution = new double[size];
        for (int row = size - 1; row >= 0; row--) {
            solution[row] = (right[row] - dot(matrix[row], solution)) / matrix[row][row];
        }
        return solution;
    }

    /** The weights after some rounds. */
    public static double[] fit(double[][] features, double[] labels, int rounds, int workers) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(workers);
        int columns = features[0].length;
        double[] weights = new double[columns];
        for (int round = 0; round < rounds; round++) {
            List<LogisticRegression> parts = new ArrayList<>();
            for (int worker = 0; worker < workers; worker++) {
                int from = labels.length * worker / workers;
                int to = labels.length * (worker + 1) / workers;
                double[][] rows = Arrays.copyOfRange(features, from, to);
                parts.add(new LogisticRegression(rows, Arrays.copyOfRange(labels, from, to), weights));
            }
            double[][] slopes = new double[columns + 1][columns];
            for (Future<double[][]> part : executor.invokeAll(parts)) {
                add(slopes, part.get());
            }
            double[] gradient = slopes[columns];
            for (int column = 0; column < columns - 1; column++) {
                slopes[column][column] += PENALTY;
                gradient[column] += PENALTY * weights[column];
            }
            double[] step = solved(Arrays.copyOf(slopes, columns), gradient);
            double[] next = weights.clone();
            for (int column = 0; column < columns; column++) {
                next[column] -= step[column];
            }
            weights = next;
        }
        executor.shutdown();
        return weights;
    }
}
