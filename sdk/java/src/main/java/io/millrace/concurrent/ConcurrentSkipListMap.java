package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.Values;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NavigableSet;
import java.util.NoSuchElementException;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * A map in the order of its keys, with the methods of {@link java.util.concurrent.ConcurrentSkipListMap}. The order is numbers, then
 * text, then bytes; it cannot be changed, so {@link #comparator} returns null. Views, such as {@link #subMap} and {@link #descendingMap},
 * are copies that cannot be changed. Python's {@code SortedDict} with the same key is the same object.
 */
public final class ConcurrentSkipListMap<K, V> extends ConcurrentMap<K, V> implements NavigableMap<K, V> {
    private static final long serialVersionUID = 1L;
    private static final String TYPE = "SortedDict";

    /** A map without a name; integers in it are read as {@link Long}. */
    public ConcurrentSkipListMap() {
        this(Reference.unnamed());
    }

    /** The map with this key; integers in it are read as {@link Long}. */
    public ConcurrentSkipListMap(String key) {
        this(key, null, null);
    }

    /** The map with this key, whose numbers are read as these classes. */
    public ConcurrentSkipListMap(String key, Class<K> keys, Class<V> values) {
        super(TYPE, key, keys, values);
    }

    private ConcurrentSkipListMap(Reference self, Class<?> keys, Class<?> values) {
        super(self, keys, values);
    }

    @Override
    public ConcurrentSkipListMap<K, V> withReference(Reference other) {
        return new ConcurrentSkipListMap<>(other, keys, values);
    }

    /** The order of the host. */
    private static int compare(Object one, Object other) {
        int kinds = Integer.compare(kind(one), kind(other));
        if (kinds != 0) {
            return kinds;
        } else if (one instanceof String text) {
            // By code points, as UTF-8 is ordered.
            return Arrays.compare(text.codePoints().toArray(), ((String) other).codePoints().toArray());
        } else if (one instanceof byte[] bytes) {
            return Arrays.compareUnsigned(bytes, (byte[]) other);
        } else if (isFraction(one) || isFraction(other)) {
            return Double.compare(number(one).doubleValue(), number(other).doubleValue());
        }
        return Long.compare(number(one).longValue(), number(other).longValue());
    }

    private static int kind(Object key) {
        return key instanceof byte[] ? 2 : key instanceof String ? 1 : 0;
    }

    private static boolean isFraction(Object key) {
        return key instanceof Double || key instanceof Float;
    }

    private static Number number(Object key) {
        return key instanceof Boolean truth ? (Number) (truth ? 1L : 0L) : (Number) key;
    }

    private TreeMap<K, V> tree(List<?> flat) {
        TreeMap<K, V> found = new TreeMap<>((Comparator<Object>) ConcurrentSkipListMap::compare);
        found.putAll(pairs(flat));
        return found;
    }

    private NavigableMap<K, V> all() {
        return Collections.unmodifiableNavigableMap(tree((List<?>) self.call("items")));
    }

    /** The entries from one key up to, and without, another; null is no bound. */
    private NavigableMap<K, V> range(Object from, Object to) {
        return tree((List<?>) self.call("range", from, to));
    }

    /** Null: the order is that of the host. */
    @Override
    public Comparator<? super K> comparator() {
        return null;
    }

    private Map.Entry<K, V> end(String method) {
        return tree((List<?>) self.call(method)).firstEntry();
    }

    @Override
    public Map.Entry<K, V> firstEntry() {
        return end("first");
    }

    @Override
    public Map.Entry<K, V> lastEntry() {
        return end("last");
    }

    private static <K> K keyOf(Map.Entry<K, ?> entry) {
        return entry == null ? null : entry.getKey();
    }

    private static <K> K present(Map.Entry<K, ?> entry) {
        if (entry == null) {
            throw new NoSuchElementException("the map is empty");
        }
        return entry.getKey();
    }

    @Override
    public K firstKey() {
        return present(firstEntry());
    }

    @Override
    public K lastKey() {
        return present(lastEntry());
    }

    /** Removes the entry with the lowest key; returns it, or null if there is none. */
    @Override
    public Map.Entry<K, V> pollFirstEntry() {
        while (true) {
            List<?> first = (List<?>) self.call("first");
            if (first.isEmpty()) {
                return null;
            } else if ((Boolean) self.call("compare_and_pop", first.get(0), first.get(1))) {
                return tree(first).firstEntry();
            }
        }
    }

    /** Removes the entry with the highest key; returns it, or null if there is none. */
    @Override
    public Map.Entry<K, V> pollLastEntry() {
        try {
            return tree((List<?>) self.tryCall("popitem")).firstEntry();
        } catch (Raised raised) {
            if (raised.is("KeyError")) {
                return null;
            }
            throw raised.toRuntime();
        }
    }

    @Override
    public Map.Entry<K, V> lowerEntry(K key) {
        return range(null, Values.key(key)).lastEntry();
    }

    @Override
    public K lowerKey(K key) {
        return keyOf(lowerEntry(key));
    }

    @Override
    public Map.Entry<K, V> floorEntry(K key) {
        Values.key(key);
        return all().floorEntry(key);
    }

    @Override
    public K floorKey(K key) {
        return keyOf(floorEntry(key));
    }

    @Override
    public Map.Entry<K, V> ceilingEntry(K key) {
        return range(Values.key(key), null).firstEntry();
    }

    @Override
    public K ceilingKey(K key) {
        return keyOf(ceilingEntry(key));
    }

    @Override
    public Map.Entry<K, V> higherEntry(K key) {
        return range(Values.key(key), null).higherEntry(key);
    }

    @Override
    public K higherKey(K key) {
        return keyOf(higherEntry(key));
    }

    @Override
    public NavigableMap<K, V> descendingMap() {
        return all().descendingMap();
    }

    @Override
    public NavigableSet<K> navigableKeySet() {
        return all().navigableKeySet();
    }

    /** A copy of the keys, in their order. */
    @Override
    public NavigableSet<K> keySet() {
        return navigableKeySet();
    }

    @Override
    public NavigableSet<K> descendingKeySet() {
        return all().descendingKeySet();
    }

    @Override
    public NavigableMap<K, V> subMap(K from, boolean fromInclusive, K to, boolean toInclusive) {
        return all().subMap(from, fromInclusive, to, toInclusive);
    }

    @Override
    public NavigableMap<K, V> headMap(K to, boolean inclusive) {
        return all().headMap(to, inclusive);
    }

    @Override
    public NavigableMap<K, V> tailMap(K from, boolean inclusive) {
        return all().tailMap(from, inclusive);
    }

    /** A copy of the entries from one key up to, but not including, another. Only these entries are sent. */
    @Override
    public SortedMap<K, V> subMap(K from, K to) {
        if (compare(Values.key(from), Values.key(to)) > 0) {
            throw new IllegalArgumentException(from + " is above " + to);
        }
        return Collections.unmodifiableSortedMap(range(from, to));
    }

    /** A copy of the entries below a key. Only these entries are sent. */
    @Override
    public SortedMap<K, V> headMap(K to) {
        return Collections.unmodifiableSortedMap(range(null, Values.key(to)));
    }

    /** A copy of the entries from a key on. Only these entries are sent. */
    @Override
    public SortedMap<K, V> tailMap(K from) {
        return Collections.unmodifiableSortedMap(range(Values.key(from), null));
    }
}
