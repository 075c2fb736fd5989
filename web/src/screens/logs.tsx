// The tree of names, one level at a time, and one log.
import { useEffect, useState } from "preact/hooks";
import { type Log, Refused, ask, of } from "../api";
import { grouped } from "../format";
import { useNow } from "../hooks";
import { Act, Card, Cmd, Empty, Failure, Field, Head, Icon, Table, Time, Waiting, submit } from "../parts";
import { go, href, setQuery } from "../router";
import type { ScreenProps } from "../shell";
import { LogScreen } from "./log";

export default function Logs(props: ScreenProps) {
  return props.route.rest ? <LogScreen {...props} log={props.route.rest} /> : <Tree {...props} />;
}

interface Level {
  folders: string[];
  logs: Log[];
  /** Where to go on. */
  more?: string;
}

const PAGE = 500;
const REQUESTS_MAX = 40;

/** One level of names. What is inside a folder is passed over: no character of a name is behind `~`. */
async function level(namespace: string, prefix: string, after: string, signal: AbortSignal): Promise<Level> {
  const found: Level = { folders: [], logs: [] };
  for (let requests = 0; requests < REQUESTS_MAX; requests += 1) {
    const page = await ask<{ logs: Log[]; next: string | null }>(of(namespace, "logs", { prefix, after, limit: PAGE, newest: "true" }), {
      signal,
    });
    for (const log of page.logs) {
      const slash = log.name.indexOf("/", prefix.length);
      if (slash < 0) found.logs.push(log);
      else if (found.folders.at(-1) !== log.name.slice(0, slash + 1)) found.folders.push(log.name.slice(0, slash + 1));
    }
    if (!page.next) return found;
    const slash = page.next.indexOf("/", prefix.length);
    after = slash < 0 ? page.next : `${page.next.slice(0, slash)}/~`;
  }
  return { ...found, more: after };
}

function Tree({ route, namespace }: ScreenProps) {
  const prefix = route.query.get("below") ?? "";
  const now = useNow();
  const [state, set] = useState<{ prefix: string; level?: Level; error?: Refused }>({ prefix });
  const [turn, setTurn] = useState(0);
  const [filter, setFilter] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    level(namespace, prefix, "", stop.signal).then(
      (level) => set({ prefix, level }),
      (error) => stop.signal.aborted || set({ prefix, error: error instanceof Refused ? error : new Refused("", String(error)) }),
    );
    const timer = setTimeout(() => document.hidden || setTurn((n) => n + 1), 5000);
    return () => (stop.abort(), clearTimeout(timer));
  }, [namespace, prefix, turn]);
  const shown = state.prefix === prefix ? state.level : undefined;
  const steps = prefix.split("/").filter(Boolean);
  // Logs of the runtime are shown on request.
  const isInternal = (name: string) => prefix === "" && name.startsWith("_");
  const internal = route.query.get("internal") === "1";
  const matches = (name: string) =>
    (internal || !isInternal(name)) && name.slice(prefix.length).toLowerCase().includes(filter.toLowerCase());
  const more = async () => {
    if (!shown?.more) return;
    const next = await level(namespace, prefix, shown.more, new AbortController().signal);
    set({ prefix, level: { folders: [...shown.folders, ...next.folders], logs: [...shown.logs, ...next.logs], more: next.more } });
  };
  return (
    <>
      <Head title="Logs" cmd={["millrace log ls", prefix, internal && "--internal"].filter(Boolean).join(" ")} />
      <div class="bar">
        <nav class="steps" aria-label="Folders">
          <a href={href(namespace, "logs")}>{namespace}</a>
          {steps.map((step, at) => (
            <span key={at}>
              / <a href={href(namespace, "logs", "", { below: `${steps.slice(0, at + 1).join("/")}/` })}>{step}</a>
            </span>
          ))}
        </nav>
        <Field label="Filter">
          <input value={filter} onInput={(event) => setFilter(event.currentTarget.value)} autocomplete="off" />
        </Field>
        {shown && [...shown.folders, ...shown.logs.map((log) => log.name)].some(isInternal) && (
          <label class="check">
            <input
              type="checkbox"
              checked={internal}
              onChange={(event) => setQuery({ internal: event.currentTarget.checked ? "1" : undefined })}
            />{" "}
            Internal logs
          </label>
        )}
      </div>
      {state.error && state.prefix === prefix && <Failure of={state.error} />}
      {!shown && !state.error && <Waiting />}
      {shown && shown.folders.length + shown.logs.length === 0 && (
        <Empty title="There is no log here">
          <Cmd>{`millrace log create ${prefix}NAME --history 10000`}</Cmd>
        </Empty>
      )}
      {shown && shown.folders.length + shown.logs.length > 0 && (
        <Table label="Logs" heads={["Name", "Records", "Newest", "Last append", "Functions"]} class="stack">
          {shown.folders.filter(matches).map((folder) => (
            <tr key={folder}>
              <td colSpan={5}>
                <a class="name" href={href(namespace, "logs", "", { below: folder })}>
                  <Icon name="folder" />
                  <span class="mono">{folder.slice(prefix.length)}</span>
                </a>
              </td>
            </tr>
          ))}
          {shown.logs
            .filter((log) => matches(log.name))
            .map((log) => (
              <tr key={log.name}>
                <td>
                  <a class="name" href={href(namespace, "logs", log.name)}>
                    <Icon name="log" />
                    <span class="mono">{log.name.slice(prefix.length)}</span>
                  </a>
                </td>
                <td class="num" data-name="records">
                  {grouped(log.records)}
                </td>
                <td class="num" data-name="newest">
                  {grouped(log.latest)}
                </td>
                <td data-name="last append">
                  <Time of={log.last_append} now={now} />
                </td>
                <td data-name="functions">
                  {log.functions.length > 0 && (
                    <span>
                      {log.functions.map((name, at) => (
                        <span key={name}>
                          {at > 0 && ", "}
                          <a href={href(namespace, "functions", name)}>{name}</a>
                        </span>
                      ))}
                    </span>
                  )}
                </td>
              </tr>
            ))}
        </Table>
      )}
      {shown?.more && <Act label="More" act={more} />}
      <Card title="Create a log">
        <Create namespace={namespace} prefix={prefix} />
      </Card>
    </>
  );
}

function Create({ namespace, prefix }: { namespace: string; prefix: string }) {
  const [name, setName] = useState(prefix);
  const [history, setHistory] = useState("10000");
  const [error, setError] = useState<Refused>();
  useEffect(() => setName(prefix), [prefix]);
  const create = async () => {
    try {
      await ask(of(namespace, `logs/${encodeURIComponent(name)}`), { method: "PUT", json: { history: Number(history) } });
      go(href(namespace, "logs", name));
    } catch (refused) {
      setError(refused as Refused);
    }
  };
  return (
    <>
      <form class="bar" onSubmit={submit(create)}>
        <Field label="Name">
          <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </Field>
        <Field label="Records to keep">
          <input type="number" min="1" required value={history} onInput={(event) => setHistory(event.currentTarget.value)} />
        </Field>
        <button type="submit">Create</button>
      </form>
      {error && <Failure of={error} />}
      <Cmd>{`millrace log create ${name || "NAME"} --history ${history || "10000"}`}</Cmd>
    </>
  );
}
