// The tree of names, one level at a time, and one log.
import { useEffect, useState } from "preact/hooks";
import { type Folder, type Log, type Refused, ask, of } from "../../host/api";
import { count, grouped } from "../../format";
import { useAsk, useNow } from "../../hooks";
import { useChanges, useLive } from "../../host/live";
import { Act, Card, Cmd, Empty, Failure, Field, Head, Icon, Table, Time, Waiting, submit } from "../../parts";
import { go, href, setQuery } from "../../router";
import type { ScreenProps } from "../../shell";
import { LogScreen } from "./log";
import { grown } from "../overview";

export default function Logs(props: ScreenProps) {
  return props.route.rest ? <LogScreen {...props} log={props.route.rest} /> : <Tree {...props} />;
}

interface Level {
  folders: Folder[];
  logs: Log[];
  /** The name after which the next page begins. */
  next: string | null;
}

const PAGE = 1000;

function Tree({ route, namespace }: ScreenProps) {
  const prefix = route.query.get("below") ?? "";
  const now = useNow();
  const live = useLive(namespace, {}, { changed: (names) => names.includes("logs") && renewed(names) });
  const path = (after = "") => of(namespace, "logs", { after, limit: PAGE, newest: "true" }) + `&below=${encodeURIComponent(prefix)}`;
  const answer = useAsk<Level>(path(), live.on ? 30_000 : 5000);
  const renewed = useChanges(answer.again, 2000);
  const [further, setFurther] = useState<{ prefix: string; levels: Level[] }>({ prefix, levels: [] });
  const [filter, setFilter] = useState("");
  const levels = answer.data ? [answer.data, ...(further.prefix === prefix ? further.levels : [])] : [];
  const shown = answer.data && {
    folders: levels.flatMap((level) => level.folders),
    logs: levels.flatMap((level) => level.logs).map((log) => grown(log, live)),
    next: levels.at(-1)?.next ?? null,
  };
  const steps = prefix.split("/").filter(Boolean);
  // Logs of the runtime are shown on request.
  const isInternal = (name: string) => prefix === "" && name.startsWith("_");
  const internal = route.query.get("internal") === "1";
  const matches = (name: string) =>
    (internal || !isInternal(name)) && name.slice(prefix.length).toLowerCase().includes(filter.toLowerCase());
  const more = async () => {
    if (!shown?.next) return;
    const level = await ask<Level>(path(shown.next));
    setFurther((before) => ({ prefix, levels: [...(before.prefix === prefix ? before.levels : []), level] }));
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
        {shown && [...shown.folders, ...shown.logs].some((it) => isInternal(it.name)) && (
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
      {answer.error && <Failure of={answer.error} />}
      {!shown && !answer.error && <Waiting />}
      {shown && shown.folders.length + shown.logs.length === 0 && (
        <Empty title="There is no log here">
          <Cmd>{`millrace log create ${prefix}NAME --history 10000`}</Cmd>
        </Empty>
      )}
      {shown && shown.folders.length + shown.logs.length > 0 && (
        <Table label="Logs" heads={["Name", "Records", "Newest", "Last append", "Functions"]} class="stack">
          {shown.folders
            .filter((folder) => matches(folder.name))
            .map((folder) => (
              <tr key={folder.name}>
                <td>
                  <a class="name" href={href(namespace, "logs", "", { below: folder.name })}>
                    <Icon name="folder" />
                    <span class="mono">{folder.name.slice(prefix.length)}</span>
                  </a>
                </td>
                <td class="num" data-name="records">
                  {grouped(folder.records)}
                </td>
                <td colSpan={3} class="muted" data-name="logs">
                  {count(folder.logs, "log")}
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
      {shown?.next && <Act label="More" act={more} done="" />}
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
