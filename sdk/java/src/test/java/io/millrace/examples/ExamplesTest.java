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
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
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
    /** The checksum of the picture of the example in Python. */
    private static final String PICTURE = "922894d7cd6124f8d4c918c2c0b110e8cd6a857529ea0263cb3cdbd333f5ff32";
    private static final int ROWS = 4000;
    private static final int NEWTON_ROUNDS = 12;
    private static final int TREES = 24;
    private static final int TESTED = 500;
    /** A forest of scikit-learn with as many trees has an accuracy of 0.81. */
    private static final double RIGHT_MIN = 0.8;
    /** The weights that scikit-learn finds in logistic.rows, the data of the example in Python; the last one is the intercept. */
    private static final double[] WEIGHTS = {-1.9366976799947364, -1.0538233909192223, 1.6867298291209076, 0.9288344932703151,
        -0.7399930277574981, 0.8219413151583282, 0.5040812641210596};
    /** The part of the lines that may change. */
    private static final double CHANGED_MAX = 0.06;
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

    private static String sha256(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    @Test
    void mandelbrotDrawsThePictureOfTheExampleInPython() throws Exception {
        assertEquals(PICTURE, sha256(io.millrace.examples.before.Mandelbrot.draw(WORKERS)));
        assertEquals(PICTURE, sha256(Mandelbrot.draw(WORKERS)));
    }

    /** The rows of the example in Python: six numbers, and a one for the intercept. Their labels follow, 0 or 1. */
    private static double[][] features(double[] labels) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of("src/test/resources/logistic.rows"))).order(ByteOrder.LITTLE_ENDIAN);
        double[][] features = new double[ROWS][WEIGHTS.length];
        for (double[] row : features) {
            for (int column = 0; column < WEIGHTS.length - 1; column++) {
                row[column] = bytes.getDouble();
            }
            row[WEIGHTS.length - 1] = 1;
        }
        for (int row = 0; row < ROWS; row++) {
            labels[row] = bytes.get();
        }
        return features;
    }

    @Test
    void aForestVotesAsTheSameTreesDoOnThreadsAndBetterThanEach() throws Exception {
        double[] labels = new double[ROWS];
        double[][] features = features(labels);
        double[][] rows = Arrays.copyOfRange(features, TESTED, ROWS / 2);
        int[] known = Arrays.stream(labels, TESTED, ROWS / 2).mapToInt(label -> (int) label).toArray();
        double[][] tested = Arrays.copyOf(features, TESTED);
        List<int[]> before = io.millrace.examples.before.RandomForest.answers(rows, known, tested, TREES, WORKERS);
        List<int[]> after = RandomForest.answers(rows, known, tested, TREES, WORKERS);
        double best = 0;
        for (int tree = 0; tree < TREES; tree++) {
            assertArrayEquals(before.get(tree), after.get(tree), "tree " + tree);
            best = Math.max(best, right(after.get(tree), labels));
        }
        int[] voted = RandomForest.vote(after);
        assertArrayEquals(io.millrace.examples.before.RandomForest.vote(before), voted);
        double right = right(voted, labels);
        assertTrue(right > best && right > RIGHT_MIN, right + " of the rows are told right, and by the best tree " + best);
    }

    private static double right(int[] said, double[] labels) {
        return IntStream.range(0, said.length).filter(row -> said[row] == labels[row]).count() / (double) said.length;
    }

    @Test
    void logisticRegressionFindsTheWeightsOfScikitLearn() throws Exception {
        double[] labels = new double[ROWS];
        double[][] features = features(labels);
        assertArrayEquals(WEIGHTS, io.millrace.examples.before.LogisticRegression.fit(features, labels, NEWTON_ROUNDS, WORKERS), 1e-9);
        assertArrayEquals(WEIGHTS, LogisticRegression.fit(features, labels, NEWTON_ROUNDS, WORKERS), 1e-9);
    }

    @Test
    void santaDeliversWithAllReindeerAndHelpsElvesByThrees() throws Exception {
        Map<String, Integer> expected = new TreeMap<>(Map.of("delivery", 15, "helped", 60, "meeting", 20));
        for (int number = 0; number < 9; number++) {
            expected.put("ride " + number, 15);
        }
        assertEquals(expected, io.millrace.examples.before.Santa.year());
        assertEquals(expected, Santa.year());
    }

    @Test
    void wordsAreCountedOnce() throws Exception {
        List<String> lines = Files.readAllLines(Path.of("README.md"));
        Map<String, Long> expected = new TreeMap<>();
        String[] words = String.join("\n", lines).toLowerCase(Locale.ROOT).split("[^a-z']+");
        Arrays.stream(words).filter(word -> !word.isEmpty()).forEach(word -> expected.merge(word, 1L, Long::sum));
        assertEquals(expected, io.millrace.examples.before.WordCount.count(lines, WORKERS));
        assertEquals(expected, WordCount.count(lines, WORKERS));
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
        try (DirectoryStream<Path> programs = Files.newDirectoryStream(SOURCES.resolve("before"))) {
            for (Path before : programs) {
                Path after = SOURCES.resolve(before.getFileName());
                if (Files.exists(after)) {
                    List<String> now = code(after);
                    int lines = changed(code(before), now);
                    System.out.println(before.getFileName() + ": " + lines + " of " + now.size() + " lines changed");
                    changed += lines;
                    all += now.size();
                }
            }
        }
        System.out.printf("in all %.1f %%%n", 100.0 * changed / all);
        assertTrue(changed > 0 && changed < CHANGED_MAX * all, changed + " of " + all + " lines");
    }
}
