// One event: its causes above, its effects below, each a tree with a time line. Branches load when they are opened.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Branch, Refused, type Trace, ask, of } from "../host/api";
import { decode, keyText } from "../records/decode";
import { count, duration, micros } from "../format";
import { Act, Card, Failure, Head, Icon, State, Time, Waiting } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";

interface Node {
  branch: Branch;
  below: Node[];
  open: boolean;
}

const path = (namespace: string, event: string, query: Record<string, string | number | undefined>) =>
  of(namespace, `trace/${event.split("/").map(encodeURIComponent).join("/")}`, query);

function grown(trace: Trace): Node {
  const nodes = trace.branches.map((branch): Node => ({ branch, below: [], open: true }));
  nodes.forEach((node) => node.branch.above !== null && nodes[node.branch.above].below.push(node));
  return nodes[0];
}

export default function TraceScreen({ namespace, route }: ScreenProps) {
  const event = route.rest;
  const [effects, causes] = [useTree(namespace, event, "effects"), useTree(namespace, event, "causes")];
  const root = effects.tree?.branch ?? causes.tree?.branch;
  const name = root?.record
    ? `${root.record.log ?? "a removed log"}@${root.record.seqno}`
    : root?.run
      ? `Run of ${root.run.function ?? "a removed function"}`
      : event;
  const target = root?.record?.log ? `${root.record.log}@${root.record.seqno}` : event;
  return (
    <>
      <Head title={name} mono={!!root?.record} cmd={`millrace trace ${target}`}>
        {root?.record?.log && (
          <a class="button" href={href(namespace, "logs", root.record.log, { at: root.record.seqno })}>
            The record
          </a>
        )}
        {root?.run && (
          <a class="button" href={href(namespace, "runs", root.id)}>
            The run
          </a>
        )}
      </Head>
      {effects.error && causes.error ? (
        <Failure of={effects.error} />
      ) : (
        <>
          <Side title="What it came from" namespace={namespace} side={causes} up />
          <Side title="What it caused" namespace={namespace} side={effects} />
        </>
      )}
    </>
  );
}

interface Tree {
  trace?: Trace;
  tree?: Node;
  error?: Refused;
  redraw: () => void;
  more: () => Promise<void>;
}

function useTree(namespace: string, event: string, direction: string): Tree {
  const [state, set] = useState<{ event: string; trace?: Trace; tree?: Node; error?: Refused }>({ event });
  useEffect(() => {
    const stop = new AbortController();
    ask<Trace>(path(namespace, event, { direction, depth: 8, width: 30, limit: 200 }), { signal: stop.signal }).then(
      (trace) => set({ event, trace, tree: grown(trace) }),
      (error) => stop.signal.aborted || set({ event, error: error instanceof Refused ? error : new Refused("", String(error)) }),
    );
    return () => stop.abort();
  }, [namespace, event]);
  const now = state.event === event ? state : { event };
  return {
    ...now,
    redraw: () => set((state) => ({ ...state })),
    // The effects in the part of the journal behind the one that was read.
    more: async () => {
      const { trace, tree } = state;
      if (!trace?.next || !tree) return;
      const next = await ask<Trace>(path(namespace, event, { direction, depth: 8, width: 30, limit: 200, after: trace.next }));
      const known = new Set(tree.below.map((node) => node.branch.id));
      const found = grown(next);
      tree.below.push(...found.below.filter((node) => !known.has(node.branch.id)));
      set({ event, tree, trace: { ...trace, next: next.next, records: trace.records + next.records - 1, runs: trace.runs + next.runs } });
    },
  };
}

function Side({ title, namespace, side, up }: { title: string; namespace: string; side: Tree; up?: boolean }) {
  const { trace, tree } = side;
  const rows = useMemo(() => (tree ? flat(tree) : []), [side]);
  const scale = useMemo(() => folded(rows.flatMap(({ node }) => spanOf(node.branch))), [rows]);
  if (side.error)
    return (
      <Card title={title}>
        <Failure of={side.error} />
      </Card>
    );
  if (!trace || !tree)
    return (
      <Card title={title}>
        <Waiting />
      </Card>
    );
  const others = trace.records + trace.runs - 1;
  const records = Math.max(0, trace.records - (tree.branch.record ? 1 : 0));
  const runs = Math.max(0, trace.runs - (tree.branch.run ? 1 : 0));
  return (
    <Card
      title={title}
      more={
        <span class="muted">
          {others === 0
            ? up
              ? "nothing: a client appended it"
              : "nothing yet"
            : `${count(records, "record")}, ${count(runs, "run")}`}
        </span>
      }
    >
      {others > 0 && (
        <ul class="trace" aria-label={title}>
          {rows.map(({ node, depth }) => (
            <Line
              key={node.branch.id}
              namespace={namespace}
              node={node}
              depth={depth}
              up={up}
              root={micros(tree.branch.time)}
              scale={scale}
              redraw={side.redraw}
            />
          ))}
        </ul>
      )}
      {trace.unknown > 0 && (
        <p class="warn">
          {count(trace.unknown, "cause")} are not in this part of the journal: open a branch, or see `millrace trace --up`.
        </p>
      )}
      {trace.next !== null && (
        <div class="acts">
          <Act label="Search the rest of the journal" act={side.more} done="" />
          <span class="muted">{count(trace.entries, "entry").replace("entrys", "entries")} behind the event were read.</span>
        </div>
      )}
    </Card>
  );
}

const flat = (node: Node, depth = 0): { node: Node; depth: number }[] => [
  { node, depth },
  ...(node.open ? node.below.flatMap((below) => flat(below, depth + 1)) : []),
];

const spanOf = ({ time, run }: Branch): number[] =>
  run?.began && run.ended ? [micros(time), micros(run.began), micros(run.ended)] : [micros(time)];

/** Times to places from 0 to 1. A gap of more than 20 × the median is folded: it takes as much room as three medians. */
function folded(times: number[]): (time: number) => number {
  const sorted = [...new Set(times)].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((time, at) => time - sorted[at]);
  const median = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)] || 1;
  const places = [0];
  gaps.forEach((gap, at) => places.push(places[at] + (gap > 20 * median ? 3 * median : gap)));
  const whole = places.at(-1) || 1;
  return (time) => {
    const at = sorted.indexOf(time);
    return at < 0 ? 0 : places[at] / whole;
  };
}

const WORDS: Record<string, [string, string]> = {
  read: ["read by", "read"],
  appended: ["", "appended by"],
  forwarded: ["forwarded", "forwarded from"],
  claimed: ["claimed", "claimed"],
};

function Line({
  namespace,
  node,
  depth,
  up,
  root,
  scale,
  redraw,
}: {
  namespace: string;
  node: Node;
  depth: number;
  up?: boolean;
  root: number;
  scale: (time: number) => number;
  redraw: () => void;
}) {
  const { branch } = node;
  const { record, run } = branch;
  const load = async () => {
    const trace = await ask<Trace>(
      path(namespace, branch.id, { direction: up ? "causes" : "effects", depth: 3, width: Math.min(1000, node.below.length + 200) }),
    );
    node.below = grown(trace).below;
    branch.more = trace.branches[0].more;
    redraw();
  };
  const word = WORDS[branch.link ?? ""]?.[up ? 1 : 0];
  const offset = micros(branch.time) - root;
  const at = scale(micros(branch.time));
  const [began, ended] = run?.began && run.ended ? [scale(micros(run.began)), scale(micros(run.ended))] : [at, at];
  const shown =
    record && !record.void && !record.deleted && (record.data !== undefined || record.base64 !== undefined)
      ? decode(record, "auto").line
      : undefined;
  return (
    <li class={depth === 0 ? "trace-root" : ""}>
      <div class="trace-what" style={{ "--depth": String(Math.min(depth, 12)) }}>
        {node.below.length > 0 ? (
          <button
            type="button"
            class="ghost fold"
            aria-expanded={node.open}
            aria-label={node.open ? "Fold" : "Unfold"}
            onClick={() => ((node.open = !node.open), redraw())}
          >
            <Icon name={node.open ? "down" : "right"} size={13} />
          </button>
        ) : (
          <span class="fold" />
        )}
        <span class={`dot ${run ? "run" : "record"}`} />
        <span class="trace-name">
          {word && <span class="muted">{word} </span>}
          {record ? (
            <a class="mono" href={href(namespace, "logs", record.log ?? "", { at: record.seqno })}>
              {record.log ?? "a removed log"}@{record.seqno}
            </a>
          ) : (
            <a href={href(namespace, "runs", branch.id)}>{run?.function ?? "a removed function"}</a>
          )}
          {run && (
            <>
              {" "}
              <State of={run.state} />
            </>
          )}
          {run?.code && <code class="code">{run.code}</code>}
          {run && run.attempts > 1 && <span class="muted"> attempt {run.attempts}</span>}
          {(record?.repair ?? run?.replayed_by) !== undefined && (
            <a class="tag" href={href(namespace, "repairs", String(record?.repair ?? run?.replayed_by))}>
              repair {record?.repair ?? run?.replayed_by}
            </a>
          )}
          {record?.key !== undefined && <span class="trace-value mono">{keyText(record.key)}</span>}
          {record?.deleted && !record.void && <span class="muted"> deleted</span>}
          {record?.void && <span class="muted"> removed by the repair</span>}
          {shown !== undefined && <span class="trace-value mono">{shown}</span>}
          {branch.more > 0 && <Act label={`and ${branch.more} more`} act={load} done="" kind="ghost" />}
        </span>
      </div>
      <span class="trace-time">
        {depth === 0 ? <Time of={branch.time} /> : `${offset < 0 ? "−" : "+"}${duration(Math.abs(offset) / 1000)}`}
      </span>
      <div class="lane" aria-hidden="true">
        {run ? (
          <i class={`lane-bar ${run.state ?? ""}`} style={{ left: `${began * 97}%`, width: `max(4px, ${(ended - began) * 97}%)` }} />
        ) : (
          <i class="lane-tick" style={{ left: `${at * 97}%` }} />
        )}
      </div>
    </li>
  );
}
