//! The left side: send requests, run presets, hold and step the engine, change its limits and
//! policies. All of it leaves as commands.

use super::command::{Preset, Submission, ViewCommand};
use super::source::EngineState;
use super::stage::{Stage, beside_bar};
use crate::base::{
    Admission, Batching, FairUnit, Limits, Order, Policies, Preemption, Prefill, PrefixCache,
    Speculate, Victim,
};
use egui::{ComboBox, DragValue, Grid, ScrollArea, Slider, TextEdit, Ui, vec2};

/// The longest target of a step's time.
const TARGET_MS_MAX: u64 = 60_000;

/// What is typed and not yet sent.
pub struct Drive {
    pub prompt: String,
    pub chat: bool,
    pub max_tokens: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub seed: String,
    /// What is edited of the limits and policies in force, until it is applied.
    limits: Option<Limits>,
    policies: Option<Policies>,
}

impl Default for Drive {
    fn default() -> Self {
        Self {
            prompt: "Tell me a story about a fox.".to_string(),
            chat: true,
            max_tokens: 64,
            temperature: 0.8,
            top_p: 1.0,
            top_k: 0,
            seed: String::new(),
            limits: None,
            policies: None,
        }
    }
}

impl Drive {
    fn submission(&self, copy: u64) -> Submission {
        let seed = self.seed.trim().parse::<u64>().ok();
        Submission {
            prompt: self.prompt.clone(),
            chat: self.chat,
            max_tokens: Some(self.max_tokens),
            temperature: Some(self.temperature),
            top_k: Some(self.top_k),
            top_p: Some(self.top_p),
            seed: seed.map(|s| s.wrapping_add(copy)),
            ..Submission::default()
        }
    }

    pub fn show(&mut self, ui: &mut Ui, stage: &mut Stage<'_>, engine: &EngineState) {
        ScrollArea::vertical().id_salt("drive").auto_shrink(false).show(ui, |ui| {
            beside_bar(ui);
            let live = matches!(engine, EngineState::Running | EngineState::Paused);
            if *engine == EngineState::Absent {
                ui.weak("No engine here. Open a model or choose a preset to send requests.");
            }
            ui.add_enabled_ui(live, |ui| self.ask(ui, stage));
            ui.separator();
            presets(ui, stage);
            ui.separator();
            ui.collapsing("Limits", |ui| {
                ui.add_enabled_ui(live, |ui| self.limits(ui, stage));
            });
            ui.collapsing("Policies", |ui| {
                ui.add_enabled_ui(live, |ui| self.policies(ui, stage));
            });
        });
    }

    fn ask(&mut self, ui: &mut Ui, stage: &mut Stage<'_>) {
        let label = ui.strong("Prompt");
        let edit =
            TextEdit::multiline(&mut self.prompt).desired_rows(3).desired_width(f32::INFINITY);
        let edit = ui.add(edit).labelled_by(label.id);
        let sent = edit.has_focus()
            && ui.input_mut(|i| i.consume_key(egui::Modifiers::COMMAND, egui::Key::Enter));
        ui.horizontal(|ui| {
            let send = ui.button("Send").on_hover_text("Ctrl+Enter in the prompt");
            if send.clicked() || sent {
                stage.commands.push(ViewCommand::Submit(self.submission(0)));
            }
            let many = ui.button("Send 4").on_hover_text("Four at once: watch them share steps");
            if many.clicked() {
                let four = (0..4).map(|copy| ViewCommand::Submit(self.submission(copy)));
                stage.commands.extend(four);
            }
            ui.checkbox(&mut self.chat, "chat").on_hover_text("Through the model's chat template");
        });
        ui.spacing_mut().slider_width = (ui.available_width() - 130.0).clamp(30.0, 100.0);
        let grid = Grid::new("sampling").num_columns(2).spacing(vec2(8.0, 3.0));
        grid.show(ui, |ui| {
            let named =
                |ui: &mut Ui, name: &str, widget: &mut dyn FnMut(&mut Ui) -> egui::Response| {
                    let label = ui.weak(name);
                    widget(ui).labelled_by(label.id);
                    ui.end_row();
                };
            named(ui, "max tokens", &mut |ui| {
                ui.add(DragValue::new(&mut self.max_tokens).range(1..=100_000))
            });
            named(ui, "temperature", &mut |ui| {
                ui.add(Slider::new(&mut self.temperature, 0.0..=2.0).max_decimals(2))
            });
            named(ui, "top p", &mut |ui| {
                ui.add(Slider::new(&mut self.top_p, 0.0..=1.0).max_decimals(2))
            });
            named(ui, "top k", &mut |ui| {
                ui.add(DragValue::new(&mut self.top_k).range(0..=1000)).on_hover_text("0 keeps all")
            });
            named(ui, "seed", &mut |ui| {
                ui.add(TextEdit::singleline(&mut self.seed).hint_text("any").desired_width(80.0))
            });
        });
    }

    fn limits(&mut self, ui: &mut Ui, stage: &mut Stage<'_>) {
        let Some(now) = stage.picture.limits else {
            ui.weak("No engine.");
            return;
        };
        let mut limits = self.limits.unwrap_or(now);
        let number = |ui: &mut Ui, name: &str, value: &mut u32, most: u32| {
            let label = ui.weak(name);
            ui.add(DragValue::new(value).range(1..=most)).labelled_by(label.id);
            ui.end_row();
        };
        Grid::new("limits").num_columns(2).spacing(vec2(8.0, 3.0)).show(ui, |ui| {
            number(ui, "tokens per step", &mut limits.step_tokens_max, 1 << 20);
            number(ui, "sequences", &mut limits.sequences_max, 4096);
            number(ui, "queue", &mut limits.queue_max, 1 << 20);
            number(ui, "kept free ‰", &mut limits.watermark_permille, 1000);
        });
        ui.weak(format!("{} blocks of {}: fixed at start", now.blocks, now.block_size));
        self.limits = Some(limits).filter(|l| *l != now);
        if apply(ui, self.limits.is_some()) {
            stage.commands.push(ViewCommand::SetLimits(limits));
            self.limits = None;
        }
    }

    fn policies(&mut self, ui: &mut Ui, stage: &mut Stage<'_>) {
        let now = stage.picture.policies.unwrap_or_default();
        let mut policies = self.policies.unwrap_or(now);
        policy_grid(ui, "policies", &mut policies, true);
        self.policies = Some(policies).filter(|p| *p != now);
        if apply(ui, self.policies.is_some()) {
            stage.commands.push(ViewCommand::SetPolicies(policies));
            self.policies = None;
        }
    }
}

fn apply(ui: &mut Ui, changed: bool) -> bool {
    ui.add_enabled(changed, egui::Button::new("Apply from the next step on")).clicked()
}

/// A choice for each policy; that of guesses only for an engine that can make some.
pub fn policy_grid(ui: &mut Ui, id: &str, policies: &mut Policies, guesses: bool) {
    Grid::new(id).num_columns(2).spacing(vec2(8.0, 3.0)).show(ui, |ui| {
        choose(
            ui,
            "batching",
            &mut policies.batching,
            &[
                Batching::Continuous,
                Batching::Static { size: 4 },
                Batching::Dynamic { size: 4, timeout_ms: 200 },
            ],
        );
        choose(
            ui,
            "prefill",
            &mut policies.prefill,
            &[Prefill::Chunked, Prefill::PrefillFirst, Prefill::DecodeFirst],
        );
        choose(
            ui,
            "admission",
            &mut policies.admission,
            &[
                Admission::Optimistic,
                Admission::Conservative,
                Admission::ExactPeak,
                Admission::Quantile { percent: 90 },
            ],
        );
        choose(
            ui,
            "victim",
            &mut policies.victim,
            &[Victim::Youngest, Victim::LeastLost, Victim::MostBlocks],
        );
        choose(
            ui,
            "preemption",
            &mut policies.preemption,
            &[Preemption::Auto, Preemption::Recompute, Preemption::Swap],
        );
        choose(
            ui,
            "order",
            &mut policies.order,
            &[
                Order::Fcfs,
                Order::Shortest,
                Order::Priority,
                Order::Fair { unit: FairUnit::Requests },
                Order::Fair { unit: FairUnit::Tokens },
                Order::Fair { unit: FairUnit::Time },
            ],
        );
        choose(
            ui,
            "prefix cache",
            &mut policies.prefix_cache,
            &[PrefixCache::On, PrefixCache::Off],
        );
        if guesses {
            choose(ui, "speculate", &mut policies.speculate, &[Speculate::Off, Speculate::NGRAM]);
        }
        numbers(ui, policies);
    });
}

/// Those of the policies that are numbers; 0 is none of it.
fn numbers(ui: &mut Ui, policies: &mut Policies) {
    let mut number = |name: &str, about: &str, value: &mut u64, most: u64| {
        let label = ui.weak(name);
        let edit = ui.add(DragValue::new(value).range(0..=most));
        edit.labelled_by(label.id).on_hover_text(about);
        ui.end_row();
    };
    // Rounded up: a target below a millisecond is not none.
    let mut target =
        policies.itl_target_micros.map_or(0, |micros| u64::from(micros.div_ceil(1000)));
    let before = target;
    let about = "How long a step may take: its tokens are chosen to keep to that. 0: no target.";
    number("target, ms", about, &mut target, TARGET_MS_MAX);
    if target != before {
        policies.itl_target_micros = (target > 0).then_some(target as u32 * 1000);
    }
    let mut aging = policies.aging.unwrap_or(0);
    let about = "Only those overtake one that waits who come before so many more tokens are \
                 processed. 0: it may wait for ever.";
    number("aging", about, &mut aging, 1 << 40);
    policies.aging = (aging > 0).then_some(aging);
    let mut passes = u64::from(policies.bypass_max);
    let about = "How often one that does not fit the memory may be passed by one that does.";
    number("passed at most", about, &mut passes, 1 << 20);
    policies.bypass_max = passes as u32;
}

/// One policy, chosen from its values by their text forms.
fn choose<T: Copy + PartialEq + std::fmt::Display>(
    ui: &mut Ui,
    name: &str,
    value: &mut T,
    values: &[T],
) {
    let label = ui.weak(name);
    let combo = ComboBox::from_id_salt(name).selected_text(value.to_string()).width(120.0);
    let shown = combo.show_ui(ui, |ui| {
        for one in values {
            ui.selectable_value(value, *one, one.to_string());
        }
    });
    shown.response.labelled_by(label.id);
    ui.end_row();
}

fn presets(ui: &mut Ui, stage: &mut Stage<'_>) {
    ui.strong("Presets");
    for preset in Preset::all() {
        let button = ui.add(egui::Button::new(preset.name).truncate());
        if button.on_hover_text(preset.about).clicked() {
            stage.commands.push(ViewCommand::Preset(preset));
        }
    }
    let button = ui.add(egui::Button::new("simulated-h100").truncate());
    let about = "Bursty traffic to an 8B model on an H100, by the real scheduler and a model of \
                 step time. Nothing is computed.";
    if button.on_hover_text(about).clicked() {
        stage.commands.push(ViewCommand::Simulate);
    }
}
