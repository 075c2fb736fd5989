// A line over time. The key `t` shows the same as a table, for screen readers and for exact values.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Table, Time } from "../parts";
import { number } from "../format";

export interface Point {
  seqno: number;
  at: number;
  value: number;
  time: string;
  /** A second value, such as the one before a repair. */
  other?: number;
  /** The least and the greatest, if the point stands for several records. */
  low?: number;
  high?: number;
  /** How many records it stands for. */
  count?: number;
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
  onRange,
  mark,
  bars,
  span,
}: {
  points: Point[];
  label: string;
  otherLabel?: string;
  onChoose?: (seqno: number) => void;
  /** A part of the time was selected. */
  onRange?: (from: number, until: number) => void;
  /** A part of the time that is marked: the records that are shown beside the plot. */
  mark?: [number, number];
  /** Whether each value is a bar from 0. */
  bars?: boolean;
  /** The time from the left to the right end; by default that of the points. */
  span?: [number, number];
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [asTable, setTable] = useState(false);
  const [theme, setTheme] = useState(0);
  const calls = useRef({ onChoose, onRange, mark, span });
  calls.current = { onChoose, onRange, mark, span };
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
  const isBanded = points.some((point) => point.low !== undefined && point.low !== point.high);
  useEffect(() => {
    const element = box.current;
    if (!element || asTable) return;
    const [line, fill, grid, text, other] = ["--accent", "--accent-soft", "--line", "--muted", "--violet"].map(resolved);
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif" };
    const series: uPlot.Series[] = [
      {},
      {
        label,
        stroke: line,
        fill: isDouble || isBanded ? undefined : bars ? line : fill,
        width: bars ? 0 : 1.75,
        points: { show: !bars && points.length < 60, size: 5 },
        gaps: bars ? undefined : gaps,
        paths: bars ? uPlot.paths.bars?.({ size: [0.9, 40], align: 1 }) : undefined,
      },
    ];
    if (isDouble)
      series.push({
        label: otherLabel ?? "before",
        stroke: other,
        width: 1.5,
        dash: [5, 4],
        points: { show: points.length < 60, size: 4 },
      });
    if (isBanded && !isDouble)
      for (const label of ["greatest", "least"]) series.push({ label, stroke: "transparent", width: 0, points: { show: false }, gaps });
    const drawMark = (plot: uPlot) => {
      const { mark } = calls.current;
      if (!mark) return;
      const [left, right] = mark.map((at) => plot.valToPos(at, "x", true));
      const { left: begin, top, width, height } = plot.bbox;
      const from = Math.max(begin, left - 1);
      plot.ctx.save();
      plot.ctx.globalAlpha = 0.16;
      plot.ctx.fillStyle = other;
      plot.ctx.fillRect(from, top, Math.max(3, Math.min(begin + width, right + 1) - from), height);
      plot.ctx.restore();
    };
    const selected = (plot: uPlot) => {
      const { left, width } = plot.select;
      if (width < 4) return;
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      calls.current.onRange?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: 220,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: onRange !== undefined, y: false, setScale: false } },
        scales: {
          x: { time: true, range: (_, least, most) => calls.current.span ?? (least === most ? [least - 1, most + 1] : [least, most]) },
          y: { range: bars ? (_, __, most) => [0, Math.max(1, most * 1.05)] : undefined },
        },
        bands: isBanded && !isDouble ? [{ series: [2, 3], fill }] : undefined,
        hooks: { drawClear: [drawMark], setSelect: [selected] },
        axes: [
          { ...axis, values: CLOCK, space: 90 },
          { ...axis, size: 56 },
        ],
        series,
      },
      data(latest.current, isDouble, isBanded),
      element,
    );
    made.over.addEventListener("click", () => {
      const index = made.cursor.idx;
      if (index !== null && index !== undefined) calls.current.onChoose?.(latest.current[index].seqno);
    });
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 220 }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [asTable, theme, label, isDouble, isBanded, bars, onRange === undefined]);
  useEffect(() => plot.current?.setData(data(points, isDouble, isBanded)), [points, span?.[0], span?.[1]]);
  useEffect(() => plot.current?.redraw(false), [mark?.[0], mark?.[1]]);
  if (asTable) {
    const heads = ["Number", "Time", ...(isBanded ? ["Records", "Least", "Greatest"] : []), label, ...(isDouble ? [otherLabel ?? "before"] : [])];
    return (
      <Table label={`${label} as a table`} heads={heads}>
        {points.slice(-500).map((point) => (
          <tr key={point.seqno}>
            <td class="num">{point.seqno}</td>
            <td>
              <Time of={point.time} />
            </td>
            {isBanded && (
              <>
                <td class="num">{point.count}</td>
                <td class="num">{number(point.low ?? point.value)}</td>
                <td class="num">{number(point.high ?? point.value)}</td>
              </>
            )}
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

/** Where nothing was recorded for long: no line pretends that there was something. */
const GAP = 25;
function gaps(plot: uPlot, _series: number, first: number, last: number): [number, number][] {
  const at = plot.data[0];
  const steps: number[] = [];
  for (let index = first + 1; index <= last; index += 1) steps.push(at[index] - at[index - 1]);
  const usual = [...steps].sort((a, b) => a - b)[Math.floor(steps.length / 2)] ?? 0;
  if (steps.length < 8 || usual <= 0) return [];
  return steps.flatMap((step, number) => {
    if (step <= usual * GAP) return [];
    const index = first + 1 + number;
    return [[Math.round(plot.valToPos(at[index - 1], "x", true)), Math.round(plot.valToPos(at[index], "x", true))] as [number, number]];
  });
}

/** How times are written below the plot: the step, the form, and the forms with which a new year, day or minute begins. */
const CLOCK: (string | number | null)[][] = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [0.001, ":{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

const data = (points: Point[], isDouble: boolean, isBanded: boolean): uPlot.AlignedData => [
  points.map((point) => point.at),
  points.map((point) => point.value),
  ...(isDouble ? [points.map((point) => point.other ?? null)] : []),
  ...(isBanded && !isDouble ? [points.map((point) => point.high ?? point.value), points.map((point) => point.low ?? point.value)] : []),
];
