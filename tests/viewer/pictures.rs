//! Pictures without a display: the rasteriser by itself, and every view of the recording against a
//! kept picture. `TILEWRIGHT_UPDATE=1` writes the kept pictures anew.

use super::scene::{overload, viewer};
use crate::support::{Rows, root};
use tilewright::viewer::{Image, Shot, View, render};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::pictures_repeat_bit_for_bit", pictures_repeat_bit_for_bit);
    rows.add("viewer::pictures_scale_and_change_theme", pictures_scale_and_change_theme);
    for view in View::ALL {
        rows.add(format!("viewer::picture_of_{}", view.name()), move || kept(Some(view)));
    }
    rows.add("viewer::picture_of_all", || kept(None));
}

const STEP: u64 = 40;

fn shot(view: Option<View>) -> Shot {
    match view {
        Some(_) => Shot { view, width: 640, height: 360, ..Shot::default() },
        None => Shot::default(),
    }
}

fn taken(shot: &Shot) -> Image {
    let mut viewer = viewer(&overload());
    viewer.go(STEP);
    render(&mut viewer, shot)
}

fn pictures_repeat_bit_for_bit() {
    let shot = shot(Some(View::Blocks));
    assert!(taken(&shot) == taken(&shot));
}

fn pictures_scale_and_change_theme() {
    let one = taken(&shot(Some(View::Slots)));
    let large = taken(&Shot { scale: 1.5, ..shot(Some(View::Slots)) });
    assert_eq!((large.width, large.height), (960, 540));
    let light = taken(&Shot { dark: false, ..shot(Some(View::Slots)) });
    let mean = |image: &Image| {
        image.rgb.iter().map(|&v| u64::from(v)).sum::<u64>() / image.rgb.len() as u64
    };
    assert!(mean(&one) < 80, "dark: {}", mean(&one));
    assert!(mean(&light) > 180, "light: {}", mean(&light));
    assert!(mean(&one).abs_diff(mean(&large)) < 6, "the same picture, larger");
}

fn read(bytes: &[u8]) -> Image {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
    let mut rgb = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut rgb).expect("a frame");
    Image { width: info.width as usize, height: info.height as usize, rgb }
}

/// Letters may differ by a shade where another processor rounds another way; more is a change.
fn kept(view: Option<View>) {
    let image = taken(&shot(view));
    let name = view.map_or("all", View::name);
    let path = root().join(format!("tests/data/viewer/{name}.png"));
    let bytes = image.to_png().expect("a PNG");
    assert!(read(&bytes) == image, "what is written is what was drawn");
    if std::env::var_os("TILEWRIGHT_UPDATE").is_some() {
        std::fs::write(&path, &bytes).expect("a writable checkout");
    }
    let old = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let old = read(&old);
    assert_eq!((old.width, old.height), (image.width, image.height));
    let differ = old.rgb.iter().zip(&image.rgb).filter(|(a, b)| a.abs_diff(**b) > 24).count();
    let most = old.rgb.len() / 2000;
    let remedy = "if this is meant, run the row with TILEWRIGHT_UPDATE=1 and look at the picture";
    assert!(differ <= most, "{name}: {differ} values differ, {most} may; {remedy}");
}
