// The plan of a repair: what a correction would change, before anything runs.
import { useEffect, useState } from "preact/hooks";
import { type Refused, ask, of } from "../../host/api";
import { count, duration, grouped, size } from "../../format";
import { useAsk } from "../../hooks";
import { Act, Card, Failure, Table } from "../../parts";
import { href } from "../../router";

interface Runs {
  function: string;
  runs: number;
  reason: string;
  log: string | null;
  range: [number, number] | null;
}

interface Records {
  log: string;
  records: number;
  bytes: number;
  range: [number, number];
}

export interface Plan {
  plan: number;
  state: "running" | "done" | "failed" | "cancelled";
  log: string;
  corrections: number;
  read_bytes: number;
  of_bytes: number;
  error: { code: string; detail: string; remedy?: string } | null;
  found: {
    corrects: { log: string; records: number; equal: number; range: [number, number] };
    replays: Runs[];
    rewrites: Records[];
    not_sent: Records[];
    copies: { log: string; to: string }[];
    topics: { log: string; to: string }[];
    not_run: Runs[];
    on_devices?: { device: string; log: string; records: number; range: [number, number]; commands: boolean }[];
    on_devices_more?: number;
    effects: Runs[];
    stops: boolean;
    stale: Records[];
    pending: Runs[];
    may_replay: Runs[];
    claims: number;
    complete: boolean;
    estimate: { time_us: number; workers: number; bytes: number; pinned_bytes: number };
  } | null;
}

const WHY: Record<string, string> = {
  code: "ran the code that is replaced",
  "record-corrected": "ran for a corrected record",
  "read-corrected": "read a corrected record",
  "record-rewritten": "ran for a record that changes",
  "read-rewritten": "read a record that changes",
  "letter-rewritten": "retries a dead letter that changes",
  "number-moves": "used a record whose number may change",
  "count-moves": "read the newest record of a log that changes",
  external: "may have effects outside, so it is not run again",
  streamed: "was streamed, and cannot be replayed",
  "no-code": "the code that it ran is gone",
  "no-secret": "a secret that it was given is gone",
  "no-attempt": "its attempt has left the journal",
  "no-twin": "it ran on a device, and its function has no twin",
  cancelled: "was cancelled, and stays so",
};

const records = (log: string | null, range: [number, number] | null): string =>
  log && range ? `${log}@${range[0]}${range[0] === range[1] ? "" : `..${range[1]}`}` : "";

/** Follows a plan until it is made. */
export function Planned({
  namespace,
  plan: number,
  onDone,
}: {
  namespace: string;
  plan: number;
  onDone: (plan: Plan | undefined, error?: Refused) => void;
}) {
  const [ended, setEnded] = useState(false);
  const answer = useAsk<Plan>(of(namespace, `plans/${number}`), ended ? 0 : 700);
  const plan = answer.data;
  useEffect(() => {
    if (answer.error && !plan) onDone(undefined, answer.error);
    if (!plan || plan.state === "running") return;
    setEnded(true);
    onDone(plan);
  }, [plan?.state, answer.error]);
  if (!plan) return answer.error ? <Failure of={answer.error} /> : <p class="muted">…</p>;
  if (plan.state === "running") {
    return (
      <Card title="What it would change">
        <progress max={Math.max(1, plan.of_bytes)} value={plan.read_bytes} aria-label="Part of the journal that was read" />
        <div class="acts">
          <span class="muted" role="status">
            The host reads the journal: {size(plan.read_bytes)} of {size(plan.of_bytes)}
          </span>
          <Act
            label="Cancel"
            act={() => ask(of(namespace, "repairs"), { method: "POST", json: { do: "cancel-plan", plan: number } }).then(answer.again)}
            done=""
          />
        </div>
      </Card>
    );
  }
  if (plan.state === "cancelled") return <p class="muted">The plan was cancelled.</p>;
  if (!plan.found) return <Failure of={plan.error ?? { code: "", detail: "The plan failed." }} />;
  return <Found namespace={namespace} plan={plan.found} />;
}

const sum = (runs: Runs[]): number => runs.reduce((total, it) => total + it.runs, 0);

function Found({ namespace, plan }: { namespace: string; plan: NonNullable<Plan["found"]> }) {
  const changed = plan.rewrites.reduce((total, it) => total + it.records, 0);
  const { estimate } = plan;
  return (
    <Card title="What it would change" class="planned">
      <div class="tiles">
        <Number
          name="Corrected records"
          value={plan.corrects.records}
          note={plan.corrects.equal ? `${grouped(plan.corrects.equal)} have the value already` : ""}
        />
        <Number name="Runs to replay" value={sum(plan.replays)} note={estimate.time_us ? `about ${duration(estimate.time_us / 1000)}` : ""} />
        <Number name="Records that may change" value={changed} note={count(plan.rewrites.length, "log")} />
        <Number name="Not replayed" value={sum(plan.not_run)} tone={plan.not_run.length ? "warn" : undefined} />
      </div>
      {plan.stops && (
        <p class="bad" role="alert">
          The repair would stop: at runs that cannot be replayed, or at messages that have left this namespace.
        </p>
      )}
      {!plan.complete && (
        <p class="warn">The plan may miss something: a part of the journal is gone, or a topic keeps copies of the records.</p>
      )}
      {plan.replays.length > 0 && (
        <RunsTable label="Runs that would be replayed" namespace={namespace} runs={plan.replays} />
      )}
      {plan.rewrites.length > 0 && (
        <Table label="Records that may change" class="stack" heads={["Log", "Records", "First", "Last", "Size"]}>
          {plan.rewrites.map((it) => (
            <tr key={it.log}>
              <td>
                <a class="mono" href={href(namespace, "logs", it.log, { at: it.range[0] })}>
                  {it.log}
                </a>
              </td>
              <td class="num" data-name="records">
                {grouped(it.records)}
              </td>
              <td class="num" data-name="first">
                {it.range[0]}
              </td>
              <td class="num" data-name="last">
                {it.range[1]}
              </td>
              <td class="num" data-name="size">
                {size(it.bytes)}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {plan.not_run.length > 0 && <RunsTable label="Runs that would not be replayed" namespace={namespace} runs={plan.not_run} />}
      <ul class="lines">
        {plan.replays.length === 0 && plan.corrects.records > 0 && <li>No run has used the records: only they change.</li>}
        {plan.corrects.records === 0 && <li>Nothing would change: the records have these values already.</li>}
        {plan.pending.length > 0 && <li>{count(sum(plan.pending), "run")} that wait will use the new values.</li>}
        {plan.may_replay.length > 0 && (
          <li>{count(sum(plan.may_replay), "more run")} may be replayed, if a function appends more or fewer records than before.</li>
        )}
        {(plan.on_devices ?? []).map((it) => (
          <li key={`${it.device} ${it.log}`} class="warn">
            Device {it.device} keeps {count(it.records, "old record")} of {it.log}
            {it.commands ? ": send it the right one after the repair." : "."}
          </li>
        ))}
        {plan.on_devices_more ? <li class="warn">{count(plan.on_devices_more, "more log")} of devices keep old records.</li> : null}
        {plan.effects.map((it) => (
          <li key={it.function} class="warn">
            {count(it.runs, "run")} of {it.function} may repeat effects outside.
          </li>
        ))}
        {plan.not_sent.map((it) => (
          <li key={it.log} class="warn">
            {count(it.records, "message")} to {it.log} would change, and cannot be changed there.
          </li>
        ))}
        {[...plan.copies, ...plan.topics].map((it) => (
          <li key={`${it.log} ${it.to}`} class="warn">
            {it.to} keeps the old records of {it.log}.
          </li>
        ))}
        {plan.stale.map((it) => (
          <li key={it.log} class="muted">
            {records(it.log, it.range)} keep their values, because their runs are not replayed.
          </li>
        ))}
        {plan.claims > 0 && <li class="muted">{count(plan.claims, "record")} from outside name a changed record as their cause, and stay.</li>}
        {plan.corrects.records > 0 && (
          <li class="muted">
            The repair writes about {size(estimate.bytes)}, and keeps {size(estimate.pinned_bytes)} of the journal for as long as it can be
            rolled back.
          </li>
        )}
      </ul>
    </Card>
  );
}

const RunsTable = ({ label, namespace, runs }: { label: string; namespace: string; runs: Runs[] }) => (
  <Table label={label} class="stack" heads={["Function", "Runs", "Why", "For"]}>
    {runs.map((it) => (
      <tr key={`${it.function} ${it.reason} ${it.log}`}>
        <td>
          <a href={href(namespace, "functions", it.function)}>{it.function}</a>
        </td>
        <td class="num" data-name="runs">
          {grouped(it.runs)}
        </td>
        <td data-name="why">{WHY[it.reason] ?? it.reason}</td>
        <td data-name="for" class="mono">
          {records(it.log, it.range)}
        </td>
      </tr>
    ))}
  </Table>
);

const Number = ({ name, value, note, tone }: { name: string; value: number; note?: string; tone?: string }) => (
  <div class="tile">
    <span class="tile-name">{name}</span>
    <strong class={tone}>{grouped(value)}</strong>
    {note && <span class="muted">{note}</span>}
  </div>
);
