package io.millrace.table;

import io.millrace.Durability;
import io.millrace.space.Fence;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;

/**
 * The options of a change of a table. By default, it has no condition, a value lives as long as the table says, and the change waits for
 * the durability of the namespace.
 */
public final class ChangeOptions {
    /** The default options. */
    public static final ChangeOptions DEFAULT = new ChangeOptions(TableBytes.ALWAYS, 0, null, null, null);

    private final long condition;
    private final long ttlMs;
    private final Durability durability;
    private final Fence fence;
    private final String cause;

    private ChangeOptions(long condition, long ttlMs, Durability durability, Fence fence, String cause) {
        this.condition = condition;
        this.ttlMs = ttlMs;
        this.durability = durability;
        this.fence = fence;
        this.cause = cause;
    }

    /** A change that takes effect only if the value of the key has this version; otherwise it fails with MR7300. */
    public static ChangeOptions ifVersion(long version) {
        return DEFAULT.withVersion(version);
    }

    /** A change that takes effect only if the key has no value; otherwise it fails with MR7300. */
    public static ChangeOptions ifAbsent() {
        return DEFAULT.withAbsence();
    }

    /** A value that expires after this time, which is rounded up to milliseconds. */
    public static ChangeOptions ttl(Duration ttl) {
        return DEFAULT.withTtl(ttl);
    }

    /** These options with the condition that the value of the key has this version. */
    public ChangeOptions withVersion(long version) {
        if (version <= 0) {
            throw new IllegalArgumentException(version + " is not a version");
        }
        return new ChangeOptions(version, ttlMs, durability, fence, cause);
    }

    /** These options with the condition that the key has no value. */
    public ChangeOptions withAbsence() {
        return new ChangeOptions(TableBytes.ABSENT, ttlMs, durability, fence, cause);
    }

    /** These options with a time after which the value expires. */
    public ChangeOptions withTtl(Duration ttl) {
        return new ChangeOptions(condition, millis(ttl), durability, fence, cause);
    }

    /** These options with a durability that the change waits for. */
    public ChangeOptions withDurability(Durability durability) {
        return new ChangeOptions(condition, ttlMs, durability, fence, cause);
    }

    /**
     * These options with the token of a lock: if a higher token was already used with this name in the namespace, the change fails with
     * MR7127. The name is usually the key of the lock.
     */
    public ChangeOptions withFence(String name, long token) {
        return new ChangeOptions(condition, ttlMs, durability, new Fence(name, token), cause);
    }

    /** These options with the id of the event that caused the change. */
    public ChangeOptions withCause(String cause) {
        return new ChangeOptions(condition, ttlMs, durability, fence, cause);
    }

    /** A lifetime in milliseconds. One that is longer than their number can say is the longest. */
    static long millis(Duration ttl) {
        if (ttl.isNegative() || ttl.isZero()) {
            throw new IllegalArgumentException("a lifetime of " + ttl + "; it is above 0");
        }
        try {
            return ttl.plusNanos(999_999).toMillis();
        } catch (ArithmeticException error) {
            return Long.MAX_VALUE;
        }
    }

    long condition() {
        return condition;
    }

    long ttlMs() {
        return ttlMs;
    }

    String cause() {
        return cause;
    }

    void write(Map<String, Object> message) {
        if (durability != null) {
            message.put("durability", durability.name().toLowerCase(Locale.ROOT));
        }
        if (fence != null) {
            message.put("fence", fence.message());
        }
    }
}
