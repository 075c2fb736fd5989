import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refused, ask } from "./host/api";

export interface Answer<T> {
  data: T | undefined;
  /** The last refusal; the data before it stays. */
  error: Refused | undefined;
  again: () => void;
}

const refused = (error: unknown): Refused => (error instanceof Refused ? error : new Refused("", String(error)));

/** When a request is made again that got no answer. */
const RETRY_MS = 2000;

/**
 * Asks for a document, and every so often again while the page is visible; again in any case if there was no answer. Nothing is asked
 * without a path.
 */
export function useAsk<T>(path: string | null, everyMs = 0): Answer<T> {
  const [answer, set] = useState<{ path: string | null; data?: T; error?: Refused }>({ path });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((turn) => turn + 1), []);
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    let timer = 0;
    const next = (afterMs: number) => {
      if (afterMs > 0 && !stop.signal.aborted) timer = setTimeout(look, afterMs);
    };
    const look = async () => {
      if (document.hidden && everyMs > 0) return next(everyMs);
      try {
        const data = await ask<T>(path, { signal: stop.signal });
        set({ path, data });
        next(everyMs);
      } catch (error) {
        if (stop.signal.aborted) return;
        const { code } = refused(error);
        set((before) => ({ path, data: before.path === path ? before.data : undefined, error: refused(error) }));
        next(everyMs > 0 || code !== "" ? everyMs : RETRY_MS);
      }
    };
    void look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, turn]);
  const isOfPath = answer.path === path;
  return { data: isOfPath ? answer.data : undefined, error: isOfPath ? answer.error : undefined, again };
}

/** An operation that a button starts. */
export function useDoing<A extends unknown[], T>(act: (...args: A) => Promise<T>) {
  const [state, set] = useState<{ busy: boolean; done?: T; error?: Refused }>({ busy: false });
  const latest = useRef(act);
  latest.current = act;
  const run = useCallback(async (...args: A): Promise<T | undefined> => {
    set({ busy: true });
    try {
      const done = await latest.current(...args);
      set({ busy: false, done });
      return done;
    } catch (error) {
      set({ busy: false, error: refused(error) });
      return undefined;
    }
  }, []);
  return { ...state, run };
}

/** A value that the browser keeps between visits. */
export function useKept(name: string, usual: string): [string, (value: string) => void] {
  const key = `millrace.${name}`;
  const [value, set] = useState(() => localStorage.getItem(key) ?? usual);
  return [
    value,
    (value) => {
      localStorage.setItem(key, value);
      set(value);
    },
  ];
}

/** The time, for "3 s ago". */
export function useNow(everyMs = 1000): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || set(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
