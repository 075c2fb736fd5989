package io.millrace.data;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/** Numbers of 64 bits in rows and columns, all 0 at first. Python's {@code Matrix} with the same key is the same object. */
public final class Matrix implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** The matrix with this key. If it does not exist, it is created with this size. */
    public Matrix(String key, int rows, int columns) {
        self = new Reference("Matrix", "shape", key, rows, columns);
    }

    private Matrix(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Matrix withReference(Reference other) {
        return new Matrix(other);
    }

    private static byte[] bytes(double[] row) {
        ByteBuffer bytes = ByteBuffer.allocate(row.length * Double.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asDoubleBuffer().put(row);
        return bytes.array();
    }

    private static double[] numbers(Object value) {
        ByteBuffer bytes = ByteBuffer.wrap((byte[]) value).order(ByteOrder.LITTLE_ENDIAN);
        double[] found = new double[bytes.remaining() / Double.BYTES];
        bytes.asDoubleBuffer().get(found);
        return found;
    }

    private static byte[] all(double[][] rows) {
        int cells = 0;
        for (double[] row : rows) {
            cells += row.length;
        }
        ByteBuffer bytes = ByteBuffer.allocate(cells * Double.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        for (double[] row : rows) {
            bytes.put(bytes(row));
        }
        return bytes.array();
    }

    private int shape(int which) {
        return Math.toIntExact((Long) ((List<?>) self.call("shape")).get(which));
    }

    /** The number of rows. */
    public int rows() {
        return shape(0);
    }

    /** The number of columns. */
    public int columns() {
        return shape(1);
    }

    /** A number. */
    public double get(int row, int column) {
        return (Double) self.call("get", row, column);
    }

    /** Sets a number. */
    public void set(int row, int column, double value) {
        self.call("set", row, column, value);
    }

    /** Adds to a number; returns the sum. */
    public double add(int row, int column, double delta) {
        return (Double) self.call("add", row, column, delta);
    }

    /** The numbers of a row. */
    public double[] row(int row) {
        return numbers(self.call("row", row));
    }

    /** Sets a row. */
    public void setRow(int row, double[] values) {
        self.call("set_row", row, bytes(values));
    }

    /** Adds to each number of a row, atomically. */
    public void addRow(int row, double[] values) {
        self.call("add_row", row, bytes(values));
    }

    /** All rows, read atomically. */
    public double[][] all() {
        int columns = columns();
        double[] cells = numbers(self.call("all"));
        double[][] found = new double[cells.length / columns][];
        for (int row = 0; row < found.length; row++) {
            found[row] = java.util.Arrays.copyOfRange(cells, row * columns, (row + 1) * columns);
        }
        return found;
    }

    /** Sets all numbers, atomically. */
    public void setAll(double[][] rows) {
        self.call("set_all", all(rows));
    }

    /** Adds to all numbers, atomically. */
    public void addAll(double[][] rows) {
        self.call("add_all", all(rows));
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
