//! Weights for the benchmarks: a model's, or random ones in a model's shape.

use crate::cli::ModelArgs;
use crate::model::quantised;
use anyhow::Result;
use clap::Args;
use tilewright::base::Format;
use tilewright::bench::{SHAPES, Shape};
use tilewright::weights::Weights;

/// The weights of shapes are the same in every run.
const SEED: u64 = 1;

#[derive(Args)]
pub struct ShapeArgs {
    /// Random weights in the shape of this model, in place of -m: llama-3-8b, llama-3.2-1b,
    /// qwen3-0.6b, qwen3-8b, smollm2-135m or tiny [default: none].
    #[arg(long, value_name = "SHAPE", value_parser = shape, env = "TILEWRIGHT_BENCH_SHAPE")]
    #[arg(help_heading = "Model")]
    pub shape: Option<Shape>,
    /// How the matrices of a shape are stored: f16, q8_0, q4_k or any other format.
    #[arg(long, value_name = "FORMAT", default_value = "q8_0", value_parser = format)]
    #[arg(env = "TILEWRIGHT_BENCH_SHAPE_FORMAT", help_heading = "Model")]
    pub shape_format: Format,
}

impl ShapeArgs {
    /// The weights, and what they are called.
    pub fn weights(&self, model: &ModelArgs) -> Result<(Weights, String)> {
        let weights = match self.shape {
            Some(shape) => shape.weights(self.shape_format, SEED)?,
            None => {
                let weights = quantised(&model.model, model.quantize.as_deref())?;
                return Ok((weights, model.model.clone()));
            }
        };
        let name = weights.name().to_string();
        Ok((weights, name))
    }
}

pub fn shape(name: &str) -> Result<Shape, String> {
    let names = SHAPES.map(|shape| shape.name).join(", ");
    Shape::find(name).ok_or_else(|| format!("expected one of {names}"))
}

pub fn format(name: &str) -> Result<Format, String> {
    let names = Format::ALL.map(Format::name).join(", ");
    let found = Format::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("expected one of {names}"))
}
