// Values of records from a file: lines of JSON such as {"seqno": 7, "value": "21.5"}, or CSV with the columns `seqno` and `value`.

/** A file that cannot be understood says at which line. */
export class Unread extends Error {}

/** The cells of a line of CSV; a quoted cell may contain commas, and quotes that are doubled. */
function cells(line: string): string[] {
  const found: string[] = [];
  const cell = /(?:"((?:[^"]|"")*)"|([^,]*))(,|$)/y;
  for (;;) {
    const match = cell.exec(line);
    if (!match) throw new Unread("a quote is not closed");
    found.push(match[1] === undefined ? match[2] : match[1].replaceAll('""', '"'));
    if (match[3] === "") return found;
  }
}

/** The values by the numbers of their records. */
export function valuesOf(text: string): Map<number, string> {
  const values = new Map<number, string>();
  const lines = text.split(/\r?\n/);
  let columns: [number, number] | undefined;
  lines.forEach((line, at) => {
    if (line.trim() === "") return;
    const fail = (why: string): never => {
      throw new Unread(`Line ${at + 1}: ${why}.`);
    };
    let [seqno, value]: [unknown, unknown] = [undefined, undefined];
    if (line.trimStart().startsWith("{")) {
      try {
        ({ seqno, value } = JSON.parse(line) as { seqno?: unknown; value?: unknown });
      } catch {
        fail("this is not JSON");
      }
    } else if (columns === undefined) {
      const heads = cells(line).map((head) => head.trim().toLowerCase());
      columns = [heads.indexOf("seqno"), heads.indexOf("value")];
      if (columns.includes(-1)) fail("the columns seqno and value are missing");
      return;
    } else {
      const row = cells(line);
      [seqno, value] = [Number(row[columns[0]]), row[columns[1]]];
    }
    const number = Number(seqno);
    if (!Number.isInteger(number) || number < 1 || value === undefined) fail("it has no seqno or no value");
    if (values.has(number)) fail(`record ${number} was named before`);
    values.set(number, typeof value === "string" ? value : JSON.stringify(value));
  });
  if (values.size === 0) throw new Unread("The file has no values.");
  return values;
}
