package io.millrace;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * An error of Millrace. {@link #code()} is a stable code such as "MR2105", and {@link #detail()} describes this case. {@link #reason()}
 * describes the general cause of the code, and {@link #remedy()} what to do.
 */
public final class MillraceException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final String CATALOGUE = "errors.tsv";

    /** What kind of error a code is. */
    public enum Kind {
        /** A name, value or definition is not valid. */
        INVALID,
        /** No such log, record, function, run or namespace exists. */
        NOT_FOUND,
        /** The record existed, and has left the log's history. */
        GONE,
        /** It already exists, or is in use. */
        CONFLICT,
        /** Too many requests are pending; {@link MillraceException#retryAfter()} is the time after which to try again. */
        BUSY,
        /** It did not happen within the time given. */
        TIMED_OUT,
        /** It is not permitted. */
        DENIED,
        /** The host cannot be reached, or the connection to it was lost. */
        UNAVAILABLE,
        /** A function's code cannot be used, or failed. */
        FUNCTION,
        /** The disk is full, or returned an error. */
        STORAGE,
        /** Stored bytes are damaged. */
        DAMAGED,
        /** A part that this program needs is not installed. */
        MISSING,
        /** A newer host sent a code that this client does not know. */
        UNKNOWN
    }

    private record Entry(Kind kind, String cause, String remedy) {}

    private static final Map<String, Entry> ENTRIES = read();

    private final String code;
    private final String detail;
    private final int retryAfterMs;

    /** An error with this code. */
    public MillraceException(String code, String detail) {
        this(code, detail, 0, null);
    }

    /** An error with this code and its cause. */
    public MillraceException(String code, String detail, Throwable cause) {
        this(code, detail, 0, cause);
    }

    /** An error with this code; if {@code retryAfterMs} is not 0, the request may succeed after this time. */
    public MillraceException(String code, String detail, int retryAfterMs, Throwable cause) {
        super(code + ": " + detail, cause);
        this.code = code;
        this.detail = detail;
        this.retryAfterMs = retryAfterMs;
    }

    private static Map<String, Entry> read() {
        Map<String, Entry> entries = new HashMap<>();
        try (InputStream stream = MillraceException.class.getResourceAsStream(CATALOGUE);
                BufferedReader lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split("\t", -1);
                entries.put(parts[0], new Entry(Kind.valueOf(parts[1]), parts[2], parts[3]));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return entries;
    }

    /** The code, such as "MR2105". */
    public String code() {
        return code;
    }

    /** The description of this case. */
    public String detail() {
        return detail;
    }

    /** The kind of error that the code is. */
    public Kind kind() {
        Entry entry = ENTRIES.get(code);
        return entry == null ? Kind.UNKNOWN : entry.kind;
    }

    /** Why errors with this code arise. */
    public String reason() {
        Entry entry = ENTRIES.get(code);
        return entry == null ? "" : entry.cause;
    }

    /** What to do about an error with this code. */
    public String remedy() {
        Entry entry = ENTRIES.get(code);
        return entry == null ? "" : entry.remedy;
    }

    /** When a repeated request may succeed; empty if waiting alone does not help. */
    public Optional<Duration> retryAfter() {
        return retryAfterMs == 0 ? Optional.empty() : Optional.of(Duration.ofMillis(retryAfterMs));
    }

    /** Whether this error has the code. */
    public boolean is(String other) {
        return code.equals(other);
    }

    @Override
    public String toString() {
        String remedy = remedy();
        return remedy.isEmpty() ? getMessage() : getMessage() + "\n  " + remedy;
    }
}
