// The service graph: logs and functions, and what runs for, reads and appends to what.
import type { Fn, Log, Run } from "./api";

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

/** The graph of the logs that run functions and that definitions name, and of what the newest runs read and appended. Beyond 200 boxes, logs fold by their prefixes. */
export function graphOf(functions: Fn[], logs: Log[], runs: Run[], open: ReadonlySet<string>): Graph {
  const edges = new Map<string, Edge>();
  const used = new Set<string>();
  const add = (from: string, to: string, kind: Edge["kind"]) => {
    const key = `${from}\n${to}`;
    // An arrow that stands for more than reading says so.
    if (!edges.has(key) || edges.get(key)?.kind === "reads") edges.set(key, { from, to, kind });
  };
  const known = new Set(logs.map((log) => log.name));
  for (const fn of functions) {
    const id = ID.function(fn.name);
    for (const log of fn.on ?? []) (used.add(log), add(ID.log(log), id, "runs"));
    // A definition that allows every log says nothing; one that names logs does.
    for (const log of (fn.appends ?? []).filter((scope) => !scope.endsWith("/")))
      if (known.has(log)) (used.add(log), add(id, ID.log(log), "appends"));
    for (const to of fn.sends ?? []) add(id, `p:${to}`, "sends");
  }
  for (const run of runs) {
    if (!run.function) continue;
    for (const { log } of run.appends)
      if (log && !log.startsWith("_")) (used.add(log), add(ID.function(run.function), ID.log(log), "appends"));
    for (const { log } of run.reads) {
      if (!log || functions.some((fn) => fn.name === run.function && fn.on?.includes(log))) continue;
      used.add(log);
      add(ID.log(log), ID.function(run.function), "reads");
    }
  }
  const names = [...new Set([...used, ...(functions.length === 0 ? known : [])])].filter((name) => !name.startsWith("_"));
  const folds = folding(names, BOXES_MAX - functions.length, open);
  const boxes = new Map<string, Box>();
  const put = (box: Omit<Box, "width" | "height">) => {
    const before = boxes.get(box.id);
    if (before?.count) before.count += 1;
    else if (!before) boxes.set(box.id, { ...box, width: width(box.name), height: 40 });
  };
  for (const fn of functions.slice(0, BOXES_MAX)) put({ id: ID.function(fn.name), name: fn.name, kind: "function" });
  const home = new Map<string, string>();
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
    if (boxes.has(from) && boxes.has(to) && from !== to) moved.set(`${from}\n${to}`, { ...edge, from, to });
  }
  return { boxes: [...boxes.values()], edges: [...moved.values()] };
}

/** For each name, the prefix that it folds into, if there are too many. */
function folding(names: string[], room: number, open: ReadonlySet<string>): Map<string, string> {
  const folds = new Map<string, string>();
  if (names.length <= room) return folds;
  for (const name of names) {
    const steps = name.split("/");
    for (let depth = 1; depth < steps.length; depth += 1) {
      const prefix = `${steps.slice(0, depth).join("/")}/`;
      if (open.has(prefix)) continue;
      folds.set(name, prefix);
      break;
    }
  }
  // Names without a slash share one box.
  const left = names.filter((name) => !folds.has(name));
  if (left.length > room && !open.has("other logs")) for (const name of left.slice(room / 2)) folds.set(name, "other logs");
  return folds;
}
