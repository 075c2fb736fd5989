package io.millrace.internal;

import java.math.BigInteger;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The types of messages that a client sends and receives, and the keys that each has. */
public final class Messages {
    // The types: generated from spec/messages.toml.
    public static final int HELLO = 1;
    public static final int WELCOME = 2;
    public static final int FAILURE = 3;
    public static final int PING = 4;
    public static final int PONG = 5;
    public static final int CHALLENGE = 6;
    public static final int PRESENT = 7;
    public static final int APPEND = 16;
    public static final int APPENDED = 17;
    public static final int APPEND_MANY = 18;
    public static final int APPENDED_MANY = 19;
    public static final int GET = 20;
    public static final int RECORD = 21;
    public static final int RANGE = 22;
    public static final int RECORDS = 23;
    public static final int LATEST = 24;
    public static final int SEQNO = 25;
    public static final int TAIL = 26;
    public static final int CREDIT = 27;
    public static final int CANCEL = 28;
    public static final int ENDED = 29;
    public static final int CREATE_LOG = 30;
    public static final int DONE = 31;
    public static final int REMOVE_LOG = 32;
    public static final int SHOW = 34;
    public static final int DOCUMENT = 35;
    public static final int REDEEM = 44;
    public static final int REDEEMED = 45;
    public static final int TABLE = 56;
    public static final int OF_TABLE = 57;
    public static final int SESSION = 64;
    public static final int OPENED = 65;
    public static final int CALL = 66;
    public static final int RETURNED = 67;
    public static final int RAISED = 68;
    public static final int INVOKE = 70;
    public static final int INVOKED = 71;
    public static final int REVOKE = 72;
    public static final int REVOKED = 73;
    public static final int REPAIR = 84;
    public static final int MANAGE = 110;
    public static final int INVOKE_FUNCTION = 111;
    public static final int INVOKED_FUNCTION = 112;
    public static final int UPLOAD = 113;
    public static final int SET_LOG = 140;
    public static final int CANCEL_RUN = 141;
    // The types: end.

    /** The types of values: {@code N} numbers of 64 bits, {@code n} of 32, {@code t} text, {@code b} bytes, {@code i} an event id,
     * {@code d} a durability, {@code f} a boolean, {@code a} an array of bytes, <code>{TYPE</code> a map, {@code [TYPE}
     * an array of maps. */
    private static final Map<Integer, Map<String, String>> KEYS = new HashMap<>();
    private static final Map<String, Map<String, String>> NESTED = new HashMap<>();

    private static final int ID_BYTES = 16;
    private static final long INT_MAX = 0xffff_ffffL;

    static {
        // The keys: generated from spec/messages.toml.
        nested("offer", "capability:b proof?:b");
        nested("fence", "name:t token:N");
        nested("new_record", "log:t data:b");
        type(HELLO, "oldest:n newest:n namespace:t client:t capabilities?:[offer");
        type(WELCOME, "version:n host:t name:t namespace:N epoch:n frame_max_bytes:n record_max_bytes:n requests_max:n "
                + "durability:d");
        type(FAILURE, "code:t detail:t retry_after_ms?:n");
        type(PING, "");
        type(PONG, "");
        type(CHALLENGE, "challenge:b");
        type(PRESENT, "slot:n capability:b proof:b");
        type(APPEND, "log:t data:b durability?:d function?:t key?:t fence?:{fence");
        type(APPENDED, "seqno:N id:i");
        nested("appended", "seqno:N id:i");
        type(APPEND_MANY, "records:[new_record durability?:d key?:t fence?:{fence");
        type(APPENDED_MANY, "records:[appended");
        type(GET, "log:t seqno:N wait_ms?:n durability?:d");
        type(RECORD, "seqno:N id:i hlc:N cause?:i data:b headers?:b");
        nested("record", "seqno:N id:i hlc:N cause?:i data:b headers?:b");
        type(RANGE, "log:t from:N count:n durability?:d");
        type(RECORDS, "incarnation:n records:[record next:N");
        type(LATEST, "log:t above?:N wait_ms?:n durability?:d");
        type(SEQNO, "seqno:N");
        type(TAIL, "log:t from:N incarnation?:n credit:n durability?:d");
        type(CREDIT, "records:n");
        type(CANCEL, "");
        type(ENDED, "");
        type(CREATE_LOG, "log:t history:N");
        type(DONE, "");
        type(REMOVE_LOG, "log:t");
        type(SHOW, "path:t");
        type(DOCUMENT, "json:t");
        type(REDEEM, "");
        type(REDEEMED, "capability:b");
        type(TABLE, "table:t request:b durability?:d fence?:{fence after?:i");
        type(OF_TABLE, "answer:b token?:i");
        type(SESSION, "session:b application?:t lease_ms:n resume?:f");
        type(OPENED, "resumed:f lease_ms:n");
        type(CALL, "session:b call:N acked:N kind:t key:t method:t arguments:b new?:b incarnation?:N must_exist?:f "
                + "must_create?:f persistent?:f rf?:n give_up?:f wait_ms?:n fence?:{fence");
        type(RETURNED, "incarnation:N waiting?:f value:b");
        type(RAISED, "incarnation:N class:t text:t");
        type(INVOKE, "pool:t bodies?:f tasks:a key:t");
        type(INVOKED, "first:N");
        type(REVOKE, "pool:t task:N");
        type(REVOKED, "cancelled:f");
        type(REPAIR, "json:t");
        type(MANAGE, "json:t");
        type(INVOKE_FUNCTION, "function:t data:b log?:t durability?:d key?:t wait_ms?:n");
        type(INVOKED_FUNCTION, "log:t seqno:N id:i run?:i state?:t result?:b code?:t error?:t");
        type(UPLOAD, "sha256:b offset:N data:b");
        type(SET_LOG, "log:t history:N");
        type(CANCEL_RUN, "run:i");
        // The keys: end.
    }

    private Messages() {}

    private static void type(int type, String keys) {
        KEYS.put(type, parsed(keys));
    }

    private static void nested(String name, String keys) {
        NESTED.put(name, parsed(keys));
    }

    private static Map<String, String> parsed(String keys) {
        Map<String, String> found = new LinkedHashMap<>();
        for (String part : keys.isEmpty() ? new String[0] : keys.split(" ")) {
            String[] sides = part.split(":");
            found.put(sides[0], sides[1]);
        }
        return found;
    }

    /** Whether a client sends or receives messages of this type. */
    public static boolean knows(int type) {
        return KEYS.containsKey(type);
    }

    /** The value as a map with text keys. */
    static Map<String, Object> keyed(Object value) {
        if (!(value instanceof Map<?, ?> map)) {
            throw MessagePack.malformed("a message is a map");
        }
        Map<String, Object> found = new LinkedHashMap<>();
        map.forEach((key, element) -> {
            if (!(key instanceof String text)) {
                throw MessagePack.malformed("a key of a message is no text");
            }
            found.put(text, element);
        });
        return found;
    }

    /** Refuses a message that lacks a key of its type, or has a value of another type. */
    static void check(int type, Map<String, Object> message) {
        Map<String, String> keys = KEYS.get(type);
        if (keys == null) {
            throw new io.millrace.MillraceException("MR6004", "message type " + type);
        }
        check(keys, message);
    }

    private static void check(Map<String, String> keys, Map<String, Object> message) {
        keys.forEach((name, kind) -> {
            boolean optional = name.endsWith("?");
            String key = optional ? name.substring(0, name.length() - 1) : name;
            if (!message.containsKey(key)) {
                if (!optional) {
                    throw MessagePack.malformed("a message lacks '" + key + "'");
                }
            } else if (!fits(kind, message.get(key))) {
                throw MessagePack.malformed("'" + key + "' of a message has another type");
            }
        });
    }

    private static boolean fits(String kind, Object value) {
        return switch (kind.charAt(0)) {
            case 'N' -> value instanceof BigInteger || value instanceof Long number && number >= 0;
            case 'n' -> value instanceof Long number && number >= 0 && number <= INT_MAX;
            case 't' -> value instanceof String;
            case 'b' -> value instanceof byte[];
            case 'i' -> value instanceof byte[] id && id.length == ID_BYTES;
            case 'd' -> "disk".equals(value) || "memory".equals(value);
            case 'f' -> value instanceof Boolean;
            case 'a' -> value instanceof List<?> list && list.stream().allMatch(element -> element instanceof byte[]);
            case '{' -> {
                check(NESTED.get(kind.substring(1)), keyed(value));
                yield true;
            }
            default -> {
                if (!(value instanceof List<?> list)) {
                    yield false;
                }
                list.forEach(element -> check(NESTED.get(kind.substring(1)), keyed(element)));
                yield true;
            }
        };
    }
}
