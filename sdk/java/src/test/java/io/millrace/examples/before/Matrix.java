package io.millrace.examples.before;

/** Numbers in rows and columns that threads add to. */
final class Matrix {
    private final double[][] cells;

    /** All numbers are 0; the name is for people. */
    Matrix(String name, int rows, int columns) {
        cells = new double[rows][columns];
    }

    synchronized double[][] all() {
        double[][] copy = new double[cells.length][];
        for (int row = 0; row < cells.length; row++) {
            copy[row] = cells[row].clone();
        }
        return copy;
    }

    synchronized void setAll(double[][] rows) {
        for (int row = 0; row < cells.length; row++) {
            cells[row] = rows[row].clone();
        }
    }

    synchronized void addAll(double[][] rows) {
        for (int row = 0; row < cells.length; row++) {
            for (int column = 0; column < cells[row].length; column++) {
                cells[row][column] += rows[row][column];
            }
        }
    }
}
