//! Why a model cannot be loaded.

use crate::record::DeviceError;
use crate::weights::WeightsError;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{file}: architecture `{found}` is not supported; supported: {supported}")]
    Architecture { file: String, found: String, supported: String },
    #[error(
        "{file}: tensor `{tensor}` has no place in a {family} model; the file is of a variant that \
         is not supported"
    )]
    LeftOver { file: String, tensor: String, family: &'static str },
    #[error("{file}: `{key}`: {problem}")]
    Config { file: String, key: String, problem: String },
    #[error(
        "{file}: does not fit: weights {weights} + KV {kv} + scratch {scratch} = {needed} bytes, \
         the device has {have}; choose a smaller model, --kv-memory or --max-num-batched-tokens"
    )]
    DoesNotFit { file: String, weights: u64, kv: u64, scratch: u64, needed: u64, have: u64 },
    #[error(
        "the device gives different bits for {rows} rows than for one row in format {format}; \
         a request's output would depend on its neighbours (driver fault); --invariance off runs \
         all the same"
    )]
    NotInvariant { rows: u32, format: String },
}
