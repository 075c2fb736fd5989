// The frame: navigation, the choice of the namespace, search, access, help, and the screen that the address names.
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Refused, hasCapability, isForwarded, of, takeCapability, takeCode, useCapability } from "./host/api";
import { useAsk } from "./hooks";
import { reconnect } from "./host/live";
import { Empty, Failure, Field, Icon, Waiting, submit } from "./parts";
import { type Route, go, href, useRoute } from "./router";

export interface ScreenProps {
  route: Route;
  namespace: string;
}
type Screen = ComponentType<ScreenProps>;

const SCREENS: Record<string, () => Promise<{ default: Screen }>> = {
  overview: () => import("./screens/overview"),
  map: () => import("./screens/map"),
  logs: () => import("./screens/logs/logs"),
  tables: () => import("./screens/tables"),
  runs: () => import("./screens/runs"),
  failures: () => import("./screens/failures"),
  devices: () => import("./screens/devices"),
  tasks: () => import("./screens/tasks"),
  functions: () => import("./screens/functions"),
  trace: () => import("./screens/trace"),
  repairs: () => import("./screens/repairs/repairs"),
  links: () => import("./screens/places").then((it) => ({ default: it.Links })),
  cluster: () => import("./screens/places").then((it) => ({ default: it.Cluster })),
  capabilities: () => import("./screens/capabilities"),
  objects: () => import("./screens/places").then((it) => ({ default: it.Objects })),
};

/** Screens in the navigation: their names and the letters that lead there after `g`. */
const NAV: [string, string, string][] = [
  ["overview", "Overview", "o"],
  ["map", "Map", "m"],
  ["logs", "Logs", "l"],
  ["runs", "Runs", "r"],
  ["failures", "Failures", "f"],
  ["functions", "Functions", "u"],
  ["tables", "Tables", "d"],
  ["tasks", "Tasks", "k"],
  ["repairs", "Repairs", "p"],
  ["devices", "Devices", "v"],
  ["links", "Links", "i"],
  ["cluster", "Cluster", "c"],
  ["objects", "Objects", "b"],
  ["capabilities", "Capabilities", "a"],
];
/** Those that a phone shows without “more”. */
const FIRST = 4;

export function Shell() {
  const route = useRoute();
  const [dialog, setDialog] = useState<"help" | "access" | "more" | null>(null);
  const [access, setAccess] = useState(0);
  const [login, setLogin] = useState<{ busy: boolean; error?: Refused }>({ busy: location.hash.startsWith("#code=") });
  useKeys(route, setDialog);
  const exchange = () => {
    if (!location.hash.startsWith("#code=")) return;
    takeCode(route.namespace).then(
      () => (setLogin({ busy: false }), reconnect(), setAccess((n) => n + 1)),
      (error: Refused) => setLogin({ busy: false, error }),
    );
  };
  useEffect(() => {
    const taken = () => {
      takeCapability();
      reconnect();
      setAccess((n) => n + 1);
    };
    addEventListener("hashchange", taken);
    addEventListener("hashchange", exchange);
    exchange();
    return () => {
      removeEventListener("hashchange", taken);
      removeEventListener("hashchange", exchange);
    };
  }, []);
  useEffect(() => {
    const name = NAV.find(([id]) => id === route.screen)?.[1] ?? route.screen;
    document.title = [route.rest, name, route.namespace].filter(Boolean).join(" · ") || "Millrace";
  }, [route]);
  const at = route.screen === "trace" ? "runs" : route.screen;
  const items = NAV.map(([id, name], number) => (
    <a
      key={id}
      href={href(route.namespace, id === "overview" ? "" : id)}
      aria-current={at === id ? "page" : undefined}
      class={number < FIRST ? "first" : ""}
    >
      <Icon name={id} />
      <span>{name}</span>
    </a>
  ));
  return (
    <div class={`shell ${route.namespace ? "" : "bare"}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <div class="top" role="banner">
        <a class="brand" href="/ui/" aria-label="Millrace: all namespaces">
          <Wheel />
          <span>Millrace</span>
        </a>
        {route.namespace && (
          <a class="crumb mono" href={href(route.namespace)}>
            {route.namespace}
          </a>
        )}
        <span class="space" />
        {route.namespace && <Search namespace={route.namespace} />}
        <button type="button" class="ghost" aria-label="Change the theme" title="Change the theme" onClick={changeTheme}>
          <Icon name="theme" />
        </button>
        <button
          type="button"
          class={`ghost ${hasCapability() ? "on" : ""}`}
          aria-label="Access"
          title="Access"
          onClick={() => setDialog("access")}
        >
          <Icon name="key" />
        </button>
        <button type="button" class="ghost big" aria-label="Help" title="Help (?)" onClick={() => setDialog("help")}>
          <Icon name="help" />
        </button>
      </div>
      {route.namespace && (
        <nav class="nav" aria-label="Screens">
          {items}
          <button type="button" class="more first" onClick={() => setDialog("more")}>
            <Icon name="more" />
            <span>More</span>
          </button>
        </nav>
      )}
      <main id="main" tabIndex={-1}>
        {login.error && <Failure of={login.error} />}
        {login.busy ? <Waiting /> : route.namespace ? <Shown key={access} route={route} /> : <Namespaces />}
      </main>
      {dialog === "help" && <Help onClose={() => setDialog(null)} />}
      {dialog === "access" && <Access onClose={() => setDialog(null)} onChange={() => (reconnect(), setAccess((n) => n + 1))} />}
      {dialog === "more" && (
        <Dialog title="Screens" onClose={() => setDialog(null)}>
          <nav class="all" aria-label="All screens" onClick={() => setDialog(null)}>
            {items}
          </nav>
        </Dialog>
      )}
    </div>
  );
}

/** A screen that fails says so, and the navigation stays. */
class Guarded extends Component<{ children: ComponentChildren }, { failed?: string }> {
  componentDidCatch(error: unknown) {
    this.setState({ failed: String(error) });
  }
  render() {
    const { failed } = this.state;
    if (!failed) return this.props.children;
    return <Failure of={{ code: "", detail: failed, remedy: "This is a defect of the dashboard: please report the message." }} />;
  }
}

const Wheel = () => (
  <svg class="wheel" width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="8" />
    <path d="M5 23c3.500 0 3.500-2.500 7.300-2.500s3.700 2.500 7.400 2.500 3.700-2.500 7.300-2.500" />
    <circle cx="16" cy="12" r="5.200" />
    <path d="M16 6.800v10.400M10.800 12h10.400" />
  </svg>
);

function changeTheme(): void {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("millrace.theme", root.dataset.theme);
}

/** The screen of an address; each is loaded when it is first shown. */
function Shown({ route }: { route: Route }) {
  const [loaded, set] = useState<{ name: string; Screen?: Screen; failed?: boolean }>({ name: "" });
  const name = route.screen;
  const load = SCREENS[name];
  useEffect(() => {
    let current = true;
    load?.().then(
      (it) => current && set({ name, Screen: it.default }),
      () => current && set({ name, failed: true }),
    );
    return () => void (current = false);
  }, [name]);
  if (!load) {
    return (
      <Empty title="There is no such screen">
        <a href={href(route.namespace)}>To the overview</a>
      </Empty>
    );
  }
  if (loaded.name !== name) return <Waiting />;
  if (!loaded.Screen)
    return (
      <Failure
        of={{ code: "", detail: "The screen could not be loaded.", remedy: "The host may have been updated: load the page again." }}
      />
    );
  return (
    <Guarded key={`${route.namespace}/${name}/${name === "logs" ? route.rest : ""}`}>
      <loaded.Screen route={route} namespace={route.namespace} />
    </Guarded>
  );
}

interface Summary {
  name: string;
  id: string;
  durability: string;
  logs: number;
  functions: number;
}

function Namespaces() {
  const answer = useAsk<{ namespaces: Summary[] }>("/v1/namespaces", 5000);
  const list = answer.data?.namespaces;
  useEffect(() => {
    if (list?.length === 1) {
      history.replaceState(null, "", href(list[0].name));
      dispatchEvent(new PopStateEvent("popstate"));
    }
  }, [list?.length]);
  if (!list) return answer.error ? <Failure of={answer.error} /> : <Waiting />;
  return (
    <div class="narrow">
      <h1>Namespaces</h1>
      {list.length === 0 && (
        <Empty title="You may observe no namespace of this host as a whole">
          <p>
            A narrow capability shows parts of its namespace at <code>/ui/NAME</code>. The user who runs the host sees everything at a
            loopback address.
          </p>
          <form
            onSubmit={submit(() => {
              const name = (document.getElementById("name") as HTMLInputElement).value.trim();
              if (name) go(href(name));
            })}
          >
            <Field label="Name of a namespace">
              <input id="name" autocomplete="off" />
            </Field>
            <button type="submit" class="primary">
              Open
            </button>
          </form>
        </Empty>
      )}
      <ul class="places">
        {list.map((it) => (
          <li key={it.id}>
            <a href={href(it.name)}>
              <strong>{it.name}</strong>
              <span class="muted">
                {it.logs} logs, {it.functions} functions, durability {it.durability}
              </span>
            </a>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Jumps to a log, a record `LOG@SEQNO`, a run or an event. */
function Search({ namespace }: { namespace: string }) {
  const [text, set] = useState("");
  const answer = useAsk<{ logs: { name: string }[] }>(
    text.length > 0 && !text.includes("@") ? of(namespace, "logs", { prefix: text, limit: 8 }) : null,
  );
  const enter = () => {
    const wanted = text.trim();
    if (!wanted) return;
    const record = /^(.+)@(\d+)$/.exec(wanted);
    if (record) go(href(namespace, "logs", record[1], { at: record[2] }));
    else if (/^[0-9a-f]{12}-[0-9a-f]+-[0-9a-f]+$/.test(wanted)) go(href(namespace, "trace", wanted));
    else go(href(namespace, "logs", answer.data?.logs[0]?.name ?? wanted));
    set("");
    (document.activeElement as HTMLElement | null)?.blur();
  };
  return (
    <form class="search" role="search" onSubmit={submit(enter)}>
      <Icon name="search" size={16} />
      <input
        id="search"
        list="found"
        value={text}
        onInput={(event) => set(event.currentTarget.value)}
        placeholder="Log, record or id"
        aria-label="Search: a log, LOG@SEQNO, or the id of a run or event"
        autocomplete="off"
        spellcheck={false}
      />
      <kbd aria-hidden="true">/</kbd>
      <datalist id="found">
        {answer.data?.logs.map((log) => (
          <option key={log.name} value={log.name} />
        ))}
      </datalist>
    </form>
  );
}

function useKeys(route: Route, setDialog: (dialog: "help" | null) => void): void {
  const went = useRef(0);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.matches("input, textarea, select")) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") setDialog("help");
      else if (event.key === "g") went.current = Date.now();
      else if (Date.now() - went.current < 1500) {
        went.current = 0;
        const found = NAV.find(([, , letter]) => letter === event.key);
        if (found && route.namespace) go(href(route.namespace, found[0] === "overview" ? "" : found[0]));
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [route]);
}

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return (
    <dialog ref={box} onClose={onClose} onClick={(event) => event.target === box.current && box.current?.close()} aria-label={title}>
      <div class="dialog">
        <div class="card-head">
          <h2>{title}</h2>
          <button type="button" class="ghost" onClick={() => box.current?.close()}>
            Close
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

const Help = ({ onClose }: { onClose: () => void }) => (
  <Dialog title="Help" onClose={onClose}>
    <dl class="keys">
      <div>
        <dt>
          <kbd>/</kbd>
        </dt>
        <dd>search a log, a record LOG@SEQNO, a run or an event</dd>
      </div>
      {NAV.map(([id, name, letter]) => (
        <div key={id}>
          <dt>
            <kbd>g</kbd> <kbd>{letter}</kbd>
          </dt>
          <dd>{name}</dd>
        </div>
      ))}
      <div>
        <dt>
          <kbd>t</kbd>
        </dt>
        <dd>show a plot as a table</dd>
      </div>
      <div>
        <dt>
          <kbd>?</kbd>
        </dt>
        <dd>this help</dd>
      </div>
    </dl>
    <p class="muted">
      The command below a title does the same in a terminal. For a host elsewhere, commands take{" "}
      <code>--namespace mr://HOST:PORT/NAME</code>.
    </p>
  </Dialog>
);

function Access({ onClose, onChange }: { onClose: () => void; onChange: () => void }) {
  const [text, set] = useState("");
  const isOne = /^mr1_[\w-]+$/.test(text.trim());
  const use = (value: string | null) => {
    useCapability(value);
    onChange();
    onClose();
  };
  return (
    <Dialog title="Access" onClose={onClose}>
      {isForwarded() ? (
        <p>
          <code>millrace dashboard</code> on this machine forwards what this page asks, with the capability that it has for the host.
        </p>
      ) : hasCapability() ? (
        <>
          <p>This tab uses a capability. It is forgotten when the tab is closed.</p>
          <button type="button" onClick={() => use(null)}>
            Forget it
          </button>
        </>
      ) : (
        <p>This tab uses no capability: at a loopback address, the user who runs the host has all rights.</p>
      )}
      {!isForwarded() && <form onSubmit={submit(() => isOne && use(text.trim()))}>
        <Field label="A capability (mr1_…)">
          <input type="password" value={text} onInput={(event) => set(event.currentTarget.value)} autocomplete="off" />
        </Field>
        <button type="submit" class="primary" disabled={!isOne}>
          Use it in this tab
        </button>
      </form>}
      <p class="muted">
        <code>millrace cap issue --read raw/ --expires 12h --out reader.cap</code> issues one, and{" "}
        <code>millrace dashboard --capability reader.cap</code> prints a link with it.
      </p>
    </Dialog>
  );
}
