package io.millrace.examples.before;

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The Mandelbrot set: each task computes the grey values of one row of the picture. */
public final class Mandelbrot implements Callable<byte[]> {
    private static final int WIDTH = 240;
    private static final int HEIGHT = 160;
    private static final int DEPTH = 100;
    private static final double ESCAPE = 4;

    private final int row;

    Mandelbrot(int row) {
        this.row = row;
    }

    @Override
    public byte[] call() {
        byte[] greys = new byte[WIDTH];
        for (int column = 0; column < WIDTH; column++) {
            int depth = depth(-2.2 + 3.2 * column / WIDTH, -1.1 + 2.2 * row / HEIGHT);
            greys[column] = (byte) (255 - 255 * depth / DEPTH);
        }
        return greys;
    }

    /** After how many steps a point leaves the circle of radius 2; at most {@code DEPTH}. */
    private static int depth(double real, double imaginary) {
        double x = 0;
        double y = 0;
        int depth = 0;
        while (depth < DEPTH && x * x + y * y <= ESCAPE) {
            double next = x * x - y * y + real;
            y = x * y + y * x + imaginary;
            x = next;
            depth++;
        }
        return depth;
    }

    /** The picture, row by row. */
    public static byte[] draw(int workers) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(workers);
        List<Mandelbrot> rows = new ArrayList<>();
        for (int row = 0; row < HEIGHT; row++) {
            rows.add(new Mandelbrot(row));
        }
        ByteArrayOutputStream picture = new ByteArrayOutputStream();
        for (Future<byte[]> row : executor.invokeAll(rows)) {
            picture.writeBytes(row.get());
        }
        executor.shutdown();
        return picture.toByteArray();
    }
}
