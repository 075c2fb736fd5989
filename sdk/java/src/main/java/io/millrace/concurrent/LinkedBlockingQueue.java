package io.millrace.concurrent;

import io.millrace.space.Reference;

/** A {@link BlockingQueue} with the class name of {@code java.util.concurrent}. Without a key, only this program and its tasks use it. */
public final class LinkedBlockingQueue<E> extends BlockingQueue<E> {
    private static final long serialVersionUID = 1L;

    /** A queue without a name and without a limit. */
    public LinkedBlockingQueue() {
        super(Reference.unnamed());
    }

    /** A queue without a name, of this capacity. */
    public LinkedBlockingQueue(int capacity) {
        super(Reference.unnamed(), capacity);
    }

    /** The queue with this key, without a limit; integers in it are read as {@link Long}. */
    public LinkedBlockingQueue(String key) {
        super(key);
    }

    private LinkedBlockingQueue(Reference self, Class<?> type) {
        super(self, type);
    }

    @Override
    public LinkedBlockingQueue<E> withReference(Reference other) {
        return new LinkedBlockingQueue<>(other, type);
    }
}
