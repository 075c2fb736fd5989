// What the bytes of a record are. Records are anybody's bytes: they become text, never markup.

import type { Key, TimeField } from "../host/api";

export const DECODERS = ["auto", "text", "json", "number", "msgpack", "hex"] as const;
export type Decoder = (typeof DECODERS)[number];

export interface Bytes {
  data?: string;
  base64?: string;
}

export interface Decoded {
  /** One line. */
  line: string;
  /** Why the chosen decoder does not fit; then the line is hexadecimal. */
  wrong?: string;
  /** The value, if it is JSON, MessagePack or a number. */
  value?: unknown;
}

/** Longer values are not parsed for a table. */
const PARSED_MAX = 256 * 1024;
const LINE_MAX = 400;

export function bytesOf(record: Bytes): Uint8Array {
  if (record.data !== undefined) return new TextEncoder().encode(record.data);
  const text = atob(record.base64 ?? "");
  return Uint8Array.from(text, (char) => char.charCodeAt(0));
}

export const lengthOf = (record: Bytes): number =>
  record.base64 !== undefined ? Math.floor((record.base64.replace(/=+$/, "").length * 3) / 4) : new Blob([record.data ?? ""]).size;

/** Characters that move or hide others are shown by their numbers. */
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const seen = (char: string, keeps: string): string => {
  if (keeps.includes(char)) return char;
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
};
export const visible = (text: string, keeps = ""): string => text.replace(UNSEEN, (char) => seen(char, keeps));

export function hex(bytes: Uint8Array, most = 64): string {
  const shown = Array.from(bytes.subarray(0, most), (byte) => byte.toString(16).padStart(2, "0"));
  return shown.join(" ") + (bytes.length > most ? " …" : "");
}

/** Hexadecimal with addresses and characters, as `xxd` prints it. */
export function dump(bytes: Uint8Array, most = 16384): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, most); at += 16) {
    const row = bytes.subarray(at, at + 16);
    const text = Array.from(row, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex(row, 16).padEnd(48)} ${text}`);
  }
  if (bytes.length > most) lines.push(`… ${bytes.length - most} more bytes`);
  return lines.join("\n");
}

const cut = (text: string): string => (text.length > LINE_MAX ? `${text.slice(0, LINE_MAX)}…` : text);
const inHex = (record: Bytes, wrong?: string): Decoded => ({
  line: hex(bytesOf({ ...record, base64: record.base64?.slice(0, 128) })),
  wrong,
});

function isNumber(text: string): boolean {
  return text.trim() !== "" && text.length < 40 && Number.isFinite(Number(text));
}

/** Reads one value of MessagePack. */
function unpack(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let [at, items] = [0, 0];
  const take = (length: number): number => {
    at += length;
    if (at > bytes.length) throw new RangeError("the value is cut off");
    return at - length;
  };
  const text = (length: number): string => new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(take(length), at));
  const blob = (length: number): string => hex(bytes.subarray(take(length), at));
  const many = (length: number, depth: number): unknown[] => Array.from({ length: bounded(length) }, () => one(depth + 1));
  const bounded = (length: number): number => {
    items += length;
    if (items > 10_000 || length > bytes.length) throw new RangeError("the value has too many items");
    return length;
  };
  const map = (length: number, depth: number): unknown =>
    Object.fromEntries(Array.from({ length: bounded(length) }, () => [String(one(depth + 1)), one(depth + 1)]));
  const one = (depth: number): unknown => {
    if (depth > 32) throw new RangeError("the value is too deep");
    const kind = view.getUint8(take(1));
    if (kind < 0x80) return kind;
    if (kind < 0x90) return map(kind & 15, depth);
    if (kind < 0xa0) return many(kind & 15, depth);
    if (kind < 0xc0) return text(kind & 31);
    if (kind >= 0xe0) return kind - 256;
    switch (kind) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
        return blob(view.getUint8(take(1)));
      case 0xc5:
        return blob(view.getUint16(take(2)));
      case 0xc6:
        return blob(view.getUint32(take(4)));
      case 0xca:
        return view.getFloat32(take(4));
      case 0xcb:
        return view.getFloat64(take(8));
      case 0xcc:
        return view.getUint8(take(1));
      case 0xcd:
        return view.getUint16(take(2));
      case 0xce:
        return view.getUint32(take(4));
      case 0xcf:
        return Number(view.getBigUint64(take(8)));
      case 0xd0:
        return view.getInt8(take(1));
      case 0xd1:
        return view.getInt16(take(2));
      case 0xd2:
        return view.getInt32(take(4));
      case 0xd3:
        return Number(view.getBigInt64(take(8)));
      case 0xd9:
        return text(view.getUint8(take(1)));
      case 0xda:
        return text(view.getUint16(take(2)));
      case 0xdb:
        return text(view.getUint32(take(4)));
      case 0xdc:
        return many(view.getUint16(take(2)), depth);
      case 0xdd:
        return many(view.getUint32(take(4)), depth);
      case 0xde:
        return map(view.getUint16(take(2)), depth);
      case 0xdf:
        return map(view.getUint32(take(4)), depth);
      default:
        throw new RangeError(`0x${kind.toString(16)} begins no value that is shown here`);
    }
  };
  const value = one(0);
  if (at !== bytes.length) throw new RangeError(`${bytes.length - at} bytes follow the value`);
  return value;
}

const plain = (text: string): Decoded => ({ line: visible(cut(text)) });
const valued = (value: unknown): Decoded => ({ line: visible(cut(typeof value === "string" ? value : JSON.stringify(value))), value });

/** A number in binary: four or eight bytes, little-endian. */
function binary(bytes: Uint8Array): number | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length === 8) return view.getFloat64(0, true);
  if (bytes.length === 4) return view.getFloat32(0, true);
  return undefined;
}

export function decode(record: Bytes, how: Decoder): Decoded {
  const text = record.data;
  switch (how) {
    case "hex":
      return inHex(record.data === undefined ? record : { data: record.data.slice(0, 128) });
    case "text":
      return text === undefined ? inHex(record, "the bytes are not UTF-8") : plain(text);
    case "number": {
      if (text !== undefined && isNumber(text)) return { line: text.trim(), value: Number(text) };
      const value = (text ?? record.base64 ?? "").length < 32 ? binary(bytesOf(record)) : undefined;
      return value === undefined
        ? inHex({ data: text?.slice(0, 128), base64: record.base64 }, "the bytes are not a number")
        : { line: String(value), value };
    }
    case "msgpack":
      if ((text ?? record.base64 ?? "").length > PARSED_MAX) return inHex(record, "longer than 256 KiB");
      try {
        return valued(unpack(bytesOf(record)));
      } catch (error) {
        return inHex(record, `not MessagePack: ${(error as Error).message}`);
      }
    case "json":
    case "auto":
      if (text === undefined) return inHex(record, how === "json" ? "the bytes are not UTF-8" : undefined);
      if (text.length <= PARSED_MAX && (how === "json" || /^\s*[[{"\d-]|^\s*(true|false|null)\s*$/.test(text))) {
        try {
          const value: unknown = JSON.parse(text);
          return typeof value === "string" && how === "auto" ? { line: visible(cut(text)), value } : valued(value);
        } catch {
          /* It is text. */
        }
      }
      if (how === "json")
        return inHex({ data: text.slice(0, 128) }, text.length > PARSED_MAX ? "longer than 256 KiB" : "the text is not JSON");
      return isNumber(text) ? { line: text, value: Number(text) } : plain(text);
  }
}

/** The whole value, on many lines. */
export function pretty(record: Bytes, how: Decoder, most = 64 * 1024): string {
  const decoded = decode(record, how);
  if (how === "hex" || decoded.wrong || (record.data === undefined && decoded.value === undefined)) {
    return dump(bytesOf(record.data === undefined ? { base64: record.base64?.slice(0, 24_000) } : { data: record.data.slice(0, 16_384) }));
  }
  const isText = decoded.value === undefined || typeof decoded.value === "string" || typeof decoded.value === "number";
  const text = isText ? (record.data ?? decoded.line) : JSON.stringify(decoded.value, null, 2);
  return visible(text.slice(0, most), "\n\t") + (text.length > most ? "\n…" : "");
}

/** The numbers in a value, by JSON pointer; "" is the value itself. */
export function fields(value: unknown, path = "", into = new Map<string, number>(), depth = 0): Map<string, number> {
  if (typeof value === "number" && Number.isFinite(value)) into.set(path, value);
  else if (typeof value === "boolean") into.set(path, Number(value));
  else if (value && typeof value === "object" && depth < 4 && into.size < 40) {
    for (const [key, below] of Object.entries(value)) {
      fields(below, `${path}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`, into, depth + 1);
    }
  }
  return into;
}

/** What a JSON pointer finds in a value. */
function pointed(value: unknown, pointer: string): unknown {
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(value)) value = /^(0|[1-9]\d*)$/.test(name) ? value[Number(name)] : undefined;
    else value = typeof value === "object" && value !== null && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;
  }
  return value;
}

const RFC_3339 = /^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}):(\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:\d{2})$/;
/** Seconds from 1970 to almost the year 10000; a Date can name them, and as many before 1970. */
const LAST_S = 253_402_207_200;
const UNITS = { s: 1, ms: 1e3, us: 1e6 };

/** When what a record reports was observed, in seconds since 1970: the time in the field that its log names, by the rule of the host. */
export function observed(value: unknown, { field, unit }: TimeField): number | undefined {
  const found = pointed(value, field);
  if (typeof found === "number") return unit && Math.abs(found / UNITS[unit]) <= LAST_S ? found / UNITS[unit] : undefined;
  const [, day, clock, second, fraction, offset] = (typeof found === "string" && RFC_3339.exec(found)) || [];
  // A Date takes the 30th of February for a day of March.
  if (!day || Number.isNaN(Date.parse(`${day}T00:00:00Z`)) || !new Date(`${day}T00:00:00Z`).toISOString().startsWith(day)) return undefined;
  const ms = Date.parse(`${day}T${clock}:${second === "60" ? "59" : second}${offset.toUpperCase()}`);
  return Number.isNaN(ms) ? undefined : ms / 1000 + Number(`0.${fraction ?? 0}`);
}

/** A key of a table as text; one that is not UTF-8 by its bytes. */
export const keyText = (key: Key): string => (typeof key === "string" ? visible(key) : `0x${hex(bytesOf(key)).replaceAll(" ", "")}`);
