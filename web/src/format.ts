// Numbers, times and sizes for people.

export const grouped = (n: number): string => n.toLocaleString("en-US");

export const count = (n: number, one: string): string => `${grouped(n)} ${one}${n === 1 ? "" : "s"}`;

export function duration(ms: number): string {
  if (ms < 1) return `${Math.max(0, Math.round(ms * 1000))} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${grouped(Math.round(s / 86400))} d`;
}

export function ago(time: string | null | undefined, now: number): string {
  if (!time) return "never";
  const ms = now - Date.parse(time);
  return ms < 1000 ? "now" : `${duration(ms)} ago`;
}

export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  let [value, unit] = [bytes / 1024, 0];
  while (value >= 1024 && unit < 4) [value, unit] = [value / 1024, unit + 1];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${["KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

const two = (n: number) => String(n).padStart(2, "0");

/** The local time of a moment; the day only if it is another one than today. */
export function moment(time: string | null | undefined): string {
  if (!time) return "";
  const date = new Date(time);
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
  if (date.toDateString() === new Date().toDateString()) return clock;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock.slice(0, 8)}`;
}

/** Microseconds since 1970, which a Date would round. */
export function micros(time: string): number {
  const fraction = /\.(\d+)/.exec(time)?.[1] ?? "";
  return Date.parse(time.replace(/\.\d+/, "")) * 1000 + Number(fraction.padEnd(6, "0").slice(0, 6));
}

/** A number with as many digits as help. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value)) return Math.abs(value) < 1e15 ? grouped(value) : String(value);
  return String(Number(value.toPrecision(6)));
}

/** An argument for a shell. */
export const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
