// Functions: their definitions, counters and runs.
import type { ComponentChildren } from "preact";
import { type Fn, type Runs, type Why, ask, enc, of } from "../host/api";
import { grouped, quoted } from "../format";
import { useAsk, useNow } from "../hooks";
import { Act, Card, Cmd, Empty, Facts, Failure, Head, Loaded, Table } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";
import { Reasons } from "./overview";
import { RunTable } from "./runs";

export default function Functions(props: ScreenProps) {
  return props.route.rest ? <One namespace={props.namespace} name={props.route.rest} /> : <List {...props} />;
}

function List({ namespace }: ScreenProps) {
  const answer = useAsk<{ functions: Fn[]; next: string | null }>(of(namespace, "functions"), 2000);
  return (
    <>
      <Head title="Functions" cmd="millrace function ls" />
      <Loaded answer={answer}>
        {({ functions, next }) =>
          functions.length === 0 ? (
            <Empty title="No function is deployed">
              <Cmd>millrace up</Cmd>
            </Empty>
          ) : (
            <>
              <Table label="Functions" class="stack" heads={["Name", "On", "Runtime", "Pending", "Done", "Dead letters"]}>
                {functions.map((it) => (
                  <tr key={it.name}>
                    <td>
                      <a href={href(namespace, "functions", it.name)}>
                        <strong>{it.name}</strong>
                      </a>
                    </td>
                    <td data-name="on">
                      {it.error ? (
                        <span class="bad">
                          {it.error.code} {it.error.detail}
                        </span>
                      ) : (
                        <Logs namespace={namespace} of={it.on ?? []} />
                      )}
                    </td>
                    <td data-name="runtime">{it.runtime}</td>
                    <td data-name="pending" class={`num ${it.pending ? "warn" : ""}`}>
                      {grouped(it.pending)}
                    </td>
                    <td data-name="done" class="num">
                      {grouped(it.done)}
                    </td>
                    <td data-name="dead letters" class="num">
                      {it.dead > 0 ? (
                        <a class="bad" href={href(namespace, "failures", "", { function: it.name })}>
                          {grouped(it.dead)}
                        </a>
                      ) : (
                        0
                      )}
                    </td>
                  </tr>
                ))}
              </Table>
              {next && <p class="muted">Only the first {functions.length} are listed.</p>}
            </>
          )
        }
      </Loaded>
    </>
  );
}

const Logs = ({ namespace, of: logs }: { namespace: string; of: string[] }) => (
  <>
    {logs.map((log, at) => (
      <span key={log}>
        {at > 0 && ", "}
        <a class="mono" href={log.endsWith("/") ? href(namespace, "logs", "", { below: log }) : href(namespace, "logs", log)}>
          {log}
        </a>
      </span>
    ))}
  </>
);

function One({ namespace, name }: { namespace: string; name: string }) {
  const now = useNow();
  const answer = useAsk<Fn>(of(namespace, `functions/${enc(name)}`), 2000);
  const why = useAsk<Why>(of(namespace, `why/${enc(name)}`), 3000);
  const runs = useAsk<Runs>(of(namespace, "runs", { function: name, limit: 50 }), 2000);
  const logs = (list: string[] | null | undefined): ComponentChildren =>
    list === null ? "every log" : list?.length ? <Logs namespace={namespace} of={list} /> : "none";
  return (
    <>
      <Head title={name} cmd={`millrace function show ${quoted(name)}`}>
        {answer.data && answer.data.dead_kept > answer.data.dead_retried && (
          <Act
            label="Retry dead letters"
            ask="Retry every dead letter that was not retried?"
            act={() => ask(of(namespace, "manage"), { method: "POST", json: { do: "retry-function", function: name } }).then(answer.again)}
            done="New runs were created"
          />
        )}
      </Head>
      <Loaded answer={answer}>
        {(it) => (
          <>
            {it.error && <Failure of={it.error} />}
            <div class="columns">
              <Card title="Definition">
                <Facts
                  of={[
                    ["Runs for", logs(it.on)],
                    ["Reads", logs(it.reads)],
                    ["Appends to", logs(it.appends)],
                    ["Sends to", it.sends?.join(", ") || "nothing"],
                    ["Secrets", it.secrets?.join(", ") || "none"],
                    ["Network", it.network ? "yes" : "no"],
                    ["Runtime", it.runtime],
                    ["Order", it.ordered ? "one run at a time, in order" : `up to ${it.concurrency} runs at once`],
                    ["Retries", it.retries],
                    [
                      "Code",
                      <span class="mono" title={it.code}>
                        {it.code?.slice(0, 16)}
                      </span>,
                    ],
                  ]}
                />
              </Card>
              <Card title="Runs">
                <Facts
                  of={[
                    ["Pending", grouped(it.pending)],
                    ["Ended", grouped(it.done)],
                    [
                      "Dead letters",
                      it.dead ? (
                        <a class="bad" href={href(namespace, "failures", "", { function: name })}>
                          {grouped(it.dead)}
                        </a>
                      ) : (
                        0
                      ),
                    ],
                    ["In the history", `${it.dead_kept}, ${it.dead_retried} retried`],
                    [
                      "Their log",
                      it.dead_letter ? (
                        <a class="mono" href={href(namespace, "logs", it.dead_letter)}>
                          {it.dead_letter}
                        </a>
                      ) : (
                        ""
                      ),
                    ],
                  ]}
                />
                {why.data && <Reasons namespace={namespace} of={why.data.reasons} plain />}
                <Cmd>{`millrace why ${quoted(name)}`}</Cmd>
              </Card>
            </div>
          </>
        )}
      </Loaded>
      <Card title="Newest runs" more={<a href={href(namespace, "runs", "", { function: name })}>All runs</a>}>
        <Loaded answer={runs}>
          {({ runs }) =>
            runs.length ? (
              <RunTable namespace={namespace} runs={runs} now={now} without="function" />
            ) : (
              <p class="muted">It has not run yet.</p>
            )
          }
        </Loaded>
      </Card>
    </>
  );
}
