//! How the server is set up. Addresses are the caller's: it brings the bound listener.

use super::telemetry::Telemetry;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of [`super::serve`].
#[derive(Clone)]
pub struct ServerConfig {
    /// Accepted bearer keys; none = open to everyone who can connect.
    pub api_keys: Vec<String>,
    /// Origins that browsers may call from, as they send them (`https://example.org`).
    pub cors_origins: Vec<String>,
    /// Largest request body in bytes.
    pub body_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Silence on a stream after which a comment is sent, which also finds dead connections.
    pub ping_interval: Duration,
    /// How long one write may stay unfinished before the connection is closed.
    pub write_timeout: Duration,
    /// How long a connection may stay without a whole request head on it.
    pub idle_timeout: Duration,
    /// Takes `chat_template` from requests. Templates run with fuel, yet they are programs.
    pub trust_request_templates: bool,
    /// Lets clients change policies and limits while requests run.
    pub allow_control: bool,
    /// A folder made by `web/build`, served beside the API.
    pub page: Option<PathBuf>,
    /// What the engine tells, if its events go there (see [`Telemetry::tap`]).
    pub telemetry: Telemetry,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            body_max: 8 << 20,
            body_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(10),
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(120),
            trust_request_templates: false,
            allow_control: false,
            page: None,
            telemetry: Telemetry::default(),
        }
    }
}
