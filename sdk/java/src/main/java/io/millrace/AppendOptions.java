package io.millrace;

import io.millrace.space.Fence;
import java.util.Map;

/** The options of an append. By default, it waits for the durability of the namespace and has no idempotency key. */
public final class AppendOptions {
    /** The default options. */
    public static final AppendOptions DEFAULT = new AppendOptions(null, null, null, null, null);

    private final Durability durability;
    private final String key;
    private final Fence fence;
    private final String function;
    private final String cause;

    private AppendOptions(Durability durability, String key, Fence fence, String function, String cause) {
        this.durability = durability;
        this.key = key;
        this.fence = fence;
        this.function = function;
        this.cause = cause;
    }

    /**
     * Options with an idempotency key of 1 to 128 bytes: a record is appended only once, however often the append is sent with this key.
     */
    public static AppendOptions key(String key) {
        return DEFAULT.withKey(key);
    }

    /** These options with an idempotency key. */
    public AppendOptions withKey(String key) {
        return new AppendOptions(durability, key, fence, function, cause);
    }

    /**
     * These options with the token of a lock: if a higher token was already used with this name in the namespace, the append fails with
     * MR7127. The name is usually the key of the lock.
     */
    public AppendOptions withFence(String name, long token) {
        return new AppendOptions(durability, key, new Fence(name, token), function, cause);
    }

    /** These options with a durability that the append waits for. */
    public AppendOptions withDurability(Durability durability) {
        return new AppendOptions(durability, key, fence, function, cause);
    }

    /** These options with a function that also runs for the record. */
    public AppendOptions withFunction(String function) {
        return new AppendOptions(durability, key, fence, function, cause);
    }

    /** These options with the id of the event that caused the record. */
    public AppendOptions withCause(String cause) {
        return new AppendOptions(durability, key, fence, function, cause);
    }

    boolean isKeyed() {
        return key != null;
    }

    String cause() {
        return cause;
    }

    void write(Map<String, Object> message) {
        if (durability != null) {
            message.put("durability", durability.wire());
        }
        if (function != null) {
            message.put("function", function);
        }
        if (key != null) {
            message.put("key", key);
        }
        if (fence != null) {
            message.put("fence", fence.message());
        }
    }
}
