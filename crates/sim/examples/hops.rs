//! Draws how many steps a lookup takes, as SVG: `cargo run -p millrace-sim --example hops > hops.svg`.

use millrace_sim::ring::{RingSetting, run};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 48.0;

fn main() -> Result<(), String> {
    let mut points = Vec::new();
    for groups in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000] {
        let report = run(1, RingSetting { groups, churns: false, lookups: 2000 })?;
        points.push(((groups as f64).log2(), report.hops_mean, groups));
    }
    let (across, up) = (14.0, 10.0);
    let x = |log: f64| MARGIN + log / across * (WIDTH - 2.0 * MARGIN);
    let y = |hops: f64| HEIGHT - MARGIN - hops / up * (HEIGHT - 2.0 * MARGIN);
    println!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    );
    println!(r#"<rect width="100%" height="100%" fill="white"/>"#);
    for (hops, text) in (0..=5).map(|at| (f64::from(at) * 2.0, at * 2)) {
        println!(r##"<path d="M{:.1} {:.1}H{:.1}" stroke="#ddd"/>"##, x(0.0), y(hops), x(across));
        println!(r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#, x(0.0) - 6.0, y(hops) + 4.0);
    }
    for (from, to, text) in [(0.0, 7.0, "½ log₂ N"), (1.0, 8.0, "½ log₂ N + 1")] {
        let (left, right, low, high) = (x(0.0), x(across), y(from), y(to));
        println!(r##"<path d="M{left:.1} {low:.1}L{right:.1} {high:.1}" stroke="#999" stroke-dasharray="4 3"/>"##);
        println!(r##"<text x="{right:.1}" y="{:.1}" text-anchor="end" fill="#666">{text}</text>"##, high - 6.0);
    }
    for (log, hops, groups) in &points {
        println!(
            r##"<circle cx="{:.1}" cy="{:.1}" r="4" fill="#1f6feb"><title>{groups}: {hops:.2}</title></circle>"##,
            x(*log),
            y(*hops)
        );
        println!(r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{log:.0}</text>"#, x(*log), HEIGHT - MARGIN + 16.0);
    }
    println!(
        r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">log₂ of the number of groups</text>"#,
        WIDTH / 2.0,
        HEIGHT - 10.0
    );
    println!(r#"<text x="{MARGIN:.1}" y="20">steps of a lookup on average, 2000 lookups each</text>"#);
    println!("</svg>");
    Ok(())
}
