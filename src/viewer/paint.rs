//! Colours and marks. Owners have the colours of Okabe and Ito ("Color Universal Design", 2008),
//! which people with colour blindness tell apart; a label, a hatch, a dot or a shape always says
//! the same.

use crate::base::SequenceId;
use egui::accesskit::Role;
use egui::text::{LayoutJob, TextWrapping};
use egui::{
    Align2, Color32, FontId, Mesh, Painter, Pos2, Rect, Sense, TextStyle, Ui, Visuals, WidgetInfo,
    pos2, vec2,
};

/// Okabe and Ito's colours but black, which the dark theme could not show.
const OWNERS: [Color32; 7] = [
    Color32::from_rgb(0xE6, 0x9F, 0x00),
    Color32::from_rgb(0x56, 0xB4, 0xE9),
    Color32::from_rgb(0x00, 0x9E, 0x73),
    Color32::from_rgb(0xF0, 0xE4, 0x42),
    Color32::from_rgb(0x00, 0x72, 0xB2),
    Color32::from_rgb(0xD5, 0x5E, 0x00),
    Color32::from_rgb(0xCC, 0x79, 0xA7),
];

/// What is drawn in one colour everywhere.
pub const DECODE: Color32 = OWNERS[2];
pub const PREFILL: Color32 = OWNERS[1];
pub const PADDING: Color32 = Color32::from_rgb(0x8A, 0x8A, 0x8A);
pub const PREEMPTED: Color32 = OWNERS[5];
pub const SWAPPED: Color32 = OWNERS[6];
pub const QUEUED: Color32 = OWNERS[0];
pub const FINISHED: Color32 = OWNERS[4];

/// The colour of a sequence. It repeats after seven; the label beside it does not.
pub fn owner(sequence: SequenceId) -> Color32 {
    OWNERS[sequence.index() % OWNERS.len()]
}

/// Black or white, whichever is read better on `back`.
pub fn ink_on(back: Color32) -> Color32 {
    let [black, white] = [Color32::BLACK, Color32::WHITE].map(|ink| contrast(ink, back));
    if black >= white { Color32::BLACK } else { Color32::WHITE }
}

/// How well one colour is told from another, 1 to 21 (Web Content Accessibility Guidelines 2.2).
pub fn contrast(a: Color32, b: Color32) -> f32 {
    let luminance = |color: Color32| {
        let [r, g, b, _] = egui::Rgba::from(color).to_array();
        0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
    };
    let (a, b) = (luminance(a), luminance(b));
    a.max(b) / a.min(b)
}

/// `color` as letters on `back`: brought nearer to black or white until it is told from it as well
/// as small letters want to be.
pub fn readable(color: Color32, back: Color32) -> Color32 {
    // 4.5, and a little for the stripes of tables.
    const WANTED: f32 = 5.0;
    let ink = ink_on(back);
    let mut mixes = (0..=10).map(|tenths| color.lerp_to_gamma(ink, tenths as f32 / 10.0));
    mixes.find(|&mixed| contrast(mixed, back) >= WANTED).unwrap_or(ink)
}

/// `color` over the panel, so strong.
pub fn tint(color: Color32, strength: f32, visuals: &Visuals) -> Color32 {
    let back = visuals.panel_fill;
    let mix = |a: u8, b: u8| (f32::from(a) * strength + f32::from(b) * (1.0 - strength)) as u8;
    Color32::from_rgb(mix(color.r(), back.r()), mix(color.g(), back.g()), mix(color.b(), back.b()))
}

/// A colour of the viridis scale (van der Walt and Smith, 2015) for 0 to 1.
pub fn heat(value: f32) -> Color32 {
    const POINTS: [[f32; 3]; 5] = [
        [68.0, 1.0, 84.0],
        [59.0, 82.0, 139.0],
        [33.0, 145.0, 140.0],
        [94.0, 201.0, 98.0],
        [253.0, 231.0, 37.0],
    ];
    let at = value.clamp(0.0, 1.0) * (POINTS.len() - 1) as f32;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(POINTS.len() - 1);
    let mix = |c: usize| (POINTS[low][c] * (1.0 - part) + POINTS[high][c] * part) as u8;
    Color32::from_rgb(mix(0), mix(1), mix(2))
}

/// A border inside `rect`.
pub fn frame(mesh: &mut Mesh, rect: Rect, width: f32, color: Color32) {
    let (min, max) = (rect.min, rect.max);
    let mut side = |a: Pos2, b: Pos2| mesh.add_colored_rect(Rect::from_min_max(a, b), color);
    side(min, pos2(max.x, min.y + width));
    side(pos2(min.x, max.y - width), max);
    side(pos2(min.x, min.y + width), pos2(min.x + width, max.y - width));
    side(pos2(max.x - width, min.y + width), pos2(max.x, max.y - width));
}

/// Diagonal lines over `rect`: several sequences share it.
pub fn hatch(mesh: &mut Mesh, rect: Rect, color: Color32) {
    let gap = 5.0;
    let (w, h) = (rect.width(), rect.height());
    let mut at = gap;
    while at < w + h {
        // The line x + y = at, cut to the rectangle.
        let a = pos2(rect.min.x + at.min(w), rect.min.y + (at - w).max(0.0));
        let b = pos2(rect.min.x + (at - h).max(0.0), rect.min.y + at.min(h));
        stroke(mesh, a, b, 1.2, color);
        at += gap;
    }
}

/// Level lines over `rect`: it lies in host memory.
pub fn stripes(mesh: &mut Mesh, rect: Rect, color: Color32) {
    let (gap, width) = (4.0, 1.2);
    let mut y = rect.min.y + gap / 2.0;
    while y + width <= rect.max.y {
        let line = Rect::from_min_max(pos2(rect.min.x, y), pos2(rect.max.x, y + width));
        mesh.add_colored_rect(line, color);
        y += gap;
    }
}

/// One line of text from its left centre on, elided where `width` ends; true when it was.
pub fn line(
    painter: &Painter,
    left: Pos2,
    width: f32,
    text: impl ToString,
    (size, color): (f32, Color32),
) -> bool {
    let font = FontId::proportional(size);
    let mut job = LayoutJob::simple_singleline(text.to_string(), font, color);
    job.wrap = TextWrapping::truncate_at_width(width.max(0.0));
    let galley = painter.layout_job(job);
    let elided = galley.elided;
    painter.galley(left - vec2(0.0, galley.size().y / 2.0), galley, color);
    elided
}

/// Text with what is behind it covered in `back`, where that is a pattern.
pub fn plated(
    painter: &Painter,
    at: Pos2,
    align: Align2,
    text: impl ToString,
    font: FontId,
    (ink, back): (Color32, Option<Color32>),
) {
    let galley = painter.layout_no_wrap(text.to_string(), font, ink);
    let rect = align.anchor_size(at, galley.size());
    if let Some(back) = back {
        painter.rect_filled(rect.expand2(vec2(1.5, -1.0)), 2.0, back);
    }
    painter.galley(rect.min, galley, ink);
}

/// A straight line as a thin quad.
pub fn stroke(mesh: &mut Mesh, a: Pos2, b: Pos2, width: f32, color: Color32) {
    let along = b - a;
    let length = along.length();
    if length <= 0.0 {
        return;
    }
    let side = vec2(-along.y, along.x) * (width / 2.0 / length);
    let first = mesh.vertices.len() as u32;
    for at in [a + side, b + side, b - side, a - side] {
        mesh.colored_vertex(at, color);
    }
    mesh.add_triangle(first, first + 1, first + 2);
    mesh.add_triangle(first, first + 2, first + 3);
}

/// A filled dot: the block is kept for its content though nobody holds it.
pub fn dot(mesh: &mut Mesh, centre: Pos2, radius: f32, color: Color32) {
    const CORNERS: u32 = 10;
    let first = mesh.vertices.len() as u32;
    for corner in 0..CORNERS {
        let angle = corner as f32 / CORNERS as f32 * std::f32::consts::TAU;
        mesh.colored_vertex(centre + radius * vec2(angle.cos(), angle.sin()), color);
    }
    for corner in 2..CORNERS {
        mesh.add_triangle(first, first + corner - 1, first + corner);
    }
}

/// A triangle that points up (`down` turns it): a mark on the time axis.
pub fn wedge(mesh: &mut Mesh, tip: Pos2, size: f32, down: bool, color: Color32) {
    let dy = if down { -size } else { size };
    let first = mesh.vertices.len() as u32;
    mesh.colored_vertex(tip, color);
    mesh.colored_vertex(tip + vec2(-size * 0.6, dy), color);
    mesh.colored_vertex(tip + vec2(size * 0.6, dy), color);
    mesh.add_triangle(first, first + 1, first + 2);
}

/// A patch of colour and what it stands for.
pub fn legend(ui: &mut Ui, name: &str, color: Color32) {
    let text = ui.visuals().weak_text_color();
    let font = TextStyle::Body.resolve(ui.style());
    let galley = ui.painter().layout_no_wrap(name.to_string(), font, text);
    // One piece: the patch never stands at the end of one line and its name on the next.
    let (rect, response) = ui.allocate_exact_size(galley.size() + vec2(16.0, 0.0), Sense::hover());
    let patch = Rect::from_center_size(rect.left_center() + vec2(5.0, 0.0), vec2(10.0, 10.0));
    ui.painter().rect_filled(patch, 2.0, color);
    ui.painter().galley(rect.min + vec2(16.0, 0.0), galley, text);
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, name));
}
