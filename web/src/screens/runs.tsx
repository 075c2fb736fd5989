// Runs, newest first, and one run: did it run, why not, what did it print.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, type Run, type Runs, type Why, ask, enc, follow, of } from "../host/api";
import { keyText, visible } from "../records/decode";
import { duration, micros, quoted } from "../format";
import { useAsk, useNow } from "../hooks";
import { Act, Card, Cmd, Empty, Facts, Field, Head, Loaded, RecordLink, RunLink, State, Table, Time } from "../parts";
import { href, setQuery } from "../router";
import type { ScreenProps } from "../shell";
import { Reasons } from "./overview";

export default function RunsScreen(props: ScreenProps) {
  return props.route.rest ? <One namespace={props.namespace} id={props.route.rest} /> : <List {...props} />;
}

export const took = (run: Run): string => {
  const began = run.attempts.at(-1)?.time;
  return began && run.ended ? duration((micros(run.ended) - micros(began)) / 1000) : "";
};

const STATES = ["pending", "started", "done", "dead", "cancelled"];

export const RunTable = ({ namespace, runs, now, without }: { namespace: string; runs: Run[]; now: number; without?: "function" }) => (
  <Table label="Runs" class="stack" heads={["Run", ...(without ? [] : ["Function"]), "State", "For", "Triggered", "Took", "Appended"]}>
    {runs.map((run) => (
      <tr key={run.id}>
        <td>
          <RunLink namespace={namespace} run={run} />
        </td>
        {!without && (
          <td data-name="function">{run.function ? <a href={href(namespace, "functions", run.function)}>{run.function}</a> : "removed"}</td>
        )}
        <td data-name="state">
          <State of={run.state} />
          {run.error && <code class="code">{run.error.code}</code>}
        </td>
        <td data-name="for">
          <RecordLink namespace={namespace} record={run} />
        </td>
        <td data-name="triggered">
          <Time of={run.triggered} now={now} />
        </td>
        <td data-name="took" class="num">
          {took(run)}
        </td>
        <td data-name="appended">
          {run.appends.slice(0, 2).map((record, at) => (
            <span key={at}>
              {at > 0 && ", "}
              <RecordLink namespace={namespace} record={record} />
            </span>
          ))}
          {run.appends.length > 2 && ` and ${run.appends.length - 2} more`}
        </td>
      </tr>
    ))}
  </Table>
);

function List({ namespace, route }: ScreenProps) {
  const now = useNow();
  const { query } = route;
  const [fn, log, state] = ["function", "log", "state"].map((name) => query.get(name) ?? "");
  const filter = { function: fn, log, state };
  const answer = useAsk<Runs>(of(namespace, "runs", { ...filter, limit: 100 }), 2000);
  const key = JSON.stringify(filter);
  const [older, setOlder] = useState<{ key: string; runs: Run[]; next: string | null }>();
  const more = older?.key === key ? older : undefined;
  const next = more ? more.next : answer.data?.next;
  const load = async () => {
    const page = await ask<Runs>(of(namespace, "runs", { ...filter, limit: 100, before: next ?? undefined }));
    setOlder({ key, runs: [...(more?.runs ?? []), ...page.runs], next: page.next });
  };
  const flags = [fn && `--function ${quoted(fn)}`, log && `--log ${quoted(log)}`, state && `--state ${state}`].filter(Boolean).join(" ");
  const input = (name: string, value: string) => (
    <input
      value={value}
      onChange={(event) => setQuery({ [name]: event.currentTarget.value.trim() })}
      autocomplete="off"
      spellcheck={false}
    />
  );
  return (
    <>
      <Head title="Runs" cmd={`millrace run ls ${flags}`.trim()} />
      <div class="bar">
        <Field label="Function">{input("function", fn)}</Field>
        <Field label="Log">{input("log", log)}</Field>
        <Field label="State">
          <select value={state} onChange={(event) => setQuery({ state: event.currentTarget.value })}>
            <option value="">any</option>
            {STATES.map((it) => (
              <option key={it} value={it}>
                {it}
              </option>
            ))}
          </select>
        </Field>
      </div>
      <Loaded answer={answer}>
        {({ runs }) => {
          const first = new Set(runs.map((run) => run.id));
          const all = [...runs, ...(more?.runs.filter((run) => !first.has(run.id)) ?? [])];
          return all.length === 0 ? <Empty title="There is no such run" /> : <RunTable namespace={namespace} runs={all} now={now} />;
        }}
      </Loaded>
      {next && <Act label="Older runs" act={load} done="" />}
    </>
  );
}

export const retry = (namespace: string, run: string) => ask(of(namespace, "manage"), { method: "POST", json: { do: "retry", run } });

function One({ namespace, id }: { namespace: string; id: string }) {
  const now = useNow();
  const answer = useAsk<Run>(of(namespace, `runs/${enc(id)}`), 2000);
  const run = answer.data;
  const isOpen = run !== undefined && (run.state === "pending" || run.state === "started");
  const why = useAsk<Why>(isOpen || run?.state === "dead" ? of(namespace, `why/${enc(id)}`) : null, 3000);
  return (
    <>
      <Head title={`Run ${id}`} cmd={`millrace run show ${quoted(id)}`}>
        {isOpen && (
          <Act
            label="Cancel"
            kind="danger"
            ask="Cancel the run? It publishes nothing."
            act={() => ask(of(namespace, `runs/${enc(id)}/cancel`), { method: "POST" }).then(answer.again)}
          />
        )}
        {run?.state === "dead" && !run.retried_as && (
          <Act label="Retry" kind="primary" act={() => retry(namespace, id).then(answer.again)} done="A new run was created" />
        )}
        {run && (
          <a class="button" href={href(namespace, "trace", id)}>
            Causes and effects
          </a>
        )}
      </Head>
      <Loaded answer={answer}>
        {(run) => (
          <>
            <Card>
              <Facts
                of={[
                  ["State", <State of={run.state} />],
                  ["Function", run.function ? <a href={href(namespace, "functions", run.function)}>{run.function}</a> : "removed"],
                  ["For record", <RecordLink namespace={namespace} record={run} />],
                  [
                    "Caused by run",
                    run.caused_by ? <RunLink namespace={namespace} run={{ id: run.caused_by }} /> : "none: a client appended the record",
                  ],
                  ["Triggered", <Time of={run.triggered} />],
                  [
                    "Ended",
                    run.ended ? (
                      <>
                        <Time of={run.ended} /> <span class="muted">{took(run)}</span>
                      </>
                    ) : (
                      "not yet"
                    ),
                  ],
                  ...(run.retried_as
                    ? ([["Retried as", <RunLink namespace={namespace} run={{ id: run.retried_as }} />]] as [string, ComponentChildren][])
                    : []),
                ]}
              />
              {run.partial && <p class="warn">Part of the run is no longer in the journal.</p>}
            </Card>
            {run.error && (
              <div class="failure">
                <strong>The run failed for good</strong>
                <p>
                  <code class="code">{run.error.code}</code>
                </p>
                <pre class="value-box" tabIndex={0}>
                  {run.error.detail}
                </pre>
                <Cmd>{`millrace run retry ${quoted(id)}`}</Cmd>
              </div>
            )}
            {why.data && isOpen && (
              <Card title="Why it waits">
                <Reasons namespace={namespace} of={why.data.reasons} />
              </Card>
            )}
            <div class="columns">
              <Card title="Attempts">
                {run.attempts.length === 0 ? (
                  <p class="muted">None yet.</p>
                ) : (
                  <ol class="lines">
                    {run.attempts.map((it) => (
                      <li key={it.attempt}>
                        Attempt {it.attempt}
                        <span class="right">
                          <Time of={it.time} now={now} />
                        </span>
                      </li>
                    ))}
                  </ol>
                )}
              </Card>
              <Card title={`Read (${distinct(run.reads).length + (run.keys?.length ?? 0)})`}>
                {(run.reads.length > 0 || !run.keys) && <Records namespace={namespace} of={distinct(run.reads)} />}
                <Keys namespace={namespace} of={run.keys ?? []} />
              </Card>
              <Card title={`Appended (${run.appends.length})`}>
                <Records namespace={namespace} of={run.appends} />
              </Card>
            </div>
            {run.ended ? (
              <Output text={run.output ?? ""} id={id} />
            ) : (
              <Printing key={id} namespace={namespace} id={id} onEnd={answer.again} />
            )}
          </>
        )}
      </Loaded>
    </>
  );
}

/** The most that a page keeps of what a run prints. */
const PRINTED_MAX = 256 * 1024;
const PRINT_RETRY_MS = 1000;

function Output({ text, id, live }: { text: string; id: string; live?: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    if (live && isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, live]);
  const scrolled = (event: Event) => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget as HTMLPreElement;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 8;
  };
  return (
    <Card title="Output" more={live && <span class="state good">as it comes</span>}>
      {text ? (
        <pre class="value-box" tabIndex={0} ref={box} onScroll={scrolled} aria-label="Output">
          {visible(text, "\n\t")}
        </pre>
      ) : (
        <p class="muted">{live ? "It has printed nothing yet." : "It printed nothing."}</p>
      )}
      <Cmd>{`millrace run output ${quoted(id)}${live ? " --follow" : ""}`}</Cmd>
    </Card>
  );
}

/** What a run prints, as it comes. */
function Printing({ namespace, id, onEnd }: { namespace: string; id: string; onEnd: () => void }) {
  const [text, set] = useState("");
  const ended = useRef(onEnd);
  ended.current = onEnd;
  useEffect(() => {
    const stop = new AbortController();
    let [timer, next] = [0, 0];
    const listen = async () => {
      let isOver = false;
      try {
        await follow(of(namespace, `runs/${enc(id)}/output`, { follow: "true", from: next }), stop.signal, (kind, data) => {
          if (kind === "output") {
            const part = JSON.parse(data) as { text: string; next: number };
            next = part.next;
            set((before) => (before + part.text).slice(-PRINTED_MAX));
          } else if (kind === "end") isOver = true;
        });
      } catch (error) {
        // A host that does not permit it or does not know it is not asked again.
        isOver = error instanceof Refused && error.status >= 400 && error.status < 500;
      }
      if (stop.signal.aborted) return;
      if (isOver) ended.current();
      else timer = setTimeout(listen, PRINT_RETRY_MS);
    };
    void listen();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [namespace, id]);
  return <Output text={text} id={id} live />;
}

const LISTED = 50;

/** A record that was read twice is one. */
const distinct = (records: Run["reads"]): Run["reads"] => {
  const seen = new Set<string>();
  return records.filter(({ log, seqno }) => !seen.has(`${log}@${seqno}`) && seen.add(`${log}@${seqno}`));
};

/** The keys of tables that a run found without a value, and the ranges that it read. */
const Keys = ({ namespace, of: keys }: { namespace: string; of: NonNullable<Run["keys"]> }) =>
  keys.length === 0 ? null : (
    <ul class="lines">
      {keys.slice(0, LISTED).map((it, at) => (
        <li key={at}>
          <span>
            {it.table === null ? "a removed table" : <a href={href(namespace, "tables", it.table)}>{it.table}</a>}
            {it.absent !== undefined ? ": no key " : it.from === undefined && it.to === undefined ? ": all keys" : ": the keys"}
            {it.absent !== undefined && <code>{keyText(it.absent)}</code>}
            {it.from !== undefined && <> from <code>{keyText(it.from)}</code></>}
            {it.to !== undefined && <> before <code>{keyText(it.to)}</code></>}
            {it.limit !== undefined && `, at most ${it.limit}`}
          </span>
        </li>
      ))}
      {keys.length > LISTED && <li class="muted">and {keys.length - LISTED} more</li>}
    </ul>
  );

const Records = ({ namespace, of: records }: { namespace: string; of: Run["reads"] }) =>
  records.length === 0 ? (
    <p class="muted">Nothing.</p>
  ) : (
    <ul class="lines">
      {records.slice(0, LISTED).map((record, at) => (
        <li key={at}>
          <RecordLink namespace={namespace} record={record} />
        </li>
      ))}
      {records.length > LISTED && <li class="muted">and {records.length - LISTED} more</li>}
    </ul>
  );
