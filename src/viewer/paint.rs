//! Colours and marks. Owners have the colours of Okabe and Ito ("Color Universal Design", 2008),
//! which people with colour blindness tell apart; a label, a hatch, a dot or a shape always says
//! the same.

use crate::base::SequenceId;
use egui::{Color32, Mesh, Pos2, Rect, Sense, Ui, Visuals, pos2, vec2};

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
pub const QUEUED: Color32 = OWNERS[0];
pub const FINISHED: Color32 = OWNERS[4];

/// The colour of a sequence. It repeats after seven; the label beside it does not.
pub fn owner(sequence: SequenceId) -> Color32 {
    OWNERS[sequence.index() % OWNERS.len()]
}

/// Black or white, whichever is read better on `back`.
pub fn ink_on(back: Color32) -> Color32 {
    let [r, g, b, _] = back.to_array().map(f32::from);
    let luma = 0.299 * r + 0.587 * g + 0.114 * b;
    if luma > 120.0 { Color32::BLACK } else { Color32::WHITE }
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
    let (rect, _) = ui.allocate_exact_size(vec2(10.0, 10.0), Sense::hover());
    ui.painter().rect_filled(rect, 2.0, color);
    ui.weak(name);
}
