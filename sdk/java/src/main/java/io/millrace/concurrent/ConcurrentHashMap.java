package io.millrace.concurrent;

import io.millrace.space.Reference;

/** A {@link ConcurrentMap} under the name that it has in {@code java.util.concurrent}; without a key, it is this program's alone. */
public final class ConcurrentHashMap<K, V> extends ConcurrentMap<K, V> {
    private static final long serialVersionUID = 1L;

    /** A map without a name; integers in it are read as {@link Long}. */
    public ConcurrentHashMap() {
        super(Reference.unnamed());
    }

    /** The map with this key; integers in it are read as {@link Long}. */
    public ConcurrentHashMap(String key) {
        super(key);
    }
}
