//! Pictures without a display.

use super::scene::{overload, viewer};
use crate::support::Rows;
use tilewright::viewer::{Image, Shot, View, render};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::pictures_repeat_bit_for_bit", pictures_repeat_bit_for_bit);
    rows.add("viewer::pictures_scale_and_change_theme", pictures_scale_and_change_theme);
    rows.add("viewer::a_picture_survives_its_file", a_picture_survives_its_file);
}

const STEP: u64 = 40;

fn shot(view: Option<View>) -> Shot {
    Shot { view, width: 640, height: 360, ..Shot::default() }
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

fn a_picture_survives_its_file() {
    let image = taken(&shot(Some(View::Timeline)));
    let bytes = image.to_png().expect("a PNG");
    assert!(read(&bytes) == image, "what is written is what was drawn");
}
