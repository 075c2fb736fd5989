package io.millrace.concurrent;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;

/**
 * A map with the methods of {@link java.util.concurrent.ConcurrentHashMap}. Keys are numbers, text, bytes and booleans; keys and values
 * cannot be null. Python's {@code Dict} with the same key is the same object. Views are copies as of the time of the call.
 */
public class ConcurrentMap<K, V> extends AbstractMap<K, V> implements java.util.concurrent.ConcurrentMap<K, V>, SharedObject {
    private static final long serialVersionUID = 1L;

    final Reference self;
    final Class<?> keys;
    final Class<?> values;

    /** The map with this key; integers in it are read as {@link Long}. */
    public ConcurrentMap(String key) {
        this(key, null, null);
    }

    /** The map with this key, whose numbers are read as these classes. */
    public ConcurrentMap(String key, Class<K> keys, Class<V> values) {
        this("Dict", key, keys, values);
    }

    /** The same, of a type of the host that has the methods of {@code Dict}. */
    ConcurrentMap(String type, String key, Class<?> keys, Class<?> values) {
        self = new Reference(type, "len", key);
        this.keys = keys;
        this.values = values;
    }

    ConcurrentMap(Reference self, Class<?> keys, Class<?> values) {
        this.self = self;
        this.keys = keys;
        this.values = values;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public ConcurrentMap<K, V> withReference(Reference other) {
        return new ConcurrentMap<>(other, keys, values);
    }

    @SuppressWarnings("unchecked")
    private V value(Object value) {
        return (V) Values.as(values, value);
    }

    private Optional<V> found(Object answer) {
        return ((List<?>) answer).stream().findFirst().map(this::value);
    }

    @Override
    public V get(Object key) {
        return found(self.call("get", Values.key(key))).orElse(null);
    }

    @Override
    public boolean containsKey(Object key) {
        return (Boolean) self.call("contains", Values.key(key));
    }

    @Override
    public int size() {
        return Math.toIntExact((Long) self.call("len"));
    }

    @Override
    public boolean isEmpty() {
        return size() == 0;
    }

    /** Sets the value of a key. Unlike {@link #put}, it needs only one call, and does not return the previous value. */
    public void set(K key, V value) {
        self.call("set", Values.key(key), Objects.requireNonNull(value));
    }

    @Override
    public V put(K key, V value) {
        Objects.requireNonNull(value);
        while (true) {
            List<?> before = (List<?>) self.call("get", Values.key(key));
            if ((Boolean) self.call("compare_and_set", key, before, value)) {
                return found(before).orElse(null);
            }
        }
    }

    /** Sets the values of all these keys atomically. */
    @Override
    public void putAll(Map<? extends K, ? extends V> map) {
        List<Object> flat = new ArrayList<>();
        map.forEach((key, value) -> {
            flat.add(Values.key(key));
            flat.add(Objects.requireNonNull(value));
        });
        self.call("update", flat);
    }

    @Override
    public V putIfAbsent(K key, V value) {
        Objects.requireNonNull(value);
        while (true) {
            Optional<V> before = found(self.call("get", Values.key(key)));
            if (before.isPresent()) {
                return before.get();
            }
            if ((Boolean) self.call("compare_and_set", key, List.of(), value)) {
                return null;
            }
        }
    }

    @Override
    public V remove(Object key) {
        return found(self.call("pop", Values.key(key))).orElse(null);
    }

    @Override
    public boolean remove(Object key, Object value) {
        return (Boolean) self.call("compare_and_pop", Values.key(key), value);
    }

    @Override
    public boolean replace(K key, V expected, V value) {
        return (Boolean) self.call("compare_and_set", Values.key(key), List.of(expected), Objects.requireNonNull(value));
    }

    @Override
    public V replace(K key, V value) {
        while (true) {
            List<?> before = (List<?>) self.call("get", Values.key(key));
            if (before.isEmpty()) {
                return null;
            }
            if ((Boolean) self.call("compare_and_set", key, before, Objects.requireNonNull(value))) {
                return found(before).orElse(null);
            }
        }
    }

    /** Adds to the number of a key, 0 if there is none, in one call; returns the sum. */
    public V add(K key, V delta) {
        return value(self.call("add", Values.key(key), delta));
    }

    @Override
    public void clear() {
        self.call("clear");
    }

    /** A copy of all entries, in the order of insertion. */
    @Override
    public Set<Map.Entry<K, V>> entrySet() {
        return Collections.unmodifiableMap(copy()).entrySet();
    }

    /** A copy of the map, in the order of insertion. */
    public Map<K, V> copy() {
        return pairs((List<?>) self.call("items"));
    }

    /** Keys and values that alternate. */
    @SuppressWarnings("unchecked")
    Map<K, V> pairs(List<?> flat) {
        Map<K, V> found = new LinkedHashMap<>();
        for (int at = 0; at + 1 < flat.size(); at += 2) {
            found.put((K) Values.as(keys, flat.get(at)), value(flat.get(at + 1)));
        }
        return found;
    }

    @Override
    public boolean equals(Object other) {
        return this == other;
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }

    @Override
    public String toString() {
        return self.toString();
    }
}
