//! The figures of a run as one SVG picture: how times to first token, times between tokens and
//! whole requests spread, and how many requests were in flight.

use super::Report;
use std::fmt::Write;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 220.0;
const MARGIN: f64 = 52.0;
/// Points of a curve at most.
const POINTS: usize = 400;
/// Okabe and Ito's blue, which stands out for everyone.
const LINE: &str = "#0072B2";

/// One panel: a title, the axis below, and points of a line.
struct Panel {
    title: &'static str,
    below: &'static str,
    beside: &'static str,
    points: Vec<(f64, f64)>,
    /// The line goes along, then up.
    steps: bool,
}

/// Draws `report`.
pub fn plot(report: &Report) -> String {
    let titles = [
        "Time to first token",
        "Time per output token",
        "Inter-token latency",
        "End-to-end latency",
    ];
    let mut panels: Vec<Panel> = titles
        .into_iter()
        .zip(&report.spreads)
        .map(|(title, (_, spread))| {
            let points = thinned(spread.values(), |values, at| {
                (values[at], (at + 1) as f64 * 100.0 / values.len() as f64)
            });
            Panel { title, below: "ms", beside: "% of all", points, steps: false }
        })
        .collect();
    let flight = report.in_flight();
    let points = thinned(&flight, |flight, at| (flight[at].0, flight[at].1 as f64));
    panels.push(Panel {
        title: "Requests in flight",
        below: "s",
        beside: "requests",
        points,
        steps: true,
    });
    let (across, rows) = (2, panels.len().div_ceil(2));
    let (w, h) = (WIDTH + 2.0 * MARGIN, HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        w * f64::from(across),
        h * rows as f64
    );
    for (at, panel) in panels.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * w + MARGIN, (at / 2) as f64 * h + MARGIN);
        draw(panel, (x, y), &mut out);
    }
    out + "</svg>\n"
}

fn thinned<T>(values: &[T], point: impl Fn(&[T], usize) -> (f64, f64)) -> Vec<(f64, f64)> {
    let step = values.len().div_ceil(POINTS).max(1);
    let mut at: Vec<usize> = (0..values.len()).step_by(step).collect();
    at.extend(values.len().checked_sub(1).filter(|last| at.last() != Some(last)));
    at.into_iter().map(|at| point(values, at)).collect()
}

/// The next of 1, 2, 5, 10, … times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|top| *top >= value).unwrap_or(value)
}

fn draw(panel: &Panel, (x, y): (f64, f64), out: &mut String) {
    let top =
        |of: fn(&(f64, f64)) -> f64| round_up(panel.points.iter().map(of).fold(0.0, f64::max));
    let (right, high) = (top(|p| p.0), top(|p| p.1));
    let _ =
        writeln!(out, "<text x=\"{x}\" y=\"{}\" font-size=\"14\">{}</text>", y - 12.0, panel.title);
    for part in 0..=4 {
        let share = f64::from(part) / 4.0;
        let (gx, gy) = (x + share * WIDTH, y + HEIGHT - share * HEIGHT);
        let _ = writeln!(
            out,
            "<path d=\"M{gx:.1} {y:.1}V{:.1}M{x:.1} {gy:.1}H{:.1}\" stroke=\"#dddddd\" \
             fill=\"none\"/>\n\
             <text x=\"{gx:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + HEIGHT,
            x + WIDTH,
            y + HEIGHT + 16.0,
            share * right,
            x - 6.0,
            gy + 4.0,
            share * high,
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        x + WIDTH,
        y + HEIGHT + 32.0,
        panel.below,
        y + HEIGHT + 32.0,
        panel.beside,
    );
    let mut path = String::new();
    let mut before: Option<f64> = None;
    for (px, py) in &panel.points {
        let (px, py) = (x + px / right * WIDTH, y + HEIGHT - py / high * HEIGHT);
        match before {
            None => {
                let _ = write!(path, "M{px:.1} {py:.1}");
            }
            Some(last) if panel.steps => {
                let _ = write!(path, "L{px:.1} {last:.1}L{px:.1} {py:.1}");
            }
            Some(_) => {
                let _ = write!(path, "L{px:.1} {py:.1}");
            }
        }
        before = Some(py);
    }
    let _ =
        writeln!(out, "<path d=\"{path}\" stroke=\"{LINE}\" stroke-width=\"1.5\" fill=\"none\"/>");
}
