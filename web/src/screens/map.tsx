// The service graph, with the rates of the flows on its arrows.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Flows, type Fn, type Log, type Runs, of } from "../host/api";
import { type Drawn, type Edge, type Graph, graphOf } from "../drawing/graph";
import { number } from "../format";
import { useAsk } from "../hooks";
import { type Live, useChanges, useLive } from "../host/live";
import { Card, Cmd, Empty, Failure, Head, Table, Waiting } from "../parts";
import { go, href } from "../router";
import type { ScreenProps } from "../shell";

interface Counted {
  at: number;
  counters: Map<string, number>;
  rates: Map<string, number>;
}

/** How fast counters grow, over about four seconds. */
function useRates(counters: Map<string, number>): Map<string, number> {
  const [state, set] = useState<Counted>();
  useEffect(() => {
    if (counters.size === 0) return;
    const at = performance.now();
    set((before) => {
      if (!before) return { at, counters, rates: new Map() };
      const seconds = (at - before.at) / 1000;
      const rates = new Map([...counters].map(([id, value]) => [id, Math.max(0, value - (before.counters.get(id) ?? value)) / seconds]));
      return seconds < 4 ? { ...before, rates } : { at, counters, rates };
    });
  }, [counters]);
  return state?.rates ?? new Map();
}

export default function Map_({ namespace }: ScreenProps) {
  const live: Live = useLive(namespace, {}, { changed: (names) => names.some((it) => it === "logs" || it === "functions") && renewed(names) });
  const functions = useAsk<{ functions: Fn[] }>(of(namespace, "functions"), live.on ? 0 : 2000);
  const logs = useAsk<{ logs: Log[]; next: string | null }>(of(namespace, "logs"), live.on ? 0 : 2000);
  const flows = useAsk<Flows>(of(namespace, "flows"), live.on ? 0 : 2000);
  // What ran before the host started is not counted in flows.
  const runs = useAsk<Runs>(of(namespace, "runs", { limit: 300 }));
  const renewed = useChanges(() => (functions.again(), logs.again(), flows.again()), 2000);
  const known = useMemo(() => new Set(flows.data?.edges.map((edge) => edge.id)), [flows.data]);
  const isNew = live.on && flows.data !== undefined && [...live.edges.keys()].some((id) => !known.has(id));
  useEffect(() => {
    if (isNew) renewed([]);
  }, [isNew, live.at]);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [asTable, setTable] = useState(false);
  const isDown = useNarrow();
  const counters = useMemo(
    () => new Map(live.on ? live.edges : flows.data?.edges.map((edge) => [edge.id, edge.records])),
    [flows.data, live.on, live.at],
  );
  const perFlow = useRates(counters);
  const graph = useMemo(
    () => (functions.data && logs.data ? graphOf(functions.data.functions, logs.data.logs, runs.data?.runs ?? [], flows.data?.edges ?? [], open) : undefined),
    [functions.data, logs.data, runs.data, flows.data, open],
  );
  // What is drawn is older than what is counted.
  const flowsOf = new Map(graph?.edges.map((edge) => [`${edge.from} ${edge.to}`, edge.flows]));
  const rateOf = ({ from, to }: Edge) => flowsOf.get(`${from} ${to}`)?.reduce((sum, flow) => sum + (perFlow.get(flow) ?? 0), 0) ?? 0;
  const drawn = useLayout(graph, isDown);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) =>
      event.key === "t" && !(event.target as HTMLElement).matches("input, textarea, select") && setTable((shown) => !shown);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  const error = functions.error ?? logs.error;
  const states = new Map(
    functions.data?.functions.map((fn) => {
      const [, pending, dead] = (live.on && live.functions.get(fn.name)) || [fn.done, fn.pending, fn.dead_kept - fn.dead_retried];
      return [`f:${fn.name}`, dead > 0 ? "bad" : pending > 0 ? "warn" : ""];
    }),
  );
  return (
    <>
      <Head title="Map" cmd="millrace graph">
        <button type="button" aria-pressed={asTable} onClick={() => setTable(!asTable)}>
          {asTable ? "As a picture" : "As a table"}
        </button>
      </Head>
      {error && <Failure of={error} />}
      {graph && graph.boxes.length === 0 && (
        <Empty title="There are no functions and no logs yet">
          <Cmd>millrace init demo</Cmd>
        </Empty>
      )}
      {!graph && !error && <Waiting />}
      {graph && graph.boxes.length > 0 && asTable && (
        <Table label="Arrows of the map" heads={["From", "To", "Kind", "Records a second"]}>
          {graph.edges.map((edge) => (
            <tr key={`${edge.from} ${edge.to}`}>
              <td class="mono">{edge.from.slice(2)}</td>
              <td class="mono">{edge.to.slice(2)}</td>
              <td>{edge.kind}</td>
              <td class="num">{number(Number(rateOf(edge).toFixed(1)))}</td>
            </tr>
          ))}
        </Table>
      )}
      {drawn && graph && graph.boxes.length > 0 && !asTable && (
        <Card class="map-card">
          <Picture
            drawn={drawn}
            rateOf={rateOf}
            states={states}
            onOpen={(prefix) => setOpen(new Set([...open, prefix]))}
            namespace={namespace}
          />
          <p class="legend">
            <span class="key runs">runs</span> <span class="key appends">appends</span> <span class="key reads">reads</span>{" "}
            <span class="key sends">sends elsewhere</span>
            {open.size > 0 && (
              <button type="button" class="ghost" onClick={() => setOpen(new Set())}>
                Fold all
              </button>
            )}
            <span class="muted">
              {flows.data ? "Records a second, counted by the host." : flows.error ? "Rates need the right to observe the namespace." : ""}
            </span>
          </p>
        </Card>
      )}
    </>
  );
}

function useNarrow(): boolean {
  const [narrow, set] = useState(innerWidth < 720);
  useEffect(() => {
    const sized = () => set(innerWidth < 720);
    addEventListener("resize", sized);
    return () => removeEventListener("resize", sized);
  }, []);
  return narrow;
}

/** Only this policy makes addresses of code: of the one worker. */
const policy = (
  window as { trustedTypes?: { createPolicy: (name: string, rules: object) => { createScriptURL: (url: string) => string } } }
).trustedTypes?.createPolicy("millrace", {
  createScriptURL: (url: string) => {
    if (!/^\/ui\/@\/layout\.\w+\.js$/.test(url)) throw new TypeError("this is no address of the dashboard's code");
    return url;
  },
});
const LAYOUT = document.querySelector<HTMLMetaElement>('meta[name="layout"]')?.content ?? "";

function useLayout(graph: Graph | undefined, down: boolean): Drawn | undefined {
  const worker = useRef<Worker | undefined>(undefined);
  const turn = useRef(0);
  const [drawn, set] = useState<Drawn>();
  useEffect(() => {
    const made = new Worker((policy?.createScriptURL(LAYOUT) ?? LAYOUT) as string, { type: "module" });
    made.onmessage = ({ data }: MessageEvent<{ id: number; drawn: Drawn }>) => data.id === turn.current && set(data.drawn);
    worker.current = made;
    return () => made.terminate();
  }, []);
  // Counters change all the time, and the graph seldom.
  const shape = graph && JSON.stringify([graph, down], (key, value: unknown) => (key === "flows" ? undefined : value));
  useEffect(() => {
    if (!graph) return;
    turn.current += 1;
    worker.current?.postMessage({ id: turn.current, graph, down });
  }, [shape]);
  return drawn;
}

const curve = (points: { x: number; y: number }[]): string => {
  const [first, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  rest.forEach((point, at) => {
    const next = rest[at + 1];
    // Through the middles, with the points as handles.
    path += next ? `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}` : `L${point.x} ${point.y}`;
  });
  return path;
};

function Picture({
  drawn,
  rateOf,
  states,
  onOpen,
  namespace,
}: {
  drawn: Drawn;
  rateOf: (edge: Edge) => number;
  states: Map<string, string>;
  onOpen: (prefix: string) => void;
  namespace: string;
}) {
  const region = useRef<HTMLDivElement>(null);
  // A picture that is wider than the screen begins with its middle.
  useLayoutEffect(() => {
    const it = region.current;
    if (it) it.scrollLeft = (it.scrollWidth - it.clientWidth) / 2;
  }, [drawn]);
  const target = (box: Drawn["boxes"][number]) =>
    box.kind === "function" ? href(namespace, "functions", box.name) : box.kind === "log" ? href(namespace, "logs", box.name) : undefined;
  return (
    <div class="map" ref={region} tabIndex={0} role="region" aria-label="The service graph; the button above shows it as a table">
      <svg
        style={{ width: "100%", maxWidth: `${drawn.width}px`, minWidth: `${Math.round(drawn.width * 0.6)}px` }}
        viewBox={`0 0 ${drawn.width} ${drawn.height}`}
      >
        <defs>
          {["runs", "appends", "reads", "sends"].map((kind) => (
            <marker
              key={kind}
              id={`arrow-${kind}`}
              class={`arrow ${kind}`}
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="7"
              markerHeight="7"
              orient="auto-start-reverse"
            >
              <path d="M0 0L8 4L0 8z" />
            </marker>
          ))}
        </defs>
        {drawn.edges.map((edge) => {
          const rate = rateOf(edge);
          const middle = edge.points[Math.floor(edge.points.length / 2)];
          return (
            <g key={`${edge.from} ${edge.to}`}>
              <path
                class={`edge ${edge.kind} ${rate > 0 ? "moving" : ""}`}
                d={curve(edge.points)}
                marker-end={`url(#arrow-${edge.kind})`}
              />
              {rate > 0 && (
                <text class="rate" x={middle.x} y={middle.y - 5} text-anchor="middle">
                  {number(Number(rate.toPrecision(2)))}/s
                </text>
              )}
            </g>
          );
        })}
        {drawn.boxes.map((box) => {
          const shape = (
            <g
              class={`box ${box.kind} ${states.get(box.id) ?? ""}`}
              transform={`translate(${box.x - box.width / 2} ${box.y - box.height / 2})`}
            >
              <rect width={box.width} height={box.height} rx={box.kind === "function" ? 20 : 6} />
              <text x={box.width / 2} y={box.height / 2 + 4.5} text-anchor="middle">
                {short(box.name, box.width)}
                {box.count ? ` (${box.count})` : ""}
              </text>
              <title>{box.name}</title>
            </g>
          );
          const to = target(box);
          if (box.kind === "folder")
            return (
              <g
                key={box.id}
                role="button"
                tabIndex={0}
                aria-label={`Unfold ${box.name}`}
                onClick={() => onOpen(box.name)}
                onKeyDown={(event) => event.key === "Enter" && onOpen(box.name)}
              >
                {shape}
              </g>
            );
          return to ? (
            <a key={box.id} href={to} aria-label={`${box.kind} ${box.name}`} onClick={(event) => (event.preventDefault(), go(to))}>
              {shape}
            </a>
          ) : (
            <g key={box.id}>{shape}</g>
          );
        })}
      </svg>
    </div>
  );
}

const short = (name: string, width: number): string => {
  const most = Math.floor((width - 30) / 7.4);
  return name.length <= most ? name : `…${name.slice(1 - most)}`;
};
