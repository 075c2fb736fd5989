// Pieces that several screens share.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Answer, useDoing } from "./hooks";
import type { RecordName, Run } from "./host/api";
import { href } from "./router";
import { ago, moment } from "./format";

const PATHS: Record<string, string> = {
  overview: "M3 13h8V3H3zm10 8h8V11h-8zM3 21h8v-6H3zM13 3v6h8V3z",
  map: "M6 4a2 2 0 100 4 2 2 0 000-4zm12 6a2 2 0 100 4 2 2 0 000-4zM6 16a2 2 0 100 4 2 2 0 000-4zM8 6.500l8 4.500M8 17.500l8-4.500",
  logs: "M4 5h16M4 10h16M4 15h10M4 20h7",
  runs: "M7 4l12 8-12 8z",
  tables: "M4 5h16v14H4zM4 10h16M4 14.500h16M10 5v14",
  devices: "M7 7h10v10H7zM10 3v4m4-4v4m-4 10v4m4-4v4M3 10h4m-4 4h4m10-4h4m-4 4h4",
  tasks: "M4 6h4v4H4zM4 14h4v4H4zM11 8h9M11 16h9",
  failures: "M12 3l9.500 17h-19zM12 10v4m0 3v.01",
  functions: "M15 4c-4 0-3 16-7 16M7 11h8M17 12l4 6m0-6l-4 6",
  repairs: "M14.500 6.500a4 4 0 00-5.300 5.300L3.500 17.500l3 3 5.700-5.700a4 4 0 005.300-5.300L15 12l-3-3z",
  cluster: "M12 3v6m0 0l-6 6m6-6l6 6M4 15h4v5H4zm12 0h4v5h-4zM10 3h4",
  objects: "M12 3l8 4.500v9L12 21l-8-4.500v-9zM4 7.500l8 4.500 8-4.500M12 12v9",
  capabilities: "M15 9a4 4 0 11-3-3.900M12.500 11.500L20 19m-3-3l2.500-2.500M9 8.500v.01",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  search: "M10.500 4a6.500 6.500 0 100 13 6.500 6.500 0 000-13zM15.500 15.500L20 20",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  done: "M4 12.500l5 5L20 6.500",
  theme: "M12 3a9 9 0 100 18z M12 3a9 9 0 010 18",
  help: "M9 9a3 3 0 115 2.200c-1.200.8-2 1.500-2 3M12 18v.01",
  key: "M14 10a4 4 0 11-2.500-3.700M13 11l7 7m-3-3l2-2",
  folder: "M3 6h6l2 2h10v11H3z",
  log: "M6 3h9l4 4v14H6zM9 11h7M9 15h7",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  links: "M9 15l6-6M8 11l-2.500 2.500a3.500 3.500 0 005 5L13 16M16 13l2.500-2.500a3.500 3.500 0 00-5-5L11 8",
};

export const Icon = ({ name, size = 18 }: { name: string; size?: number }) => (
  <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
    <path d={PATHS[name] ?? ""} />
  </svg>
);

/** The command that does the same; a click copies it. */
export function Cmd({ children }: { children: string }) {
  const [copied, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(children);
      set(true);
      setTimeout(() => set(false), 1500);
    } catch {
      /* The text can be selected. */
    }
  };
  return (
    <div class="cmd">
      <code>{children}</code>
      <button type="button" class="ghost" onClick={copy} aria-label={copied ? "Copied" : "Copy the command"} title="Copy the command">
        <Icon name={copied ? "done" : "copy"} size={15} />
      </button>
    </div>
  );
}

/** Text of the host, in which `…` is code. */
export const Prose = ({ children }: { children: string }) => (
  <>{children.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>
);

export const Head = ({
  title,
  cmd,
  children,
  mono,
}: {
  title: ComponentChildren;
  cmd?: string;
  children?: ComponentChildren;
  mono?: boolean;
}) => (
  <header class="head">
    <div class="head-line">
      <h1 class={mono ? "mono" : ""}>{title}</h1>
      {children && <div class="acts">{children}</div>}
    </div>
    {cmd && <Cmd>{cmd}</Cmd>}
  </header>
);

interface Told {
  code: string;
  detail: string;
  remedy?: string;
  isDenied?: boolean;
  isEnded?: boolean;
}

/** A refusal, with its code and remedy. What may not be seen is never an empty list. */
export function Failure({ of }: { of: Told }) {
  if (of.isEnded) {
    return (
      <div class="failure" role="alert">
        <strong>Your access has ended</strong>
        <p>
          The capability of this tab has expired or was revoked. What is shown below may be old.{" "}
          <code class="code">{of.code}</code>
        </p>
        <p class="muted">
          Give another one under “Access” (the key at the top), or open a new link: <code>millrace dashboard</code> prints one.
        </p>
      </div>
    );
  }
  return (
    <div class="failure" role="alert">
      <strong>{of.isDenied ? "You may not see this" : "This did not work"}</strong>
      <p>
        {of.code && <code class="code">{of.code}</code>} {of.detail}
      </p>
      {of.remedy && (
        <p class="muted">
          <Prose>{of.remedy}</Prose>
        </p>
      )}
      {of.isDenied && <p class="muted">A capability with more rights can be given under “Access” (the key at the top).</p>}
    </div>
  );
}

/** What an answer has, or why there is none. */
export function Loaded<T>({ answer, children }: { answer: Answer<T>; children: (data: T) => ComponentChildren }) {
  if (answer.data === undefined) return answer.error ? <Failure of={answer.error} /> : <Waiting />;
  return (
    <>
      {answer.error && <Failure of={answer.error} />}
      {children(answer.data)}
    </>
  );
}

export const Waiting = () => (
  <div class="waiting" role="status">
    <span class="sr">Loading</span>
    <i />
    <i />
    <i />
  </div>
);

export const Empty = ({ title, children }: { title: string; children?: ComponentChildren }) => (
  <div class="empty">
    <strong>{title}</strong>
    {children}
  </div>
);

export const Card = ({
  title,
  more,
  children,
  class: name = "",
}: {
  title?: ComponentChildren;
  more?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}) => (
  <section class={`card ${name}`}>
    {title && (
      <div class="card-head">
        <h2>{title}</h2>
        {more}
      </div>
    )}
    {children}
  </section>
);

const TONES: Record<string, string> = { done: "good", dead: "bad", started: "warn", pending: "calm", cancelled: "calm" };
export const State = ({ of }: { of: string | null }) => <span class={`state ${TONES[of ?? ""] ?? "calm"}`}>{of ?? "unknown"}</span>;

export const Time = ({ of, now }: { of: string | null | undefined; now?: number }) =>
  of ? (
    <time dateTime={of} title={of}>
      {now ? ago(of, now) : moment(of)}
    </time>
  ) : (
    <span class="muted">–</span>
  );

export const RecordLink = ({ namespace, record }: { namespace: string; record: RecordName }) =>
  record.log ? (
    <a class="mono" href={href(namespace, "logs", record.log, { at: record.seqno })}>
      {record.log}@{record.seqno}
    </a>
  ) : (
    <span class="mono muted">a removed log, {record.seqno}</span>
  );

export const RunLink = ({ namespace, run }: { namespace: string; run: Pick<Run, "id"> }) => (
  <a class="mono" href={href(namespace, "runs", run.id)}>
    {run.id}
  </a>
);

/** A button that changes something: it is asked twice, says what happened, and shows the command. */
export function Act({
  label,
  ask: question,
  act,
  done,
  kind = "",
}: {
  label: string;
  ask?: string;
  act: () => Promise<unknown>;
  done?: string;
  kind?: string;
}) {
  const doing = useDoing(act);
  const [asking, set] = useState(false);
  const run = async () => {
    set(false);
    await doing.run();
  };
  return (
    <span class="act">
      {asking ? (
        <span class="asking">
          {question}
          <button type="button" class={kind || "primary"} onClick={run} ref={(button) => button?.focus()}>
            Yes
          </button>
          <button type="button" class="ghost" onClick={() => set(false)}>
            No
          </button>
        </span>
      ) : (
        <button type="button" class={kind} disabled={doing.busy} onClick={() => (question ? set(true) : run())}>
          {doing.busy ? "…" : label}
        </button>
      )}
      {doing.error && (
        <span class="bad" role="alert">
          {doing.error.code} {doing.error.detail}
        </span>
      )}
      {!doing.busy && doing.done !== undefined && (
        <span class="good" role="status">
          {done ?? "Done"}
        </span>
      )}
    </span>
  );
}

export const Facts = ({ of }: { of: [string, ComponentChildren][] }) => (
  <dl class="facts">
    {of.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

export const Field = ({ label, children }: { label: string; children: ComponentChildren }) => (
  <label class="field">
    <span>{label}</span>
    {children}
  </label>
);

/** Columns of numbers. */
const NUMBERS = new Set([
  "Records",
  "Newest",
  "Took",
  "Pending",
  "Done",
  "Dead letters",
  "Replaced",
  "Behind",
  "Topics",
  "Voters",
  "Copies",
  "Size",
  "Waiting calls",
  "Changes",
  "Lost",
  "Newest here",
  "Waiting commands",
  "Version",
  "Number",
  "Records a second",
  "Runs",
  "Workers",
  "Queued",
  "Running",
  "Ended",
  "Raised",
  "Failed",
  "First",
  "Last",
]);

export const Table = ({
  heads,
  children,
  class: name = "",
  label,
}: {
  heads: ComponentChildren[];
  children: ComponentChildren;
  class?: string;
  label: string;
}) => (
  <div class="table-box" tabIndex={0} role="region" aria-label={label}>
    <table class={name}>
      <thead>
        <tr>
          {heads.map((head, at) => (
            <th key={at} scope="col" class={typeof head === "string" && NUMBERS.has(head) ? "num" : ""}>
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  </div>
);

export const submit = (act: () => void) => (event: Event) => {
  event.preventDefault();
  act();
};

/** A small line without axes. The number beside it says the last value, so it is decoration. */
export function Spark({ of: points, width = 240, height = 44 }: { of: number[]; width?: number; height?: number }) {
  const [least, most] = [Math.min(...points), Math.max(...points)];
  const range = most - least || 1;
  const at = (value: number, number: number): string =>
    `${((number * width) / (points.length - 1)).toFixed(1)} ${(height - 3 - ((value - least) / range) * (height - 6)).toFixed(1)}`;
  const line = points.map(at).join("L");
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="area" d={`M${line}L${width} ${height}L0 ${height}Z`} />
      <path class="line" d={`M${line}`} />
    </svg>
  );
}
