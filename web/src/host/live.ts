// What changes in a namespace: one connection for the whole page. While it stands, screens need not ask again and again; when it breaks, they do.
import { useEffect, useReducer, useRef } from "preact/hooks";
import { type RecordDoc, Refused, type Run, follow, of } from "./api";

export interface Wants {
  /** Logs whose new records are told. */
  records?: string[];
  /** Whether runs are told that failed for good. */
  runs?: "all" | "dead";
}

export interface Heard {
  record?: (record: RecordDoc & { skipped?: number }) => void;
  run?: (run: Run) => void;
  /** Documents that have changed. */
  changed?: (names: string[]) => void;
}

interface Rates {
  t: string;
  logs?: Record<string, number>;
  functions?: Record<string, [number, number, number]>;
  edges?: Record<string, number>;
}

/** After a break, the connection is tried again after this time, which doubles. */
const RETRY_MS = 1000;
const RETRY_MAX_MS = 15_000;
/** Screens that change their wishes at once get one connection for all. */
const SETTLE_MS = 60;
/** Without a word for so long, the connection is broken. */
const SILENCE_MS = 20_000;

export class Live {
  /** Whether the connection stands and has told all counters. */
  on = false;
  /** When the host made the last counters. */
  at = "";
  /** The newest record of each log, and when that was told. */
  readonly logs = new Map<string, { latest: number; at: string }>();
  /** Of each function: ended and pending runs, and dead letters. */
  readonly functions = new Map<string, [number, number, number]>();
  /** How many records went along each flow. */
  readonly edges = new Map<string, number>();
  private readonly listeners = new Map<object, { wants: Wants; heard: Heard; redraw: () => void }>();
  private stop: AbortController | undefined;
  private timer = 0;
  private asked = "";
  private pause = RETRY_MS;

  constructor(private readonly namespace: string) {
    document.addEventListener("visibilitychange", () => this.settle());
  }

  listen(wants: Wants, heard: Heard, redraw: () => void): () => void {
    const key = {};
    this.listeners.set(key, { wants, heard, redraw });
    this.settle();
    return () => {
      this.listeners.delete(key);
      this.settle();
    };
  }

  /** Connects anew, for example with another capability. */
  again(): void {
    this.asked = "";
    this.settle();
  }

  private path(): string {
    const all = [...this.listeners.values()].map((it) => it.wants);
    const records = [...new Set(all.flatMap((it) => it.records ?? []))].sort();
    const runs = all.some((it) => it.runs === "all") ? "all" : all.some((it) => it.runs) ? "dead" : undefined;
    const rates = records.length > 0 ? "500ms" : "1s";
    return of(this.namespace, "live", { rates, records: records.slice(0, 16).join(","), runs });
  }

  private settle(afterMs = SETTLE_MS): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const path = this.listeners.size > 0 && !document.hidden ? this.path() : "";
      if (path === this.asked && (this.stop || !path)) return;
      this.stop?.abort();
      this.stop = undefined;
      this.asked = path;
      if (path) void this.connect(path);
      else this.off();
    }, afterMs);
  }

  private off(): void {
    if (!this.on) return;
    this.on = false;
    this.redraw();
  }

  private redraw(): void {
    for (const { redraw } of this.listeners.values()) redraw();
  }

  private async connect(path: string): Promise<void> {
    const stop = new AbortController();
    this.stop = stop;
    let silence = 0;
    const word = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE_MS);
    };
    let isRefused = false;
    try {
      word();
      await follow(path, stop.signal, (kind, data) => {
        word();
        if (stop.signal.aborted) return;
        if (kind === "failure") throw new Refused("", "The host ended the connection.");
        this.take(kind, JSON.parse(data));
      });
    } catch (error) {
      // A host that knows no such path, or does not permit it, is not asked again: screens ask as before.
      isRefused = error instanceof Refused && error.status >= 400 && error.status < 500 && error.status !== 429;
    }
    clearTimeout(silence);
    if (this.stop !== stop) return;
    this.stop = undefined;
    this.off();
    if (isRefused) return;
    this.asked = "";
    this.settle(this.pause);
    this.pause = Math.min(this.pause * 2, RETRY_MAX_MS);
  }

  private take(kind: string, data: unknown): void {
    if (kind === "rates") {
      const rates = data as Rates;
      this.pause = RETRY_MS;
      if (!this.on) {
        this.logs.clear();
        this.functions.clear();
        this.edges.clear();
      }
      for (const [name, latest] of Object.entries(rates.logs ?? {})) this.logs.set(name, { latest, at: this.on ? rates.t : "" });
      for (const [name, counters] of Object.entries(rates.functions ?? {})) this.functions.set(name, counters);
      for (const [id, records] of Object.entries(rates.edges ?? {})) this.edges.set(id, records);
      this.at = rates.t;
      this.on = true;
      this.redraw();
    } else if (kind === "record") for (const { heard } of this.listeners.values()) heard.record?.(data as RecordDoc);
    else if (kind === "run") for (const { heard } of this.listeners.values()) heard.run?.(data as Run);
    else if (kind === "state") for (const { heard } of this.listeners.values()) heard.changed?.((data as { changed: string[] }).changed);
  }
}

const known = new Map<string, Live>();

export function liveOf(namespace: string): Live {
  let live = known.get(namespace);
  if (!live) known.set(namespace, (live = new Live(namespace)));
  return live;
}

/** Connects anew, for example with another capability. */
export const reconnect = (): void => known.forEach((live) => live.again());

/** The counters of a namespace, as they change. */
export function useLive(namespace: string, wants: Wants = {}, heard: Heard = {}): Live {
  const live = liveOf(namespace);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const latest = useRef(heard);
  latest.current = heard;
  const wanted = JSON.stringify(wants);
  useEffect(
    () =>
      live.listen(
        JSON.parse(wanted) as Wants,
        {
          record: (record) => latest.current.record?.(record),
          run: (run) => latest.current.run?.(run),
          changed: (names) => latest.current.changed?.(names),
        },
        () => redraw(0),
      ),
    [live, wanted],
  );
  return live;
}

/** Calls `act` when one of these documents has changed, and not more often than so. */
export function useChanges(act: () => void, everyMs: number): (names: string[]) => void {
  const latest = useRef(act);
  latest.current = act;
  const state = useRef({ at: 0, timer: 0 });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return () => {
    const it = state.current;
    if (it.timer) return;
    it.timer = setTimeout(
      () => {
        it.timer = 0;
        it.at = Date.now();
        latest.current();
      },
      Math.max(0, it.at + everyMs - Date.now()),
    );
  };
}
