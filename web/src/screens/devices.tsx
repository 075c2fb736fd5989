// Devices: what came from each, which are connected or refused, their firmware; a record that a device has now, and commands for it.
import { useState } from "preact/hooks";
import { type Device, type Firmware, type RefusedDevice, Refused, ask, enc, of } from "../host/api";
import { ago, count, duration, grouped, quoted, size } from "../format";
import { useAsk, useDoing, useNow } from "../hooks";
import { Card, Cmd, Empty, Facts, Failure, Field, Head, Loaded, Prose, RecordLink, Table, Time, submit } from "../parts";
import { type Bytes, decode } from "../records/decode";
import { href } from "../router";
import type { ScreenProps } from "../shell";

/** Devices of one page. */
const PAGE = 100;
const UPDATES_ENDED = ["confirmed", "reverted", "refused"];
/** How a device is known that is refused: what precedes "is refused". */
const WHO: Record<RefusedDevice["known_by"], (name: string) => string> = {
  right: (name) => name,
  claim: (name) => `A device that calls itself ${name}`,
  capability: (name) => `A connection that names the capability of ${name}, and proves nothing,`,
};

export default function Devices(props: ScreenProps) {
  return props.route.rest ? <One {...props} name={props.route.rest} /> : <All {...props} />;
}

interface Page {
  devices: Device[];
  next: string | null;
  refused: RefusedDevice[];
}

function All({ namespace, route }: ScreenProps) {
  const after = route.query.get("after") ?? undefined;
  const answer = useAsk<Page>(of(namespace, "devices", { after, limit: PAGE }), 2000);
  const now = useNow();
  return (
    <>
      <Head title="Devices" cmd="millrace device ls" />
      <Loaded answer={answer}>
        {({ devices, next, refused }) => (
          <>
            {refused.map((it) => (
              <Refusal key={`${it.device} ${it.known_by} ${it.code}`} of={it} now={now} />
            ))}
            {devices.length === 0 ? (
              <Empty title="No device has sent records">
                <p>A microcontroller keeps its records in its flash, and sends them when it can reach this host. They are in logs that begin with its name.</p>
                <Cmd>millrace device provision NAME --host HOST:PORT</Cmd>
              </Empty>
            ) : (
              <Table label="Devices" class="stack" heads={["Name", "State", "Newest entry", "Records", "Runs", "Lost", "Waiting commands", "Firmware"]}>
                {devices.map((it) => (
                  <tr key={it.name}>
                    <td>
                      <a class="mono" href={href(namespace, "devices", it.name)}>
                        {it.name}
                      </a>
                    </td>
                    <td data-name="state">
                      <StateOf device={it} now={now} />
                    </td>
                    <td data-name="newest entry">
                      <Time of={it.time} now={now} />
                    </td>
                    <td data-name="records" class="num">
                      {grouped(it.records)}
                    </td>
                    <td data-name="runs" class="num">
                      {grouped(it.runs)}
                      {it.dead > 0 && <span class="bad"> {grouped(it.dead)} given up</span>}
                    </td>
                    <td data-name="lost" class={`num ${it.lost_records > 0 ? "bad" : ""}`}>
                      {grouped(it.lost_records)}
                    </td>
                    <td data-name="waiting commands" class="num">
                      {grouped(it.commands_waiting)}
                    </td>
                    <td data-name="firmware">{it.firmware ? <Version of={it.firmware} /> : "–"}</td>
                  </tr>
                ))}
              </Table>
            )}
            <div class="acts">
              {after && <a href={href(namespace, "devices")}>To the first devices</a>}
              {next && (
                <a class="button" href={href(namespace, "devices", "", { after: next })}>
                  Next {PAGE} devices
                </a>
              )}
            </div>
          </>
        )}
      </Loaded>
    </>
  );
}

function StateOf({ device: it, now }: { device: Device; now: number }) {
  if (it.refused?.some((refused) => refused.known_by === "right")) return <span class="state bad">refused</span>;
  if (it.commands_refused) return <span class="state bad">refuses commands</span>;
  if (it.presence?.connected) return <span class="state good">connected</span>;
  const { until, expected } = it.presence ?? {};
  const left = expected ? Date.parse(expected) - now : 0;
  if (left > 0) return <span class="state calm">asleep, expected in {duration(left)}</span>;
  return <span class="state calm">{until ? `ended ${ago(until, now)}` : "not connected"}</span>;
}

const isUnderWay = (firmware: Firmware): boolean => firmware.update !== undefined && !UPDATES_ENDED.includes(firmware.update.state);

const Version = ({ of: it }: { of: Firmware }) => (
  <>
    <span class="mono">{it.running ?? "not known yet"}</span>
    {isUnderWay(it) && (
      <>
        {" → "}
        <span class="mono">{it.update!.version}</span> <span class="tag warn">{it.update!.state}</span>
      </>
    )}
  </>
);

function Refusal({ of: it, now }: { of: RefusedDevice; now: number }) {
  const times = it.times === 1 ? "Once, " : `${count(it.times, "time")}, last `;
  return (
    <div class="failure" role="alert">
      <strong>{WHO[it.known_by](it.device)} is refused</strong>
      <p>
        <code class="code">{it.code}</code> {it.detail}
      </p>
      <p class="muted">
        {times}
        {ago(it.last, now)}, from {it.address ? `address ${it.address}` : "this machine"},{" "}
        {it.capability ? `with capability ${it.capability}` : "without a capability"}
        {it.identity ? `, identity ${it.identity}` : ""}.
      </p>
      <p class="muted">
        <Prose>{it.remedy}</Prose>
      </p>
    </div>
  );
}

function One({ namespace, name }: ScreenProps & { name: string }) {
  const answer = useAsk<Device>(of(namespace, `devices/${enc(name)}`), 2000);
  const now = useNow();
  return (
    <>
      <Head title={name} mono cmd={`millrace device show ${quoted(name)}`} />
      <Loaded answer={answer}>
        {(it) => (
          <>
            {it.refused?.map((refused) => <Refusal key={`${refused.known_by} ${refused.code}`} of={refused} now={now} />)}
            {it.commands_refused && (
              <Failure of={{ code: it.commands_refused.code, detail: `The device refuses commands: ${it.commands_refused.detail}` }} />
            )}
            <div class="columns">
              <Card title="Device" more={<StateOf device={it} now={now} />}>
                <Facts
                  of={[
                    ["Identity", <span class="mono">{it.namespace.toString(16).padStart(12, "0")}</span>],
                    ["Connected", it.presence?.since ? <>since <Time of={it.presence.since} /></> : "no"],
                    ["Newest entry", <Time of={it.time} now={now} />],
                    ["Records", grouped(it.records)],
                    ["Runs", `${grouped(it.runs)}, ${grouped(it.dead)} given up`],
                    ["Starts", grouped(it.starts)],
                    ["Lost", count(it.lost_records, "record")],
                    ["Commands", `${grouped(it.commands_waiting)} waiting`],
                    ["Capability", <span class="mono">{it.shown ?? it.capability ?? "none"}</span>],
                  ]}
                />
              </Card>
              {it.firmware && <FirmwareCard namespace={namespace} device={name} of={it.firmware} again={answer.again} />}
            </div>
            <Logs namespace={namespace} device={it} />
            <Send namespace={namespace} device={it} again={answer.again} />
          </>
        )}
      </Loaded>
    </>
  );
}

/** The log of the firmware: it takes images, not commands. */
const FIRMWARE = "firmware";
/** The name of a log in the device. */
const within = (device: Device, log: string): string => log.slice(device.name.length + 1);
/** Its logs in the device, also those that have no record, each with the number of the newest record here. */
function logsOf(device: Device): [string, number][] {
  const here = new Map(device.logs.map(([log, latest]) => [within(device, log), latest]));
  for (const { log } of device.kept ?? []) if (!here.has(log)) here.set(log, 0);
  return [...here].sort(([one], [other]) => (one < other ? -1 : 1));
}

function Logs({ namespace, device }: { namespace: string; device: Device }) {
  const [asked, setAsked] = useState<string>();
  return (
    <>
      <Table label="Logs" class="stack" heads={["Log", "Newest here", "In the device", ""]}>
        {logsOf(device).map(([log, latest]) => {
          const kept = device.kept?.find((it) => it.log === log);
          const newest = kept?.history === 1 ? "the newest record" : `the newest ${count(kept?.history ?? 0, "record")}`;
          const records = kept && (kept.history > 0 ? newest : "as many as its flash has room for");
          const name = `${device.name}/${log}`;
          return (
            <tr key={log}>
              <td>
                {latest > 0 ? (
                  <a class="mono" href={href(namespace, "logs", name)}>
                    {name}
                  </a>
                ) : (
                  <span class="mono">{name}</span>
                )}
                {kept?.commands && <span class="tag">commands</span>}
              </td>
              <td data-name="newest here" class="num">
                {latest > 0 ? grouped(latest) : "–"}
              </td>
              <td data-name="in the device">{records ?? "–"}</td>
              <td>
                <button type="button" onClick={() => setAsked(asked === log ? undefined : log)} aria-expanded={asked === log}>
                  Ask the device
                </button>
              </td>
            </tr>
          );
        })}
      </Table>
      {asked && <Live key={asked} namespace={namespace} device={device.name} log={asked} close={() => setAsked(undefined)} />}
    </>
  );
}

type Answer = Bytes & { log: string; seqno: number; time: string };

/** The newest record of a log, as the device answers now. */
function Live({ namespace, device, log, close }: { namespace: string; device: string; log: string; close: () => void }) {
  const answer = useAsk<Answer>(of(namespace, `devices/${enc(device)}/live/${log.split("/").map(enc).join("/")}`));
  return (
    <Card
      title={<span class="mono">{`${device}/${log}`}</span>}
      more={
        <span class="acts">
          <button type="button" class="ghost" onClick={answer.again}>
            Again
          </button>
          <button type="button" class="ghost" onClick={close}>
            Close
          </button>
        </span>
      }
    >
      <Loaded answer={answer}>
        {(it) => (
          <>
            <p>
              The newest record in the device: <RecordLink namespace={namespace} record={it} />, <Time of={it.time} />
            </p>
            <pre class="value-box">{decode(it, "auto").line}</pre>
          </>
        )}
      </Loaded>
      <Cmd>{`millrace device get ${quoted(device)} ${quoted(log)}`}</Cmd>
    </Card>
  );
}

function FirmwareCard(props: { namespace: string; device: string; of: Firmware; again: () => void }) {
  const { namespace, device, of: it, again } = props;
  const [image, setImage] = useState<File>();
  const [version, setVersion] = useState("");
  const send = useDoing(async () => {
    const path = of(namespace, `devices/${enc(device)}/firmware`, { version });
    await ask(path, { method: "PUT", body: image, headers: { "content-type": "application/octet-stream" } });
    again();
  });
  const update = it.update;
  const tone = update?.state === "confirmed" ? "good" : update && UPDATES_ENDED.includes(update.state) ? "bad" : "warn";
  return (
    <Card title="Firmware" more={update && <span class={`state ${tone}`}>{update.state}</span>}>
      <Facts
        of={[
          ["Version", <span class="mono">{it.running ?? "not known yet"}</span>],
          ["Room", it.slot_bytes ? size(it.slot_bytes) : "not known yet"],
          ...(update
            ? ([
                ["Last update", `to ${update.version}`],
                ["Sent", `${size(update.sent)} of ${size(update.size)}`],
              ] as [string, string][])
            : []),
        ]}
      />
      {update && isUnderWay(it) && <progress max={Math.max(1, update.size)} value={update.sent} aria-label="Part of the image that was sent" />}
      {update?.code && <Failure of={{ code: update.code, detail: update.detail ?? "" }} />}
      <form class="bar" onSubmit={submit(() => void send.run())}>
        <Field label="Image">
          <input type="file" required onChange={(event) => setImage(event.currentTarget.files?.[0])} />
        </Field>
        <Field label="Version">
          <input required value={version} onInput={(event) => setVersion(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </Field>
        <button type="submit" disabled={send.busy}>
          {send.busy ? "…" : "Update"}
        </button>
      </form>
      {send.error && <Failure of={send.error} />}
      <Cmd>{`millrace device update ${quoted(device)} --image ${quoted(image?.name ?? "IMAGE")} --version ${quoted(version || "VERSION")}`}</Cmd>
    </Card>
  );
}

function Send({ namespace, device, again }: { namespace: string; device: Device; again: () => void }) {
  const logs = logsOf(device).map(([log]) => log);
  const told = device.kept?.find((it) => it.commands && it.log !== FIRMWARE)?.log;
  const usual = told ?? (logs.includes("config") ? "config" : "");
  const [log, setLog] = useState(usual);
  const [data, setData] = useState("");
  const [live, setLive] = useState(false);
  const [sent, setSent] = useState<{ said?: string; error?: Refused }>({});
  const send = async () => {
    setSent({});
    try {
      const json = { do: live ? "append-on-device" : "send-command", device: device.name, log, data };
      const { seqno } = await ask<{ seqno?: number }>(of(namespace, "manage"), { method: "POST", json });
      setSent({ said: live ? `The device has it as record ${seqno}` : "It waits for the device" });
      again();
    } catch (error) {
      setSent({ error: error as Refused });
    }
  };
  return (
    <Card title="Send a command">
      <form class="bar" onSubmit={submit(send)}>
        <Field label="Log">
          <input required list="logs-of-device" value={log} onInput={(event) => setLog(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
          <datalist id="logs-of-device">
            {logs.map((it) => (
              <option key={it} value={it} />
            ))}
          </datalist>
        </Field>
        <Field label="Record">
          <input required value={data} onInput={(event) => setData(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
        </Field>
        <label class="check">
          <input type="checkbox" checked={live} onChange={() => setLive(!live)} /> now, or not at all
        </label>
        <button type="submit">Send</button>
        {sent.said && (
          <span class="good" role="status">
            {sent.said}
          </span>
        )}
      </form>
      {sent.error && <Failure of={sent.error} />}
      <Cmd>{`millrace device send ${quoted(device.name)} ${quoted(log || "LOG")} ${quoted(data || "VALUE")}${live ? " --live" : ""}`}</Cmd>
    </Card>
  );
}
