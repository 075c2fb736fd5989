package io.millrace.concurrent;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A counter for each of many keys, like a map of {@link java.util.concurrent.atomic.LongAdder}. Python's {@code Counter} with the same
 * key is the same object.
 */
public final class Counter<K> implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;

    /** The counter with this key. */
    public Counter(String key) {
        self = new Reference("Counter", "len", key);
    }

    private Counter(Reference self) {
        this.self = self;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Counter<K> withReference(Reference other) {
        return new Counter<>(other);
    }

    /** Adds to the count of a key; returns the sum. */
    public long add(K key, long delta) {
        return (Long) self.call("add", Values.key(key), delta);
    }

    /** Adds 1 to the count of a key; returns the sum. */
    public long increment(K key) {
        return add(key, 1);
    }

    /** Adds to the counts of all these keys atomically. */
    public void addAll(Map<? extends K, Long> counts) {
        List<Object> flat = new ArrayList<>();
        counts.forEach((key, count) -> {
            flat.add(Values.key(key));
            flat.add(count);
        });
        self.call("update", flat);
    }

    /** The count of a key. */
    public long get(K key) {
        return (Long) self.call("get", Values.key(key));
    }

    /** The sum of all counts. */
    public long sum() {
        return (Long) self.call("total");
    }

    /** How many keys were counted. */
    public int size() {
        return Math.toIntExact((Long) self.call("len"));
    }

    /** All counts. */
    public Map<K, Long> copy() {
        return counts(self.call("items"));
    }

    /** The keys with the greatest counts, the greatest first. */
    public Map<K, Long> mostCommon(int most) {
        return counts(self.call("most_common", most));
    }

    @SuppressWarnings("unchecked")
    private static <K> Map<K, Long> counts(Object answer) {
        List<?> flat = (List<?>) answer;
        Map<K, Long> found = new LinkedHashMap<>();
        for (int at = 0; at + 1 < flat.size(); at += 2) {
            found.put((K) flat.get(at), (Long) flat.get(at + 1));
        }
        return found;
    }

    /** Removes all counts. */
    public void reset() {
        self.call("clear");
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
