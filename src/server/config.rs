//! How the server is set up. Addresses are the caller's: it brings the bound listener.

use super::telemetry::Telemetry;
use crate::text::CallStyle;
use axum::http::HeaderValue;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Settings of [`super::serve`].
#[derive(Clone)]
pub struct ServerConfig {
    /// Accepted bearer keys; none = open to everyone who can connect.
    pub api_keys: Vec<String>,
    /// Origins that browsers may call from.
    pub cors_origins: Vec<WebOrigin>,
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
    /// How the model writes calls of tools; `None`: as its chat template does.
    pub tool_style: Option<CallStyle>,
    /// Tells `<think>…</think>` apart as `reasoning_content`.
    pub reasoning: bool,
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
            tool_style: None,
            reasoning: true,
            page: None,
            telemetry: Telemetry::default(),
        }
    }
}

/// An origin as browsers send it: `https://example.org`, `http://localhost:3000`, or `null`. Others
/// would match none that is ever sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebOrigin(HeaderValue);

impl WebOrigin {
    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// What is no origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is no origin as browsers send it: SCHEME://HOST or SCHEME://HOST:PORT in lower case, \
     without a path and without the scheme's own port, such as https://example.org"
)]
pub struct OriginError(String);

impl FromStr for WebOrigin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let value = (text == "null" || is_origin(text)).then(|| HeaderValue::from_str(text));
        value.and_then(Result::ok).map(Self).ok_or_else(|| OriginError(text.to_string()))
    }
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    // The colons of an address of version 6 stand in brackets.
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let lower = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let known = |port: &str| match port.parse::<u16>() {
        Ok(number) => {
            number.to_string() == port
                && ![("http", 80), ("https", 443)].contains(&(scheme, number))
        }
        Err(_) => false,
    };
    let in_scheme = |c: u8| lower(c) || b"+-.".contains(&c);
    let name = |host: &str| host.bytes().all(|c| lower(c) || b"-._".contains(&c));
    // In its shortest form, and without dots.
    let address = |host: &str| {
        let read = host.parse::<Ipv6Addr>();
        read.is_ok_and(|address| address.to_string() == host) && !host.contains('.')
    };
    let host_is_one = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').is_some_and(address),
        None => !host.is_empty() && name(host),
    };
    scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(in_scheme)
        && host_is_one
        && port.is_none_or(known)
}
