// The plot of a log: a field, or how many records there were, over any part of its time. The host sums up, however many records there are.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Log, type Rate, type RecordDoc, type Series, type TimeField, enc, of } from "../../host/api";
import { type Decoder, decode, fields, observed } from "../../records/decode";
import { count, duration, grouped, micros } from "../../format";
import { useAsk } from "../../hooks";
import { Card, Failure } from "../../parts";
import type { Point } from "../../drawing/plot";
import { setQuery } from "../../router";

/** How many records are plotted around those that are shown. */
const NEAR = 500;
/** What is plotted in place of a field: how many records there were. */
export const COUNTS = "#";
const SPANS: [string, string, number][] = [
  ["1h", "Hour", 3600],
  ["1d", "Day", 86_400],
  ["7d", "Week", 7 * 86_400],
  ["all", "All", 0],
];

interface PlottedProps {
  namespace: string;
  log: Log;
  latest: number;
  how: Decoder;
  /** A JSON pointer, or [`COUNTS`]. */
  field: string;
  /** The newest record that is shown beside the plot. */
  end: number;
  /** When the shown records were appended, in seconds; if the log says when they were observed and a field is plotted: when they were observed. */
  mark: [number, number] | undefined;
  query: URLSearchParams;
}

/** What the host can decode: the others are plotted from the records themselves. */
const isForHost = (how: Decoder): boolean => how === "auto" || how === "json" || how === "text";

export function Plotted(props: PlottedProps) {
  const { log, latest, how, field, query, mark } = props;
  const near = field !== COUNTS && (query.get("span") === "near" || !isForHost(how));
  const [Plot, setPlot] = useState<typeof import("../../drawing/plot").Plot>();
  useEffect(() => void import("../../drawing/plot").then((it) => setPlot(() => it.Plot)), []);
  const around = useNear({ ...props, on: near });
  const whole = useWhole({ ...props, on: !near });
  const { points, span, note, error, isAsked } = near ? around : whole;
  const zoomed = query.get("from") !== null || query.get("until") !== null;
  const chosen = zoomed ? "" : near ? "near" : (query.get("span") ?? "all");
  const label = field === COUNTS ? "records" : field.slice(1) || "value";
  const zoom = (from: number, until: number) => {
    const text = (at: number) => new Date(at * 1000).toISOString();
    // Less than a millisecond cannot be named.
    if (until - from > 0.001) setQuery({ from: text(from), until: text(until), span: undefined });
  };
  return (
    <Card
      title={label}
      more={
        <span class="spans" role="group" aria-label="Shown time">
          {zoomed && (
            <button type="button" aria-pressed class="chip" onClick={() => setQuery({ from: undefined, until: undefined })}>
              Part ×
            </button>
          )}
          {SPANS.map(([id, name]) => (
            <button
              key={id}
              type="button"
              class="chip"
              disabled={!isForHost(how) && field !== COUNTS}
              aria-pressed={chosen === id}
              onClick={() => setQuery({ span: id === "all" ? undefined : id, from: undefined, until: undefined })}
            >
              {name}
            </button>
          ))}
          {field !== COUNTS && (
            <button
              type="button"
              class="chip"
              aria-pressed={chosen === "near"}
              onClick={() => setQuery({ span: "near", from: undefined, until: undefined })}
            >
              Near
            </button>
          )}
        </span>
      }
    >
      {error && <Failure of={error} />}
      {Plot && points.length > 0 ? (
        <Plot
          points={points}
          label={label}
          bars={field === COUNTS}
          span={span}
          mark={near || latest - log.earliest < 40 ? undefined : mark}
          onChoose={(seqno) => setQuery({ at: seqno })}
          onRange={near ? undefined : zoom}
        />
      ) : (
        !error && <p class="muted plot-none">{isAsked ? "There is no number here." : "…"}</p>
      )}
      <p class="muted plot-note">
        {note}
        {note && ". "}
        <span class="wide-only">Drag to look closer, click to go there, t shows a table.</span>
      </p>
    </Card>
  );
}

interface Shown {
  points: Point[];
  span: [number, number] | undefined;
  note: string;
  error: ReturnType<typeof useAsk>["error"];
  isAsked: boolean;
}

/** Which time a plot has, and how many records lack it. */
const timing = (time: TimeField | undefined, untimed: number): string =>
  (time ? `; by the time in the field ${time.field.slice(1)}` : "") + (untimed ? ` (${grouped(untimed)} without it, by their append)` : "");

/** The records around those that are shown, decoded here. */
function useNear({ namespace, log, latest, how, field, end, on }: PlottedProps & { on: boolean }): Shown {
  const from = Math.max(1, log.earliest, Math.min(end, latest) - NEAR + 1);
  // Rounded, so that scrolling by a row does not ask again.
  const start = latest - from < NEAR ? from : Math.max(1, log.earliest, Math.floor(from / 100) * 100);
  const answer = useAsk<{ records: RecordDoc[] }>(
    on ? of(namespace, `logs/${enc(log.name)}/records`, { from: start, count: NEAR }) : null,
  );
  const { points, untimed } = useMemo(() => {
    let untimed = 0;
    const points = (answer.data?.records ?? []).flatMap((record) => {
      const decoded = decode(record, how).value;
      const value = fields(decoded).get(field);
      if (value === undefined) return [];
      const seen = log.time && observed(decoded, log.time);
      if (log.time && seen === undefined) untimed += 1;
      const time = seen === undefined ? record.time : new Date(seen * 1000).toISOString();
      return [{ seqno: record.seqno, at: seen ?? micros(record.time) / 1e6, value, time }];
    });
    if (log.time) points.sort((one, other) => one.at - other.at);
    return { points, untimed };
  }, [answer.data, how, field, log.time?.field, log.time?.unit]);
  const note = `${count(points.length, "record")}${timing(log.time, untimed)}`;
  return { points, span: undefined, note, error: answer.error, isAsked: answer.data !== undefined };
}

/** What the host summed up. It is asked again while the log grows, but not for each record. */
function useWhole({ namespace, log, latest, field, query, on }: PlottedProps & { on: boolean }): Shown {
  const [from, until] = [query.get("from") ?? undefined, query.get("until") ?? undefined];
  const seconds = SPANS.find(([id]) => id === query.get("span"))?.[2] ?? 0;
  // A part of the past does not change.
  const [seen, setSeen] = useState({ latest, at: Date.now() });
  useEffect(() => {
    if (!on || until || seen.latest === latest) return;
    const timer = setTimeout(() => setSeen({ latest, at: Date.now() }), Math.max(0, seen.at + 4000 - Date.now()));
    return () => clearTimeout(timer);
  }, [latest, seen, on, until]);
  const begin = from ?? (seconds && !until ? new Date(Math.floor(seen.at / 1000 - seconds) * 1000).toISOString() : undefined);
  const isCounts = field === COUNTS;
  const path = isCounts
    ? of(namespace, `logs/${enc(log.name)}/rate`, { from: begin, until, buckets: 200 })
    : of(namespace, `logs/${enc(log.name)}/series`, { field, from: begin, until, points: 400 });
  const [last, setLast] = useState<{ field: string; data: Rate | Series }>();
  const answer = useAsk<Rate | Series>(on ? path : null, 0);
  const { again } = answer;
  useEffect(() => {
    if (seen.latest !== log.latest) again();
  }, [seen]);
  useEffect(() => {
    if (answer.data) setLast({ field, data: answer.data });
  }, [answer.data]);
  // What was shown stays until the next is there.
  const data = answer.data ?? (last?.field === field ? last.data : undefined);
  return useMemo(() => {
    const none: Shown = { points: [], span: undefined, note: "", error: answer.error, isAsked: data !== undefined };
    if (!data) return none;
    const span: [number, number] = [micros(data.from) / 1e6, micros(data.until) / 1e6];
    if ("counts" in data) {
      const width = (span[1] - span[0]) / data.counts.length;
      const at = (bucket: number) => span[0] + width * bucket;
      const points = data.counts.map((value, bucket) => ({
        seqno: data.first[bucket],
        at: at(bucket),
        value,
        time: new Date(at(bucket) * 1000).toISOString(),
      }));
      const note = `${count(data.records, "record")} in ${duration((span[1] - span[0]) * 1000)}, a bar for ${duration(width * 1000)}`;
      return { ...none, points, span, note };
    }
    const isSummed = data.points.some((point) => point.count > 1);
    const points = data.points.map((point) => ({
      seqno: point.seqno,
      at: micros(point.time) / 1e6,
      value: point.count > 1 ? point.mean : point.last,
      time: point.time,
      ...(isSummed ? { low: point.min, high: point.max, count: point.count } : {}),
    }));
    const inside = points.length > 0 && !from && !seconds ? undefined : span;
    const sampled = data.sampled ? `, of which ${grouped(data.read)} were read` : "";
    const without = data.numbers < data.read ? `, ${grouped(data.numbers)} with a number` : "";
    const about = data.observed && data.sampled ? "about " : "";
    const summed = isSummed ? "; mean, least and greatest" : "";
    const note = `${about}${count(data.records, "record")}${sampled}${without}${summed}${timing(data.observed, data.untimed ?? 0)}`;
    return { ...none, points, span: inside, note };
  }, [data, answer.error, from, seconds]);
}
