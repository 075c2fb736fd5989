/** A small line without axes. The number beside it says the last value, so it is decoration. */
export function Spark({ of: points, width = 240, height = 44 }: { of: number[]; width?: number; height?: number }) {
  const [least, most] = [Math.min(...points), Math.max(...points)];
  const range = most - least || 1;
  const at = (value: number, number: number): string =>
    `${((number * width) / (points.length - 1)).toFixed(1)} ${(height - 3 - ((value - least) / range) * (height - 6)).toFixed(1)}`;
  const line = points.map(at).join("L");
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="area" d={`M${line}L${width} ${height}L0 ${height}Z`} />
      <path class="line" d={`M${line}`} />
    </svg>
  );
}
