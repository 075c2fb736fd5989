package io.millrace.concurrent;

import io.millrace.space.Raised;
import io.millrace.space.Reference;
import io.millrace.space.SharedObject;
import io.millrace.space.Values;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.ConcurrentModificationException;
import java.util.Iterator;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;

/**
 * A list with the methods of {@link java.util.List}. Each method is atomic, except {@link #set}, which needs two calls. Iterators, which
 * cannot remove elements, and arrays are copies as of the time of the call. Python's {@code List} with the same key is the same object.
 */
public final class List<E> extends AbstractList<E> implements SharedObject {
    private static final long serialVersionUID = 1L;

    /** How often a change that this program computes is tried while others change the list. */
    private static final int TRIES = 100;

    private final Reference self;
    private final Class<?> type;

    /** The list with this key; integers in it are read as {@link Long}. */
    public List(String key) {
        this(key, null);
    }

    /** The list with this key, whose numbers are read as this class. */
    public List(String key, Class<E> type) {
        self = new Reference("List", "len", key);
        this.type = type;
    }

    private List(Reference self, Class<?> type) {
        this.self = self;
        this.type = type;
    }

    @Override
    public Reference reference() {
        return self;
    }

    @Override
    public List<E> withReference(Reference other) {
        return new List<>(other, type);
    }

    @SuppressWarnings("unchecked")
    private E element(Object value) {
        return (E) Values.as(type, value);
    }

    /** The host counts an index below 0 from the end; a list of Java does not. */
    private static int checked(int index) {
        if (index < 0) {
            throw new IndexOutOfBoundsException(index);
        }
        return index;
    }

    @Override
    public E get(int index) {
        return element(self.call("get", checked(index)));
    }

    @Override
    public E set(int index, E element) {
        E before = get(index);
        self.call("set", index, element);
        return before;
    }

    @Override
    public int size() {
        return Math.toIntExact((Long) self.call("len"));
    }

    @Override
    public boolean add(E element) {
        self.call("append", element);
        return true;
    }

    @Override
    public void add(int index, E element) {
        self.call("insert", checked(index), element);
    }

    /** Appends all of these atomically. */
    @Override
    public boolean addAll(Collection<? extends E> elements) {
        self.call("extend", new ArrayList<>(elements));
        return !elements.isEmpty();
    }

    @Override
    public E remove(int index) {
        return element(self.call("pop", checked(index)));
    }

    @Override
    public int indexOf(Object element) {
        Object found = self.call("index", element);
        return found == null ? -1 : Math.toIntExact((Long) found);
    }

    /** Removes the first element that equals this one; returns whether there was one. */
    @Override
    public boolean remove(Object element) {
        try {
            self.tryCall("remove", element);
            return true;
        } catch (Raised raised) {
            if (raised.is("ValueError")) {
                return false;
            }
            throw raised.toRuntime();
        }
    }

    @Override
    public boolean addAll(int index, Collection<? extends E> elements) {
        self.call("splice", checked(index), index, new ArrayList<>(elements));
        return !elements.isEmpty();
    }

    @Override
    public int lastIndexOf(Object element) {
        return copy().lastIndexOf(element);
    }

    /** Changes a copy, and replaces the list by it if no other program has changed the list meanwhile; returns whether the list changed. */
    private boolean change(Predicate<java.util.List<E>> change) {
        for (int tries = 0; tries < TRIES; tries++) {
            java.util.List<?> snapshot = (java.util.List<?>) self.call("snapshot");
            java.util.List<E> items = new ArrayList<>();
            ((java.util.List<?>) snapshot.get(1)).forEach(value -> items.add(element(value)));
            if (!change.test(items)) {
                return false;
            } else if ((Boolean) self.call("swap", snapshot.get(0), items)) {
                return true;
            }
        }
        throw new ConcurrentModificationException(self + " was changed by others in each of " + TRIES + " tries");
    }

    /** Sorts the list in this program; repeats this if another program changes the list at the same time. */
    @Override
    public void sort(Comparator<? super E> order) {
        change(items -> {
            items.sort(order);
            return true;
        });
    }

    @Override
    public void replaceAll(UnaryOperator<E> operator) {
        change(items -> {
            items.replaceAll(operator);
            return true;
        });
    }

    @Override
    public boolean removeIf(Predicate<? super E> filter) {
        return change(items -> items.removeIf(filter));
    }

    @Override
    public boolean removeAll(Collection<?> elements) {
        return change(items -> items.removeAll(elements));
    }

    @Override
    public boolean retainAll(Collection<?> elements) {
        return change(items -> items.retainAll(elements));
    }

    @Override
    public boolean contains(Object element) {
        return indexOf(element) >= 0;
    }

    @Override
    public void clear() {
        self.call("clear");
    }

    /** A copy of the list. */
    public java.util.List<E> copy() {
        java.util.List<E> found = new ArrayList<>();
        ((java.util.List<?>) self.call("items")).forEach(value -> found.add(element(value)));
        return found;
    }

    /** Iterates over a copy. */
    @Override
    public Iterator<E> iterator() {
        return Collections.unmodifiableList(copy()).iterator();
    }

    @Override
    public Object[] toArray() {
        return copy().toArray();
    }

    @Override
    public <T> T[] toArray(T[] array) {
        return copy().toArray(array);
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
