package io.millrace.concurrent;

import io.millrace.space.Reference;
import java.util.Map;

/** A {@link ConcurrentMap} with the class name of {@code java.util.concurrent}. Without a key, only this program and its tasks use it. */
public final class ConcurrentHashMap<K, V> extends ConcurrentMap<K, V> {
    private static final long serialVersionUID = 1L;

    /** A map without a name; integers in it are read as {@link Long}. */
    public ConcurrentHashMap() {
        super(Reference.unnamed());
    }

    /** A map without a name; the capacity is ignored. */
    public ConcurrentHashMap(int capacity) {
        this();
    }

    /** A map without a name that has these entries. */
    public ConcurrentHashMap(Map<? extends K, ? extends V> entries) {
        this();
        putAll(entries);
    }

    /** A set without a name. */
    public static <T> Set<T> newKeySet() {
        return new Set<>(Reference.unnamed());
    }

    /** How many entries it has. */
    public long mappingCount() {
        return size();
    }

    /** The map with this key; integers in it are read as {@link Long}. */
    public ConcurrentHashMap(String key) {
        super(key);
    }

    private ConcurrentHashMap(Reference self, Class<?> keys, Class<?> values) {
        super(self, keys, values);
    }

    @Override
    public ConcurrentHashMap<K, V> withReference(Reference other) {
        return new ConcurrentHashMap<>(other, keys, values);
    }
}
