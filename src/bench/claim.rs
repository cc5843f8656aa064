//! A claim of the literature, run: what is said, what was found, and the figures of both.

use super::ground::Ground;
use super::plot::Plot;
use super::table::Table;
use crate::sim::{Arrival, SimError, WorkloadError};
use serde_json::{Value, json};

/// Why a claim could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error(transparent)]
    Sim(#[from] SimError),
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("{0}: the run says too little to measure it")]
    Empty(&'static str),
}

/// What a claim is run with.
pub struct Trial<'a> {
    pub ground: &'a Ground,
    /// Fewer and shorter requests.
    pub quick: bool,
    /// Recorded arrivals in place of generated ones, where a claim is about real traffic.
    pub arrivals: Option<&'a [Arrival]>,
}

impl Trial<'_> {
    /// `whole`, or the smaller one where time is short: on a device, and more so when quick.
    pub fn size(&self, whole: u32, on_device: u32) -> u32 {
        match (self.ground.is_real(), self.quick) {
            (false, false) => whole,
            (false, true) => whole.div_ceil(2),
            (true, false) => on_device,
            (true, true) => on_device.div_ceil(2),
        }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Found {
    /// In words, with the figures.
    pub told: String,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    /// The figures that the words are about.
    pub values: Vec<(&'static str, f64)>,
}

impl Found {
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|v| v.0 == name).map(|v| v.1)
    }
}

/// A claim and how it is run.
pub struct Claim {
    pub name: &'static str,
    pub title: &'static str,
    /// As it is made, with who makes it.
    pub says: &'static str,
    pub run: fn(&Trial<'_>) -> Result<Found, ClaimError>,
}

/// A claim that was run.
pub struct Outcome {
    pub claim: &'static Claim,
    pub ground: String,
    pub seconds: f64,
    pub found: Found,
}

impl Outcome {
    pub fn to_json(&self) -> Value {
        let values: serde_json::Map<String, Value> =
            self.found.values.iter().map(|(name, v)| ((*name).to_string(), json!(v))).collect();
        json!({
            "name": self.claim.name,
            "title": self.claim.title,
            "claim": self.claim.says,
            "ground": self.ground,
            "found": self.found.told,
            "values": values,
            "tables": self.found.tables,
            "seconds": self.seconds,
        })
    }
}
