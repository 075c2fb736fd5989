package io.millrace;

/**
 * Where a record was appended.
 *
 * @param log the log
 * @param seqno its number in the log
 * @param id the event's id
 */
public record Receipt(String log, long seqno, String id) {}
