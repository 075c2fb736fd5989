// mqtt.js: publishes at each quality, and prints what comes back. Arguments: port, version (4 or 5).
import mqtt from "mqtt";

const [port, version] = process.argv.slice(2).map(Number);
const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { protocolVersion: version, clientId: `js-${version}`, clean: true });
const came = new Promise((resolve) => {
  const seen = [];
  client.on("message", (topic, payload, packet) => {
    const properties = packet.properties?.userProperties;
    seen.push({ topic, message: payload.toString(), headers: properties && { ...properties } });
    if (seen.length === 3) resolve(seen);
  });
});
await client.subscribeAsync("raw/+", { qos: 1 });
for (const qos of [0, 1, 2]) {
  const properties = version === 5 ? { userProperties: { unit: "C" } } : undefined;
  await client.publishAsync("raw/hall", `js ${qos}`, { qos, properties });
}
console.log(JSON.stringify(await came));
await client.endAsync();
