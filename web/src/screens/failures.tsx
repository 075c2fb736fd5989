// Runs that failed for good, by function and error code, and their retry.
import { type FailureGroup, type Failures, type Runs, ask, of } from "../host/api";
import { count, grouped, quoted } from "../format";
import { useAsk, useNow } from "../hooks";
import { useChanges, useLive } from "../host/live";
import { Act, Card, Cmd, Empty, Field, Head, Loaded, RecordLink, RunLink, Table, Time } from "../parts";
import { href, setQuery } from "../router";
import type { ScreenProps } from "../shell";
import { retry } from "./runs";

const SHOWN = 10;
/** How many of the newest dead runs are looked at for the runs of a group. */
const LOOKED = 300;
const SPANS: [string, string, number][] = [
  ["", "all", 0],
  ["1h", "the last hour", 3_600_000],
  ["24h", "the last day", 86_400_000],
  ["168h", "the last week", 604_800_000],
];

/** The moment from which on failures are asked for; to the minute, so that the path stays for a while. */
const since = (span: string, now: number): string | undefined => {
  const ms = SPANS.find(([id]) => id === span)?.[2];
  return ms ? new Date(Math.floor((now - ms) / 60_000) * 60_000).toISOString() : undefined;
};

export default function FailuresScreen({ namespace, route }: ScreenProps) {
  const now = useNow();
  const only = route.query.get("function") ?? "";
  const span = route.query.get("since") ?? "";
  const live = useLive(namespace, { runs: "dead" }, { run: () => failed([]), changed: (names) => names.includes("runs") && failed(names) });
  const filter = { function: only, since: since(span, now) };
  const answer = useAsk<Failures>(of(namespace, "failures", filter), live.on ? 30_000 : 5000);
  const runs = useAsk<Runs>(of(namespace, "runs", { state: "dead", function: only, limit: LOOKED }), live.on ? 30_000 : 5000);
  const again = () => (answer.again(), runs.again());
  const failed = useChanges(again, 2000);
  const flags = [span && `--since ${span}`, only && `--function ${quoted(only)}`].filter(Boolean).join(" ");
  return (
    <>
      <Head title="Failures" cmd={`millrace run failures ${flags}`.trim()}>
        {only && (
          <a class="button" href={href(namespace, "failures", "", { since: span })}>
            All functions
          </a>
        )}
        <Field label="Since">
          <select value={span} onChange={(event) => setQuery({ since: event.currentTarget.value })}>
            {SPANS.map(([id, name]) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </Field>
      </Head>
      <Loaded answer={answer}>
        {({ failures, letters, more }) =>
          failures.length === 0 ? (
            <Empty title={span ? "No run has failed for good in this time" : "No run has failed for good"}>
              <p>A run that fails is retried; after its last retry it becomes a dead letter, and is listed here.</p>
            </Empty>
          ) : (
            <>
              {more && <p class="muted">Only the newest {count(letters, "dead letter")} were read.</p>}
              {failures.map((group) => (
                <Group
                  key={`${group.function}\n${group.code}`}
                  namespace={namespace}
                  group={group}
                  runs={runs.data?.runs ?? []}
                  now={now}
                  again={again}
                />
              ))}
            </>
          )
        }
      </Loaded>
    </>
  );
}

interface GroupProps {
  namespace: string;
  group: FailureGroup;
  runs: Runs["runs"];
  now: number;
  again: () => void;
}

function Group({ namespace, group, runs, now, again }: GroupProps) {
  const { function: fn, code } = group;
  const own = runs.filter((run) => run.function === fn && run.error?.code === code);
  const retryAll = () =>
    ask<{ retried: number }>(of(namespace, "manage"), { method: "POST", json: { do: "retry-function", function: fn, code } }).then(again);
  return (
    <Card
      class="problems"
      title={
        <>
          <code class="code">{code}</code> <a href={href(namespace, "functions", fn)}>{fn}</a>{" "}
          <span class="muted">
            {count(group.letters, "dead letter")}
            {group.waiting < group.letters && `, ${grouped(group.letters - group.waiting)} retried`}
          </span>
        </>
      }
      more={
        group.waiting > 0 ? (
          <Act
            label={group.waiting === 1 ? "Retry it" : `Retry all ${grouped(group.waiting)}`}
            ask={`Run ${fn} again for ${count(group.waiting, "record")}?`}
            act={retryAll}
            done="New runs were created"
          />
        ) : undefined
      }
    >
      <p class="detail">{group.error.split("\n").filter(Boolean).at(-1)}</p>
      <p class="muted">
        The newest <Time of={group.last} now={now} />
        {group.letters > 1 && (
          <>
            , the oldest <Time of={group.first} now={now} />
          </>
        )}
        . They are records of{" "}
        <a class="mono" href={href(namespace, "logs", group.dead_letter)}>
          {group.dead_letter}
        </a>
        .
      </p>
      <Cmd>{`millrace run retry --function ${quoted(fn)} --code ${code}`}</Cmd>
      {own.length > 0 && (
        <Table label={`Failures of ${fn} with ${code}`} class="stack" heads={["Run", "For", "Failed", ""]}>
          {own.slice(0, SHOWN).map((run) => (
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
                  <Act label="Retry" act={() => retry(namespace, run.id).then(again)} />
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      {own.length < group.letters && (
        <a href={href(namespace, "runs", "", { function: fn, state: "dead" })}>All failed runs of {fn}</a>
      )}
    </Card>
  );
}
