//! What all routes share: settings, the model once it is there, names for replies.

use super::config::ServerConfig;
use super::error::{ApiError, ApiResult};
use crate::base::threefry2x32;
use crate::engine::{EngineHandle, EngineState};
use crate::text::{Grammars, TextError};
use axum::http::StatusCode;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, watch};

/// Field names without effect that are remembered (and told once each).
const NOTED_MAX: usize = 64;
/// Prompts that may be rendered and tokenized at once, off the async threads.
const TEXT_WORK_MAX: usize = 4;

/// How far the model is.
#[derive(Clone)]
pub enum ModelState {
    Loading,
    Ready(EngineHandle),
    /// It will not come; why.
    Failed(String),
}

/// Shared by all routes.
pub(super) struct App {
    pub config: ServerConfig,
    text_work: Semaphore,
    /// Held while policies or limits are changed.
    pub changing: tokio::sync::Mutex<()>,
    pub started: u64,
    model: watch::Receiver<ModelState>,
    key: u64,
    replies: AtomicU64,
    noted: Mutex<BTreeSet<String>>,
    grammars: OnceLock<Result<Grammars, TextError>>,
}

impl App {
    pub fn new(config: ServerConfig, model: watch::Receiver<ModelState>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            config,
            text_work: Semaphore::new(TEXT_WORK_MAX),
            changing: tokio::sync::Mutex::default(),
            started: since.as_secs(),
            model,
            key: since.as_nanos() as u64,
            replies: AtomicU64::new(0),
            noted: Mutex::new(BTreeSet::new()),
            grammars: OnceLock::new(),
        }
    }

    /// The engine, if it can take requests.
    pub fn engine(&self) -> ApiResult<EngineHandle> {
        let engine = match &*self.model.borrow() {
            ModelState::Ready(engine) => engine.clone(),
            ModelState::Loading => return Err(ApiError::loading()),
            ModelState::Failed(why) => {
                let message = format!("the model could not be loaded: {why}");
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return Err(ApiError::server(status, "model_failed", message));
            }
        };
        match engine.status().state {
            EngineState::Failed(why) => Err(ApiError::engine_failed(why.to_string())),
            _ => Ok(engine),
        }
    }

    /// Runs text work (templates, tokenization) where it delays no other connection.
    pub async fn off_thread<T: Send + 'static>(
        &self,
        engine: &EngineHandle,
        work: impl FnOnce(&EngineHandle) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let fault = |what: String| {
            ApiError::server(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", what)
        };
        let _permit = self.text_work.acquire().await.map_err(|error| fault(error.to_string()))?;
        let engine = engine.clone();
        tokio::task::spawn_blocking(move || work(&engine))
            .await
            .map_err(|_| fault("the prompt could not be processed".to_string()))?
    }

    /// What makes grammars for the model's vocabulary. The first call takes a moment: off the
    /// async threads only.
    pub fn grammars(&self, engine: &EngineHandle) -> ApiResult<&Grammars> {
        let card = engine.card();
        let make = || Grammars::new(&card.tokenizer, &card.stop_ids, card.logit_rows);
        self.grammars.get_or_init(make).as_ref().map_err(|error| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::server(status, "internal_error", error.to_string())
        })
    }

    /// A name that no other reply of this server has, 24 hexadecimal digits.
    pub fn fresh_id(&self) -> String {
        let count = self.replies.fetch_add(1, Ordering::Relaxed);
        let key = [self.key as u32, (self.key >> 32) as u32];
        let word = threefry2x32(key, [count as u32, (count >> 32) as u32]);
        format!("{:08x}{:08x}{:08x}", word[0], word[1], count as u32)
    }

    /// Tells the operator of a request field that changes nothing, once per name.
    pub fn note(&self, route: &str, name: &str, why: &str) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let name: String = name.chars().take(64).collect();
        if noted.len() < NOTED_MAX && noted.insert(name.clone()) {
            tracing::warn!(route, field = ?name, "a request field {why}");
        }
    }
}

/// Seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
