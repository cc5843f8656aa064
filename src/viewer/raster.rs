//! Triangles to pixels, in plain Rust: a picture of the window with no display and no adapter, the
//! same bits on every machine. Covers what egui emits: textured, vertex-coloured triangles with
//! premultiplied alpha, blended in gamma space, clipped to rectangles.

use egui::epaint::{ClippedPrimitive, ImageData, ImageDelta, Primitive, Vertex};
use egui::{Color32, Rect, TextureId, TexturesDelta};
use std::collections::HashMap;

/// Rows of opaque RGB pixels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    /// `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}

struct Texture {
    width: usize,
    height: usize,
    texels: Vec<Color32>,
}

/// Keeps the textures between frames, as a graphics card would.
#[derive(Default)]
pub struct Raster {
    textures: HashMap<TextureId, Texture>,
}

impl Raster {
    /// Takes up new and changed textures, before drawing.
    pub fn update(&mut self, mut delta: TexturesDelta) {
        for (id, images) in std::mem::take(&mut delta.set) {
            images.iter().for_each(|image| self.set(id, image));
        }
        for id in std::mem::take(&mut delta.free) {
            self.textures.remove(&id);
        }
    }

    fn set(&mut self, id: TextureId, delta: &ImageDelta) {
        let ImageData::Color(image) = &delta.image;
        let [width, height] = image.size;
        match (delta.pos, self.textures.get_mut(&id)) {
            (Some([x, y]), Some(texture)) => {
                for row in 0..height {
                    let to = (y + row) * texture.width + x;
                    let from = &image.pixels[row * width..(row + 1) * width];
                    if let Some(place) = texture.texels.get_mut(to..to + width) {
                        place.copy_from_slice(from);
                    }
                }
            }
            _ => {
                let texels = image.pixels.clone();
                self.textures.insert(id, Texture { width, height, texels });
            }
        }
    }

    /// Draws over `back`. Positions are in points, `scale` pixels each.
    pub fn draw(
        &self,
        (width, height): (usize, usize),
        scale: f32,
        back: Color32,
        primitives: &[ClippedPrimitive],
    ) -> Image {
        let mut pixels =
            vec![[f32::from(back.r()), f32::from(back.g()), f32::from(back.b())]; width * height];
        for primitive in primitives {
            let Primitive::Mesh(mesh) = &primitive.primitive else { continue };
            let Some(texture) = self.textures.get(&mesh.texture_id) else { continue };
            let clip = Clip::new(primitive.clip_rect, scale, width, height);
            for corners in mesh.indices.chunks_exact(3) {
                let vertex = |at: usize| mesh.vertices.get(corners[at] as usize);
                if let (Some(a), Some(b), Some(c)) = (vertex(0), vertex(1), vertex(2)) {
                    triangle(&mut pixels, width, &clip, texture, scale, [a, b, c]);
                }
            }
        }
        let round = |v: f32| (v + 0.5).clamp(0.0, 255.0) as u8;
        Image { width, height, rgb: pixels.into_iter().flatten().map(round).collect() }
    }
}

/// A clip rectangle in whole pixels.
struct Clip {
    x0: i32,
    y0: i32,
    x1: i32,
    y1: i32,
}

impl Clip {
    fn new(rect: Rect, scale: f32, width: usize, height: usize) -> Self {
        let edge = |v: f32, most: usize| ((v * scale).round() as i32).clamp(0, most as i32);
        Self {
            x0: edge(rect.min.x, width),
            y0: edge(rect.min.y, height),
            x1: edge(rect.max.x, width),
            y1: edge(rect.max.y, height),
        }
    }
}

impl Texture {
    /// Bilinear, at a point of the unit square.
    fn sample(&self, u: f32, v: f32) -> [f32; 4] {
        let (x, y) = (u * self.width as f32 - 0.5, v * self.height as f32 - 0.5);
        let (fx, fy) = (x - x.floor(), y - y.floor());
        let texel = |dx: i64, dy: i64| -> [f32; 4] {
            let cx = (x.floor() as i64 + dx).clamp(0, self.width as i64 - 1) as usize;
            let cy = (y.floor() as i64 + dy).clamp(0, self.height as i64 - 1) as usize;
            let color = self.texels.get(cy * self.width + cx).copied().unwrap_or_default();
            color.to_array().map(f32::from)
        };
        let (a, b, c, d) = (texel(0, 0), texel(1, 0), texel(0, 1), texel(1, 1));
        let mix = |i: usize| {
            let top = a[i] * (1.0 - fx) + b[i] * fx;
            let bottom = c[i] * (1.0 - fx) + d[i] * fx;
            top * (1.0 - fy) + bottom * fy
        };
        [mix(0), mix(1), mix(2), mix(3)]
    }

    /// All corners at one texel: a plain colour, as most of egui's triangles are.
    fn is_plain(corners: [&Vertex; 3]) -> bool {
        corners[0].uv == corners[1].uv && corners[0].uv == corners[2].uv
    }
}

/// Which side of the edge a → b a point is on, and how far.
fn edge(a: [f32; 2], b: [f32; 2], x: f32, y: f32) -> f32 {
    (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])
}

/// Fills the pixels whose centre lies inside; a centre on an edge belongs to one side only.
fn triangle(
    pixels: &mut [[f32; 3]],
    width: usize,
    clip: &Clip,
    texture: &Texture,
    scale: f32,
    corners: [&Vertex; 3],
) {
    let at = |v: &Vertex| [v.pos.x * scale, v.pos.y * scale];
    let (a, mut b, mut c) = (at(corners[0]), at(corners[1]), at(corners[2]));
    let mut colors = corners.map(|v| v.color.to_array().map(f32::from));
    let mut uvs = corners.map(|v| [v.uv.x, v.uv.y]);
    let mut area = edge(a, b, c[0], c[1]);
    if area < 0.0 {
        (b, c, area) = (c, b, -area);
        colors.swap(1, 2);
        uvs.swap(1, 2);
    }
    if area.is_nan() || area < 1e-6 {
        return;
    }
    let plain = Texture::is_plain(corners).then(|| texture.sample(uvs[0][0], uvs[0][1]));
    let low = |i: usize| a[i].min(b[i]).min(c[i]).floor() as i32;
    let high = |i: usize| a[i].max(b[i]).max(c[i]).ceil() as i32;
    for y in low(1).max(clip.y0)..high(1).min(clip.y1) {
        for x in low(0).max(clip.x0)..high(0).min(clip.x1) {
            let (cx, cy) = (x as f32 + 0.5, y as f32 + 0.5);
            let inside = [(b, c), (c, a), (a, b)].map(|(from, to)| {
                let side = edge(from, to, cx, cy);
                let owns = to[1] < from[1] || (to[1] == from[1] && to[0] > from[0]);
                (side > 0.0 || (side == 0.0 && owns)).then_some(side / area)
            });
            let [Some(wa), Some(wb), Some(wc)] = inside else { continue };
            let weigh = |get: &dyn Fn(usize) -> f32| wa * get(0) + wb * get(1) + wc * get(2);
            let texel = plain
                .unwrap_or_else(|| texture.sample(weigh(&|i| uvs[i][0]), weigh(&|i| uvs[i][1])));
            let source: [f32; 4] =
                std::array::from_fn(|ch| weigh(&|i| colors[i][ch]) * texel[ch] / 255.0);
            let under = &mut pixels[y as usize * width + x as usize];
            let keep = 1.0 - source[3] / 255.0;
            for (channel, value) in under.iter_mut().zip(source) {
                *channel = value + *channel * keep;
            }
        }
    }
}
