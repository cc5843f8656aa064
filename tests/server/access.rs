//! Health while loading, keys, origins, request ids.

use super::host::{CHAT, Host, Reply, Setup, TEXT};
use crate::engine::fake::{ids, script};
use crate::support::Rows;
use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tilewright::server::{ModelState, WebOrigin};

pub fn rows(rows: &mut Rows) {
    rows.add("server::health_follows_the_model", health_follows_the_model);
    rows.add("server::keys_guard_all_but_health", keys);
    rows.add("server::origins_are_an_explicit_list", origins);
    rows.add("server::origins_are_as_browsers_send_them", origins_as_sent);
    rows.add("server::request_id_is_echoed", request_id);
}

fn health_follows_the_model() {
    let host = Host::says("Hello.");
    host.model.send_replace(ModelState::Loading);
    for path in ["/health", "/v1/models", "/v1/models/fable"] {
        let reply = host.get(path);
        let refused = reply.refused();
        assert_eq!((refused.status, refused.code.as_str()), (503, "model_loading"), "{path}");
        assert!(reply.headers.contains_key("retry-after"));
    }
    assert_eq!(host.refused(TEXT, &json!({"prompt": "x"})).code, "model_loading");
    assert_eq!(host.refused(CHAT, &json!({})).code, "model_loading");
    host.model.send_replace(ModelState::Failed("no such file".to_string()));
    let refused = host.get("/health").refused();
    assert_eq!((refused.status, refused.code.as_str()), (503, "model_failed"));
    assert!(refused.message.contains("no such file"));
    host.model.send_replace(ModelState::Ready(host.engine.clone()));
    let health = host.get("/health").json();
    assert_eq!((&health["status"], &health["kv_blocks_total"]), (&json!("ok"), &json!(512)));
    assert_eq!(host.post(TEXT, &json!({"prompt": "x"})).status, 200);
}

fn with_header(host: &Host, path: &str, name: &str, value: &[u8]) -> Reply {
    host.send(Request::get(path).header(name, value).body(Body::empty()).unwrap())
}

fn keys() {
    let mut setup = Setup::new(script(ids("Hello.")));
    setup.server.api_keys = vec!["first-key".to_string(), "second".to_string()];
    let host = setup.start();
    assert_eq!(host.get("/health").status, 200);
    for path in ["/v1/models", "/v1/models/fable", CHAT, TEXT, "/nowhere"] {
        let reply = host.get(path);
        let refused = reply.refused();
        assert_eq!((refused.status, refused.code.as_str()), (401, "invalid_api_key"), "{path}");
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
        assert_eq!(host.post(path, &json!({"prompt": "x"})).status, 401, "{path}");
    }
    let wrong: [&[u8]; 12] = [
        b"Bearer first-kez",
        b"Bearer first-ke",
        b"Bearer first-keyy",
        b"Bearer FIRST-KEY",
        b"Bearer ",
        b"Bearer",
        b"first-key",
        b"Basic first-key",
        b"Bearer first-key second",
        b"Bearer \xff\xfe",
        b"",
        b"Bearer first-key,second",
    ];
    for value in wrong {
        let refused = with_header(&host, "/v1/models", "authorization", value).refused();
        assert_eq!(refused.status, 401, "{value:?}");
    }
    for value in [&b"Bearer first-key"[..], b"bearer second", b"BEARER  second "] {
        assert_eq!(with_header(&host, "/v1/models", "authorization", value).status, 200);
    }
    // Without keys any is accepted, as SDKs insist on sending one.
    let open = Host::says("Hello.");
    assert_eq!(with_header(&open, "/v1/models", "authorization", b"Bearer x").status, 200);
}

fn origins() {
    let mut setup = Setup::new(script(ids("Hello.")));
    setup.server.cors_origins = vec!["https://a.example".parse().unwrap()];
    setup.server.api_keys = vec!["key".to_string()];
    let host = setup.start();
    let preflight = |origin: &str| {
        let request = Request::options(CHAT)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type");
        host.send(request.body(Body::empty()).unwrap())
    };
    let allowed = preflight("https://a.example");
    assert_eq!(allowed.status, 200, "a preflight carries no key");
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://a.example");
    for origin in ["https://b.example", "http://a.example", "null", "https://a.example.evil"] {
        let refused = preflight(origin);
        assert!(!refused.headers.contains_key("access-control-allow-origin"), "{origin}");
    }
    // An error can be read by the page, too.
    let error = with_header(&host, "/v1/models", "origin", b"https://a.example");
    assert_eq!(error.status, 401);
    assert_eq!(error.headers["access-control-allow-origin"], "https://a.example");
    let none = Host::says("Hello.");
    let reply = with_header(&none, "/v1/models", "origin", b"https://a.example");
    assert!(!reply.headers.contains_key("access-control-allow-origin"));
}

/// Others would match nothing that a browser sends.
fn origins_as_sent() {
    let read = |text: &str| text.parse::<WebOrigin>();
    for good in [
        "https://example.org",
        "http://localhost:3000",
        "http://127.0.0.1:8421",
        "http://[::1]:8421",
        "chrome-extension://abcdefgh",
        "null",
    ] {
        assert!(read(good).is_ok(), "{good}");
    }
    for wrong in [
        "",
        "*",
        "example.org",
        "https://",
        "https://example.org/",
        "https://example.org/page",
        "https://Example.org",
        "HTTPS://example.org",
        "https://example.org:443",
        "http://example.org:80",
        "http://example.org:",
        "http://example.org:080",
        "http://example.org:99999",
        "http://me@example.org",
        "http://exa mple.org",
        "http://[]",
        "http://[1]",
        "http://[0:0:0:0:0:0:0:1]",
        "http://[::ffff:127.0.0.1]",
        "http://[::1",
        "http://example.org?x",
        "1http://example.org",
        "http://bücher.example",
    ] {
        let error = read(wrong).expect_err(wrong).to_string();
        assert!(error.contains(&format!("`{wrong}`")), "{error}");
    }
}

fn request_id() {
    let host = Host::says("Hello.");
    let reply = with_header(&host, "/v1/models", "x-request-id", b"abc-123");
    assert_eq!(reply.headers["x-request-id"], "abc-123");
    let reply = with_header(&host, "/nowhere", "x-request-id", b"abc-123");
    assert_eq!(reply.headers["x-request-id"], "abc-123");
    let long = [b'x'; 200];
    let own = [host.get("/health"), with_header(&host, "/health", "x-request-id", &long)];
    let own = own.map(|reply| reply.headers["x-request-id"].to_str().unwrap().to_string());
    assert!(own[0].starts_with("req-") && own[0].len() < 40 && own[0] != own[1]);
}
