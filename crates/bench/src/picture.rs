//! The distribution of the samples of a row, as a picture for docs/benchmarks.md.

use crate::measure::{Samples, figure};
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Of the plot: left, right, top, bottom.
const PLOT: [f64; 4] = [48.0, 616.0, 40.0, 252.0];
/// Points of the curve.
const POINTS: u32 = 400;
const TICKS: u32 = 6;

/// How many of the samples took at most so many milliseconds, with a line at `limit_ms`, and the text beside it.
pub fn distribution(title: &str, axis: &str, samples: &Samples, (limit_ms, limit): (f64, &str)) -> String {
    let [left, right, top, bottom] = PLOT;
    let step = step(samples.max_us().max(limit_ms * 1000.0) / 1000.0);
    let most = step * f64::from(TICKS);
    let x = |ms: f64| left + (right - left) * (ms / most).min(1.0);
    let y = |part: f64| bottom - (bottom - top) * part;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"11\" \
         fill=\"#1b2733\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"{left}\" y=\"20\" \
         font-size=\"13\">{title}</text>\n"
    );
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {0:.1}H{right}\" stroke=\"#e3e7eb\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\" fill=\"#66727e\">{3} %</text>",
            y(part),
            left - 6.0,
            y(part) + 4.0,
            part * 100.0
        );
    }
    for tick in 0..=TICKS {
        let ms = step * f64::from(tick);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#66727e\">{ms}</text>",
            x(ms),
            bottom + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#66727e\">{axis}</text>",
        f64::midpoint(left, right),
        bottom + 38.0
    );
    let _ = writeln!(
        svg,
        "<path d=\"M{0:.1} {top}V{bottom}\" stroke=\"#2e86ab\" stroke-dasharray=\"4 3\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\" \
         fill=\"#2e86ab\">{limit}</text>",
        x(limit_ms),
        top - 6.0
    );
    let mut line = format!("M{:.1} {bottom}", x(samples.quantile_us(0.0) / 1000.0));
    for point in 1..=POINTS {
        let part = f64::from(point) / f64::from(POINTS);
        // A step: so many took no longer than this.
        let _ = write!(line, "H{:.1}V{:.1}", x(samples.quantile_us(part) / 1000.0), y(part));
    }
    let _ = writeln!(svg, "<path d=\"{line}H{right}\" fill=\"none\" stroke=\"#c9304a\" stroke-width=\"1.5\"/>");
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        let ms = samples.quantile_us(part) / 1000.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"3\" fill=\"#c9304a\"/><text x=\"{2:.1}\" y=\"{3:.1}\">{name} {4} ms</text>",
            x(ms),
            y(part),
            x(ms) + 8.0,
            y(part) + 14.0,
            figure(ms)
        );
    }
    svg + "</svg>\n"
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, so that all of them together reach this value.
fn step(most: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for step in [1.0, 2.0, 5.0] {
            if step * power * f64::from(TICKS) >= most {
                return step * power;
            }
        }
        power *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_axis_reaches_the_longest_sample_and_the_curve_all_samples() {
        assert_eq!([5.0, 600.0, 1201.0].map(step), [1.0, 100.0, 500.0]);
        let mut samples = Samples::new();
        for ms in 1..=1000 {
            samples.record(Duration::from_millis(ms));
        }
        let svg = distribution("kills", "ms", &samples, (600.0, "limit"));
        assert!(svg.contains(">1200</text>") && svg.contains("p50 500 ms") && svg.contains("p99 990 ms"), "{svg}");
        // The last step is at the longest sample and at the top.
        assert!(svg.contains(&format!("V{:.1}H{}\"", PLOT[2], PLOT[1])), "{svg}");
    }
}
