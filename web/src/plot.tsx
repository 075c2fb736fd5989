// A line over time. The key `t` shows the same as a table, for screen readers and for exact values.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Table, Time } from "./parts";
import { number } from "./format";

export interface Point {
  seqno: number;
  at: number;
  value: number;
  time: string;
  /** A second value, such as the one before a repair. */
  other?: number;
}

const color = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Resolves light-dark() for the canvas, which knows no such colours. */
function resolved(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || color(name);
}

export function Plot({
  points,
  label,
  otherLabel,
  onChoose,
}: {
  points: Point[];
  label: string;
  otherLabel?: string;
  onChoose?: (seqno: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [asTable, setTable] = useState(false);
  const [theme, setTheme] = useState(0);
  const choose = useRef(onChoose);
  choose.current = onChoose;
  const latest = useRef(points);
  latest.current = points;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.key === "t" && !(event.target as HTMLElement).matches("input, textarea, select")) setTable((shown) => !shown);
    };
    const changed = () => setTheme((n) => n + 1);
    const watch = new MutationObserver(changed);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", changed);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("keydown", pressed);
      scheme.removeEventListener("change", changed);
      watch.disconnect();
    };
  }, []);
  const isDouble = points.some((point) => point.other !== undefined);
  useEffect(() => {
    const element = box.current;
    if (!element || asTable) return;
    const [line, fill, grid, text, other] = ["--accent", "--accent-soft", "--line", "--muted", "--violet"].map(resolved);
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    const series: uPlot.Series[] = [
      {},
      { label, stroke: line, fill: isDouble ? undefined : fill, width: 1.75, points: { show: points.length < 60, size: 5 } },
    ];
    if (isDouble)
      series.push({
        label: otherLabel ?? "before",
        stroke: other,
        width: 1.5,
        dash: [5, 4],
        points: { show: points.length < 60, size: 4 },
      });
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: 220,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 } },
        scales: { x: { time: true } },
        axes: [
          { ...axis, values: CLOCK, space: 90 },
          { ...axis, size: 56 },
        ],
        series,
      },
      data(latest.current, isDouble),
      element,
    );
    made.over.addEventListener("click", () => {
      const index = made.cursor.idx;
      if (index !== null && index !== undefined) choose.current?.(latest.current[index].seqno);
    });
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 220 }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [asTable, theme, label, isDouble]);
  useEffect(() => plot.current?.setData(data(points, isDouble)), [points]);
  if (asTable) {
    return (
      <Table label={`${label} as a table`} heads={["Number", "Time", label, ...(isDouble ? [otherLabel ?? "before"] : [])]}>
        {points.slice(-500).map((point) => (
          <tr key={point.seqno}>
            <td class="num">{point.seqno}</td>
            <td>
              <Time of={point.time} />
            </td>
            <td class="num">{number(point.value)}</td>
            {isDouble && <td class="num">{point.other === undefined ? "" : number(point.other)}</td>}
          </tr>
        ))}
      </Table>
    );
  }
  const values = points.map((point) => point.value);
  const text = `${label}: ${points.length} points, from ${number(Math.min(...values))} to ${number(Math.max(...values))}, last ${number(values.at(-1) ?? NaN)}`;
  return (
    <div role="img" aria-label={text}>
      <div class="plot" ref={box} />
    </div>
  );
}

/** How times are written below the plot: the step, the form, and the forms with which a new year, day or minute begins. */
const CLOCK: (string | number | null)[][] = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

const data = (points: Point[], isDouble: boolean): uPlot.AlignedData => [
  points.map((point) => point.at),
  points.map((point) => point.value),
  ...(isDouble ? [points.map((point) => point.other ?? null)] : []),
];
