package io.millrace.table;

import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/**
 * Entries of a table in the order of the bytes of their keys. Each iterator reads them anew, a page of a thousand at a time, or of fewer if
 * they are long, and sees each page as it is when it is read.
 */
public final class TableScan implements Iterable<TableEntry> {
    private static final byte[] NONE = {};

    private final Table table;
    private final byte[] from;
    /** Empty if there is no end. */
    private final byte[] to;
    private final long limit;
    private final boolean keysOnly;

    private TableScan(Table table, byte[] from, byte[] to, long limit, boolean keysOnly) {
        this.table = table;
        this.from = from;
        this.to = to;
        this.limit = limit;
        this.keysOnly = keysOnly;
    }

    static TableScan of(Table table, byte[] prefix) {
        return new TableScan(table, prefix, TableBytes.after(prefix), Long.MAX_VALUE, false);
    }

    /** The entries of this scan from a key on. */
    public TableScan from(String key) {
        return from(Table.bytes(key));
    }

    /** The entries of this scan from a key on. */
    public TableScan from(byte[] key) {
        byte[] later = Arrays.compareUnsigned(key, from) > 0 ? key.clone() : from;
        return new TableScan(table, later, to, limit, keysOnly);
    }

    /** The entries of this scan up to, but not including, a key. */
    public TableScan to(String key) {
        return to(Table.bytes(key));
    }

    /** The entries of this scan up to, but not including, a key. */
    public TableScan to(byte[] key) {
        if (key.length == 0) {
            // No key is before it, and in a request it means that there is no end.
            return limit(0);
        }
        byte[] earlier = to.length == 0 || Arrays.compareUnsigned(key, to) < 0 ? key.clone() : to;
        return new TableScan(table, from, earlier, limit, keysOnly);
    }

    /** At most this many entries of this scan. */
    public TableScan limit(long limit) {
        if (limit < 0) {
            throw new IllegalArgumentException("a limit of " + limit + " entries");
        }
        return new TableScan(table, from, to, Math.min(limit, this.limit), keysOnly);
    }

    /** The entries of this scan without their values. */
    public TableScan keysOnly() {
        return new TableScan(table, from, to, limit, true);
    }

    @Override
    public Iterator<TableEntry> iterator() {
        return new Pages();
    }

    private final class Pages implements Iterator<TableEntry> {
        private Iterator<TableEntry> page = List.<TableEntry>of().iterator();
        private byte[] next = from;
        private long left = limit;
        private boolean ended;

        @Override
        public boolean hasNext() {
            while (!page.hasNext() && !ended && left > 0) {
                read();
            }
            return page.hasNext();
        }

        private void read() {
            byte[] request = TableBytes.scan(next, to, (int) Math.min(left, TableBytes.PAGE), keysOnly);
            TableBytes.Answer answer = table.read(request);
            List<TableBytes.Row> rows = answer.rows();
            ended = !answer.more() || rows.isEmpty();
            next = rows.isEmpty() ? NONE : TableBytes.next(rows.get(rows.size() - 1).key());
            left -= rows.size();
            page = rows.stream().map(row -> TableEntry.of(row, !keysOnly)).iterator();
        }

        @Override
        public TableEntry next() {
            if (!hasNext()) {
                throw new NoSuchElementException("the scan has ended");
            }
            return page.next();
        }
    }

    @Override
    public String toString() {
        return "scan of " + table;
    }
}
