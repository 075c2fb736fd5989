// Addresses: /ui/NAMESPACE/SCREEN/REST?QUERY. The whole state of a view is in its address.
import { useEffect, useState } from "preact/hooks";

export interface Route {
  namespace: string;
  screen: string;
  /** What follows the screen, decoded: a log's name, a run's id. */
  rest: string;
  query: URLSearchParams;
}

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

export function route(): Route {
  const [namespace = "", screen = "", ...rest] = location.pathname
    .replace(/^\/ui\/?/, "")
    .split("/")
    .map(decoded);
  return { namespace, screen: screen || "overview", rest: rest.join("/"), query: new URLSearchParams(location.search) };
}

const listeners = new Set<() => void>();
const changed = () => listeners.forEach((listener) => listener());
addEventListener("popstate", changed);

/** An address. The slashes of a log's name stay slashes. */
export const href = (namespace: string, screen = "", rest = "", query: Record<string, string | number | undefined> = {}): string => {
  const path = ["/ui", encodeURIComponent(namespace), screen, ...(rest ? rest.split("/").map(encodeURIComponent) : [])];
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return path.filter((part, at) => at === 0 || part !== "").join("/") + (text ? `?${text}` : "");
};

export function go(address: string): void {
  history.pushState(null, "", address);
  changed();
  scrollTo(0, 0);
  document.getElementById("main")?.focus({ preventScroll: true });
}

/** Changes parts of the query in place. */
export function setQuery(parts: Record<string, string | number | undefined>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(parts)) {
    if (value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  changed();
}

export function useRoute(): Route {
  const [now, set] = useState(route);
  useEffect(() => {
    const listener = () => set(route());
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return now;
}

// Links between screens load no page.
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  if (link.origin !== location.origin || !link.pathname.startsWith("/ui/")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
