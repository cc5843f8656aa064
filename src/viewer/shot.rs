//! Pictures of the window or of one view, without a display.

use super::raster::{Image, Raster};
use super::shell::Viewer;
use super::view::View;
use egui::{Context, Pos2, RawInput, Rect, Theme, ViewportId, vec2};

/// How a picture is taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shot {
    /// `None` is the whole window.
    pub view: Option<View>,
    /// Points; pixels are these times `scale`.
    pub width: u32,
    pub height: u32,
    pub scale: f32,
    /// Light letters on dark, or the other way round.
    pub dark: bool,
}

impl Default for Shot {
    fn default() -> Self {
        Self { view: None, width: 1280, height: 720, scale: 1.0, dark: true }
    }
}

/// Frames until sizes have settled: egui measures in one what it places in the next.
const FRAMES: usize = 6;

/// Draws what `viewer` shows now. Its state is as before but for what a frame changes.
pub fn render(viewer: &mut Viewer, shot: &Shot) -> Image {
    let ctx = Context::default();
    Viewer::prepare(&ctx);
    let theme = if shot.dark { Theme::Dark } else { Theme::Light };
    ctx.set_theme(theme);
    let size = vec2(shot.width as f32, shot.height as f32);
    let mut raster = Raster::default();
    let mut drawn = Vec::new();
    for frame in 0..FRAMES {
        let mut input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, size)),
            time: Some(frame as f64 * 0.25),
            system_theme: Some(theme),
            ..RawInput::default()
        };
        if let Some(viewport) = input.viewports.get_mut(&ViewportId::ROOT) {
            viewport.native_pixels_per_point = Some(shot.scale);
        }
        let output = ctx.run_ui(input, |ui| match shot.view {
            Some(view) => viewer.show_one(ui, view),
            None => viewer.show_moment(ui),
        });
        drawn = ctx.tessellate(output.shapes, output.pixels_per_point);
        raster.update(output.textures_delta);
    }
    let pixels = |points: u32| (points as f32 * shot.scale).round() as usize;
    let back = ctx.style_of(theme).visuals.panel_fill;
    raster.draw((pixels(shot.width), pixels(shot.height)), shot.scale, back, &drawn)
}

impl Image {
    /// The image as a PNG file.
    pub fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut out = Vec::new();
        let (width, height) = (self.width as u32, self.height as u32);
        let mut encoder = png::Encoder::new(&mut out, width, height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        writer.finish()?;
        Ok(out)
    }
}
