// The records of a log, as far as they are shown: a page is asked for when it comes into view.
import { type RecordDoc, Refused, ask, of } from "./api";
import { lengthOf } from "../records/decode";

export interface Row {
  seqno: number;
  id?: string;
  time?: string;
  cause?: string | null;
  /** The value, or the beginning of a long one. */
  data?: string;
  base64?: string;
  bytes: number;
  cut?: boolean;
  /** A repair removed it. */
  isVoid?: boolean;
}

const KEPT_CHARS = 64 * 1024;
const KEPT_ROWS = 4000;
const REQUESTS_MAX = 20;

const row = (record: RecordDoc): Row => {
  const long = (record.data ?? record.base64 ?? "").length > KEPT_CHARS;
  const { seqno, id, time, cause } = record;
  return {
    seqno,
    id,
    time,
    cause,
    bytes: lengthOf(record),
    cut: long,
    data: record.data?.slice(0, KEPT_CHARS),
    base64: record.base64?.slice(0, KEPT_CHARS),
  };
};

export class Rows {
  readonly rows = new Map<number, Row>();
  private asking: AbortController | undefined;
  private range = "";

  constructor(
    private readonly namespace: string,
    private readonly log: string,
    private readonly changed: (error?: Refused) => void,
  ) {}

  /** Asks for what is missing between two numbers. */
  want(from: number, to: number): void {
    while (from <= to && this.rows.has(from)) from += 1;
    while (to >= from && this.rows.has(to)) to -= 1;
    const range = `${from}-${to}`;
    if (from > to || range === this.range) return;
    this.asking?.abort();
    this.asking = new AbortController();
    this.range = range;
    void this.read(from, to, this.asking.signal);
  }

  private async read(from: number, to: number, signal: AbortSignal): Promise<void> {
    try {
      let at = from;
      for (let requests = 0; at <= to && requests < REQUESTS_MAX; requests += 1) {
        const answer = await ask<{ records: RecordDoc[]; next: number }>(
          of(this.namespace, `logs/${encodeURIComponent(this.log)}/records`, { from: at, count: to - at + 1 }),
          { signal },
        );
        const last = answer.records.length ? answer.next - 1 : to;
        for (const record of answer.records) this.put(row(record));
        // Numbers are dense: what is missing between others was removed by a repair.
        for (let seqno = at; seqno <= Math.min(last, to); seqno += 1) {
          if (!this.rows.has(seqno)) this.rows.set(seqno, { seqno, bytes: 0, isVoid: true });
        }
        at = last + 1;
        this.changed();
      }
    } catch (error) {
      if (signal.aborted) return;
      this.range = "";
      this.changed(error instanceof Refused ? error : new Refused("", String(error)));
      return;
    }
    this.range = "";
  }

  put(row: Row): void {
    if (this.rows.size >= KEPT_ROWS) for (const old of [...this.rows.keys()].slice(0, KEPT_ROWS / 4)) this.rows.delete(old);
    this.rows.set(row.seqno, row);
  }

  take(record: RecordDoc): void {
    this.put(row(record));
  }

  close(): void {
    this.asking?.abort();
  }
}
