// Tasks: the pools of executors, what waits and runs in each, and the newest tasks.
import { type Pool, type Runs, of } from "../host/api";
import { count, grouped, quoted } from "../format";
import { useAsk, useNow } from "../hooks";
import { useChanges, useLive } from "../host/live";
import { Card, Cmd, Empty, Facts, Head, Loaded, Time } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";
import { RunTable } from "./runs";

const NEWEST = 20;

export default function Tasks({ namespace, route }: ScreenProps) {
  const now = useNow();
  const live = useLive(namespace, {}, { changed: (names) => names.includes("runs") && changed(names) });
  const answer = useAsk<{ pools: Pool[] }>(of(namespace, "tasks"), live.on ? 10_000 : 2000);
  const changed = useChanges(answer.again, 1000);
  const pools = answer.data?.pools ?? [];
  const chosen = pools.find((it) => it.pool === route.rest) ?? pools[0];
  return (
    <>
      <Head title="Tasks" cmd="millrace function pools" />
      <Loaded answer={answer}>
        {() =>
          chosen === undefined ? (
            <Empty title="There is no pool of workers">
              <p>
                An executor makes one: in Python, <code>millrace.Executor</code> runs calls of functions as tasks on the workers of a pool.
              </p>
              <Cmd>{`python -c "import millrace; print(millrace.connect('.millrace').Executor(workers=2).submit(pow, 2, 10).result())"`}</Cmd>
            </Empty>
          ) : (
            <>
              <div class="grid">
                {pools.map((it) => (
                  <PoolCard key={it.pool} namespace={namespace} pool={it} isChosen={it === chosen} now={now} />
                ))}
              </div>
              <Newest namespace={namespace} pool={chosen} now={now} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function PoolCard({ namespace, pool, isChosen, now }: { namespace: string; pool: Pool; isChosen: boolean; now: number }) {
  const busy = Math.min(100, Math.round((100 * pool.running) / Math.max(1, pool.workers)));
  const state = pool.running > 0 ? "running" : pool.queued + pool.retrying > 0 ? "waiting" : "idle";
  return (
    <Card
      class={isChosen ? "chosen" : ""}
      title={
        <a class="mono" href={href(namespace, "tasks", pool.pool)} aria-current={isChosen ? "true" : undefined}>
          {pool.pool}
        </a>
      }
      more={<span class={`state ${{ running: "good", waiting: "warn", idle: "calm" }[state]}`}>{state}</span>}
    >
      <div class="counts">
        <Count name="queued" value={pool.queued} tone={pool.queued > 0 && pool.running === 0 ? "warn" : ""} />
        <Count name="running" value={pool.running} />
        <Count name="retrying" value={pool.retrying} tone={pool.retrying > 0 ? "warn" : ""} />
        <Count name="failed" value={pool.failed} tone={pool.failed > 0 ? "bad" : ""} />
      </div>
      <div class="meter" role="img" aria-label={`${busy} % of the workers are busy`}>
        <i style={{ width: `${busy}%` }} />
      </div>
      <Facts
        of={[
          ["Workers", `${count(pool.workers, "at once").replace(/s$/, "")}, ${pool.runtime}`],
          ["Ended", grouped(pool.done)],
          [
            "Exceptions",
            pool.results === 0 ? "no result yet" : `${grouped(pool.raised)} of the newest ${count(pool.results, "result")}`,
          ],
          ["Last result", <Time of={pool.last} now={now} />],
          ["Function", <a href={href(namespace, "functions", pool.function)}>{pool.function}</a>],
        ]}
      />
      {pool.failed > 0 && <a href={href(namespace, "failures", "", { function: pool.function })}>Tasks that were given up</a>}
    </Card>
  );
}

const Count = ({ name, value, tone = "" }: { name: string; value: number; tone?: string }) => (
  <div>
    <strong class={tone}>{grouped(value)}</strong>
    <span class="muted">{name}</span>
  </div>
);

function Newest({ namespace, pool, now }: { namespace: string; pool: Pool; now: number }) {
  const runs = useAsk<Runs>(of(namespace, "runs", { function: pool.function, limit: NEWEST }), 2000);
  return (
    <Card
      title={`Newest tasks of ${pool.pool}`}
      more={<a href={href(namespace, "runs", "", { function: pool.function })}>All runs</a>}
    >
      <Loaded answer={runs}>
        {({ runs }) =>
          runs.length === 0 ? (
            <p class="muted">None yet.</p>
          ) : (
            <RunTable namespace={namespace} runs={runs} now={now} without="function" />
          )
        }
      </Loaded>
      <Cmd>{`millrace run ls --function ${quoted(pool.function)}`}</Cmd>
    </Card>
  );
}
