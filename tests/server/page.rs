//! The page beside the API.

use super::host::{Host, Setup};
use crate::engine::fake::{ids, script};
use crate::support::Rows;
use serde_json::Value;

pub fn rows(rows: &mut Rows) {
    rows.add("server::page_lies_beside_the_api", beside_the_api);
    rows.add("server::page_needs_no_key", needs_no_key);
}

fn host(keys: &[&str]) -> (tempfile::TempDir, Host) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("page");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(home.path().join("beside.txt"), "not of the page").unwrap();
    std::fs::write(folder.join("index.html"), "<title>page</title>").unwrap();
    std::fs::write(folder.join("page.json"), "{}").unwrap();
    std::fs::write(folder.join("program.wasm"), b"\0asm").unwrap();
    let mut setup = Setup::new(script(ids("yes")));
    setup.server.page = Some(folder);
    setup.server.api_keys = keys.iter().map(|key| key.to_string()).collect();
    (home, setup.start())
}

fn beside_the_api() {
    let (home, host) = host(&[]);
    let page = host.get("/");
    assert_eq!((page.status, page.body.as_str()), (200, "<title>page</title>"));
    assert_eq!(page.headers["cache-control"], "no-cache");
    assert_eq!(host.get("/program.wasm").headers["content-type"], "application/wasm");
    let settings: Value = serde_json::from_str(&host.get("/page.json").body).unwrap();
    assert_eq!(settings["remote"], ".", "the file's own settings are for other hosts");
    assert_eq!(host.get("/v1/models").status, 200);
    let beside = home.path().join("beside.txt");
    assert!(beside.is_file());
    let absolute = beside.display().to_string();
    let (doubled, encoded) = (format!("/{absolute}"), absolute.replace('/', "/%2f"));
    for path in [
        "/absent.js",
        "/../beside.txt",
        "/%2e%2e/beside.txt",
        "/..%2fbeside.txt",
        "/%2e%2e%2fbeside.txt",
        "/absent/../../beside.txt",
        doubled.as_str(),
        encoded.as_str(),
    ] {
        assert_eq!(host.get(path).refused().code, "unknown_route", "{path}");
    }
    for path in ["/index.html", "/absent.js", "/v1/chat/completion"] {
        let error = host.post(path, &Value::Null).refused();
        assert_eq!((error.status, error.code.as_str()), (404, "unknown_route"), "{path}");
    }
    assert_eq!(host.post("/v1/models", &Value::Null).status, 405);
    let plain = Host::says("yes");
    assert_eq!(plain.get("/index.html").status, 404, "no page, no files");
}

fn needs_no_key() {
    let (_home, host) = host(&["secret"]);
    assert_eq!(host.get("/").status, 200);
    assert_eq!(host.get("/page.json").status, 200);
    for path in ["/v1/models", "/v1/models/fable", "/v1/engine/events", "/metrics"] {
        assert_eq!(host.get(path).status, 401, "{path}");
    }
    assert_eq!(host.post("/v1/models", &Value::Null).status, 401);
    assert_eq!(host.post("/index.html", &Value::Null).status, 404, "there is nothing to write");
}
