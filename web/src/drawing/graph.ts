// The service graph: logs and functions, and what runs for, reads and appends to what.
import type { Flow, Fn, Log, Run } from "../host/api";

export interface Box {
  id: string;
  name: string;
  kind: "log" | "function" | "folder" | "peer";
  /** How many names a folder stands for. */
  count?: number;
  width: number;
  height: number;
}

export interface Edge {
  from: string;
  to: string;
  kind: "runs" | "appends" | "reads" | "sends";
  /** The flows whose records go along it. */
  flows: string[];
}

export interface Graph {
  boxes: Box[];
  edges: Edge[];
}

export interface Drawn {
  width: number;
  height: number;
  boxes: (Box & { x: number; y: number })[];
  edges: (Edge & { points: { x: number; y: number }[] })[];
}

export const BOXES_MAX = 200;
const ID = { log: (name: string) => `l:${name}`, function: (name: string) => `f:${name}` };
const width = (name: string) => Math.min(230, Math.max(90, name.length * 8 + 44));

/** The graph of the logs that run functions and that definitions name, and of what runs read and appended. Beyond 200 boxes, names fold by their prefixes. */
export function graphOf(functions: Fn[], logs: Log[], runs: Run[], flows: Flow[], open: ReadonlySet<string>): Graph {
  const edges = new Map<string, Edge>();
  const used = new Set<string>();
  const add = (from: string, to: string, kind: Edge["kind"], flow?: string) => {
    const key = `${from}\n${to}`;
    const before = edges.get(key);
    // An arrow that stands for more than reading says so, and counts the others.
    const isStronger = !before || (before.kind === "reads" && kind !== "reads");
    const edge = isStronger ? { from, to, kind, flows: [] } : before;
    if (flow && edge.kind === kind) edge.flows.push(flow);
    if (isStronger) edges.set(key, edge);
  };
  const known = new Set(logs.map((log) => log.name));
  // Functions whose appends were seen: what else they are permitted would only be noise.
  const seen = new Set([
    ...flows.filter((flow) => flow.kind === "appends").map((flow) => flow.function),
    ...runs.filter((run) => run.appends.length > 0).map((run) => run.function),
  ]);
  for (const fn of functions) {
    const id = ID.function(fn.name);
    for (const log of fn.on ?? []) (used.add(log), add(ID.log(log), id, "runs"));
    // A definition that allows every log says nothing; one that names some does.
    const allowed = new Set(seen.has(fn.name) ? [] : fn.appends);
    const isChoice = [...known].some((log) => !allowed.has(log) && !/^(_|dead\/)/.test(log));
    for (const log of isChoice ? allowed : []) if (known.has(log)) (used.add(log), add(id, ID.log(log), "appends"));
    for (const to of fn.sends ?? []) add(id, `p:${to}`, "sends");
  }
  for (const run of runs) {
    if (!run.function) continue;
    for (const { log } of run.appends)
      if (log && !log.startsWith("_")) (used.add(log), add(ID.function(run.function), ID.log(log), "appends"));
    for (const log of [...run.reads.map((it) => it.log), ...(run.keys ?? []).map((it) => it.table)]) {
      if (!log || functions.some((fn) => fn.name === run.function && fn.on?.includes(log))) continue;
      used.add(log);
      add(ID.log(log), ID.function(run.function), "reads");
    }
  }
  for (const flow of flows) {
    const log = flow.log && !flow.log.startsWith("_") ? flow.log : undefined;
    if (log) used.add(log);
    if (flow.kind === "runs" && log && flow.function) add(ID.log(log), ID.function(flow.function), "runs", flow.id);
    else if (flow.kind === "appends" && log && flow.function) add(ID.function(flow.function), ID.log(log), "appends", flow.id);
    else if (flow.kind === "reads" && log && flow.function) add(ID.log(log), ID.function(flow.function), "reads", flow.id);
    else if (flow.kind === "relays" && log && flow.to) add(ID.log(log), `p:${flow.to}`, "sends", flow.id);
    else if (flow.kind === "sends" && flow.to) {
      const by = [...edges.values()].filter((edge) => edge.to.startsWith("p:") && flow.to?.startsWith(edge.to.slice(2)));
      if (by.length === 1) by[0].flows.push(flow.id);
    }
  }
  const names = [...new Set([...used, ...(functions.length === 0 ? known : [])])].filter((name) => !name.startsWith("_"));
  const most = Math.max(1, Math.floor(BOXES_MAX / 2));
  const ownFolds = folding(functions.map((fn) => fn.name), most, open, /[/._-]/, "other functions");
  const folds = folding(names, BOXES_MAX - Math.min(functions.length, most), open, /\//, "other logs");
  const boxes = new Map<string, Box>();
  const put = (box: Omit<Box, "width" | "height">) => {
    const before = boxes.get(box.id);
    if (before?.count) before.count += 1;
    else if (!before) boxes.set(box.id, { ...box, width: width(box.name), height: 40 });
  };
  const home = new Map<string, string>();
  for (const { name } of functions) {
    const fold = ownFolds.get(name);
    const id = fold ? `e:${fold}` : ID.function(name);
    home.set(ID.function(name), id);
    put(fold ? { id, name: fold, kind: "folder", count: 1 } : { id, name, kind: "function" });
  }
  for (const name of names) {
    const fold = folds.get(name);
    const id = fold ? `d:${fold}` : ID.log(name);
    home.set(ID.log(name), id);
    put(fold ? { id, name: fold, kind: "folder", count: 1 } : { id, name, kind: "log" });
  }
  const moved = new Map<string, Edge>();
  for (const edge of edges.values()) {
    if (edge.to.startsWith("p:")) put({ id: edge.to, name: edge.to.slice(2), kind: "peer" });
    const [from, to] = [home.get(edge.from) ?? edge.from, home.get(edge.to) ?? edge.to];
    if (!boxes.has(from) || !boxes.has(to) || from === to) continue;
    const same = moved.get(`${from}\n${to}`);
    if (same && same.kind === edge.kind) same.flows.push(...edge.flows);
    else if (!same || same.kind === "reads") moved.set(`${from}\n${to}`, { ...edge, from, to, flows: [...edge.flows] });
  }
  return { boxes: [...boxes.values()], edges: [...moved.values()] };
}

/** For each name, the prefix that it folds into, if there are too many. */
function folding(names: string[], room: number, open: ReadonlySet<string>, joint: RegExp, rest: string): Map<string, string> {
  const folds = new Map<string, string>();
  if (names.length <= room) return folds;
  const sizes = new Map<string, number>();
  const prefixes = (name: string): string[] => {
    const found: string[] = [];
    for (let at = 0; at < name.length - 1; at += 1) if (joint.test(name[at])) found.push(name.slice(0, at + 1));
    return found;
  };
  for (const name of names) for (const prefix of prefixes(name)) sizes.set(prefix, (sizes.get(prefix) ?? 0) + 1);
  for (const name of names) {
    const prefix = prefixes(name).find((prefix) => !open.has(prefix) && (sizes.get(prefix) ?? 0) > 1);
    if (prefix) folds.set(name, prefix);
  }
  // Names without a common beginning share one box.
  const left = names.filter((name) => !folds.has(name));
  if (left.length > room && !open.has(rest)) for (const name of left.slice(Math.floor(room / 2))) folds.set(name, rest);
  return folds;
}
