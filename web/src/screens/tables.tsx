// Tables: their keys and values, the versions of a key, and the databases to which they are written.
import { useEffect, useState } from "preact/hooks";
import { type Database, type Key, type Replica, type TableDoc, type TableEntry, Refused, ask, enc, of } from "../host/api";
import { count, duration, grouped, quoted, size } from "../format";
import { useAsk, useNow } from "../hooks";
import { useChanges, useLive } from "../host/live";
import { Act, Card, Cmd, Empty, Facts, Failure, Field, Head, Loaded, Table, Time, Waiting, submit } from "../parts";
import { type Bytes, bytesOf, decode, keyText, pretty } from "../records/decode";
import { go, href, setQuery } from "../router";
import type { ScreenProps } from "../shell";

/** Keys of one page. */
const PAGE = 100;
/** The versions of a key that are shown. */
const VERSIONS = 20;

export default function Tables(props: ScreenProps) {
  return props.route.rest ? <One {...props} name={props.route.rest} /> : <All {...props} />;
}

/** What stands before the bytes of a key that is not text, in the address of the page. */
const BYTES = "bytes:";
const named = (key: Key): string => {
  if (typeof key !== "string") return BYTES + key.base64;
  return key.startsWith(BYTES) ? BYTES + btoa(String.fromCharCode(...new TextEncoder().encode(key))) : key;
};
const unnamed = (name: string): Key => {
  if (!name.startsWith(BYTES)) return name;
  const key = { base64: name.slice(BYTES.length) };
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(key));
  } catch {
    return key;
  }
};
const isSame = (one: Key | undefined, other: Key): boolean => one !== undefined && named(one) === named(other);
/** A key in a path. */
const escaped = (key: Key): string =>
  typeof key === "string" ? enc(key) : Array.from(bytesOf(key), (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");

/** Asks again when a log has changed. */
function useFresh<T>(namespace: string, path: string | null) {
  const live = useLive(namespace, {}, { changed: (names) => names.includes("logs") && renewed(names) });
  const answer = useAsk<T>(path, live.on ? 30_000 : 3000);
  const renewed = useChanges(answer.again, 1000);
  return answer;
}

function All({ namespace }: ScreenProps) {
  const answer = useFresh<{ tables: TableDoc[] }>(namespace, of(namespace, "tables"));
  const databases = useAsk<{ databases: Database[] }>(of(namespace, "databases"), 2000);
  return (
    <>
      <Head title="Tables" cmd="millrace table ls" />
      <Loaded answer={answer}>
        {({ tables }) =>
          tables.length === 0 ? (
            <Empty title="There is no table">
              <p>A table keeps the newest value of each key, and is a log of its changes. Functions use it as a dictionary.</p>
              <Cmd>millrace table create NAME</Cmd>
            </Empty>
          ) : (
            <Table label="Tables" class="stack" heads={["Name", "Keys", "Values", "Changes", "Lifetime", "Database"]}>
              {tables.map((it) => (
                <tr key={it.table}>
                  <td>
                    <a class="mono" href={href(namespace, "tables", it.table)}>
                      {it.table}
                    </a>
                  </td>
                  <td data-name="keys">{it.keys}</td>
                  <td data-name="values">{it.codec}</td>
                  <td data-name="changes" class="num">
                    {grouped(it.latest)}
                  </td>
                  <td data-name="lifetime">{it.ttl_ms > 0 ? duration(it.ttl_ms) : "–"}</td>
                  <td data-name="database">
                    {it.database ? (
                      <>
                        <span class="mono">{it.database}</span>
                        {it.mode && <span class="tag">{it.mode}</span>}
                      </>
                    ) : (
                      "–"
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
      {answer.data?.tables.some((it) => it.replica) && (
        <div class="grid">
          {answer.data.tables.map((it) => it.replica && <ReplicaCard key={it.table} table={it.table} of={it.replica} />)}
        </div>
      )}
      {databases.error && !databases.error.isDenied && <Failure of={databases.error} />}
      {databases.data && databases.data.databases.length > 0 && (
        <>
          <div class="grid">
            {databases.data.databases.map((it) => (
              <DatabaseCard key={it.database} of={it} />
            ))}
          </div>
          <Cmd>millrace table lag</Cmd>
        </>
      )}
      <Card title="Create a table">
        <Create namespace={namespace} />
      </Card>
    </>
  );
}

function ReplicaCard({ table, of: it }: { table: string; of: Replica }) {
  const state: [string, string] = it.trouble
    ? ["bad", it.trouble.stopped ? "stopped" : "waiting"]
    : it.stage !== "following"
      ? ["warn", it.stage]
      : it.connected
        ? ["good", "following"]
        : ["warn", "not connected"];
  const lag = it.records === undefined ? "not known" : it.records === 0 ? "nothing" : count(it.records, "record");
  return (
    <Card title={<span class="mono">{table}</span>} more={<span class={`state ${state[0]}`}>{state[1]}</span>}>
      {it.trouble && <Trouble title={it.trouble.stopped ? "Following has stopped" : "Nothing is followed at present"} of={it.trouble} />}
      <Facts
        of={[
          ["A replica of", <span class="mono">{it.owner}</span>],
          ["Lacks", `${lag}${it.age_ms ? `, for ${duration(it.age_ms)}` : ""}`],
        ]}
      />
    </Card>
  );
}

function Trouble({ title, of: it }: { title: string; of: { code: string; error: string } }) {
  return (
    <div class="failure" role="alert">
      <strong>{title}</strong>
      <p>
        <code class="code">{it.code}</code> {it.error}
      </p>
      <Cmd>{`millrace error ${it.code}`}</Cmd>
    </div>
  );
}

function DatabaseCard({ of: it }: { of: Database }) {
  const [tone, state] = it.trouble ? ["bad", it.trouble.stopped ? "stopped" : "waiting"] : it.unwritten > 0 ? ["warn", "writing"] : ["good", "written"];
  return (
    <Card title={<span class="mono">{it.database}</span>} more={<span class={`state ${tone}`}>{state}</span>}>
      {it.trouble && <Trouble title={it.trouble.stopped ? "Writing has stopped" : "Nothing is written at present"} of={it.trouble} />}
      <Facts
        of={[
          ["Address", <span class="mono">{it.url}</span>],
          ["Server", it.server ?? "not reached yet"],
          ["Tables", it.tables.join(", ") || "none"],
          ["Unwritten", it.unwritten === 0 ? "nothing" : `${count(it.unwritten, "row")}, ${size(it.unwritten_bytes)}`],
          ["Oldest", it.oldest_ms === null ? "–" : `has waited for ${duration(it.oldest_ms)}`],
          ["Waiting answers", grouped(it.waiting)],
          ["Written", `${count(it.rows, "row")} in ${count(it.transactions, "transaction")}`],
        ]}
      />
    </Card>
  );
}

function Create({ namespace }: { namespace: string }) {
  const [name, setName] = useState("");
  const [codec, setCodec] = useState("json");
  const [error, setError] = useState<Refused>();
  const create = async () => {
    try {
      await ask(of(namespace, `tables/${enc(name)}`), { method: "PUT", json: { codec } });
      go(href(namespace, "tables", name));
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
        <Field label="Values">
          <select value={codec} onChange={(event) => setCodec(event.currentTarget.value)}>
            <option value="json">JSON</option>
            <option value="text">text</option>
            <option value="bytes">bytes</option>
          </select>
        </Field>
        <button type="submit">Create</button>
      </form>
      {error && <Failure of={error} />}
      <Cmd>{`millrace table create ${quoted(name || "NAME")}${codec === "json" ? "" : ` --codec ${codec}`}`}</Cmd>
    </>
  );
}

interface Page {
  entries: TableEntry[];
  next?: Key;
}

function One({ namespace, route, name }: ScreenProps & { name: string }) {
  const tables = useAsk<{ tables: TableDoc[] }>(of(namespace, "tables"), 10_000);
  const prefix = route.query.get("prefix") ?? "";
  const from = route.query.get("from") ?? "";
  const table = tables.data?.tables.find((it) => it.table === name);
  const page = useFresh<Page>(namespace, of(namespace, `tables/${enc(name)}`, { prefix, from, limit: PAGE }));
  const now = useNow();
  const chosen = route.query.has("key") ? unnamed(route.query.get("key") ?? "") : undefined;
  const expire = page.data?.entries.some((it) => it.expires) ?? false;
  return (
    <>
      <Head title={name} mono cmd={`millrace table scan ${quoted(name)}${prefix ? ` --prefix ${quoted(prefix)}` : ""}`}>
        <a class="button" href={href(namespace, "logs", name)}>
          Its changes as a log
        </a>
      </Head>
      {table && (
        <p class="muted">
          Values of {table.codec === "json" ? "JSON" : table.codec}, {count(table.latest, "change")}
          {table.ttl_ms > 0 ? `, a value expires after ${duration(table.ttl_ms)}` : ""}
          {table.database ? `, in the database ${table.database}` : ""}
          {table.replica ? `, a replica of ${table.replica.owner}, where it is changed` : ""}
        </p>
      )}
      <div class="bar">
        <Field label="Keys that begin with">
          <input
            value={prefix}
            onInput={(event) => setQuery({ prefix: event.currentTarget.value, from: undefined })}
            autocomplete="off"
            spellcheck={false}
          />
        </Field>
      </div>
      <Loaded answer={page}>
        {({ entries, next }) => (
          <div class={`log keyed ${chosen === undefined ? "" : "with-record"}`}>
            <div>
              {entries.length === 0 ? (
                <Empty title={prefix || from ? "No key begins like this" : "The table has no key yet"}>
                  <Cmd>{`millrace table put ${quoted(name)} KEY VALUE`}</Cmd>
                </Empty>
              ) : (
                <Table label="Keys" class="stack" heads={["Key", "Value", "Version", "Written", ...(expire ? ["Expires"] : [])]}>
                  {entries.map((it) => (
                    <tr key={named(it.key)} class={isSame(chosen, it.key) ? "chosen" : ""}>
                      <td>
                        <a
                          class="mono"
                          href={href(namespace, "tables", name, { prefix, from, key: named(it.key) })}
                          aria-current={isSame(chosen, it.key) ? "true" : undefined}
                        >
                          {keyText(it.key)}
                        </a>
                      </td>
                      <td data-name="value" class="mono clip">
                        {line(it)}
                      </td>
                      <td data-name="version" class="num">
                        {it.version}
                      </td>
                      <td data-name="written">
                        <Time of={it.time} now={now} />
                      </td>
                      {expire && <td data-name="expires">{it.expires ? `in ${duration(Math.max(0, Date.parse(it.expires) - now))}` : "–"}</td>}
                    </tr>
                  ))}
                </Table>
              )}
              <div class="acts">
                {from && <a href={href(namespace, "tables", name, { prefix })}>To the first keys</a>}
                {typeof next === "string" && (
                  <a class="button" href={href(namespace, "tables", name, { prefix, from: next })}>
                    Next {PAGE} keys
                  </a>
                )}
                {next !== undefined && typeof next !== "string" && (
                  <span class="muted">There are more keys, which are not text: `millrace table scan` shows them.</span>
                )}
              </div>
            </div>
            {chosen !== undefined && (
              <OneKey key={named(chosen)} namespace={namespace} table={name} of={chosen} now={now} isReplica={table?.replica !== undefined} />
            )}
          </div>
        )}
      </Loaded>
      {!table?.replica && (
        <Card title="Put a value">
          <Put namespace={namespace} table={name} />
        </Card>
      )}
    </>
  );
}

const line = (value: Bytes): string => decode(value, "auto").line.slice(0, 300);

/** A path that a browser would shorten: it takes these for folders. */
const isFolder = (key: Key): boolean => key === "." || key === "..";

function OneKey(props: { namespace: string; table: string; of: Key; now: number; isReplica: boolean }) {
  const { namespace, table, of: key, now, isReplica } = props;
  const path = of(namespace, `tables/${enc(table)}/keys/${escaped(key)}`);
  const answer = useFresh<Page>(namespace, isFolder(key) ? null : `${path}?versions=${VERSIONS}`);
  const close = () => setQuery({ key: undefined });
  const name = typeof key === "string" ? quoted(key) : "KEY";
  const [newest] = answer.data?.entries ?? [];
  const [text, setText] = useState<string>();
  // What is edited stays when another value comes; the version says so.
  const [version, setVersion] = useState(0);
  const begin = (entry: TableEntry) => (setText(entry.data ?? ""), setVersion(entry.version));
  const put = async () => {
    await ask(path, { method: "PUT", body: text, headers: { "if-match": `"${version}"` } });
    setText(undefined);
    answer.again();
  };
  const remove = async () => {
    await ask(path, { method: "DELETE", headers: { "if-match": `"${newest.version}"` } });
    answer.again();
  };
  return (
    <section class="card one" aria-label={`Key ${keyText(key)}`}>
      <div class="card-head">
        <h2 class="mono">{keyText(key)}</h2>
        <button type="button" class="ghost" onClick={close}>
          Close
        </button>
      </div>
      <Cmd>{`millrace table versions ${quoted(table)} ${name}`}</Cmd>
      {isFolder(key) && <p class="muted">A browser cannot ask for this key; the command can.</p>}
      {answer.error && <Failure of={answer.error} />}
      {!answer.data && !answer.error && !isFolder(key) && <Waiting />}
      {answer.data && newest === undefined && <p class="muted">The key has no version.</p>}
      {newest && (
        <>
          {newest.deleted ? (
            <p class="muted">The key was deleted.</p>
          ) : text === undefined ? (
            <pre class="value-box" tabIndex={0}>
              {pretty(newest, "auto")}
            </pre>
          ) : (
            <Field label={`A value in place of version ${version}`}>
              <textarea class="mono" rows={6} value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
            </Field>
          )}
          <Facts
            of={[
              ["Version", grouped(newest.version)],
              ["Written", <Time of={newest.time} />],
              ["Expires", newest.expires ? <Time of={newest.expires} /> : "never"],
            ]}
          />
          <div class="acts">
            <a class="button" href={href(namespace, "trace", `${table}@${newest.version}`)}>
              Causes and effects
            </a>
            {!newest.deleted && !isReplica && newest.data !== undefined && text === undefined && (
              <button type="button" onClick={() => begin(newest)}>
                Change
              </button>
            )}
            {text !== undefined && <Act label="Put" kind="primary" act={put} />}
            {text !== undefined && (
              <button type="button" class="ghost" onClick={() => setText(undefined)}>
                Keep the old value
              </button>
            )}
            {!newest.deleted && !isReplica && text === undefined && <Act label="Delete" ask="Delete the key?" act={remove} done="Deleted" />}
          </div>
          {text !== undefined && <Cmd>{`millrace table put ${quoted(table)} ${name} ${quoted(text)} --if-version ${version}`}</Cmd>}
          <h3>Versions</h3>
          <Table label="Versions" class="stack" heads={["Version", "Written", "Value"]}>
            {answer.data?.entries.map((it) => (
              <tr key={it.version}>
                <td class="num">
                  <a href={href(namespace, "logs", table, { at: it.version })}>{it.version}</a>
                </td>
                <td data-name="written">
                  <Time of={it.time} now={now} />
                </td>
                <td data-name="value" class="mono clip">
                  {it.deleted ? <span class="muted">deleted</span> : line(it)}
                </td>
              </tr>
            ))}
          </Table>
        </>
      )}
    </section>
  );
}

function Put({ namespace, table }: { namespace: string; table: string }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  useEffect(() => (setKey(""), setValue("")), [table]);
  const put = () => {
    if (isFolder(key)) throw new Refused("", "A browser cannot name this key.", "Use the command.");
    return ask(of(namespace, `tables/${enc(table)}/keys/${enc(key)}`), { method: "PUT", body: value });
  };
  return (
    <>
      <div class="bar">
        <Field label="Key">
          <input class="mono" value={key} onInput={(event) => setKey(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </Field>
        <Field label="Value">
          <input class="mono" value={value} onInput={(event) => setValue(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </Field>
        <Act label="Put" act={async () => put()} done="Put" />
      </div>
      <Cmd>{`millrace table put ${quoted(table)} ${quoted(key || "KEY")} ${quoted(value || "VALUE")}`}</Cmd>
    </>
  );
}
