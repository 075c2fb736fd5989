package io.millrace.examples;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.millrace.Millrace;
import io.millrace.executor.ServerlessExecutorService;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The examples have the results of the programs that they were ported from, and few lines changed. They start hosts of their own. */
class ExamplesTest {
    private static final int DIMENSIONS = 4;
    private static final int ROUNDS = 10;
    private static final int WORKERS = 4;
    /** The centres that scikit-learn finds in kmeans.points, from the same start with as many rounds. */
    private static final double[][] CENTRES = {
        {0.5448344201905755, -0.8355714899430202, -1.92467881310899, -1.724080398050672},
        {-3.9488355831924533, 7.438668594199077, -9.94295771679177, 6.444889803055036},
        {9.332928320067797, 6.153148271547208, 2.4781042103837523, 9.834964061115265},
        {2.4514035062990365, 7.9108870473163115, 5.509770163850143, -5.526674838889985},
        {10.559625566461914, 5.190800790080097, 2.5324015489689256, 9.682085801535205},
    };
    /** Lines of both programs that may differ, half of them imports. */
    private static final int CHANGED_MAX = 20;
    private static final Path SOURCES = Path.of("src/test/java/io/millrace/examples");

    /** The points of the example in Python. */
    private static double[][] points() throws IOException {
        byte[] bytes = Files.readAllBytes(Path.of("src/test/resources/kmeans.points"));
        DoubleBuffer numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer();
        double[][] points = new double[numbers.remaining() / DIMENSIONS][DIMENSIONS];
        for (double[] point : points) {
            numbers.get(point);
        }
        return points;
    }

    @Test
    void kMeansFindsTheCentresOfScikitLearn() throws Exception {
        double[][] before = io.millrace.examples.before.KMeans.cluster(points(), CENTRES.length, ROUNDS, WORKERS);
        double[][] after = KMeans.cluster(points(), CENTRES.length, ROUNDS, WORKERS);
        for (int centre = 0; centre < CENTRES.length; centre++) {
            assertArrayEquals(CENTRES[centre], before[centre], 1e-9);
            assertArrayEquals(CENTRES[centre], after[centre], 1e-9);
        }
    }

    @Test
    void piIsTheSameOnThreadsAndOnCloudThreads() throws Exception {
        double before = io.millrace.examples.before.Pi.estimate(4, 50_000);
        assertEquals(Math.PI, before, 0.02);
        try (Millrace farm = Millrace.connect(); ServerlessExecutorService executor = farm.executor(2)) {
            assertEquals(before, Pi.estimate(4, 50_000), 0, "the threads of " + executor + " have the same seeds");
        }
    }

    /** How many lines are not in the longest common part of both. */
    private static int changed(List<String> old, List<String> now) {
        int[][] common = new int[old.size() + 1][now.size() + 1];
        for (int left = 1; left <= old.size(); left++) {
            for (int right = 1; right <= now.size(); right++) {
                common[left][right] = old.get(left - 1).equals(now.get(right - 1)) ? common[left - 1][right - 1] + 1
                        : Math.max(common[left - 1][right], common[left][right - 1]);
            }
        }
        return now.size() - common[old.size()][now.size()];
    }

    private static List<String> code(Path file) throws IOException {
        List<String> code = new ArrayList<>(Files.readAllLines(file));
        code.removeIf(line -> line.startsWith("package "));
        return code;
    }

    @Test
    void fewLinesChangeWhenAProgramIsPorted() throws IOException {
        int changed = 0;
        int all = 0;
        for (String name : List.of("KMeans.java", "Pi.java")) {
            List<String> now = code(SOURCES.resolve(name));
            int lines = changed(code(SOURCES.resolve("before").resolve(name)), now);
            System.out.println(name + ": " + lines + " of " + now.size() + " lines changed");
            changed += lines;
            all += now.size();
        }
        System.out.printf("in all %.1f %%%n", 100.0 * changed / all);
        assertTrue(changed > 0 && changed <= CHANGED_MAX, changed + " lines");
    }
}
