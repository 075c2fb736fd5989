package io.millrace.space;

import io.millrace.MillraceException;
import io.millrace.internal.MessagePack;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The token of a lock, as an append or a call carries it: one with a lower token than an earlier one under the same name is refused (MR7127).
 *
 * @param name usually the key of the lock
 * @param token the token that acquiring it returned
 */
public record Fence(String name, long token) implements Serializable {
    private static final int NAME_BYTES_MAX = 255;

    /** Refuses a fence that no host accepts. */
    public Fence {
        int bytes = name.getBytes(StandardCharsets.UTF_8).length;
        if (bytes == 0 || bytes > NAME_BYTES_MAX || token < 1) {
            throw new MillraceException("MR7128", "the fence '" + name + "' with token " + token);
        }
    }

    /** The fence in a message. */
    public Map<String, Object> message() {
        return Map.of("name", name, "token", MessagePack.unsigned(token));
    }
}
