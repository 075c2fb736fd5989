package io.millrace;

import io.millrace.internal.EventId;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * A record of a log.
 *
 * @param log the log
 * @param seqno its number in the log
 * @param id the event's id
 * @param cause the id of the event that caused it; null for none
 * @param data its bytes
 */
public record LogRecord(String log, long seqno, String id, String cause, byte[] data) {
    static LogRecord of(String log, Map<String, Object> record) {
        String cause = EventId.text((byte[]) record.get("cause"));
        long seqno = ((Number) record.get("seqno")).longValue();
        return new LogRecord(log, seqno, EventId.text((byte[]) record.get("id")), cause, (byte[]) record.get("data"));
    }

    /** The bytes of the record as UTF-8 text. */
    public String text() {
        return new String(data, StandardCharsets.UTF_8);
    }
}
