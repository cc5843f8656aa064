//! Pictures without a display: the rasteriser by itself, and every view of the recording against a
//! kept picture. `TILEWRIGHT_UPDATE=1` writes the kept pictures anew.

use super::drive::{driven, press};
use super::scene::{Stream, overload, viewer};
use crate::support::{Rows, root};
use egui::accesskit::Role;
use egui::{Color32, Key, Modifiers, Theme};
use egui_kittest::kittest::Queryable;
use tilewright::base::SequenceId;
use tilewright::viewer::{Image, Play, Shot, View, Viewer, ink_on, owner_color, render};

pub fn rows(rows: &mut Rows) {
    rows.add("viewer::pictures_repeat_bit_for_bit", pictures_repeat_bit_for_bit);
    rows.add("viewer::pictures_take_no_time", pictures_take_no_time);
    rows.add("viewer::text_stands_out_in_both_themes", text_stands_out_in_both_themes);
    rows.add("viewer::pictures_scale_and_change_theme", pictures_scale_and_change_theme);
    for view in View::ALL {
        rows.add(format!("viewer::picture_of_{}", view.name()), move || kept(Some(view)));
    }
    rows.add("viewer::picture_of_all", || kept(None));
    rows.add("viewer::picture_of_swapped_blocks", || {
        let mut viewer = viewer(&Stream::swapped().events);
        same("swapped", render(&mut viewer, &shot(Some(View::Blocks))));
    });
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

/// What plays stands still in its picture, and plays on from where it was.
fn pictures_take_no_time() {
    let mut harness = driven(viewer(&overload()));
    harness.get_by_role_and_label(Role::Slider, "speed").set_value_accesskit(20.0);
    harness.run();
    press(&mut harness, Modifiers::NONE, Key::Home);
    harness.key_press(Key::Space);
    harness.run_steps(4);
    let mut viewer = harness.into_state();
    let before = viewer.time();
    assert_eq!(before.1, Play::Playing);
    render(&mut viewer, &Shot::default());
    assert_eq!(viewer.time(), before);
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

/// As the Web Content Accessibility Guidelines have it, from the standard's own formula.
fn contrast(a: Color32, b: Color32) -> f64 {
    let linear = |value: u8| match f64::from(value) / 255.0 {
        low if low <= 0.04045 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    };
    let luminance =
        |c: Color32| 0.2126 * linear(c.r()) + 0.7152 * linear(c.g()) + 0.0722 * linear(c.b());
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

/// Small letters want 4.5, in the weak colour too and on every owner's.
fn text_stands_out_in_both_themes() {
    let ctx = egui::Context::default();
    Viewer::prepare(&ctx);
    for theme in [Theme::Dark, Theme::Light] {
        let visuals = &ctx.style_of(theme).visuals;
        for back in [visuals.panel_fill, visuals.extreme_bg_color, visuals.window_fill] {
            let (warn, error) = (visuals.warn_fg_color, visuals.error_fg_color);
            for ink in [visuals.text_color(), visuals.weak_text_color(), warn, error] {
                assert!(contrast(ink, back) >= 4.5, "{theme:?}: {ink:?} on {back:?}");
            }
        }
    }
    for back in (0..7).map(|id| owner_color(SequenceId(id))) {
        assert!(contrast(ink_on(back), back) >= 4.5, "{:?} on {back:?}", ink_on(back));
    }
}

fn read(bytes: &[u8]) -> Image {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
    let mut rgb = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut rgb).expect("a frame");
    Image { width: info.width as usize, height: info.height as usize, rgb }
}

/// Letters may differ by a shade where another processor rounds another way; more is a change.
fn kept(view: Option<View>) {
    same(view.map_or("all", View::name), taken(&shot(view)));
}

fn same(name: &str, image: Image) {
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
