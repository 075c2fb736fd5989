package io.millrace.executor;

import io.millrace.MillraceException;
import io.millrace.internal.Client;
import io.millrace.internal.Json;
import io.millrace.internal.Messages;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * Labels of hosts: those that tasks need, or those that a host has.
 *
 * @param values the value of each key
 */
record Labels(SortedMap<String, String> values) {
    static final Labels NONE = new Labels(new TreeMap<>());

    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}");
    private static final String NOT_IN_CLUSTER = "MR7209";
    private static final String WRONG = "MR7130";
    /** For how long a host that has just started may not know yet that it is one of the cluster's. */
    private static final long STARTS_S = 5;
    private static final long PAUSE_MS = 50;

    /** These labels and others, which are written {@code KEY=VALUE}. */
    Labels and(String... others) {
        SortedMap<String, String> all = new TreeMap<>(values);
        for (String other : others) {
            int at = other.indexOf('=');
            String key = at < 0 ? "" : other.substring(0, at);
            String value = other.substring(at + 1);
            if (!NAME.matcher(key).matches() || !NAME.matcher(value).matches()) {
                throw new MillraceException(WRONG, "the label '" + other + "': it is KEY=VALUE, such as 'gpu=a100'");
            }
            String first = all.putIfAbsent(key, value);
            if (first != null && !first.equals(value)) {
                throw new MillraceException(WRONG, "a host has one label '" + key + "': it is '" + first + "' or '" + value + "'");
            }
        }
        return new Labels(all);
    }

    /** The labels that a host was started with. */
    static Labels of(Client client) {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(STARTS_S);
        while (true) {
            List<?> hosts;
            try {
                hosts = (List<?>) Json.object(client.insist(Messages.SHOW, Map.of("path", "cluster"), null, 0).text("json")).get("hosts");
            } catch (MillraceException error) {
                if (error.is(NOT_IN_CLUSTER)) {
                    return NONE;
                }
                throw error;
            }
            for (Object host : hosts) {
                Map<?, ?> shown = (Map<?, ?>) host;
                if (Boolean.TRUE.equals(shown.get("here"))) {
                    SortedMap<String, String> found = new TreeMap<>();
                    if (shown.get("labels") instanceof Map<?, ?> labels) {
                        labels.forEach((key, value) -> found.put((String) key, (String) value));
                    }
                    return new Labels(found);
                }
            }
            if (System.nanoTime() - until > 0) {
                return NONE;
            }
            Client.pause(PAUSE_MS);
        }
    }

    boolean isEmpty() {
        return values.isEmpty();
    }

    /** Whether a host with the other labels has all of these; those are null if they are not known. */
    boolean areAmong(Labels others) {
        return isEmpty() || others != null && others.values.entrySet().containsAll(values.entrySet());
    }

    /** The error that no host has all of these. By host, its labels; null if they are not known. */
    MillraceException missing(Map<String, Labels> hosts) {
        String seen = hosts.entrySet().stream().map(host -> host.getKey() + ": " + (host.getValue() == null ? "not reached" : host.getValue()))
                .collect(Collectors.joining("; "));
        return new MillraceException("MR7126", this + "; " + seen);
    }

    /** As on the command line. */
    @Override
    public String toString() {
        return isEmpty() ? "no labels"
                : values.entrySet().stream().map(label -> label.getKey() + "=" + label.getValue()).collect(Collectors.joining(", "));
    }
}
