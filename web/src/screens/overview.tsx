// Is it alive, is it behind, what is the last value: one screen, also for a phone.
import { useEffect, useState } from "preact/hooks";
import { type Fn, type Log, type RecordDoc, type Status, type Why, ask, beginning, of } from "../host/api";
import { decode, fields } from "../records/decode";
import { count, duration, grouped, number, size } from "../format";
import { useAsk, useNow } from "../hooks";
import { type Live, useChanges, useLive } from "../host/live";
import { Card, Cmd, Empty, Failure, Head, Icon, Loaded, Prose, Spark, Time } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";

/** How many logs have their last values shown, and how many logs are looked at for that. */
const VALUES = 9;
const LOOKED_AT = 300;
const POINTS = 60;

const BAD = new Set([
  "no_host",
  "host_failed",
  "refusing",
  "disk_low",
  "definition_damaged",
  "bound_log_missing",
  "stopped",
  "uncounted",
  "dead",
  "outbox_dead",
  "amendments_dead",
  "busy",
]);
const CALM = new Set([
  "idle",
  "running",
  "pending",
  "starting",
  "queued",
  "done",
  "cancelled",
  "link_idle",
  "never_bound",
  "nothing_bound",
]);
export type Tone = "bad" | "warn" | "calm";
export const toneOf = (reason: Why["reasons"][number]): Tone => {
  if (reason.reason === "dead_letters") return reason.waiting ? "bad" : "calm";
  if (BAD.has(reason.reason)) return "bad";
  return CALM.has(reason.reason) ? "calm" : "warn";
};

export const Reasons = ({ namespace, of: reasons, plain }: { namespace: string; of: Why["reasons"]; plain?: boolean }) => (
  <ul class="reasons">
    {reasons.map((reason, at) => (
      <li key={at} class={toneOf(reason)}>
        <Icon name={toneOf(reason) === "calm" ? "done" : "failures"} size={16} />
        <span>
          <Prose>{reason.text}</Prose>
          {reason.function && !plain && (
            <>
              {" "}
              <a
                href={href(
                  namespace,
                  reason.reason === "dead_letters" ? "failures" : "functions",
                  reason.reason === "dead_letters" ? "" : reason.function,
                  reason.reason === "dead_letters" ? { function: reason.function } : {},
                )}
              >
                {reason.reason === "dead_letters" ? "Failures" : "Function"}
              </a>
            </>
          )}
          {reason.repair !== undefined && <a href={href(namespace, "repairs", String(reason.repair))}> The repair</a>}
        </span>
      </li>
    ))}
  </ul>
);

export default function Overview({ namespace }: ScreenProps) {
  const now = useNow();
  const live: Live = useLive(namespace, {}, { changed: (names) => changed(names) });
  const status = useAsk<Status>(of(namespace, "status"), live.on ? 5000 : 2000);
  const why = useAsk<Why>(of(namespace, "why"), live.on ? 15_000 : 3000);
  const told = useAsk<{ functions: Fn[] }>(of(namespace, "functions"), live.on ? 0 : 3000);
  const listed = useAsk<{ logs: Log[]; next: string | null }>(
    of(namespace, "logs", { newest: "true", limit: LOOKED_AT }),
    live.on ? 0 : 2000,
  );
  const functions = { ...told, data: told.data && { functions: told.data.functions.map((it) => counted(it, live)) } };
  const logs = { ...listed, data: listed.data && { ...listed.data, logs: listed.data.logs.map((it) => grown(it, live)) } };
  const runsChanged = useChanges(why.again, 2000);
  const setChanged = useChanges(() => (told.again(), listed.again()), 2000);
  const changed = (names: string[]) => {
    if (names.includes("runs")) runsChanged(names);
    if (names.includes("logs") || names.includes("functions")) setChanged(names);
  };
  const sum = (part: (it: Fn) => number) => functions.data?.functions.reduce((total, it) => total + part(it), 0);
  const problems = why.data?.reasons.filter((reason) => toneOf(reason) !== "calm") ?? [];
  const rest = why.data?.reasons.filter((reason) => toneOf(reason) === "calm") ?? [];
  const isWell = status.data?.healthy && !status.data.blocked && problems.length === 0;
  const latest = live.on ? [...live.logs.values()] : logs.data?.logs;
  const records = useRate(latest?.reduce((total, log) => total + log.latest, 0));
  if (status.error?.status === 404) return <Failure of={status.error} />;
  return (
    <>
      <Head title="Overview" cmd="millrace why">
        {status.data && !status.error && (
          <span class={`pill ${status.data.healthy && !status.data.blocked ? (isWell ? "good" : "warn") : "bad"}`}>
            {isWell ? "All is well" : problems.length ? count(problems.length, "problem") : "Checking"}
          </span>
        )}
      </Head>
      {status.error && <Failure of={status.error} />}
      {status.data?.failure && <Failure of={{ code: "", detail: status.data.failure }} />}
      {status.data?.blocked && <Failure of={{ code: "", detail: status.data.blocked }} />}
      <div class="tiles">
        <Tile name="Records a second" value={records === undefined ? "–" : number(records)} />
        <Tile name="Pending runs" value={sum((it) => it.pending)} link={href(namespace, "runs", "", { state: "pending" })} />
        <Tile
          name="Dead letters"
          value={sum((it) => Math.max(0, it.dead_kept - it.dead_retried))}
          tone={sum((it) => Math.max(0, it.dead_kept - it.dead_retried)) ? "bad" : undefined}
          link={href(namespace, "failures")}
        />
        <Tile
          name="Journal"
          value={status.data ? size(status.data.tail - status.data.first) : undefined}
          note={
            status.data && status.data.durability === "disk" && status.data.tail - status.data.durable > 1 << 20
              ? `${size(status.data.tail - status.data.durable)} not on disk yet`
              : status.data && `durability ${status.data.durability}`
          }
        />
        <Tile
          name="Host"
          value={status.data ? duration(status.data.uptime_ms) : undefined}
          note={
            status.data?.host
              ? `pid ${status.data.host.pid}, sandbox ${status.data.host.sandbox?.level ?? "unknown"}`
              : status.data
                ? "runs no functions"
                : undefined
          }
        />
      </div>
      {problems.length > 0 && (
        <Card title="Problems" class="problems">
          <Reasons namespace={namespace} of={problems} />
        </Card>
      )}
      {why.error && !why.data && <Failure of={why.error} />}
      <Card title="Last values" more={<a href={href(namespace, "logs")}>All logs</a>}>
        <Loaded answer={logs}>{({ logs }) => <Values namespace={namespace} logs={logs} now={now} />}</Loaded>
      </Card>
      <div class="columns">
        <Card title="Functions" more={<a href={href(namespace, "functions")}>All functions</a>}>
          <Loaded answer={functions}>
            {({ functions }) =>
              functions.length === 0 ? (
                <Empty title="No function is deployed">
                  <Cmd>millrace up</Cmd>
                </Empty>
              ) : (
                <ul class="lines">
                  {functions.slice(0, 8).map((it) => (
                    <li key={it.name}>
                      <a href={href(namespace, "functions", it.name)}>{it.name}</a>
                      <span class="muted">{it.on?.join(", ")}</span>
                      <span class="right">
                        {it.pending > 0 && <span class="warn">{grouped(it.pending)} pending </span>}
                        {it.dead > 0 && <span class="bad">{grouped(it.dead)} failed </span>}
                        <span class="muted">{grouped(it.done)} runs</span>
                      </span>
                    </li>
                  ))}
                </ul>
              )
            }
          </Loaded>
        </Card>
        <Card title="Activity">
          <Loaded answer={why}>
            {() => (rest.length ? <Reasons namespace={namespace} of={rest.slice(0, 12)} /> : <p class="muted">Nothing waits.</p>)}
          </Loaded>
        </Card>
      </div>
    </>
  );
}

/** A log with what was told of it since. */
export function grown(log: Log, live: Live): Log {
  const told = live.on ? live.logs.get(log.name) : undefined;
  if (!told || told.latest <= log.latest) return log;
  const records = Math.min(log.history ?? Infinity, log.records + told.latest - log.latest);
  return { ...log, records, latest: told.latest, earliest: told.latest - records + 1, last_append: told.at || log.last_append };
}

/** A function with what was told of it since. */
export function counted(fn: Fn, live: Live): Fn {
  const told = live.on ? live.functions.get(fn.name) : undefined;
  if (!told) return fn;
  const [done, pending, dead] = told;
  return { ...fn, done, pending, dead: Math.max(fn.dead, dead), dead_kept: dead + fn.dead_retried };
}

const Tile = ({
  name,
  value,
  note,
  link,
  tone,
}: {
  name: string;
  value: string | number | undefined;
  note?: string;
  link?: string;
  tone?: string;
}) => {
  const inner = (
    <>
      <span class="tile-name">{name}</span>
      <strong class={tone}>{value === undefined ? "–" : typeof value === "number" ? grouped(value) : value}</strong>
      {note && <span class="muted">{note}</span>}
    </>
  );
  return link ? (
    <a class="tile" href={link}>
      {inner}
    </a>
  ) : (
    <div class="tile">{inner}</div>
  );
};

/** How fast a counter grows. */
export function useRate(counter: number | undefined): number | undefined {
  const [state, set] = useState<{ at: number; counter: number; rate?: number }>();
  useEffect(() => {
    if (counter === undefined) return;
    const at = performance.now();
    set((before) => {
      if (!before) return { at, counter };
      const seconds = (at - before.at) / 1000;
      // The mean of some seconds, so that it does not flicker.
      const rate = Math.max(0, counter - before.counter) / seconds;
      return seconds < 4 ? { ...before, rate } : { at, counter, rate };
    });
  }, [counter]);
  return state?.rate === undefined ? undefined : Number(state.rate.toFixed(1));
}

interface Series {
  latest: number;
  records: RecordDoc[];
}

function Values({ namespace, logs, now }: { namespace: string; logs: Log[]; now: number }) {
  const shown = logs
    .filter((log) => log.records > 0 && !log.name.startsWith("_") && !log.name.startsWith("dead/"))
    .sort((a, b) => (b.last_append ?? "").localeCompare(a.last_append ?? ""))
    .slice(0, VALUES)
    .sort((a, b) => a.name.localeCompare(b.name));
  const [series, set] = useState<Record<string, Series>>({});
  const stale = shown.filter((log) => series[log.name]?.latest !== log.latest);
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      for (const log of stale) {
        try {
          const first = Math.max(log.earliest, log.latest - POINTS + 1, 1);
          // What is there is not asked for again.
          const known = (series[log.name]?.records ?? []).filter((record) => record.seqno >= first);
          const from = Math.max(first, (known.at(-1)?.seqno ?? 0) + 1);
          let { records } = await ask<{ records: RecordDoc[] }>(
            of(namespace, `logs/${encodeURIComponent(log.name)}/records`, { from, count: log.latest - from + 1 }),
            { signal: stop.signal },
          );
          // An answer ends before a record that does not fit into it: of that, the beginning is enough.
          if (records.at(-1)?.seqno !== log.latest)
            records = [
              await beginning(of(namespace, `logs/${encodeURIComponent(log.name)}/records/${log.latest}`), log.latest, stop.signal),
            ];
          // Another log of the same name begins anew.
          records = [...(log.latest > (series[log.name]?.latest ?? 0) ? known : []), ...records];
          set((all) => ({ ...all, [log.name]: { latest: log.latest, records } }));
        } catch {
          if (stop.signal.aborted) return;
          set((all) => ({ ...all, [log.name]: { latest: log.latest, records: [] } }));
        }
      }
    })();
    return () => stop.abort();
  }, [stale.map((log) => `${log.name}@${log.latest}`).join()]);
  if (shown.length === 0) {
    return (
      <Empty title="No log has a record yet">
        <Cmd>millrace log append LOG VALUE</Cmd>
      </Empty>
    );
  }
  return (
    <ul class="values">
      {shown.map((log) => {
        const records = series[log.name]?.records ?? [];
        const last = records.at(-1);
        const decoded = last && decode(last, "auto");
        const read = records.map((record) => fields(decode(record, "auto").value));
        const pointsOf = (pointer: string) => read.flatMap((record) => record.get(pointer) ?? []);
        const found = decoded ? [...fields(decoded.value)] : [];
        // A field that only grows is a number of something; another one says more.
        const [pointer, value] = found.find(([pointer]) => !grows(pointsOf(pointer))) ?? found[0] ?? [];
        const points = pointer === undefined ? [] : pointsOf(pointer);
        return (
          <li key={log.name}>
            <a href={href(namespace, "logs", log.name)}>
              <span class="value-name">
                <span class="mono">{log.name}</span>
                <Time of={log.last_append} now={now} />
              </span>
              {value !== undefined && pointer !== undefined ? (
                <span class="value-line">
                  <strong>{number(value)}</strong>
                  {pointer && <span class="muted">{pointer.slice(1)}</span>}
                </span>
              ) : (
                <span class="value-text mono">{decoded?.line ?? "…"}</span>
              )}
              {points.length > 2 && <Spark of={points} />}
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** Whether each value is larger than the one before. */
const grows = (points: number[]): boolean => points.length > 2 && points.every((point, at) => at === 0 || point > points[at - 1]);
