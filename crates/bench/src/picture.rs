//! Pictures of rows for docs/benchmarks.md.

use crate::measure::{Samples, figure};
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Of the plot: left, right, top, bottom.
const PLOT: [f64; 4] = [48.0, 616.0, 40.0, 252.0];
/// Points of the curve of a distribution.
const POINTS: u32 = 400;
const TICKS: u32 = 6;
/// Curves that end closer to each other leave no room for a name between them.
const CROWDED: f64 = 20.0;
const RED: &str = "#c9304a";
const BLUE: &str = "#2e86ab";
const GREY: &str = "#66727e";
/// Text that stays readable above a line.
const OVER: &str = "paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"3\"";

/// A curve and its name.
pub struct Curve<'a> {
    pub name: &'a str,
    pub points: Vec<(f64, f64)>,
}

/// How many of the samples took at most this many milliseconds, with a line at `limit_ms`, and the text beside it.
pub fn distribution(title: &str, axis: &str, samples: &Samples, (limit_ms, limit): (f64, &str)) -> String {
    let [_, right, top, bottom] = PLOT;
    let most = samples.max_us().max(limit_ms * 1000.0) / 1000.0;
    let step = step(most);
    let ticks = (most / step).ceil();
    let x = |ms: f64| across(ms / (step * ticks));
    let mut svg = begun(title, axis);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        svg += &line_at(part, &format!("{} %", part * 100.0));
    }
    for tick in 0..=ticks as u32 {
        let ms = step * f64::from(tick);
        svg += &tick_at(x(ms), &ms.to_string());
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{0:.1} {top}V{bottom}\" stroke=\"{BLUE}\" stroke-dasharray=\"4 3\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\" \
         fill=\"{BLUE}\">{limit}</text>",
        x(limit_ms),
        top - 6.0
    );
    let mut line = format!("M{:.1} {bottom}", x(samples.quantile_us(0.0) / 1000.0));
    for point in 1..=POINTS {
        let part = f64::from(point) / f64::from(POINTS);
        // A step: so many took no longer than this.
        let _ = write!(line, "H{:.1}V{:.1}", x(samples.quantile_us(part) / 1000.0), up(part));
    }
    let _ = writeln!(svg, "<path d=\"{line}H{right}\" fill=\"none\" stroke=\"{RED}\" stroke-width=\"1.5\"/>");
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        let ms = samples.quantile_us(part) / 1000.0;
        let _ = writeln!(
            svg,
            "<circle cx=\"{0:.1}\" cy=\"{1:.1}\" r=\"3\" fill=\"{RED}\"/><text x=\"{2:.1}\" y=\"{3:.1}\" {OVER}>{name} {4} ms</text>",
            x(ms),
            up(part),
            x(ms) + 8.0,
            up(part) + 14.0,
            figure(ms)
        );
    }
    svg + "</svg>\n"
}

/// Curves over the same whole numbers, each with its name at its end.
pub fn curves(title: &str, axis: &str, curves: &[Curve<'_>]) -> String {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(least, most), (x, _)| (least.min(*x), most.max(*x)));
    let step = step(all().map(|(_, y)| *y).fold(0.0, f64::max));
    let (most, right) = (step * f64::from(TICKS), PLOT[1]);
    let x = |value: f64| across((value - first) / (last - first).max(1.0));
    let mut svg = begun(title, axis);
    for tick in 0..=TICKS {
        svg += &line_at(f64::from(tick) / f64::from(TICKS), &(step * f64::from(tick)).to_string());
    }
    let mut value = first;
    while value <= last {
        svg += &tick_at(x(value), &value.to_string());
        value += 1.0;
    }
    let end = |curve: &Curve<'_>| curve.points.last().map_or(0.0, |(_, y)| up(y / most));
    for (curve, color) in curves.iter().zip([BLUE, GREY, RED].into_iter().cycle()) {
        let points: Vec<String> =
            curve.points.iter().map(|(at, y)| format!("{:.1} {:.1}", x(*at), up(y / most))).collect();
        let end_here = end(curve);
        // Its name is below it if another curve ends just above.
        let is_crowded = curves.iter().any(|other| (1.0..CROWDED).contains(&(end_here - end(other))));
        let _ = writeln!(
            svg,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/><text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\" \
             fill=\"{color}\">{}</text>",
            points.join("L"),
            if is_crowded { end_here + 16.0 } else { end_here - 7.0 },
            curve.name
        );
    }
    svg + "</svg>\n"
}

/// A picture with a title and the name of its horizontal axis.
fn begun(title: &str, axis: &str) -> String {
    let [left, right, _, bottom] = PLOT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"11\" \
         fill=\"#1b2733\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"{left}\" y=\"20\" \
         font-size=\"13\">{title}</text>\n<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"{GREY}\">{axis}</text>\n",
        f64::midpoint(left, right),
        bottom + 38.0
    )
}

/// Where a part of the width of the plot is.
fn across(part: f64) -> f64 {
    PLOT[0] + (PLOT[1] - PLOT[0]) * part.min(1.0)
}

/// Where a part of its height is.
fn up(part: f64) -> f64 {
    PLOT[3] - (PLOT[3] - PLOT[2]) * part
}

fn line_at(part: f64, name: &str) -> String {
    let [left, right, ..] = PLOT;
    format!(
        "<path d=\"M{left} {0:.1}H{right}\" stroke=\"#e3e7eb\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\" fill=\"{GREY}\">{name}</text>\n",
        up(part),
        left - 6.0,
        up(part) + 4.0
    )
}

fn tick_at(x: f64, name: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"{GREY}\">{name}</text>\n", PLOT[3] + 18.0)
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
        for ms in 1..=900 {
            samples.record(Duration::from_millis(ms));
        }
        let svg = distribution("kills", "ms", &samples, (600.0, "limit"));
        assert!(
            svg.contains(">1000</text>")
                && !svg.contains(">1200</text>")
                && svg.contains("p50 450 ms")
                && svg.contains("p99 891 ms"),
            "{svg}"
        );
        // The last step is at the longest sample and at the top.
        assert!(svg.contains(&format!("V{:.1}H{}\"", PLOT[2], PLOT[1])), "{svg}");
    }

    #[test]
    fn curves_begin_at_the_left_and_end_at_the_right() {
        let curve = Curve { name: "hops", points: vec![(4.0, 2.0), (5.0, 3.0)] };
        let svg = curves("title", "log₂ N", &[curve]);
        assert!(svg.contains(&format!("M{:.1} ", PLOT[0])) && svg.contains(&format!("L{:.1} ", PLOT[1])), "{svg}");
        assert!(svg.contains(">hops</text>") && svg.contains(">4</text>") && svg.contains(">5</text>"), "{svg}");
    }
}
