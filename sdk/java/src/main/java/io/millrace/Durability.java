package io.millrace;

import java.util.Locale;

/** What an append waits for. */
public enum Durability {
    /** The record survives the death of every process. */
    MEMORY,
    /** The record survives a power failure. */
    DISK;

    String wire() {
        return name().toLowerCase(Locale.ROOT);
    }
}
