//! The KV block map: a cell per block, painted as one mesh and hit-tested by arithmetic. Colour and
//! label name the owner, the filled part is computed positions, hatching is shared by several
//! tables, a hollow cell is free. What was swapped out holds no block of the pool: it has striped
//! cells of its own below, by sequence, as the stream does not tell where in host memory it lies.

use super::paint;
use super::stage::{Mark, Stage, describe, is_read};
use crate::base::{BlockId, Preemption, SequenceId, counted};
use crate::trace::Picture;
use egui::{
    Align2, Color32, FontId, Mesh, Pos2, Rect, Response, ScrollArea, Sense, Shape, Ui, Vec2, pos2,
    vec2,
};
use std::ops::Range;

const PITCH_MIN: f32 = 10.0;
const PITCH_MAX: f32 = 40.0;
/// Where it is narrower, the legend would leave no room for the map: it waits to be pointed at.
const ROOMY: f32 = 280.0;
/// Cells from this size on have room for a label.
const LABEL_PITCH: f32 = 21.0;
/// Share of the height that host memory has below the pool, and the height of its caption.
const HOST_PART: f32 = 0.25;
const CAPTION: f32 = 22.0;

/// Columns and cell size for a number of cells.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    pub columns: usize,
    pub pitch: f32,
    pub cells: usize,
}

impl Grid {
    /// The largest cells with which all fit into `size`, within reason.
    pub fn fit(cells: usize, size: Vec2) -> Self {
        let columns = |pitch: f32| ((size.x / pitch).floor() as usize).max(1);
        let fits = |pitch: f32| cells.div_ceil(columns(pitch)) as f32 * pitch <= size.y;
        let mut pitch = PITCH_MAX;
        while pitch > PITCH_MIN && !fits(pitch) {
            pitch -= 1.0;
        }
        Self { columns: columns(pitch), pitch, cells }
    }

    pub fn rows(&self) -> usize {
        self.cells.div_ceil(self.columns)
    }

    /// The cell at an offset from the grid's corner.
    pub fn cell_at(&self, offset: Vec2) -> Option<usize> {
        if offset.x < 0.0 || offset.y < 0.0 {
            return None;
        }
        let (column, row) = ((offset.x / self.pitch) as usize, (offset.y / self.pitch) as usize);
        let cell = row * self.columns + column;
        (column < self.columns && cell < self.cells).then_some(cell)
    }

    /// A cell's place, relative to the grid's corner.
    pub fn rect(&self, cell: usize) -> Rect {
        let (row, column) = (cell / self.columns, cell % self.columns);
        let at = pos2(column as f32 * self.pitch, row as f32 * self.pitch);
        Rect::from_min_size(at, Vec2::splat(self.pitch - if self.pitch < 14.0 { 1.0 } else { 2.0 }))
    }
}

/// "block 17, sequence 3, 12 of 16", and what else there is to say.
pub fn label(picture: &Picture, block: BlockId) -> String {
    let Some(b) = picture.blocks.get(block.index()) else { return format!("block {block}") };
    let size = picture.limits.map_or(0, |l| l.block_size);
    match (b.owner, b.tables) {
        (Some(owner), tables) if tables > 0 => {
            let filled = picture.filled(owner, b.index);
            let shared =
                if tables > 1 { format!(", shared by {tables} sequences") } else { String::new() };
            format!("block {block}, sequence {owner}, {filled} of {size}{shared}")
        }
        _ if b.cached => format!("block {block}, free, cached"),
        _ => format!("block {block}, free"),
    }
}

/// "in host memory: sequence 3, its block 2, 16 of 16".
pub fn host_label(picture: &Picture, sequence: SequenceId, index: u32) -> String {
    let size = picture.limits.map_or(0, |l| l.block_size);
    let filled = picture.filled_in_host(sequence, index);
    format!("in host memory: sequence {sequence}, its block {index}, {filled} of {size}")
}

/// Blocks may be swapped to host memory here, or are there already.
fn may_swap(picture: &Picture) -> bool {
    let room = picture.limits.is_some_and(|l| l.host_blocks > 0);
    let chosen = picture.policies.is_some_and(|p| p.preemption != Preemption::Recompute);
    room && chosen || picture.host_blocks().next().is_some()
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let width = ui.available_width();
    legend(ui, stage.picture);
    let size = vec2(width - 12.0, ui.available_height() - 2.0);
    let below = if may_swap(stage.picture) { size.y * HOST_PART } else { 0.0 };
    let grid = Grid::fit(stage.picture.blocks.len(), size - vec2(0.0, below));
    if grid.cells == 0 {
        ui.weak("No engine has told its pool yet.");
        return;
    }
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 0.0;
        if let Some((response, block)) = cells(ui, &grid, |ui, corner, cells| {
            paint_cells(ui, stage, &grid, corner, cells);
        }) {
            let block = BlockId(block as u32);
            let text = label(stage.picture, block);
            pointed(stage, response, Mark::Block(block), text, block.to_string());
        }
        if below > 0.0 {
            host(ui, stage, grid, size);
        }
    });
}

/// Room for a grid, painted as far as it is in sight; the cell that is pointed at.
fn cells(
    ui: &mut Ui,
    grid: &Grid,
    paint: impl FnOnce(&Ui, Vec2, Range<usize>),
) -> Option<(Response, usize)> {
    let size = vec2(grid.columns as f32 * grid.pitch, grid.rows() as f32 * grid.pitch);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    let seen = ui.clip_rect().y_range();
    let row = |y: f32| ((y - rect.min.y) / grid.pitch).max(0.0);
    let first = row(seen.min).floor() as usize * grid.columns;
    let last = (row(seen.max).ceil() as usize * grid.columns).min(grid.cells);
    paint(ui, rect.min.to_vec2(), first.min(last)..last);
    let cell = grid.cell_at(response.hover_pos()? - rect.min)?;
    Some((response, cell))
}

/// The cell under the pointer lights up what it belongs to, and says what it is.
fn pointed(stage: &mut Stage<'_>, response: Response, mark: Mark, text: String, id: String) {
    stage.focus.hover(mark);
    if response.clicked() {
        stage.focus.pin(mark);
    }
    response.on_hover_text_at_pointer(text).context_menu(|ui| {
        if ui.button("Copy id").clicked() {
            ui.ctx().copy_text(id);
            ui.close();
        }
    });
}

/// What host memory holds, below the pool: cells as large as there, or as the room that is left.
fn host(ui: &mut Ui, stage: &mut Stage<'_>, pool: Grid, size: Vec2) {
    let held: Vec<(SequenceId, u32)> = stage.picture.host_blocks().collect();
    let room = stage.picture.limits.map_or(0, |l| l.host_blocks);
    let room = counted(room, "block");
    let text = match held.len() {
        0 => format!("host memory: none of {room} used"),
        count => format!("host memory: {count} of {room} · striped: swapped out"),
    };
    let (rect, response) = ui.allocate_exact_size(vec2(pool.pitch, CAPTION), Sense::hover());
    let at = pos2(rect.min.x, rect.center().y);
    let (font, color) = (FontId::proportional(13.0), ui.visuals().weak_text_color());
    ui.painter().text(at, Align2::LEFT_CENTER, text, font, color);
    response.on_hover_text(
        "Preempted sequences whose blocks were kept here in place of computing them again. They \
         hold nothing in the pool until they return.",
    );
    let left = size.y - pool.rows() as f32 * pool.pitch - CAPTION;
    let fitted = Grid::fit(held.len(), vec2(size.x, left));
    let grid = if fitted.pitch < pool.pitch { fitted } else { Grid { cells: held.len(), ..pool } };
    if let Some((response, at)) = cells(ui, &grid, |ui, corner, cells| {
        paint_host(ui, stage, &grid, corner, (&held, cells));
    }) && let Some(&(sequence, index)) = held.get(at)
    {
        let text = host_label(stage.picture, sequence, index);
        pointed(stage, response, Mark::Host(sequence, index), text, sequence.to_string());
    }
}

fn paint_host(
    ui: &Ui,
    stage: &Stage<'_>,
    grid: &Grid,
    corner: Vec2,
    (held, cells): (&[(SequenceId, u32)], Range<usize>),
) {
    let size = stage.picture.limits.map_or(1, |l| l.block_size).max(1);
    let lit = stage.focus.sequence(stage.picture);
    let (mut mesh, mut texts) = (Mesh::default(), Vec::new());
    let (read, visuals) = (is_read(ui), ui.visuals());
    for (at, &(sequence, index)) in held.iter().enumerate().take(cells.end).skip(cells.start) {
        let rect = grid.rect(at).translate(corner);
        let filled = stage.picture.filled_in_host(sequence, index);
        let is_lit = lit.is_none_or(|s| s == sequence);
        let back = fill(&mut mesh, rect, sequence, (filled, size), is_lit, visuals);
        paint::stripes(&mut mesh, rect, paint::ink_on(back).gamma_multiply(0.4));
        mark(&mut mesh, stage, Mark::Host(sequence, index), rect, (is_lit, lit), visuals);
        if grid.pitch >= LABEL_PITCH {
            texts.push((rect.center(), sequence.to_string(), back, true));
        }
        if read {
            describe(ui, ("host", at), rect, host_label(stage.picture, sequence, index));
        }
    }
    ui.painter().add(Shape::mesh(mesh));
    labels(ui, grid, texts);
}

fn legend(ui: &mut Ui, picture: &Picture) {
    let total = picture.blocks.len() as u32;
    let free = picture.free_blocks();
    let (shared, cached) = (picture.shared_blocks(), picture.cached_blocks());
    let mut marks = vec!["number: sequence".to_string()];
    marks.extend(["filled part: computed positions", "hollow: free"].map(str::to_string));
    if shared > 0 {
        marks.push(format!("hatched, ×N: shared by N ({shared})"));
    }
    if cached > 0 {
        marks.push(format!("dot: free, content cached ({cached})"));
    }
    let roomy = ui.available_width() > ROOMY;
    ui.horizontal_wrapped(|ui| {
        ui.label(format!("{} of {} used", total - free, counted(total, "block")));
        if roomy {
            ui.separator();
            ui.weak(marks.join(" · "));
        } else {
            ui.weak("· legend").on_hover_ui(|ui| {
                ui.label(marks.join("\n"));
            });
        }
    });
}

fn paint_cells(ui: &Ui, stage: &Stage<'_>, grid: &Grid, corner: Vec2, cells: Range<usize>) {
    let picture = stage.picture;
    let lit = stage.focus.sequence(picture);
    let lit_blocks = lit.and_then(|s| picture.sequences.get(&s)).map(|s| s.blocks.as_slice());
    let size = picture.limits.map_or(1, |l| l.block_size).max(1);
    let filled = fills(picture, size);
    let mut mesh = Mesh::default();
    mesh.reserve_vertices(cells.len() * 12);
    mesh.reserve_triangles(cells.len() * 6);
    let mut texts = Vec::new();
    let read = is_read(ui);
    let visuals = ui.visuals();
    for cell in cells {
        let rect = grid.rect(cell).translate(corner);
        let block = BlockId(cell as u32);
        let Some(b) = picture.blocks.get(cell) else { continue };
        let mut is_lit = false;
        if let Some(owner) = b.owner.filter(|_| b.tables > 0) {
            is_lit = lit.is_none_or(|s| {
                s == owner || (b.tables > 1 && lit_blocks.is_some_and(|l| l.contains(&block)))
            });
            let back = fill(&mut mesh, rect, owner, (filled[cell], size), is_lit, visuals);
            if b.tables > 1 {
                paint::hatch(&mut mesh, rect, paint::ink_on(back).gamma_multiply(0.55));
            }
            if grid.pitch >= LABEL_PITCH {
                let text = if b.tables > 1 { format!("×{}", b.tables) } else { owner.to_string() };
                texts.push((rect.center(), text, back, b.tables > 1));
            }
        } else {
            let weak = visuals.weak_text_color();
            paint::frame(&mut mesh, rect, 1.0, weak.gamma_multiply(0.6));
            if b.cached {
                let radius = (rect.width() * 0.16).max(1.5);
                paint::dot(&mut mesh, rect.center(), radius, weak);
            }
        }
        mark(&mut mesh, stage, Mark::Block(block), rect, (is_lit, lit), visuals);
        if read {
            describe(ui, cell, rect, label(picture, block));
        }
    }
    ui.painter().add(Shape::mesh(mesh));
    labels(ui, grid, texts);
}

/// Labels of cells, each on the colour behind it, which is laid over a pattern.
fn labels(ui: &Ui, grid: &Grid, texts: Vec<(Pos2, String, Color32, bool)>) {
    let font = FontId::proportional((grid.pitch * 0.42).clamp(9.0, 14.0));
    for (at, text, back, patterned) in texts {
        let colors = (paint::ink_on(back), patterned.then_some(back));
        paint::plated(ui.painter(), at, Align2::CENTER_CENTER, text, font.clone(), colors);
    }
}

/// Computed positions in each block, as its owner counts them.
fn fills(picture: &Picture, size: u32) -> Vec<u32> {
    let mut filled = vec![0; picture.blocks.len()];
    for (id, sequence) in &picture.sequences {
        let mut left = sequence.computed;
        for block in &sequence.blocks {
            let here = left.min(size);
            left -= here;
            let owner = picture.blocks.get(block.index()).and_then(|b| b.owner);
            if owner == Some(*id) {
                filled[block.index()] = here;
            }
        }
    }
    filled
}

/// A cell in its owner's colour, filled from below; returns the colour behind its centre.
fn fill(
    mesh: &mut Mesh,
    rect: Rect,
    owner: SequenceId,
    (filled, size): (u32, u32),
    is_lit: bool,
    visuals: &egui::Visuals,
) -> Color32 {
    let color = paint::owner(owner);
    let strength = if is_lit { 1.0 } else { 0.35 };
    let empty = paint::tint(color, 0.25 * strength, visuals);
    let full = paint::tint(color, strength, visuals);
    mesh.add_colored_rect(rect, empty);
    let part = filled.min(size) as f32 / size as f32;
    let level = rect.max.y - rect.height() * part;
    mesh.add_colored_rect(Rect::from_min_max(pos2(rect.min.x, level), rect.max), full);
    if part > 0.5 { full } else { empty }
}

/// Frames of what is lit, and of what is pinned or pointed at itself.
fn mark(
    mesh: &mut Mesh,
    stage: &Stage<'_>,
    mark: Mark,
    rect: Rect,
    (is_lit, lit): (bool, Option<SequenceId>),
    visuals: &egui::Visuals,
) {
    if is_lit && lit.is_some() {
        paint::frame(mesh, rect, 1.5, visuals.strong_text_color());
    }
    if stage.focus.pinned == Some(mark) || stage.focus.hovered == Some(mark) {
        paint::frame(mesh, rect.expand(1.0), 2.0, visuals.strong_text_color());
    }
}
