// What is elsewhere or shared: links to other namespaces, the cluster, shared objects.
import { type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { of } from "../host/api";
import { grouped, quoted, size } from "../format";
import { useAsk, useNow } from "../hooks";
import { Card, Cmd, Empty, Facts, Failure, Field, Head, Loaded, Table, Time } from "../parts";
import { href } from "../router";
import type { ScreenProps } from "../shell";

interface Link {
  kind: string;
  name: string;
  from: string;
  to: string;
  state: string;
  acked: number;
  sent: number;
  dead: number;
  lag_records: number;
  lag_bytes: number;
  lost: number;
  peer: string | null;
  last_contact: string | null;
  next_try: string | null;
  code: string | null;
  error: string | null;
  remedy: string | null;
}

const LINK_TONES: Record<string, string> = {
  carrying: "good",
  idle: "good",
  waiting: "warn",
  connecting: "warn",
  "no-host": "bad",
  stopped: "bad",
};

export function Links({ namespace }: ScreenProps) {
  const now = useNow();
  const answer = useAsk<{ links: Link[] }>(of(namespace, "links"), 2000);
  return (
    <>
      <Head title="Links" cmd="millrace relay ls" />
      <Loaded answer={answer}>
        {({ links }) =>
          links.length === 0 ? (
            <Empty title="No link to another namespace">
              <p>A function that sends to an address makes one, and so does a relay:</p>
              <Cmd>millrace relay add LOG mr://HOST:7070/NAMESPACE/LOG</Cmd>
            </Empty>
          ) : (
            <div class="grid">
              {links.map((link) => (
                <Card
                  key={`${link.kind}/${link.name}`}
                  title={
                    <>
                      {link.name} <span class="muted">{link.kind}</span>
                    </>
                  }
                  more={<span class={`state ${LINK_TONES[link.state] ?? "calm"}`}>{link.state}</span>}
                >
                  <p class="mono flow">
                    {link.from || namespace} <span aria-label="to">→</span> {link.to}
                  </p>
                  <Facts
                    of={[
                      ["Waiting", `${grouped(link.lag_records)} records, ${size(link.lag_bytes)}`],
                      [link.kind === "outbox" ? "Sent" : "Forwarded up to", grouped(link.kind === "outbox" ? link.sent : link.acked)],
                      ...(link.dead > 0
                        ? ([["Refused for good", <span class="bad">{grouped(link.dead)}</span>]] as [string, ComponentChildren][])
                        : []),
                      ...(link.lost > 0
                        ? ([["Lost", <span class="bad">{grouped(link.lost)}</span>]] as [string, ComponentChildren][])
                        : []),
                      ["Last contact", <Time of={link.last_contact} now={now} />],
                    ]}
                  />
                  {link.error && <Failure of={{ code: link.code ?? "", detail: link.error, remedy: link.remedy ?? "" }} />}
                  <Cmd>{`millrace why ${quoted(link.name)}`}</Cmd>
                </Card>
              ))}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

interface ClusterDoc {
  cluster: string;
  group: string;
  groups: number;
  term: number;
  leader: string | null;
  role: string;
  applied: number;
  committed: number;
  hosts: { host: string; address: string; name: string; site: string; role: string; here: boolean; behind?: number; trouble?: string }[];
  why: string[];
}

interface Group {
  group: string;
  id: number;
  leader: string | null;
  role: string;
  voters: string[];
  wanted: number;
  topics: number;
  behind?: number;
  resting: boolean;
}

export function Cluster({ namespace }: ScreenProps) {
  const answer = useAsk<ClusterDoc>(of(namespace, "cluster"), 2000);
  const groups = useAsk<Group[]>(answer.data ? of(namespace, "cluster/groups") : null, 3000);
  const topics = useAsk<{ topics: Record<string, unknown>[] }>(answer.data ? of(namespace, "topics", { limit: 200 }) : null, 5000);
  const named = (host: string) => answer.data?.hosts.find((it) => it.host === host)?.address ?? host;
  if (answer.error && !answer.data && !answer.error.isDenied && answer.error.status > 0) {
    return (
      <>
        <Head title="Cluster" cmd="millrace cluster ls" />
        <Empty title="The namespace belongs to no cluster">
          <p>
            {answer.error.code} {answer.error.detail}
          </p>
          <Cmd>millrace serve --join mr://HOST:7070/NAMESPACE --cluster-secret FILE</Cmd>
        </Empty>
      </>
    );
  }
  return (
    <>
      <Head title="Cluster" cmd="millrace cluster ls" />
      <Loaded answer={answer}>
        {(cluster) => (
          <>
            {cluster.why.length > 0 && (
              <Card title="Problems" class="problems">
                <ul class="reasons">
                  {cluster.why.map((text) => (
                    <li key={text} class="bad">
                      <span>{text}</span>
                    </li>
                  ))}
                </ul>
              </Card>
            )}
            <Card title="Hosts" more={<span class="muted mono">{cluster.cluster}</span>}>
              <Table label="Hosts" class="stack" heads={["Host", "Site", "Role", "Behind", "State"]}>
                {cluster.hosts.map((host) => (
                  <tr key={host.host}>
                    <td>
                      <span class="mono">{host.address}</span>
                      {host.here && <span class="tag">answers</span>}
                    </td>
                    <td data-name="site">{host.site || "–"}</td>
                    <td data-name="role">
                      <span class={`state ${host.role === "leader" ? "good" : "calm"}`}>{host.role}</span>
                    </td>
                    <td data-name="behind" class="num">
                      {host.behind === undefined ? "–" : grouped(host.behind)}
                    </td>
                    <td data-name="state">{host.trouble ? <span class="bad">{host.trouble}</span> : <span class="good">reached</span>}</td>
                  </tr>
                ))}
              </Table>
            </Card>
            <Card title="Groups">
              <Loaded answer={groups}>
                {(groups) => (
                  <Table label="Groups" class="stack" heads={["Group", "Leader", "Voters", "Topics", "Behind", "State"]}>
                    {groups.map((group) => (
                      <tr key={group.id}>
                        <td class="mono">{group.group}</td>
                        <td data-name="leader">{group.leader ? named(group.leader) : <span class="bad">none</span>}</td>
                        <td data-name="voters" class={`num ${group.voters.length < group.wanted ? "warn" : ""}`}>
                          {group.voters.length} of {group.wanted}
                        </td>
                        <td data-name="topics" class="num">
                          {grouped(group.topics)}
                        </td>
                        <td data-name="behind" class="num">
                          {group.behind ?? 0}
                        </td>
                        <td data-name="state">{group.resting ? "at rest" : "at work"}</td>
                      </tr>
                    ))}
                  </Table>
                )}
              </Loaded>
            </Card>
            <Card title="Topics">
              <Loaded answer={topics}>
                {({ topics }) =>
                  topics.length === 0 ? (
                    <p class="muted">
                      There are none. <code>millrace topic create NAME</code>
                    </p>
                  ) : (
                    <ul class="lines">
                      {topics.map((it) => (
                        <li key={String(it.topic ?? it.name)}>
                          <span class="mono">{String(it.topic ?? it.name)}</span>
                          <span class="right muted">{it.latest === undefined ? "" : `${grouped(Number(it.latest))} records`}</span>
                        </li>
                      ))}
                    </ul>
                  )
                }
              </Loaded>
            </Card>
          </>
        )}
      </Loaded>
    </>
  );
}

interface Thing {
  type: string;
  class?: string;
  key: string;
  incarnation: string;
  application: string;
  persistent: boolean;
  rf: number;
  leader?: string;
  bytes: number;
  waiting: number;
  owner: string | null;
}

export function Objects({ namespace }: ScreenProps) {
  const answer = useAsk<{ objects: Thing[]; sessions: number; next: string | null }>(of(namespace, "objects", { limit: 500 }), 2000);
  const [filter, set] = useState("");
  return (
    <>
      <Head title="Shared objects" cmd="millrace entity ls" />
      <Loaded answer={answer}>
        {({ objects, sessions, next }) =>
          objects.length === 0 ? (
            <Empty title="There are no shared objects">
              <p>
                Counters, maps, locks and queues that programs share, such as <code>ns.counter("visits")</code> in Python.
              </p>
            </Empty>
          ) : (
            <>
              <div class="bar">
                <span class="muted">
                  {objects.length} objects{next ? " and more" : ""}, {sessions} sessions
                </span>
                <span class="space" />
                <Field label="Filter">
                  <input value={filter} onInput={(event) => set(event.currentTarget.value)} autocomplete="off" />
                </Field>
              </div>
              <Table label="Shared objects" class="stack" heads={["Key", "Type", "Copies", "Size", "Waiting calls", "Owner"]}>
                {objects
                  .filter((it) => it.key.toLowerCase().includes(filter.toLowerCase()))
                  .map((it) => (
                    <tr key={`${it.type} ${it.key} ${it.incarnation}`}>
                      <td class="mono">
                        {it.key}
                        {it.persistent && <span class="tag">persistent</span>}
                      </td>
                      <td data-name="type">{it.class ?? it.type}</td>
                      <td data-name="copies" class="num">
                        {it.rf}
                      </td>
                      <td data-name="size" class="num">
                        {size(it.bytes)}
                      </td>
                      <td data-name="waiting" class={`num ${it.waiting ? "warn" : ""}`}>
                        {it.waiting}
                      </td>
                      <td data-name="owner" class="mono">
                        {it.owner?.slice(0, 12) ?? "–"}
                      </td>
                    </tr>
                  ))}
              </Table>
            </>
          )
        }
      </Loaded>
      <p class="muted">
        Their steps, if they are persistent, are records of{" "}
        <a class="mono" href={href(namespace, "logs", "_entities")}>
          _entities
        </a>
        .
      </p>
    </>
  );
}
