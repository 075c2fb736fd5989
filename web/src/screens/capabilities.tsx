// Capabilities: which were issued, a new one, and the end of one.
import { useState } from "preact/hooks";
import { ask, of } from "../host/api";
import { quoted } from "../format";
import { useAsk, useDoing, useNow } from "../hooks";
import { Act, Card, Cmd, Empty, Failure, Field, Head, Loaded, Table, Time, submit } from "../parts";
import type { ScreenProps } from "../shell";

interface Capability {
  ids: string[];
  act: string;
  at: string;
  by: string;
  about: string | null;
  revoked: boolean;
}

const RIGHTS = ["read", "append", "observe", "run", "create", "delete", "bind", "call", "repair", "link", "admin", "grant"];
const TIMES: [string, string, number | undefined][] = [
  ["1h", "an hour", 3600],
  ["12h", "12 hours", 12 * 3600],
  ["30d", "30 days", 30 * 86_400],
  ["", "never", undefined],
];
const ACTS: Record<string, string> = { "cap.issue": "issued", "cap.squash": "squashed", "cap.invite": "invitation", "cap.redeem": "joined" };

export default function Capabilities({ namespace }: ScreenProps) {
  const now = useNow();
  const answer = useAsk<{ capabilities: Capability[] }>(of(namespace, "capabilities"), 10_000);
  const revoke = (id: string) => () =>
    ask(of(namespace, "capabilities"), { method: "POST", json: { do: "revoke", ids: [id] } }).then(answer.again);
  return (
    <>
      <Head title="Capabilities" cmd="millrace cap audit" />
      <Issue namespace={namespace} onIssued={answer.again} />
      <Loaded answer={answer}>
        {({ capabilities }) =>
          capabilities.length === 0 ? (
            <Empty title="No capability was issued">
              <p>The user who runs the host needs none. Everybody else gets in with one, and may do what it permits.</p>
            </Empty>
          ) : (
            <Table label="Capabilities" class="stack" heads={["Capability", "Label", "Issued", "By", "State", ""]}>
              {capabilities.map((it) => (
                <tr key={`${it.ids.join()} ${it.at}`}>
                  <td class="mono">{it.ids.at(-1)}</td>
                  <td data-name="label">{it.about ?? ""}</td>
                  <td data-name="issued">
                    <Time of={it.at} now={now} />
                  </td>
                  <td data-name="by">{it.by}</td>
                  <td data-name="state">
                    {it.revoked ? <span class="state bad">revoked</span> : <span class="state calm">{ACTS[it.act] ?? it.act}</span>}
                  </td>
                  <td>
                    {!it.revoked && it.ids.length > 0 && (
                      <Act label="Revoke" kind="danger" ask="Revoke it, and all that was derived from it?" act={revoke(it.ids.at(-1)!)} done="" />
                    )}
                  </td>
                </tr>
              ))}
            </Table>
          )
        }
      </Loaded>
    </>
  );
}

function Issue({ namespace, onIssued }: { namespace: string; onIssued: () => void }) {
  const [rights, setRights] = useState<string[]>(["read"]);
  const [on, setOn] = useState("");
  const [time, setTime] = useState("12h");
  const [label, setLabel] = useState("");
  const expires = TIMES.find(([id]) => id === time)?.[2];
  const issue = useDoing(async () => {
    const json = { do: "issue", allow: [{ rights, on: on.trim() }], label, ...(expires ? { expires_s: expires } : {}) };
    const made = await ask<{ capability: string; ids: string[] }>(of(namespace, "capabilities"), { method: "POST", json });
    onIssued();
    return made;
  });
  const toggle = (right: string) => setRights(rights.includes(right) ? rights.filter((it) => it !== right) : [...rights, right]);
  const link = issue.done && `${location.origin}/ui/${encodeURIComponent(namespace)}#cap=${issue.done.capability}`;
  return (
    <Card title="Issue a capability">
      <form onSubmit={submit(() => void issue.run())} class="issue">
        <fieldset class="rights">
          <legend>Rights</legend>
          {RIGHTS.map((right) => (
            <label key={right} class="check">
              <input type="checkbox" checked={rights.includes(right)} onChange={() => toggle(right)} /> {right}
            </label>
          ))}
        </fieldset>
        <div class="bar">
          <Field label="On">
            <input
              required
              value={on}
              onInput={(event) => setOn(event.currentTarget.value)}
              placeholder="raw/ or namespace"
              title="A log, logs below a name with a slash, function:NAME, or namespace"
              spellcheck={false}
              autocomplete="off"
            />
          </Field>
          <Field label="Ends after">
            <select value={time} onChange={(event) => setTime(event.currentTarget.value)}>
              {TIMES.map(([id, name]) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
          </Field>
          <Field label="Label">
            <input value={label} onInput={(event) => setLabel(event.currentTarget.value)} maxLength={100} autocomplete="off" />
          </Field>
          <button type="submit" class="primary" disabled={issue.busy || rights.length === 0}>
            Issue
          </button>
        </div>
      </form>
      {issue.error && <Failure of={issue.error} />}
      {issue.done && link && (
        <div class="issued" role="status">
          <p>
            This is shown once. Whoever has it may do what it permits{expires ? `, for ${TIMES.find(([id]) => id === time)?.[1]}` : ""}.
          </p>
          <Secret label="Capability" text={issue.done.capability} />
          <Secret label="Link to the dashboard" text={link} />
        </div>
      )}
      <Cmd>{`millrace cap issue --allow ${rights.join(",") || "RIGHTS"}=${quoted(on || "RESOURCE")}${time ? ` --expires ${time}` : ""} --out FILE.cap`}</Cmd>
    </Card>
  );
}

const Secret = ({ label, text }: { label: string; text: string }) => (
  <div class="bar">
    <Field label={label}>
      <input class="mono" readOnly value={text} onFocus={(event) => event.currentTarget.select()} />
    </Field>
    <Act label="Copy" act={() => navigator.clipboard.writeText(text)} done="Copied" />
  </div>
);
