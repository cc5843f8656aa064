//! What is drawn, by role, name and place, as a screen reader is told it: no browser is told, so
//! those who drive the page with a script ask for it.

use egui::accesskit::{Node, TreeUpdate};
use egui::{Context, FullOutput, Plugin};

/// Keeps what the last frame told; nothing before it was asked for.
#[derive(Default)]
pub struct Drawn {
    last: Option<TreeUpdate>,
}

impl Plugin for Drawn {
    fn debug_name(&self) -> &'static str {
        "what is drawn"
    }

    fn output_hook(&mut self, _: &Context, output: &mut FullOutput) {
        if let Some(tree) = output.platform_output.accesskit_update.take() {
            self.last = Some(tree);
        }
    }
}

/// As JSON: a list of `{role, name, value, box}`, the box `[x, y, width, height]` in pixels of the
/// page.
pub fn drawn(ctx: &Context) -> String {
    ctx.enable_accesskit();
    ctx.request_repaint();
    let zoom = f64::from(ctx.zoom_factor());
    let drawn = ctx.plugin_or_default::<Drawn>();
    let drawn = drawn.lock();
    let nodes = drawn.last.iter().flat_map(|tree| &tree.nodes);
    let told: Vec<_> = nodes.filter_map(|(_, node)| told(node, zoom)).collect();
    serde_json::to_string(&told).unwrap_or_default()
}

fn told(node: &Node, zoom: f64) -> Option<serde_json::Value> {
    let at = node.bounds()?;
    let place = [at.x0, at.y0, at.x1 - at.x0, at.y1 - at.y0].map(|points| points * zoom);
    Some(serde_json::json!({
        "role": format!("{:?}", node.role()),
        "name": node.label(),
        "value": node.value(),
        "box": place,
    }))
}
