// One log: a virtual table whose scroll bar is the sequence number, newest first; a plot of a field; one record; an append.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Log, type TableDoc, type RecordDoc, Refused, ask, enc, follow, of } from "../../host/api";
import { DECODERS, type Decoder, bytesOf, decode, fields, observed, pretty } from "../../records/decode";
import { count, grouped, micros, quoted, size } from "../../format";
import { useAsk, useKept } from "../../hooks";
import { useChanges, useLive } from "../../host/live";
import { Act, Card, Cmd, Empty, Facts, Failure, Field, Head, Loaded, Time, submit } from "../../parts";
import { go, href, setQuery } from "../../router";
import { type Row, Rows } from "../../host/rows";
import type { ScreenProps } from "../../shell";
import { COUNTS, Plotted } from "./plot";
import { grown } from "../overview";

/** The most that browsers can scroll through. */
const SCROLL_MAX = 6_000_000;
const VIEW_ROWS = 18;

export function LogScreen({ namespace, route, log: name }: ScreenProps & { log: string }) {
  const [following, setFollowing] = useState(false);
  const live = useLive(namespace, {}, { changed: (names) => names.includes("logs") && renewed(names) });
  const told = useAsk<Log>(of(namespace, `logs/${enc(name)}`), live.on ? 30_000 : following ? 0 : 3000);
  const renewed = useChanges(told.again, 2000);
  const answer = { ...told, data: told.data && grown(told.data, live) };
  const tables = useAsk<{ tables: TableDoc[] }>(of(namespace, "tables")).data?.tables ?? [];
  const isTable = tables.some((it) => it.table === name);
  return (
    <>
      <Head
        title={name}
        mono
        cmd={`millrace log tail ${quoted(name)}${answer.data ? ` --from ${Math.max(1, answer.data.earliest, answer.data.latest - 99)}` : ""} --no-follow`}
      >
        {isTable && (
          <a class="button" href={href(namespace, "tables", name)}>
            The table and its keys
          </a>
        )}
      </Head>
      <Loaded answer={answer}>
        {(log) =>
          log.records === 0 && !following ? (
            <Nothing namespace={namespace} log={log} isTable={isTable} />
          ) : (
            <Records
              key={log.incarnation}
              namespace={namespace}
              log={log}
              isTable={isTable}
              query={route.query}
              following={following}
              setFollowing={setFollowing}
            />
          )
        }
      </Loaded>
    </>
  );
}

const Nothing = ({ namespace, log, isTable }: { namespace: string; log: Log; isTable: boolean }) => (
  <>
    <Empty title={log.latest ? "All records have left the log's history" : "The log has no record yet"}>
      <Cmd>{isTable ? `millrace table put ${quoted(log.name)} KEY VALUE` : `millrace log append ${quoted(log.name)} VALUE`}</Cmd>
    </Empty>
    {!isTable && <Append namespace={namespace} log={log.name} />}
  </>
);

interface RecordsProps {
  namespace: string;
  log: Log;
  /** Whether its records are changes of keys, which are made and corrected as such. */
  isTable: boolean;
  query: URLSearchParams;
  following: boolean;
  setFollowing: (following: boolean) => void;
}

function Records({ namespace, log, isTable, query, following, setFollowing }: RecordsProps) {
  const [kept, keep] = useKept(`decoder.${namespace}.${log.name}`, "auto");
  const chosen = query.get("as") ?? kept;
  const how: Decoder = (DECODERS as readonly string[]).includes(chosen) ? (chosen as Decoder) : "auto";
  const [newest, setNewest] = useState(0);
  const latest = Math.max(log.latest, newest);
  const [, redraw] = useState(0);
  const [error, setError] = useState<Refused>();
  const rows = useMemo(() => new Rows(namespace, log.name, (error) => (setError(error), redraw((n) => n + 1))), [namespace, log.name]);
  useEffect(() => () => rows.close(), [rows]);
  const chosenAt = Number(query.get("at")) || undefined;
  const [seen, setSeen] = useState<[number, number]>([Math.max(log.earliest, latest - VIEW_ROWS), latest]);

  const taken = (record: RecordDoc) => {
    if (record.log && record.log !== log.name) return;
    rows.take(record);
    setNewest((before) => Math.max(before, record.seqno));
  };
  const live = useLive(namespace, following ? { records: [log.name] } : {}, { record: taken });
  // Without the connection for all, the log is followed by itself.
  const isAlone = following && !live.on;
  useEffect(() => {
    if (!isAlone) return;
    const stop = new AbortController();
    const event = (kind: string, data: string) => {
      if (kind === "failure") return setError(new Refused("", "The log can no longer be followed."));
      taken(JSON.parse(data) as RecordDoc);
    };
    follow(of(namespace, `logs/${enc(log.name)}/tail`, { from: latest + 1 }), stop.signal, event)
      .catch((error) => stop.signal.aborted || (setError(error), setFollowing(false)));
    return () => stop.abort();
  }, [isAlone]);

  const jump = async (text: string) => {
    setError(undefined);
    try {
      const at = await place(namespace, log, latest, text.trim(), rows);
      if (typeof at === "string") go(href(namespace, "trace", at));
      else setQuery({ at });
    } catch (refused) {
      setError(refused as Refused);
    }
  };
  const row = chosenAt ? rows.rows.get(chosenAt) : undefined;
  const found = new Map<string, number>();
  for (let seqno = seen[1]; seqno >= seen[0] && found.size < 20; seqno -= 1) {
    const shown = rows.rows.get(seqno);
    if (shown && !shown.isVoid) fields(decode(shown, how).value).forEach((value, path) => found.set(path, value));
  }
  const field = query.get("field") ?? undefined;
  const mark = marked(rows, seen, how, field === COUNTS ? undefined : log.time);
  return (
    <>
      <p class="muted">
          {count(latest && log.earliest ? latest - log.earliest + 1 : 0, "record")}, {grouped(log.earliest)} to {grouped(latest)}
          {log.history ? `, keeps ${grouped(log.history)}` : ""}
          {log.functions.length > 0 && (
            <>
              , runs{" "}
              {log.functions.map((it, at) => (
                <span key={it}>
                  {at > 0 && ", "}
                  <a href={href(namespace, "functions", it)}>{it}</a>
                </span>
              ))}
            </>
          )}
      </p>
      <div class="bar">
        <Jump onJump={jump} />
        <Field label="Shown as">
          <select value={how} onChange={(event) => (keep(event.currentTarget.value), setQuery({ as: event.currentTarget.value }))}>
            {DECODERS.map((it) => (
              <option key={it} value={it}>
                {it}
              </option>
            ))}
          </select>
        </Field>
        {latest > 0 && (
          <Field label="Plot">
            <select
              value={field ?? "-"}
              onChange={(event) => setQuery({ field: event.currentTarget.value === "-" ? undefined : event.currentTarget.value || "/" })}
            >
              <option value="-">nothing</option>
              <option value={COUNTS}>records over time</option>
              {[...new Set([...found.keys(), ...(field && field !== COUNTS ? [field === "/" ? "" : field] : [])])].map((path) => (
                <option key={path} value={path || "/"}>
                  {path.slice(1) || "the value"}
                </option>
              ))}
            </select>
          </Field>
        )}
        <button type="button" class={following ? "primary" : ""} aria-pressed={following} onClick={() => setFollowing(!following)}>
          {following ? "Following" : "Follow"}
        </button>
      </div>
      {error && <Failure of={error} />}
      {field !== undefined && (
        <Plotted
          namespace={namespace}
          log={log}
          latest={latest}
          how={how}
          field={field === "/" ? "" : field}
          end={following ? latest : seen[1]}
          mark={mark}
          query={query}
        />
      )}
      <div class={`log ${chosenAt ? "with-record" : ""}`}>
        <Scroller
          rows={rows}
          earliest={log.earliest}
          latest={latest}
          how={how}
          at={chosenAt}
          onSeen={setSeen}
          onChoose={(seqno) => setQuery({ at: seqno })}
        />
        {chosenAt && <One namespace={namespace} log={log.name} isTable={isTable} seqno={chosenAt} row={row} how={how} latest={latest} />}
      </div>
      {!isTable && <Append namespace={namespace} log={log.name} />}
    </>
  );
}

/** The part of the time of a plot in which the shown records are. */
function marked(rows: Rows, [first, last]: [number, number], how: Decoder, time: Log["time"]): [number, number] | undefined {
  const [begin, end] = [rows.rows.get(first)?.time, rows.rows.get(last)?.time];
  if (!begin || !end) return undefined;
  if (!time) return [micros(begin) / 1e6, micros(end) / 1e6];
  const times: number[] = [];
  for (let seqno = first; seqno <= last; seqno += 1) {
    const row = rows.rows.get(seqno);
    if (row?.time) times.push(observed(decode(row, how).value, time) ?? micros(row.time) / 1e6);
  }
  return [Math.min(...times), Math.max(...times)];
}

function Jump({ onJump }: { onJump: (text: string) => void }) {
  const [text, set] = useState("");
  return (
    <form onSubmit={submit(() => onJump(text))}>
      <Field label="Go to">
        <input
          class="jump"
          value={text}
          onInput={(event) => set(event.currentTarget.value)}
          placeholder="number, time, -1h"
          title="A sequence number, a time such as 2026-11-28 09:30, a time ago such as -1h, or the id of an event"
          autocomplete="off"
        />
      </Field>
    </form>
  );
}

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400 };

/** Where a text points to: a number, the first record at a time, or the id of an event. One request, however long the log is. */
async function place(namespace: string, log: Log, latest: number, text: string, rows: Rows): Promise<number | string> {
  if (/^\d+$/.test(text)) return Math.min(Math.max(Number(text), log.earliest), latest);
  if (/^[0-9a-f]{12}-[0-9a-f]+-[0-9a-f]+$/.test(text)) return text;
  const ago = /^-(\d+(?:\.\d+)?)\s*([smhd])$/.exec(text);
  const wanted = ago ? Date.now() - Number(ago[1]) * UNITS[ago[2]] * 1000 : Date.parse(text);
  if (Number.isNaN(wanted) || wanted < 0)
    throw new Refused("", `'${text}' is no sequence number, time or event`, "Write 1200, 2026-11-28 09:30, -1h, or the id of an event.");
  const at = new Date(wanted).toISOString();
  const { records, next } = await ask<{ records: RecordDoc[]; next: number }>(
    of(namespace, `logs/${enc(log.name)}/records`, { at, count: 40 }),
  );
  records.forEach((record) => rows.take(record));
  return Math.min(records[0]?.seqno ?? next - 1, latest);
}

interface ScrollerProps {
  rows: Rows;
  earliest: number;
  latest: number;
  how: Decoder;
  at: number | undefined;
  onSeen: (seen: [number, number]) => void;
  onChoose: (seqno: number) => void;
}

/** Row 0 is the newest record. Beyond what a browser can scroll through, the scroll bar is coarser, and wheel and keys still move by rows. */
function Scroller({ rows, earliest, latest, how, at, onSeen, onChoose }: ScrollerProps) {
  const box = useRef<HTMLDivElement>(null);
  const total = Math.max(0, latest - Math.max(1, earliest) + 1);
  const [first, setFirst] = useState(0);
  const [room, setRoom] = useState(VIEW_ROWS);
  // The height of a row: on a phone, the value has a line of its own.
  const [rowHeight, setRowHeight] = useState(32);
  const height = Math.min(total * rowHeight, SCROLL_MAX);
  const most = Math.max(0, total - room);
  const own = useRef(-1);
  // As far as the browser scrolls: the last row is at its end, also if a row is less than a pixel.
  const span = () => Math.max(0, (box.current?.scrollHeight ?? 0) - (box.current?.clientHeight ?? 0));
  const scrollFor = (row: number) => (most === 0 ? 0 : (row / most) * span());
  const move = (row: number) => {
    const next = Math.min(Math.max(0, row), most);
    setFirst(next);
    if (box.current) {
      own.current = Math.round(scrollFor(next));
      box.current.scrollTop = own.current;
    }
  };
  useLayoutEffect(() => {
    const sized = () => {
      if (!box.current) return;
      const height = parseFloat(getComputedStyle(box.current).getPropertyValue("--row"));
      setRowHeight(height);
      setRoom(Math.max(1, Math.floor((box.current.clientHeight - height) / height)));
    };
    sized();
    addEventListener("resize", sized);
    return () => removeEventListener("resize", sized);
  }, []);
  const last = useRef(latest);
  useEffect(() => {
    // What is looked at stays where it is while newer records come; at the top, they push it down.
    const grown = latest - last.current;
    last.current = latest;
    if (grown > 0 && first > 0) move(first + grown);
  }, [latest]);
  useEffect(() => {
    if (!at) return;
    const row = latest - at;
    if (row < first || row >= first + room) move(row - Math.floor(room / 3));
  }, [at]);
  const top = Math.floor(first);
  const newest = latest - top;
  const oldest = Math.max(Math.max(1, earliest), newest - room);
  useEffect(() => {
    if (total === 0) return;
    const timer = setTimeout(() => rows.want(Math.max(Math.max(1, earliest), oldest - room), Math.min(latest, newest + 5)), 30);
    onSeen([oldest, newest]);
    return () => clearTimeout(timer);
  }, [oldest, newest, rows, total === 0]);

  const scrolled = () => {
    const scroll = box.current?.scrollTop ?? 0;
    if (Math.abs(scroll - own.current) <= 1) return;
    own.current = -1;
    setFirst(span() <= 0 ? 0 : Math.round((scroll / span()) * most));
  };
  const wheel = (event: WheelEvent) => {
    if (total * rowHeight <= SCROLL_MAX || event.ctrlKey) return;
    event.preventDefault();
    move(first + Math.sign(event.deltaY) * Math.max(1, Math.round(Math.abs(event.deltaY) / rowHeight)));
  };
  const listener = useRef(wheel);
  listener.current = wheel;
  useEffect(() => {
    const heard = (event: WheelEvent) => listener.current(event);
    box.current?.addEventListener("wheel", heard, { passive: false });
    return () => box.current?.removeEventListener("wheel", heard);
  }, []);
  const key = (event: KeyboardEvent) => {
    const chosen = at ?? newest;
    const moves: Record<string, () => void> = {
      ArrowDown: () => onChoose(Math.max(Math.max(1, earliest), chosen - 1)),
      ArrowUp: () => onChoose(Math.min(latest, chosen + 1)),
      PageDown: () => move(first + room - 1),
      PageUp: () => move(first - room + 1),
      Home: () => move(0),
      End: () => move(most),
    };
    const act = moves[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const shown = Array.from({ length: Math.min(room + 1, newest - Math.max(1, earliest) + 1) }, (_, n) => newest - n);
  return (
    <div
      class="scroller"
      style={{ "--digits": `${Math.max(6, String(latest).length)}ch` }}
      ref={box}
      onScroll={scrolled}
      onKeyDown={key}
      tabIndex={0}
      role="grid"
      aria-label="Records, newest first"
      aria-rowcount={total}
    >
      <div class="scroll-space" style={{ height: `${height + rowHeight}px` }}>
        <div class="scroll-view">
          <div class="record-row head-row" role="row">
            <span role="columnheader">Number</span>
            <span role="columnheader">Time</span>
            <span role="columnheader">Value</span>
          </div>
          {shown.map((seqno) => {
            const row = rows.rows.get(seqno);
            const decoded = row && !row.isVoid ? decode(row, row.cut ? (how === "hex" ? "hex" : "text") : how) : undefined;
            return (
              <div
                key={seqno}
                role="row"
                aria-rowindex={latest - seqno + 1}
                aria-selected={seqno === at}
                class={`record-row ${seqno === at ? "chosen" : ""}`}
                onClick={() => onChoose(seqno)}
              >
                <span role="gridcell" class="num">
                  {seqno}
                </span>
                <span role="gridcell">{row?.time ? <Time of={row.time} /> : ""}</span>
                <span role="gridcell" class={`mono value ${row?.isVoid ? "muted" : ""}`}>
                  {decoded?.wrong && (
                    <span class="tag warn" title={decoded.wrong}>
                      not {how}
                    </span>
                  )}
                  {row?.cut && <span class="tag">{size(row.bytes)}</span>}
                  {row ? (
                    row.isVoid ? (
                      "removed by a repair"
                    ) : (
                      decoded?.line || <span class="muted">empty</span>
                    )
                  ) : (
                    <span class="muted">…</span>
                  )}
                </span>
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function One({
  namespace,
  log,
  isTable,
  seqno,
  row,
  how,
  latest,
}: {
  namespace: string;
  log: string;
  isTable: boolean;
  seqno: number;
  row: Row | undefined;
  how: Decoder;
  latest: number;
}) {
  const decoded = row && !row.isVoid ? decode(row, how) : undefined;
  const save = async () => {
    if (!row) return;
    const whole = row.cut
      ? await ask<RecordDoc>(of(namespace, `logs/${enc(log)}/records`, { from: seqno, count: 1 })).then(
          (it) => (it as unknown as { records: RecordDoc[] }).records[0],
        )
      : row;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytesOf(whole) as BlobPart]));
    link.download = `${log.replaceAll("/", "-")}-${seqno}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return (
    <section class="card one" aria-label={`Record ${seqno}`}>
      <div class="card-head">
        <h2 class="mono">
          {log}@{seqno}
        </h2>
        <button type="button" class="ghost" onClick={() => setQuery({ at: undefined })}>
          Close
        </button>
      </div>
      <Cmd>{`millrace log get ${quoted(log)} ${seqno}`}</Cmd>
      {row?.isVoid && <p class="muted">A repair removed this record.</p>}
      {!row && <p class="muted">…</p>}
      {row && !row.isVoid && (
        <>
          {decoded?.wrong && (
            <p class="warn">
              Not {how}: {decoded.wrong}.
            </p>
          )}
          <pre class="value-box" tabIndex={0}>
            {pretty(row, row.cut && how !== "hex" && row.data !== undefined ? "text" : how)}
          </pre>
          {row.cut && <p class="muted">The beginning of {size(row.bytes)}.</p>}
          <Facts
            of={[
              ["Time", <Time of={row.time} />],
              ["Size", size(row.bytes)],
              [
                "Event",
                <a class="mono" href={href(namespace, "trace", row.id)}>
                  {row.id}
                </a>,
              ],
              [
                "Caused by",
                row.cause ? (
                  <a class="mono" href={href(namespace, "trace", row.cause)}>
                    {row.cause}
                  </a>
                ) : (
                  "a client"
                ),
              ],
            ]}
          />
          <div class="acts">
            <a class="button" href={href(namespace, "trace", row.id)}>
              Causes and effects
            </a>
            {!isTable && (
              <a class="button" href={href(namespace, "repairs", "new", { log, seqno })}>
                Correct it
              </a>
            )}
            <button type="button" onClick={() => void save()}>
              Save
            </button>
          </div>
        </>
      )}
      <div class="acts">
        <button type="button" class="ghost" disabled={seqno >= latest} onClick={() => setQuery({ at: seqno + 1 })}>
          Newer
        </button>
        <button type="button" class="ghost" disabled={seqno <= 1} onClick={() => setQuery({ at: seqno - 1 })}>
          Older
        </button>
      </div>
    </section>
  );
}

function Append({ namespace, log }: { namespace: string; log: string }) {
  const [text, set] = useState("");
  const append = () => ask<{ seqno: number }>(of(namespace, `logs/${enc(log)}/records`), { method: "POST", body: text });
  return (
    <Card title="Append a record">
      <Field label="Value">
        <textarea rows={2} class="mono" value={text} onInput={(event) => set(event.currentTarget.value)} spellcheck={false} />
      </Field>
      <div class="acts">
        <Act label="Append" kind="primary" act={append} done="Appended" />
      </div>
      <Cmd>{`millrace log append ${quoted(log)} ${text.startsWith("-") ? "-- " : ""}${text ? quoted(text) : "VALUE"}`}</Cmd>
    </Card>
  );
}
