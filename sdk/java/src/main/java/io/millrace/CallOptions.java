package io.millrace;

import io.millrace.shared.SharedClass;
import io.millrace.space.Fence;
import io.millrace.space.SharedObject;
import java.lang.reflect.Proxy;
import java.time.Duration;

/**
 * The options of the calls of a shared object.
 *
 * <pre>{@code
 * long token = farm.lock("till").acquire();
 * CallOptions.fence("till", token).on(hits).incrementAndGet();
 * }</pre>
 */
public final class CallOptions {
    private static final Duration TIMEOUT_MAX = Duration.ofDays(1);

    private final Fence fence;
    private final Duration timeout;

    private CallOptions(Fence fence, Duration timeout) {
        this.fence = fence;
        this.timeout = timeout;
    }

    /**
     * Calls with the token of a lock: once the object was called with a higher token of this name, they fail with MR7127. The name is usually
     * the key of the lock.
     */
    public static CallOptions fence(String name, long token) {
        return new CallOptions(new Fence(name, token), null);
    }

    /**
     * Calls of an object of a shared class that wait for at most this long until their method begins; see {@link io.millrace.shared.When}. A
     * call that waits for longer throws a {@link java.util.concurrent.TimeoutException} if the method declares it; if not, an {@link
     * IllegalStateException} with that as its cause.
     */
    public static CallOptions timeout(Duration timeout) {
        return new CallOptions(null, null).withTimeout(timeout);
    }

    /** The same with the token of a lock. */
    public CallOptions withFence(String name, long token) {
        return new CallOptions(new Fence(name, token), timeout);
    }

    /** The same with a timeout. */
    public CallOptions withTimeout(Duration timeout) {
        if (timeout.isNegative() || timeout.isZero() || timeout.compareTo(TIMEOUT_MAX) > 0) {
            throw new IllegalArgumentException("a timeout of " + timeout + "; it is above 0 and at most " + TIMEOUT_MAX);
        }
        return new CallOptions(fence, timeout);
    }

    /**
     * The same object, whose calls have these options, and those that the calls of the given one have. It can be passed to tasks. The given one
     * remains as it is.
     */
    @SuppressWarnings("unchecked")
    public <T> T on(T object) {
        if (!(object instanceof SharedObject shared)) {
            throw new IllegalArgumentException(object.getClass().getName() + " is no shared object");
        }
        SharedObject fenced = fence == null ? shared : shared.withReference(shared.reference().with(fence));
        if (timeout == null) {
            return (T) fenced;
        } else if (!Proxy.isProxyClass(object.getClass())) {
            String told = " is no object of a shared class; the timeout of a call is an argument of its own methods that wait";
            throw new IllegalArgumentException(object.getClass().getName() + told);
        }
        return (T) SharedClass.withTimeout(fenced, timeout);
    }
}
