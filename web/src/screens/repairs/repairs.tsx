// Repairs: the list, a new one, and one from its run to its rollback. What past records should have been, and what follows from it.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type RecordDoc, Refused, type Repair, ask, enc, of } from "../../host/api";
import { type Bytes, decode, fields } from "../../records/decode";
import { count, grouped, quoted } from "../../format";
import { useAsk, useDoing, useNow } from "../../hooks";
import { Act, Card, Cmd, Empty, Facts, Failure, Field, Head, Loaded, Table, Time, submit } from "../../parts";
import { go, href } from "../../router";
import type { ScreenProps } from "../../shell";
import { valuesOf } from "../../records/values";
import { type Plan, Planned } from "./plan";

export default function Repairs(props: ScreenProps) {
  const { rest } = props.route;
  if (rest === "new") return <New {...props} />;
  return rest ? <One namespace={props.namespace} number={rest} /> : <List {...props} />;
}

const timeOf = (us: number): string => new Date(us / 1000).toISOString();
const TONES: Record<string, string> = {
  applied: "good",
  closed: "good",
  ready: "warn",
  running: "warn",
  applying: "warn",
  stopped: "bad",
  open: "warn",
};
const Phase = ({ of: phase }: { of: string }) => <span class={`state ${TONES[phase] ?? "calm"}`}>{phase}</span>;
const subject = (repair: Repair): string =>
  repair.log ?? (repair.function ? `code of ${repair.function}` : repair.undo ? `rolls back repair ${repair.undo}` : "");

interface List {
  repairs: Repair[];
  amendments: { log: string; waiting: number; count: number; due_us: number | null }[];
  next: number | null;
}

function List({ namespace }: ScreenProps) {
  const now = useNow();
  const answer = useAsk<List>(of(namespace, "repairs"), 3000);
  return (
    <>
      <Head title="Repairs" cmd="millrace repair ls">
        <a class="button primary" href={href(namespace, "repairs", "new")}>
          Correct records
        </a>
      </Head>
      <Loaded answer={answer}>
        {({ repairs, amendments }) => (
          <>
            {repairs.length === 0 ? (
              <Empty title="Nothing was repaired yet">
                <p>
                  A repair gives past records the values that they should have had, runs again what depended on them, and shows every
                  difference before it is applied. It can be rolled back.
                </p>
              </Empty>
            ) : (
              <Table label="Repairs" class="stack" heads={["Repair", "Phase", "Of", "Reason", "Opened", "Replaced"]}>
                {[...repairs].reverse().map((it) => (
                  <tr key={it.repair}>
                    <td>
                      <a href={href(namespace, "repairs", String(it.repair))}>Repair {it.repair}</a>
                    </td>
                    <td data-name="phase">
                      <Phase of={it.phase} />
                    </td>
                    <td data-name="of" class="mono">
                      {subject(it)}
                    </td>
                    <td data-name="reason">{it.reason}</td>
                    <td data-name="opened">
                      <Time of={timeOf(it.at_us)} now={now} />
                    </td>
                    <td data-name="replaced" class="num">
                      {grouped(it.counts.replaced)}
                    </td>
                  </tr>
                ))}
              </Table>
            )}
            {amendments.length > 0 && (
              <Card title="Amendments that wait">
                <ul class="lines">
                  {amendments.map((it) => (
                    <li key={it.log}>
                      <a class="mono" href={href(namespace, "logs", it.log)}>
                        {it.log}
                      </a>
                      <span class="right">
                        {it.waiting} of {it.count}
                      </span>
                    </li>
                  ))}
                </ul>
              </Card>
            )}
          </>
        )}
      </Loaded>
    </>
  );
}

interface Correction {
  seqno: number;
  data?: string;
  void?: boolean;
}

const CORRECTIONS_MAX = 200;
const VALUES_MAX_BYTES = 4 * 1024 * 1024;

function New({ namespace, route }: ScreenProps) {
  const [log, setLog] = useState(route.query.get("log") ?? "");
  const at = Number(route.query.get("seqno")) || 0;
  const [from, setFrom] = useState(at ? String(at) : "");
  const [to, setTo] = useState(at ? String(at) : "");
  const [reason, setReason] = useState("");
  const [rows, setRows] = useState<{ record: RecordDoc; text: string; void: boolean }[]>([]);
  const [appendNew, setAppendNew] = useState(false);
  const [acceptUnknown, setAcceptUnknown] = useState(false);
  const load = useDoing(async (values?: Map<number, string>) => {
    const numbers = values ? [...values.keys()] : [Number(from), Number(to || from)];
    const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
    if (!(first >= 1 && last >= first)) throw new Refused("", "The numbers are not in order.");
    if (last - first >= CORRECTIONS_MAX)
      throw new Refused(
        "",
        `At most ${CORRECTIONS_MAX} records can be corrected here.`,
        "`millrace repair plan LOG --values FILE.csv` takes more.",
      );
    const { records } = await ask<{ records: RecordDoc[] }>(
      of(namespace, `logs/${enc(log)}/records`, { from: first, count: last - first + 1 }),
    );
    const found = records.filter((record) => record.seqno <= last);
    setRows(found.map((record) => ({ record, text: values?.get(record.seqno) ?? record.data ?? "", void: false })));
    if (values) [setFrom, setTo].forEach((set, at) => set(String(at ? last : first)));
    return found;
  });
  const read = useDoing(async (file: File) => {
    if (file.size > VALUES_MAX_BYTES)
      throw new Refused("", "The file is too long.", "`millrace repair plan LOG --values FILE` takes longer ones.");
    let values: Map<number, string>;
    try {
      values = valuesOf(await file.text());
    } catch (error) {
      throw new Refused("", (error as Error).message);
    }
    return load.run(values);
  });
  useEffect(() => {
    if (log && at) void load.run();
  }, []);
  const failed = read.error ?? load.error;
  const corrections: Correction[] = rows
    .filter((row) => row.void || row.text !== (row.record.data ?? ""))
    .map((row) => (row.void ? { seqno: row.record.seqno, void: true } : { seqno: row.record.seqno, data: row.text }));
  const open = useDoing(async () => {
    const repair = await ask<Repair>(of(namespace, "repairs"), {
      method: "POST",
      json: {
        do: "open",
        log,
        reason,
        corrections,
        ...(appendNew ? { append_new: true } : {}),
        ...(acceptUnknown ? { accept_unknown: true } : {}),
      },
    });
    go(href(namespace, "repairs", String(repair.repair)));
  });
  const asked = JSON.stringify([log, corrections]);
  const [planned, setPlanned] = useState<{ asked: string; number: number; plan?: Plan; failed?: boolean }>();
  const begin = useDoing(async () => {
    setPlanned(undefined);
    const made = await ask<Plan>(of(namespace, "repairs"), { method: "POST", json: { do: "plan", log, corrections } });
    setPlanned({ asked, number: made.plan });
  });
  const current = planned?.asked === asked ? planned : undefined;
  const isPlanned = current?.plan?.state === "done" && (current.plan.found?.corrects.records ?? 0) > 0;
  // A host that cannot plan can replay nevertheless: nothing changes before the repair is applied.
  const cannot = begin.error !== undefined || current?.failed === true || current?.plan?.state === "failed";
  const change = (number: number, part: Partial<{ text: string; void: boolean }>) =>
    setRows(rows.map((row, at) => (at === number ? { ...row, ...part } : row)));
  const range = to && to !== from ? `${from || "FIRST"}..${to}` : from || "NUMBER";
  return (
    <>
      <Head title="Correct records" cmd={`millrace repair plan ${quoted(log || "LOG")} --at ${range}`} />
      <Steps at={current ? 1 : 0} />
      <Card title="Which records">
        <form class="bar" onSubmit={submit(() => void load.run())}>
          <Field label="Log">
            <input required value={log} onInput={(event) => setLog(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
          </Field>
          <Field label="First">
            <input class="short" type="number" min="1" required value={from} onInput={(event) => setFrom(event.currentTarget.value)} />
          </Field>
          <Field label="Last">
            <input class="short" type="number" min="1" value={to} onInput={(event) => setTo(event.currentTarget.value)} />
          </Field>
          <button type="submit" disabled={load.busy}>
            Load
          </button>
          <label class="button file">
            Values from a file
            <input
              type="file"
              accept=".csv,.json,.jsonl,.ndjson,.txt"
              disabled={!log}
              onChange={(event) => {
                const file = event.currentTarget.files?.[0];
                if (file) void read.run(file);
                event.currentTarget.value = "";
              }}
            />
          </label>
        </form>
        <p class="muted">
          A file has lines such as <code>{'{"seqno": 7, "value": "21.5"}'}</code>, or is CSV with the columns <code>seqno</code> and{" "}
          <code>value</code>.
        </p>
        {failed && <Failure of={failed} />}
      </Card>
      {rows.length > 0 && (
        <Card title="What they should be" more={<span class="muted">{count(corrections.length, "correction")}</span>}>
          <Table label="Corrections" class="stack" heads={["Number", "Was", "Should be", "Remove"]}>
            {rows.map((row, number) => (
              <tr key={row.record.seqno}>
                <td class="num">{row.record.seqno}</td>
                <td data-name="was" class="mono clip">
                  {decode(row.record, "auto").line}
                </td>
                <td data-name="should be">
                  <input
                    class="mono wide"
                    aria-label={`New value of record ${row.record.seqno}`}
                    disabled={row.void || row.record.data === undefined}
                    value={row.void ? "" : row.text}
                    placeholder={row.record.data === undefined ? "not text: use the command" : ""}
                    onInput={(event) => change(number, { text: event.currentTarget.value })}
                    spellcheck={false}
                  />
                </td>
                <td data-name="remove">
                  <input
                    type="checkbox"
                    aria-label={`Remove record ${row.record.seqno}`}
                    checked={row.void}
                    onChange={(event) => change(number, { void: event.currentTarget.checked })}
                  />
                </td>
              </tr>
            ))}
          </Table>
          <Field label="Reason, for people who read it later">
            <input class="wide" value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </Field>
          <label class="check">
            <input type="checkbox" checked={appendNew} onChange={(event) => setAppendNew(event.currentTarget.checked)} /> Append records for
            which replayed runs have no place, instead of stopping
          </label>
          <label class="check">
            <input type="checkbox" checked={acceptUnknown} onChange={(event) => setAcceptUnknown(event.currentTarget.checked)} /> Go on even
            if some of the runs that read the records are no longer known
          </label>
          {!isPlanned && (
            <div class="acts">
              <button
                type="button"
                class={cannot ? "" : "primary"}
                disabled={corrections.length === 0 || begin.busy || current?.plan === undefined && current !== undefined && !cannot}
                onClick={() => void begin.run()}
              >
                See what it would change
              </button>
              {cannot && (
                <button type="button" class="primary" disabled={corrections.length === 0 || open.busy} onClick={() => void open.run()}>
                  Replay without a plan
                </button>
              )}
              <span class="muted">{corrections.length === 0 ? "Change or remove a record first." : "Nothing runs yet."}</span>
            </div>
          )}
          {begin.error && <Failure of={begin.error} />}
        </Card>
      )}
      {current && (
        <Planned
          key={current.number}
          namespace={namespace}
          plan={current.number}
          onDone={(plan, error) => setPlanned({ ...current, plan, failed: error !== undefined })}
        />
      )}
      {isPlanned && (
        <Card>
          <div class="acts">
            <button type="button" class="primary" disabled={open.busy} onClick={() => void open.run()}>
              Replay what depends on them
            </button>
            <span class="muted">The replay writes beside the records. They change only when it is applied.</span>
          </div>
        </Card>
      )}
      {open.error && <Failure of={open.error} />}
    </>
  );
}

const STEPS = ["Correct", "Plan", "Replay", "Compare", "Apply"];
const Steps = ({ at }: { at: number }) => (
  <ol class="wizard" aria-label="Steps">
    {STEPS.map((step, number) => (
      <li key={step} class={number < at ? "past" : number === at ? "now" : ""} aria-current={number === at ? "step" : undefined}>
        {step}
      </li>
    ))}
  </ol>
);

const stepOf = (phase: string): number =>
  ({ open: 2, running: 2, stopped: 2, ready: 3 })[phase] ?? (phase === "applied" || phase === "closed" ? 5 : 4);
const MOVING = new Set(["running", "applying", "preparing", "committing"]);

function One({ namespace, number }: { namespace: string; number: string }) {
  const answer = useAsk<Repair>(of(namespace, `repairs/${enc(number)}`), 1500);
  const [typed, type] = useState("");
  const act = (what: string, more: object = {}) =>
    ask<Repair>(of(namespace, "repairs"), { method: "POST", json: { do: what, repair: Number(number), ...more } });
  const then = (what: string) => () => act(what).then(answer.again);
  const back = useDoing(async () => {
    const made = await act("rollback", { reason: `roll back repair ${number}` });
    if (made.repair && made.repair !== Number(number)) go(href(namespace, "repairs", String(made.repair)));
    else answer.again();
  });
  const repair = answer.data;
  const hasDiff = repair !== undefined && !["open", "running", "abandoned"].includes(repair.phase);
  return (
    <>
      <Head title={`Repair ${number}`} cmd={`millrace repair show ${quoted(number)}`}>
        {repair && <Phase of={repair.phase} />}
      </Head>
      <Loaded answer={answer}>
        {(repair) => (
          <>
            {!["abandoned", "rolled-back"].includes(repair.phase) && <Steps at={stepOf(repair.phase)} />}
            <Card>
              <Facts
                of={[
                  [
                    "Of",
                    repair.log ? (
                      <a class="mono" href={href(namespace, "logs", repair.log)}>
                        {repair.log}
                      </a>
                    ) : (
                      subject(repair)
                    ),
                  ],
                  ["Reason", repair.reason || "none given"],
                  ["Opened", <Time of={timeOf(repair.at_us)} />],
                  ["Corrections", grouped(repair.records)],
                  [
                    "Replayed runs",
                    `${grouped(repair.counts.replayed)}, ${grouped(repair.counts.same)} with the same result, ${grouped(repair.counts.failed)} failed`,
                  ],
                  [
                    "Records",
                    `${grouped(repair.counts.replaced)} replaced, ${grouped(repair.counts.void)} removed, ${grouped(repair.counts.appended)} new`,
                  ],
                ]}
              />
              {repair.progress && <progress max={repair.progress.runs} value={repair.progress.examined} aria-label="Examined runs" />}
              {MOVING.has(repair.phase) && (
                <p role="status" class="muted">
                  The host works on it
                  {repair.progress ? `: ${grouped(repair.progress.examined)} of ${grouped(repair.progress.runs)} runs examined` : ""}.
                </p>
              )}
              {repair.error && <Failure of={{ code: repair.error[0], detail: repair.error[1] ?? "" }} />}
              {repair.waits && <Failure of={{ code: repair.waits[0], detail: repair.waits[1] ?? "" }} />}
              {repair.not_run.length > 0 && (
                <p class="warn">
                  Not run again, because they may have effects outside:{" "}
                  {repair.not_run.map((it) => `${it.function} (${it.runs})`).join(", ")}. Their records stay.
                </p>
              )}
              <div class="acts">
                {(repair.phase === "open" || repair.phase === "stopped") && <Act label="Go on" kind="primary" act={then("run")} done="" />}
                {repair.phase === "ready" && (
                  <form class="bar" onSubmit={submit(() => typed === number && void then("apply")())}>
                    <Field label={`To apply it, type ${number}`}>
                      <input
                        class="short"
                        value={typed}
                        onInput={(event) => type(event.currentTarget.value)}
                        inputMode="numeric"
                        autocomplete="off"
                      />
                    </Field>
                    <button type="submit" class="primary" disabled={typed !== number}>
                      Apply
                    </button>
                  </form>
                )}
                {["open", "ready", "stopped"].includes(repair.phase) && (
                  <Act label="Abandon" kind="danger" ask="Abandon it? Nothing was changed." act={then("abandon")} done="" />
                )}
                {repair.phase === "applied" && (
                  <button type="button" class="danger" disabled={back.busy} onClick={() => void back.run()}>
                    Roll back
                  </button>
                )}
              </div>
              {back.error && <Failure of={back.error} />}
              <Cmd>{`millrace repair ${{ open: "run", stopped: "run", ready: "apply", applied: "rollback" }[repair.phase] ?? "show"} ${number}`}</Cmd>
            </Card>
            {hasDiff && <Diff namespace={namespace} number={number} phase={repair.phase} />}
          </>
        )}
      </Loaded>
    </>
  );
}

interface Change {
  log: string;
  seqno: number | null;
  old?: Bytes;
  new?: Bytes;
}

interface Compared {
  field: string;
  points: { seqno: number; value: number; other?: number }[];
}

const NOTHING: Compared = { field: "", points: [] };

/** The values before and with the repair of the first number field that differs; if none does, of the first one. */
function compared(changes: Change[]): Compared {
  const numbers = (bytes: Bytes | undefined) => (bytes ? fields(decode(bytes, "auto").value) : new Map<string, number>());
  const both = changes.map((it) => ({ seqno: it.seqno, now: numbers(it.new), was: numbers(it.old) }));
  const first = (differs: boolean): string | undefined => {
    for (const { now, was } of both)
      for (const [path, value] of now) if (!differs || (was.has(path) && was.get(path) !== value)) return path;
    return undefined;
  };
  const field = first(true) ?? first(false);
  if (field === undefined) return NOTHING;
  const points = both.flatMap(({ seqno, now, was }) => {
    const value = now.get(field);
    return seqno === null || value === undefined ? [] : [{ seqno, value, other: was.get(field) }];
  });
  return { field: field.slice(1), points };
}

function Diff({ namespace, number, phase }: { namespace: string; number: string; phase: string }) {
  const [log, setLog] = useState("");
  const [after, setAfter] = useState(0);
  const answer = useAsk<{ changes: Change[]; next?: number }>(
    of(namespace, `repairs/${enc(number)}/diff`, { log, after: after || undefined }),
    phase === "ready" ? 0 : 0,
  );
  const changes = answer.data?.changes ?? [];
  const logs = useMemo(() => [...new Set([log, ...changes.map((it) => it.log)].filter(Boolean))], [answer.data]);
  const { field, points } = useMemo(() => (log || logs.length === 1 ? compared(changes) : NOTHING), [answer.data, log]);
  return (
    <Card
      title="What it changes"
      more={
        <Field label="Log">
          <select value={log} onChange={(event) => (setAfter(0), setLog(event.currentTarget.value))}>
            <option value="">all</option>
            {logs.map((it) => (
              <option key={it}>{it}</option>
            ))}
          </select>
        </Field>
      }
    >
      <Loaded answer={answer}>
        {({ changes, next }) =>
          changes.length === 0 ? (
            <p class="muted">No record changes.</p>
          ) : (
            <>
              {points.length > 1 && <Compare field={field} points={points} />}
              <Table label="Changes" class="stack" heads={["Record", "Was", "Is with the repair"]}>
                {changes.map((it, at) => (
                  <tr key={at}>
                    <td>
                      {it.seqno === null ? (
                        <span class="mono">{it.log}, new</span>
                      ) : (
                        <a class="mono" href={href(namespace, "logs", it.log, { at: it.seqno })}>
                          {it.log}@{it.seqno}
                        </a>
                      )}
                    </td>
                    <td data-name="was" class="mono clip old">
                      {it.old ? decode(it.old, "auto").line : "–"}
                    </td>
                    <td data-name="is" class="mono clip new">
                      {it.new ? decode(it.new, "auto").line : <em>removed</em>}
                    </td>
                  </tr>
                ))}
              </Table>
              <div class="acts">
                {after > 0 && (
                  <button type="button" onClick={() => setAfter(0)}>
                    First page
                  </button>
                )}
                {next !== undefined && next !== null && (
                  <button type="button" onClick={() => setAfter(next)}>
                    Next page
                  </button>
                )}
              </div>
              <Cmd>{`millrace repair diff ${number}${log ? ` ${quoted(log)}` : ""}`}</Cmd>
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

/** Old against new, by the number of the record. */
function Compare({ field, points }: Compared) {
  const values = points.flatMap((point) => [point.value, ...(point.other === undefined ? [] : [point.other])]);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const [width, height] = [600, 140];
  const x = (at: number) => ((at * width) / Math.max(1, points.length - 1)).toFixed(1);
  const y = (value: number) => (height - 6 - ((value - least) / (most - least || 1)) * (height - 12)).toFixed(1);
  const line = (of: (point: (typeof points)[number]) => number | undefined) => {
    const found = points.flatMap((point, at) => (of(point) === undefined ? [] : [`${x(at)} ${y(of(point)!)}`]));
    return found.length ? `M${found.join("L")}` : "";
  };
  return (
    <figure class="compare">
      <svg
        viewBox={`0 0 ${width} ${height}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${field || "Values"} before and with the repair; the table below has all values`}
      >
        <path class="was" d={line((point) => point.other)} />
        <path class="line" d={line((point) => point.value)} />
      </svg>
      <figcaption>
        {field && <span class="mono">{field} </span>}
        <span class="key was">before</span> <span class="key line">with the repair</span>
      </figcaption>
    </figure>
  );
}
