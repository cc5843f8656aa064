//! The KV block map: a cell per block, painted as one mesh and hit-tested by arithmetic. Colour and
//! label name the owner, the filled part is computed positions, hatching is shared by several
//! tables, a hollow cell is free.

use super::paint;
use super::stage::{Mark, Stage, describe, is_read};
use crate::base::{BlockId, SequenceId};
use crate::trace::{BlockPicture, Picture};
use egui::{Align2, Color32, FontId, Mesh, Rect, ScrollArea, Sense, Shape, Ui, Vec2, pos2, vec2};

const PITCH_MIN: f32 = 10.0;
const PITCH_MAX: f32 = 40.0;
/// Cells from this size on have room for a label.
const LABEL_PITCH: f32 = 21.0;

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

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let width = ui.available_width();
    legend(ui, stage.picture);
    let size = vec2(width - 12.0, ui.available_height() - 2.0);
    let grid = Grid::fit(stage.picture.blocks.len(), size);
    if grid.cells == 0 {
        ui.weak("No engine has told its pool yet.");
        return;
    }
    ScrollArea::vertical().auto_shrink(false).show_viewport(ui, |ui, view| {
        let size = vec2(grid.columns as f32 * grid.pitch, grid.rows() as f32 * grid.pitch);
        let (rect, response) = ui.allocate_exact_size(size, Sense::click());
        if let Some(at) = response.hover_pos()
            && let Some(cell) = grid.cell_at(at - rect.min)
        {
            let block = BlockId(cell as u32);
            stage.focus.hover(Mark::Block(block));
            if response.clicked() {
                stage.focus.pin(Mark::Block(block));
            }
            let text = label(stage.picture, block);
            response.on_hover_text_at_pointer(text).context_menu(|ui| {
                if ui.button("Copy id").clicked() {
                    ui.ctx().copy_text(block.to_string());
                    ui.close();
                }
            });
        }
        let first = (view.min.y / grid.pitch).floor().max(0.0) as usize * grid.columns;
        let last = ((view.max.y / grid.pitch).ceil() as usize * grid.columns).min(grid.cells);
        paint_cells(ui, stage, &grid, rect.min.to_vec2(), first..last);
    });
}

fn legend(ui: &mut Ui, picture: &Picture) {
    let total = picture.blocks.len() as u32;
    let free = picture.free_blocks();
    let (shared, cached) = (picture.shared_blocks(), picture.cached_blocks());
    ui.horizontal_wrapped(|ui| {
        ui.label(format!("{} of {total} blocks used", total - free));
        ui.separator();
        ui.weak("number: sequence")
            .on_hover_text("Cells of one sequence have one colour and label.");
        ui.weak("· filled part: computed positions · hollow: free");
        if shared > 0 {
            ui.weak(format!("· hatched, ×N: shared by N ({shared})"));
        }
        if cached > 0 {
            ui.weak(format!("· dot: free, content cached ({cached})"));
        }
    });
}

fn paint_cells(
    ui: &Ui,
    stage: &Stage<'_>,
    grid: &Grid,
    corner: Vec2,
    cells: std::ops::Range<usize>,
) {
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
        let held = b.owner.filter(|_| b.tables > 0);
        let Some(owner) = held else {
            let weak = visuals.weak_text_color();
            paint::frame(&mut mesh, rect, 1.0, weak.gamma_multiply(0.6));
            if b.cached {
                let radius = (rect.width() * 0.16).max(1.5);
                paint::dot(&mut mesh, rect.center(), radius, weak);
            }
            mark_pinned(&mut mesh, stage, block, rect, visuals);
            if read {
                describe(ui, cell, rect, label(picture, block));
            }
            continue;
        };
        let is_lit = lit.is_none_or(|s| {
            s == owner || (b.tables > 1 && lit_blocks.is_some_and(|l| l.contains(&block)))
        });
        let back = owned(&mut mesh, rect, b, owner, (filled[cell], size), is_lit, visuals);
        if is_lit && lit.is_some() {
            paint::frame(&mut mesh, rect, 1.5, visuals.strong_text_color());
        }
        mark_pinned(&mut mesh, stage, block, rect, visuals);
        if grid.pitch >= LABEL_PITCH {
            let text = if b.tables > 1 { format!("×{}", b.tables) } else { owner.to_string() };
            texts.push((rect.center(), text, paint::ink_on(back)));
        }
        if read {
            describe(ui, cell, rect, label(picture, block));
        }
    }
    let painter = ui.painter();
    painter.add(Shape::mesh(mesh));
    let font = FontId::proportional((grid.pitch * 0.42).clamp(9.0, 14.0));
    for (at, text, ink) in texts {
        painter.text(at, Align2::CENTER_CENTER, text, font.clone(), ink);
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

/// A held block; returns the colour behind its centre.
fn owned(
    mesh: &mut Mesh,
    rect: Rect,
    block: &BlockPicture,
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
    if block.tables > 1 {
        paint::hatch(mesh, rect, paint::ink_on(full).gamma_multiply(0.55));
    }
    if part > 0.5 { full } else { empty }
}

fn mark_pinned(
    mesh: &mut Mesh,
    stage: &Stage<'_>,
    block: BlockId,
    rect: Rect,
    visuals: &egui::Visuals,
) {
    let here = Some(Mark::Block(block));
    if stage.focus.pinned == here || stage.focus.hovered == here {
        paint::frame(mesh, rect.expand(1.0), 2.0, visuals.strong_text_color());
    }
}
