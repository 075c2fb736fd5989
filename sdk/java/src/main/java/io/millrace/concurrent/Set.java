package io.millrace.concurrent;

import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;

/**
 * A set with the methods of {@link java.util.Set}. Elements are numbers, text, bytes and booleans. Iterators are copies as of the time of
 * the call; removing an element through an iterator removes it from the set. Python's {@code Set} with the same key is the same object.
 */
public final class Set<E> extends AbstractSet<E> implements SharedObject {
    private static final long serialVersionUID = 1L;

    private final Reference self;
    private final Class<?> type;

    /** The set with this key; integers in it are read as {@link Long}. */
    public Set(String key) {
        this(key, null);
    }

    /** The set with this key, whose numbers are read as this class. */
    public Set(String key, Class<E> type) {
        self = new Reference("Set", "len", key);
        this.type = type;
    }

    private Set(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public Set<E> withReference(Reference other) {
        return new Set<>(other, type);
    }

    @Override
    public boolean add(E element) {
        return (Boolean) self.call("add", Values.key(element));
    }

    @Override
    public boolean remove(Object element) {
        return (Boolean) self.call("discard", Values.key(element));
    }

    @Override
    public boolean contains(Object element) {
        return (Boolean) self.call("contains", Values.key(element));
    }

    /** Adds all of these atomically. */
    @Override
    public boolean addAll(Collection<? extends E> elements) {
        return changed("update", elements);
    }

    /** Removes all of these atomically. */
    @Override
    public boolean removeAll(Collection<?> elements) {
        return changed("difference_update", elements);
    }

    /** Removes all other elements atomically. */
    @Override
    public boolean retainAll(Collection<?> elements) {
        return changed("intersection_update", elements);
    }

    private boolean changed(String method, Collection<?> elements) {
        List<Object> sent = new ArrayList<>();
        elements.forEach(element -> sent.add(Values.key(element)));
        return (Long) self.call(method, sent) > 0;
    }

    @Override
    public int size() {
        return Math.toIntExact((Long) self.call("len"));
    }

    @Override
    public void clear() {
        self.call("clear");
    }

    /** A copy of the set, in the order of insertion. */
    @SuppressWarnings("unchecked")
    public java.util.Set<E> copy() {
        java.util.Set<E> found = new LinkedHashSet<>();
        ((List<?>) self.call("items")).forEach(value -> found.add((E) Values.as(type, value)));
        return found;
    }

    @Override
    public Iterator<E> iterator() {
        Iterator<E> copied = copy().iterator();
        return new Iterator<>() {
            private E last;
            private boolean removable;

            @Override
            public boolean hasNext() {
                return copied.hasNext();
            }

            @Override
            public E next() {
                last = copied.next();
                removable = true;
                return last;
            }

            @Override
            public void remove() {
                if (!removable) {
                    throw new IllegalStateException("next() was not called");
                }
                removable = false;
                Set.this.remove(last);
            }
        };
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
