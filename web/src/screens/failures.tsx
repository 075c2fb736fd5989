// Runs that failed for good, by function and error code, and their retry.
import { type Fn, type Run, type Runs, ask, of } from "../api";
import { count, quoted } from "../format";
import { useAsk, useNow } from "../hooks";
import { useChanges, useLive } from "../live";
import { Act, Card, Cmd, Empty, Head, Loaded, RecordLink, RunLink, Table, Time } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";
import { retry } from "./runs";

const LIMIT = 1000;
const SHOWN = 20;

export default function Failures({ namespace, route }: ScreenProps) {
  const now = useNow();
  const only = route.query.get("function") ?? "";
  const live = useLive(namespace, { runs: "dead" }, { run: () => failed([]), changed: (names) => names.includes("runs") && failed(names) });
  const answer = useAsk<Runs>(of(namespace, "runs", { state: "dead", function: only, limit: LIMIT }), live.on ? 30_000 : 5000);
  const functions = useAsk<{ functions: Fn[] }>(of(namespace, "functions"), live.on ? 30_000 : 5000);
  const failed = useChanges(() => (answer.again(), functions.again()), 2000);
  return (
    <>
      <Head title="Failures" cmd={`millrace run ls --state dead${only ? ` --function ${quoted(only)}` : ""}`}>
        {only && (
          <a class="button" href={href(namespace, "failures")}>
            All functions
          </a>
        )}
      </Head>
      <Loaded answer={answer}>
        {({ runs, next }) =>
          runs.length === 0 ? (
            <Empty title="No run has failed for good">
              <p>A run that fails is retried; after its last retry it becomes a dead letter, and is listed here.</p>
            </Empty>
          ) : (
            <>
              {next && <p class="muted">The newest {count(runs.length, "failure")}.</p>}
              {grouped(runs).map(([key, group]) => {
                const [fn, code] = [group[0].function, group[0].error?.code ?? ""];
                const left = group.filter((run) => !run.retried_as);
                const stat = functions.data?.functions.find((it) => it.name === fn);
                return (
                  <Card
                    key={key}
                    class="problems"
                    title={
                      <>
                        <code class="code">{code}</code> {fn ? <a href={href(namespace, "functions", fn)}>{fn}</a> : "removed function"}{" "}
                        <span class="muted">{count(group.length, "run")}</span>
                      </>
                    }
                    more={
                      fn && left.length > 0 ? (
                        <Act
                          label={`Retry all of ${fn}`}
                          ask={`Retry every dead letter of ${fn} that was not retried?`}
                          act={() =>
                            ask(of(namespace, "manage"), { method: "POST", json: { do: "retry-function", function: fn } }).then(
                              answer.again,
                            )
                          }
                          done="New runs were created"
                        />
                      ) : undefined
                    }
                  >
                    <p class="detail">{group[0].error?.detail.split("\n").filter(Boolean).at(-1)}</p>
                    {fn && <Cmd>{`millrace run retry --function ${quoted(fn)}`}</Cmd>}
                    <Table label={`Failures of ${fn}`} class="stack" heads={["Run", "For", "Failed", ""]}>
                      {group.slice(0, SHOWN).map((run) => (
                        <tr key={run.id}>
                          <td>
                            <RunLink namespace={namespace} run={run} />
                          </td>
                          <td data-name="for">
                            <RecordLink namespace={namespace} record={run} />
                          </td>
                          <td data-name="failed">
                            <Time of={run.ended} now={now} />
                          </td>
                          <td>
                            {run.retried_as ? (
                              <>
                                retried as <RunLink namespace={namespace} run={{ id: run.retried_as }} />
                              </>
                            ) : (
                              <Act label="Retry" act={() => retry(namespace, run.id).then(answer.again)} />
                            )}
                          </td>
                        </tr>
                      ))}
                    </Table>
                    {group.length > SHOWN && (
                      <a href={href(namespace, "runs", "", { function: fn ?? undefined, state: "dead" })}>All {group.length} runs</a>
                    )}
                    {stat?.dead_letter && (
                      <p class="muted">
                        Dead letters are records of{" "}
                        <a class="mono" href={href(namespace, "logs", stat.dead_letter)}>
                          {stat.dead_letter}
                        </a>
                        .
                      </p>
                    )}
                  </Card>
                );
              })}
            </>
          )
        }
      </Loaded>
    </>
  );
}

function grouped(runs: Run[]): [string, Run[]][] {
  const groups = new Map<string, Run[]>();
  for (const run of runs) {
    const key = `${run.function}\n${run.error?.code}`;
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups].sort((a, b) => b[1].length - a[1].length);
}
