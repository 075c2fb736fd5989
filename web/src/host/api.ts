// The public HTTP interface. The dashboard has no other.

/** The host's refusal, or the reason why there is no answer. */
export class Refused extends Error {
  constructor(
    readonly code: string,
    readonly detail: string,
    readonly remedy = "",
    readonly status = 0,
    /** Whether the capability of this tab worked before. */
    readonly isEnded = false,
  ) {
    super(detail);
  }

  /** Whether the caller lacks a right, or is unknown. */
  get isDenied(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

const KEY = "millrace.capability";
let capability = sessionStorage.getItem(KEY);
/** Whether the host has accepted it. */
let isAccepted = false;

/**
 * Takes a capability from the address (`#cap=…`) and removes it there: it stays in this tab. The pages that `millrace dashboard` serves for
 * a host elsewhere have a key instead (`#key=…`).
 */
export function takeCapability(): void {
  const found = /^#(?:cap=(mr1_[\w-]+)|key=([0-9a-f]{64}))$/.exec(location.hash);
  if (/^#(cap|key)=/.test(location.hash)) history.replaceState(history.state, "", location.pathname + location.search);
  if (found) useCapability(found[1] ?? found[2]);
}

/** Exchanges the code of a link (`#code=…`) for a capability. Whether there was one. */
export async function takeCode(namespace: string): Promise<boolean> {
  const found = /^#code=([0-9a-f]{32})$/.exec(location.hash);
  if (location.hash.startsWith("#code=")) history.replaceState(history.state, "", location.pathname + location.search);
  if (!found) return false;
  const { capability } = await ask<{ capability: string }>(of(namespace, "login"), { method: "POST", json: { code: found[1] } });
  useCapability(capability);
  return true;
}

export function useCapability(text: string | null): void {
  capability = text;
  isAccepted = false;
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

export const hasCapability = (): boolean => capability !== null;

/** Whether this page is served by `millrace dashboard` for a host elsewhere. */
export const isForwarded = (): boolean => capability !== null && !capability.startsWith("mr1_");

export interface Asking {
  method?: string;
  json?: unknown;
  body?: BodyInit;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

function refusal(status: number, text: string): Refused {
  try {
    const { code, detail, remedy } = JSON.parse(text).error;
    return new Refused(String(code), String(detail), String(remedy ?? ""), status, status === 401 && isAccepted);
  } catch {
    return new Refused("", `the host answered ${status}`, "", status);
  }
}

async function asked(path: string, asking: Asking): Promise<Response> {
  const headers: Record<string, string> = { ...asking.headers };
  if (capability) headers.authorization = `Bearer ${capability}`;
  if (asking.json !== undefined) headers["content-type"] = "application/json";
  const body = asking.json === undefined ? asking.body : JSON.stringify(asking.json);
  try {
    const answer = await fetch(path, { method: asking.method ?? "GET", headers, body, signal: asking.signal });
    if (answer.ok && capability) isAccepted = true;
    return answer;
  } catch (error) {
    if (asking.signal?.aborted) throw error;
    const remedy = isForwarded() ? "Check that `millrace dashboard` still runs on this machine." : "Check that it is running: `millrace serve`.";
    throw new Refused("", "The host does not answer.", `${remedy} This page tries again by itself.`);
  }
}

export async function ask<T>(path: string, asking: Asking = {}): Promise<T> {
  const answer = await asked(path, asking);
  const text = await answer.text();
  if (!answer.ok) throw refusal(answer.status, text);
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Refused("", "The answer is not JSON.");
  }
}

/** The first bytes of a long record. */
export async function beginning(path: string, seqno: number, signal?: AbortSignal): Promise<RecordDoc> {
  const answer = await asked(path, { signal, headers: { range: "bytes=0-4095" } });
  if (!answer.ok) throw refusal(answer.status, await answer.text());
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const head = (name: string) => answer.headers.get(`millrace-${name}`);
  const record = { log: "", seqno, id: head("id") ?? "", time: head("time") ?? "", cause: head("cause") };
  try {
    return { ...record, data: new TextDecoder("utf-8", { fatal: true }).decode(bytes) };
  } catch {
    return { ...record, base64: btoa(String.fromCharCode(...bytes)) };
  }
}

/** Follows server-sent events until the signal aborts. A browser's own EventSource can send no capability. */
export async function follow(path: string, signal: AbortSignal, event: (kind: string, data: string) => void): Promise<void> {
  const answer = await asked(path, { signal });
  if (!answer.ok || !answer.body) throw refusal(answer.status, await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    left += value;
    const parts = left.split("\n\n");
    left = parts.pop() ?? "";
    for (const part of parts) {
      let [kind, data] = ["message", ""];
      for (const line of part.split("\n")) {
        if (line.startsWith("event:")) kind = line.slice(6).trim();
        else if (line.startsWith("data:")) data += line.slice(5).trimStart();
      }
      if (data) event(kind, data);
    }
  }
}

/** The path of something below a namespace. */
export const of = (namespace: string, path: string, query: Record<string, string | number | undefined> = {}): string => {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return `/v1/namespaces/${encodeURIComponent(namespace)}/${path}${text ? `?${text}` : ""}`;
};

export const enc = encodeURIComponent;

export interface RecordDoc {
  log: string;
  seqno: number;
  id: string;
  time: string;
  cause: string | null;
  data?: string;
  base64?: string;
}

export interface Log {
  name: string;
  history: number | null;
  records: number;
  earliest: number;
  latest: number;
  functions: string[];
  last_append: string | null;
  incarnation: number;
  /** The field of its records that has the time of the observation, if one has. */
  time?: TimeField;
}

/** A key that is text, or its bytes. */
export type Key = string | { base64: string };

export interface TableDoc {
  table: string;
  keys: "text" | "bytes";
  codec: "json" | "text" | "bytes";
  ttl_ms: number;
  database?: string;
  mode?: string;
  history: number | null;
  latest: number;
  replica?: Replica;
}

/** How far a replica of a table is that another namespace owns. */
export interface Replica {
  owner: string;
  stage: "new" | "loading" | "following";
  connected: boolean;
  records?: number;
  age_ms?: number;
  trouble?: { code: string; error: string; stopped: boolean };
}

/** A version of a key. */
export interface TableEntry {
  key: Key;
  version: number;
  time?: string;
  expires?: string;
  deleted?: boolean;
  data?: string;
  base64?: string;
}

export interface Database {
  database: string;
  url: string;
  tables: string[];
  server: string | null;
  unwritten: number;
  unwritten_bytes: number;
  oldest_ms: number | null;
  waiting: number;
  transactions: number;
  rows: number;
  trouble: { code: string; error: string; stopped: boolean } | null;
}

export interface RefusedDevice {
  device: string;
  known_by: "right" | "claim" | "capability";
  identity?: string;
  code: string;
  detail: string;
  remedy: string;
  first: string;
  last: string;
  times: number;
  address?: string;
  capability?: string;
}

export interface Firmware {
  running?: string;
  slot_bytes?: number;
  update?: {
    number: number;
    version: string;
    size: number;
    state: "storing" | "waiting" | "receiving" | "ready" | "trial" | "confirmed" | "reverted" | "refused";
    sent: number;
    code?: string;
    detail?: string;
  };
}

/** A device whose journal is imported. */
export interface Device {
  name: string;
  /** Its identity. */
  namespace: number;
  /** The time of its newest entry. */
  time?: string;
  presence?: { connected: boolean; since?: string; until?: string; expected?: string };
  records: number;
  runs: number;
  dead: number;
  starts: number;
  lost_records: number;
  /** Its logs here, each with the number of its newest record. */
  logs: [string, number][];
  /** Its logs, as its firmware declares them. */
  kept?: { log: string; history: number; keep?: boolean; commands?: boolean }[];
  commands_waiting: number;
  commands_refused?: { code: string; detail: string };
  capability?: string;
  shown?: string;
  refused?: RefusedDevice[];
  firmware?: Firmware;
}

export interface TimeField {
  /** A JSON pointer. */
  field: string;
  /** What numbers in it count since 1970. */
  unit?: "s" | "ms" | "us";
}

export interface Folder {
  name: string;
  logs: number;
  records: number;
}

export interface Rate {
  log: string;
  from: string;
  until: string;
  records: number;
  counts: number[];
  first: number[];
}

export interface Series {
  log: string;
  field: string;
  from: string;
  until: string;
  records: number;
  read: number;
  numbers: number;
  sampled: boolean;
  /** If the log has such a field, all times here are those of the observation. */
  observed?: TimeField;
  /** How many of the records have no time there. */
  untimed?: number;
  points: { time: string; seqno: number; count: number; min: number; max: number; mean: number; last: number }[];
}

export interface Flow {
  id: string;
  kind: "runs" | "appends" | "reads" | "relays" | "sends";
  function: string | null;
  log: string | null;
  to: string | null;
  records: number;
}

export interface Flows {
  since: string;
  edges: Flow[];
  more: boolean;
}

export interface Fn {
  name: string;
  triggered: number;
  done: number;
  pending: number;
  dead: number;
  dead_kept: number;
  dead_retried: number;
  runtime?: string;
  on?: string[];
  ordered?: boolean;
  streamed?: boolean;
  network?: boolean;
  reads?: string[] | null;
  appends?: string[] | null;
  sends?: string[];
  secrets?: string[];
  concurrency?: number;
  monitor?: string | null;
  retries?: number;
  dead_letter?: string;
  code?: string;
  error?: { code: string; detail: string };
}

export interface RecordName {
  log: string | null;
  seqno: number;
}

export interface Run extends RecordName {
  id: string;
  function: string | null;
  state: "pending" | "started" | "done" | "dead" | "cancelled";
  cause: string | null;
  caused_by: string | null;
  triggered: string;
  ended: string | null;
  attempts: { attempt: number; time: string }[];
  reads: RecordName[];
  keys?: { table: string | null; absent?: Key; from?: Key; to?: Key; limit?: number }[];
  appends: RecordName[];
  output: string | null;
  error: { code: string; detail: string } | null;
  retried_as?: string;
  partial?: boolean;
}

export interface Runs {
  runs: Run[];
  next: string | null;
}

export interface FailureGroup extends RecordName {
  function: string;
  code: string;
  letters: number;
  waiting: number;
  first: string;
  last: string;
  run: string | null;
  error: string;
  dead_letter: string;
}

export interface Failures {
  failures: FailureGroup[];
  letters: number;
  more: boolean;
}

export interface Pool {
  pool: string;
  function: string;
  runtime: string;
  workers: number;
  queued: number;
  running: number;
  retrying: number;
  done: number;
  failed: number;
  results: number;
  raised: number;
  last: string | null;
}

export interface Why {
  target: string;
  reasons: { reason: string; text: string; function?: string; log?: string; run?: string; waiting?: number; repair?: number }[];
}

export interface Status {
  name: string;
  id: string;
  epoch: number;
  durability: string;
  healthy: boolean;
  failure?: string;
  blocked?: string;
  disk_low?: string;
  first: number;
  tail: number;
  durable: number;
  uptime_ms: number;
  draining: boolean;
  addresses?: string[];
  host: {
    pid: number;
    failure: string | null;
    runs_done: number;
    runs_failed: number;
    sandbox?: { level: string; summary: string };
  } | null;
}

export interface Branch {
  id: string;
  link: string | null;
  above: number | null;
  time: string;
  more: number;
  record?: {
    log: string | null;
    seqno: number;
    key?: Key;
    deleted?: boolean;
    bytes: number;
    cut?: boolean;
    repair?: number;
    void?: boolean;
    data?: string;
    base64?: string;
  };
  run?: {
    function: string | null;
    state: Run["state"] | null;
    attempts: number;
    began: string | null;
    ended: string | null;
    code: string | null;
    replayed_by?: number;
  };
}

export interface Trace {
  event: string;
  direction: string;
  branches: Branch[];
  records: number;
  runs: number;
  unknown: number;
  entries: number;
  next: number | null;
}

export interface Repair {
  repair: number;
  phase: string;
  reason: string;
  at_us: number;
  log: string | null;
  function: string | null;
  records: number;
  undo: number | null;
  auto: boolean;
  counts: Record<"replayed" | "same" | "failed" | "cancelled" | "replaced" | "void" | "appended", number>;
  progress: { examined: number; runs: number } | null;
  error: string[] | null;
  waits: string[] | null;
  not_run: { function: string; runs: number }[];
}
