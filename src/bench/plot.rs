//! Plots as SVG: lines, points and bars over linear or logarithmic axes. Colours are Okabe and
//! Ito's, and every series has a mark of its own, so that nothing is told by colour alone.

use std::fmt::Write;

/// A picture of one or more series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// Vertical lines with a word: a knee, a crossover.
    pub marks: Vec<(f64, String)>,
}

/// One axis.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Axis {
    /// With its unit.
    pub label: String,
    pub log: bool,
    /// Names in place of numbers: the n-th is at n.
    pub names: Vec<String>,
}

impl Axis {
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_string(), ..Self::default() }
    }

    pub fn log(label: &str) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    pub fn named<S: Into<String>>(label: &str, names: impl IntoIterator<Item = S>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ..Self::linear(label) }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    #[default]
    Line,
    /// A bound or another thing that was not measured.
    Dashed,
    Points,
    /// From the axis up.
    Bars,
}

/// Points of one name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    pub name: String,
    pub style: Style,
    pub points: Vec<(f64, f64)>,
}

impl Series {
    pub fn new(name: &str, style: Style, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_string(), style, points: points.into_iter().collect() }
    }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 84.0;
/// Blue, vermillion, bluish green, orange, reddish purple, sky blue, black.
const COLOURS: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000"];

/// Where values lie on one axis.
struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let of = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (low, high) = (of(self.low), of(self.high));
        let part = if high > low { (of(value) - low) / (high - low) } else { 0.5 };
        self.from + part * (self.to - self.from)
    }

    /// Round values within the scale.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let many = self.high / self.low > 2e3;
            let of = |decade: i32| {
                let each: &[f64] = if many { &[1.0] } else { &[1.0, 2.0, 5.0] };
                each.iter().map(move |m| m * 10f64.powi(decade))
            };
            let inside = |v: &f64| *v >= self.low * 0.999 && *v <= self.high * 1.001;
            return decades.flat_map(of).filter(inside).collect();
        }
        let step = round_step((self.high - self.low) / 6.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    if least.is_nan() || least <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * decade >= least * 0.999);
    step.unwrap_or(10.0) * decade
}

impl Plot {
    fn scale(&self, axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let usable = |v: &f64| v.is_finite() && (!axis.log || *v > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if !axis.names.is_empty() {
            (low, high) = (-0.5, axis.names.len() as f64 - 0.5);
        } else if axis.log {
            (low, high) = (low / 1.1, high * 1.1);
        } else {
            // What is compared starts from nothing.
            (low, high) = (low.min(0.0), if high > 0.0 { high * 1.08 } else { 1.0 });
        }
        Scale { log: axis.log, low, high, from, to }
    }

    /// The picture as an `svg` element.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let marks = self.marks.iter().map(|m| m.0);
        let x = self.scale(&self.x, points().map(|p| p.0).chain(marks), LEFT, WIDTH - RIGHT);
        let y = self.scale(&self.y, points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"11\" fill=\"#222\">\n<title>{0}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"13\" font-weight=\"bold\">{0}</text>\n",
            escape(&self.title)
        );
        self.axes(&x, &y, &mut out);
        for (at, word) in &self.marks {
            let at = x.at(*at);
            let bottom = HEIGHT - BOTTOM;
            let _ = writeln!(
                out,
                "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#555\" stroke-dasharray=\"2 3\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555\">{}</text>",
                at + 4.0,
                TOP + 12.0,
                escape(word)
            );
        }
        for (number, series) in self.series.iter().enumerate() {
            self.series(number, series, (&x, &y), &mut out);
        }
        self.legend(&mut out);
        out + "</svg>\n"
    }

    fn axes(&self, x: &Scale, y: &Scale, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let (at, text) = (y.at(tick), figure(tick));
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        let named = |n: usize| self.x.names.get(n).map(|name| (n as f64, escape(name)));
        let ticks: Vec<(f64, String)> = match self.x.names.is_empty() {
            true => x.ticks().into_iter().map(|tick| (tick, figure(tick))).collect(),
            false => (0..self.x.names.len()).filter_map(named).collect(),
        };
        for (tick, text) in ticks {
            let at = x.at(tick);
            let _ = writeln!(
                out,
                "<path d=\"M{at:.1} {bottom}v4\" stroke=\"#222\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                bottom + 17.0
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
             <text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            bottom + 34.0,
            escape(&self.x.label),
            (TOP + bottom) / 2.0,
            escape(&self.y.label)
        );
    }

    fn series(&self, number: usize, series: &Series, (x, y): (&Scale, &Scale), out: &mut String) {
        let colour = COLOURS[number % COLOURS.len()];
        let usable = |p: &&(f64, f64)| {
            p.0.is_finite() && p.1.is_finite() && (!y.log || p.1 > 0.0) && (!x.log || p.0 > 0.0)
        };
        let points: Vec<(f64, f64)> =
            series.points.iter().filter(usable).map(|&(a, b)| (x.at(a), y.at(b))).collect();
        if series.style == Style::Bars {
            let bars = self.series.iter().filter(|s| s.style == Style::Bars).count() as f64;
            let before = self.series[..number].iter().filter(|s| s.style == Style::Bars).count();
            let wide = (WIDTH - LEFT - RIGHT) / self.x.names.len().max(1) as f64 * 0.7 / bars;
            for (at, top) in points {
                let left = at + (before as f64 - bars / 2.0) * wide;
                let high = (HEIGHT - BOTTOM - top).max(0.0);
                let _ = writeln!(
                    out,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{high:.1}\" \
                     fill=\"{colour}\"/>",
                    wide * 0.92
                );
            }
            return;
        }
        if series.style != Style::Points && points.len() > 1 {
            let path: Vec<String> =
                points.iter().map(|p| format!("{:.1} {:.1}", p.0, p.1)).collect();
            let dashes =
                if series.style == Style::Dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            let path = path.join("L");
            let _ = writeln!(
                out,
                "<path d=\"M{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>"
            );
        }
        if series.style != Style::Dashed {
            points.iter().for_each(|p| mark(number, *p, colour, out));
        }
    }

    fn legend(&self, out: &mut String) {
        let mut at = (LEFT, HEIGHT - 26.0);
        for (number, series) in self.series.iter().enumerate() {
            let wide = 34.0 + 6.2 * series.name.chars().count() as f64;
            if at.0 + wide > WIDTH - RIGHT && at.0 > LEFT {
                at = (LEFT, at.1 + 16.0);
            }
            let colour = COLOURS[number % COLOURS.len()];
            let (x, y) = at;
            let _ = match series.style {
                Style::Bars => writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"16\" height=\"9\" fill=\"{colour}\"/>",
                    y - 8.0
                ),
                Style::Points => Ok(()),
                _ => writeln!(
                    out,
                    "<path d=\"M{x:.1} {:.1}h16\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
                    y - 4.0,
                    if series.style == Style::Dashed { " stroke-dasharray=\"5 3\"" } else { "" }
                ),
            };
            if matches!(series.style, Style::Line | Style::Points) {
                mark(number, (x + 8.0, y - 4.0), colour, out);
            }
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                x + 21.0,
                escape(&series.name)
            );
            at.0 += wide;
        }
    }
}

/// A point: circle, square, triangle, diamond, cross, by the series' number.
fn mark(number: usize, (x, y): (f64, f64), colour: &str, out: &mut String) {
    let path = match number % 5 {
        0 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        1 => "m-3 -3h6v6h-6z",
        2 => "m0 -4l4 7h-8z",
        3 => "m0 -4.5l4 4.5l-4 4.5l-4 -4.5z",
        _ => "m-3.5 -3.5l7 7m0 -7l-7 7",
    };
    let _ =
        writeln!(out, "<path d=\"M{x:.1} {y:.1}{path}\" fill=\"{colour}\" stroke=\"{colour}\"/>");
}

/// A number with three digits that count.
pub fn figure(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e9 => format!("{}G", trimmed(value / 1e9)),
        _ if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        _ if size >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Text within a document.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
