//! Rows of `hub`: models fetched from a mock hub on loopback that speaks as huggingface.co does,
//! with the faults that hubs, proxies and disks have.

use crate::support::{Rows, root};
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tilewright::weights::Weights;
use tilewright::weights::hub::{Found, Hub, HubError, HubName};

pub fn rows(rows: &mut Rows) {
    rows.add("hub::names", names);
    rows.add("hub::a_folder_is_fetched_once", folder);
    rows.add("hub::quantisations_are_chosen", quants);
    rows.add("hub::fetching_goes_on_where_it_ended", resumes);
    rows.add("hub::damage_is_found", damage);
    rows.add("hub::without_a_hub_the_copy_serves", offline);
    rows.add("hub::a_copy_that_is_not_whole_is_told", not_whole);
    #[cfg(unix)]
    rows.add("hub::another_process_may_link_too", link_race);
    rows.add("hub::refusals_are_told", refusals);
    #[cfg(feature = "cli")]
    rows.add("hub::the_program_fetches_models", program);
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the mock does wrong.
#[derive(Clone, Default)]
struct Faults {
    /// Answers every request so.
    status: Option<u16>,
    /// Bytes of a body after which the connection ends, for so many requests.
    cut: Option<(usize, usize)>,
    /// Takes no notice of ranges.
    no_ranges: bool,
    /// Sends this in place of the first bytes.
    wrong: Option<Vec<u8>>,
    /// Hashes that the listing gives, by file.
    hashes: BTreeMap<String, String>,
}

struct Mock {
    endpoint: String,
    /// Method-less request lines and their ranges.
    seen: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<Faults>>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn git_hash(bytes: &[u8]) -> String {
    let hash = Sha1::new().chain_update(format!("blob {}\0", bytes.len())).chain_update(bytes);
    hex(&hash.finalize())
}

type Files = Vec<(&'static str, Vec<u8>)>;

impl Mock {
    fn new(files: Files) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (seen, faults) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Faults::default())));
        let (told, wrong) = (seen.clone(), faults.clone());
        std::thread::spawn(move || {
            let files = Arc::new(files);
            for stream in listener.incoming().flatten() {
                let (files, told, wrong) = (files.clone(), told.clone(), wrong.clone());
                std::thread::spawn(move || answer(stream, &files, &told, &wrong));
            }
        });
        Self { endpoint, seen, faults }
    }

    fn hub(&self, cache: &Path) -> Hub {
        Hub {
            endpoint: self.endpoint.clone(),
            cache: cache.to_path_buf(),
            token: Some("secret".to_string()),
            offline: false,
            certificates: None,
        }
    }

    fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// The requests since the last time.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// One request per connection.
fn answer(stream: TcpStream, files: &Files, seen: &Mutex<Vec<String>>, faults: &Mutex<Faults>) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let (mut range, mut token) = (0, false);
    for line in lines.take_while(|line| !line.is_empty()) {
        let line = line.to_lowercase();
        if let Some(from) = line.strip_prefix("range: bytes=") {
            range = from.trim_end_matches('-').parse().unwrap();
        }
        token |= line == "authorization: bearer secret";
    }
    seen.lock().unwrap().push(format!("{path} {range}"));
    assert!(token || path.starts_with("/elsewhere/"), "the token comes to the hub: {path}");
    let wrong = faults.lock().unwrap().clone();
    if let Some(status) = wrong.status {
        return send(&stream, &format!("{status} No"), "", b"{}", None);
    }
    if path.starts_with("/api/models/") {
        let body = listing(files, &wrong).to_string();
        return send(&stream, "200 OK", "", body.as_bytes(), None);
    }
    let Some((_, name)) = path.split_once(&format!("/resolve/{COMMIT}/")) else {
        return send(&stream, "404 Not Found", "", b"", None);
    };
    // Large files lie elsewhere.
    if !path.starts_with("/elsewhere") && !name.ends_with(".json") {
        let location = format!("location: /elsewhere{path}\r\n");
        return send(&stream, "302 Found", &location, b"", None);
    }
    let Some((_, bytes)) = files.iter().find(|(file, _)| *file == name.replace("%20", " ")) else {
        return send(&stream, "404 Not Found", "", b"", None);
    };
    let mut body = bytes.clone();
    if let Some(first) = &wrong.wrong {
        body[..first.len()].copy_from_slice(first);
    }
    let cut = {
        let mut faults = faults.lock().unwrap();
        let cut = faults.cut.filter(|(_, times)| *times > 0);
        faults.cut = faults.cut.map(|(at, times)| (at, times.saturating_sub(1)));
        cut.map(|(at, _)| at)
    };
    if range > 0 && !wrong.no_ranges {
        let of = format!("content-range: bytes {range}-{}/{}\r\n", body.len() - 1, body.len());
        return send(&stream, "206 Partial Content", &of, &body[range..], cut);
    }
    send(&stream, "200 OK", "", &body, cut);
}

fn send(mut stream: &TcpStream, status: &str, more: &str, body: &[u8], cut: Option<usize>) {
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())]);
}

fn listing(files: &Files, faults: &Faults) -> serde_json::Value {
    let one = |(name, bytes): &(&str, Vec<u8>)| {
        let hash = faults.hashes.get(*name).cloned().unwrap_or_else(|| git_hash(bytes));
        let mut file = serde_json::json!({"rfilename": name, "size": bytes.len(), "blobId": hash});
        if hash.len() == 64 {
            file["lfs"] = serde_json::json!({"sha256": hash, "size": bytes.len()});
        }
        file
    };
    serde_json::json!({"sha": COMMIT, "siblings": files.iter().map(one).collect::<Vec<_>>()})
}

fn get(hub: &Hub, name: &str) -> Result<Found, HubError> {
    hub.get(&HubName::parse(name).unwrap(), &mut |_| {})
}

fn cache() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Fable's own files, as a repository has them.
fn fable() -> Files {
    let names = [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "model.safetensors",
        "README.md",
    ];
    let read =
        |name: &'static str| (name, std::fs::read(root().join("assets/fable").join(name)).unwrap());
    names.into_iter().map(read).collect()
}

/// Some bytes, all different.
fn noise(seed: u8, n: usize) -> Vec<u8> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

fn names() {
    for good in
        ["a/b", "a/b:Q4_K_M", "a/b@main:q8_0", "TheOrg-1/Some.Model_2@v1.0", "a/b/dir/x.gguf"]
    {
        HubName::parse(good).unwrap_or_else(|e| panic!("{e}"));
    }
    for bad in [
        "",
        "a",
        "a/",
        "/b",
        "a/b:",
        "a/b:x y",
        "../b",
        "a/..",
        "a/b/c",
        "a/b/../x.gguf",
        "a/b/x.gguf:Q4_0",
        "a/b@",
        "a/b@../x",
        "a b/c",
        "a/b/C:/x.gguf",
    ] {
        let error = HubName::parse(bad).expect_err(bad);
        assert!(error.to_string().contains("hf:USER/REPO"), "{error}");
    }
}

fn folder() {
    let (mock, cache) = (Mock::new(fable()), cache());
    let hub = mock.hub(cache.path());
    let found = get(&hub, "some/fable").unwrap();
    assert_eq!(found.unasked, None);
    let weights = Weights::open(&found.path).unwrap();
    assert!(!weights.tensors().is_empty());
    // As the hub's own tools lay it out.
    let home = cache.path().join("models--some--fable");
    assert_eq!(std::fs::read_to_string(home.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(found.path, home.join("snapshots").join(COMMIT));
    assert!(!found.path.join("README.md").exists(), "only what loading reads");
    let config = std::fs::read(root().join("assets/fable/config.json")).unwrap();
    assert_eq!(std::fs::read(home.join("blobs").join(git_hash(&config))).unwrap(), config);
    #[cfg(unix)]
    assert!(std::fs::read_link(found.path.join("config.json")).unwrap().starts_with("../../blobs"));
    assert_eq!(leftovers(&home), Vec::<PathBuf>::new());
    mock.seen();
    // The second time the hub is only asked what there is.
    assert_eq!(get(&hub, "some/fable").unwrap(), found);
    assert_eq!(mock.seen().len(), 1);
}

fn leftovers(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.join("blobs")).unwrap().flatten();
    entries.map(|e| e.path()).filter(|p| p.extension().is_some()).collect()
}

fn quants() {
    let file = |name, seed| (name, noise(seed, 100));
    let mock = Mock::new(vec![
        file("README.md", 0),
        file("m-Q8_0.gguf", 1),
        file("m-Q4_K_M.gguf", 2),
        file("m-IQ4_K_M_L.gguf", 3),
        file("mmproj-Q4_0.gguf", 4),
        file("BF16/m-BF16-00001-of-00002.gguf", 5),
        file("BF16/m-BF16-00002-of-00002.gguf", 6),
        file("other name.gguf", 7),
    ]);
    let cache = cache();
    let hub = mock.hub(cache.path());
    for (name, file, seed) in [
        ("u/m", "m-Q4_K_M.gguf", 2),
        ("u/m:q8_0", "m-Q8_0.gguf", 1),
        ("u/m:Q4_K_M", "m-Q4_K_M.gguf", 2),
        ("u/m:BF16", "BF16/m-BF16-00001-of-00002.gguf", 5),
        ("u/m/other name.gguf", "other name.gguf", 7),
    ] {
        let found = get(&hub, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.path.ends_with(file), "{name}: {:?}", found.path);
        assert_eq!(std::fs::read(&found.path).unwrap(), noise(seed, 100), "{name}");
        let second = found.path.with_file_name("m-BF16-00002-of-00002.gguf");
        assert_eq!(name.ends_with("BF16"), second.exists(), "{name}");
    }
    for (name, part) in
        [("u/m:Q2_K", "m-Q8_0.gguf"), ("u/m/none.gguf", "no file none.gguf"), ("u/m:K_M", "K_M")]
    {
        let error = get(&hub, name).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
}

fn resumes() {
    for no_ranges in [false, true] {
        let bytes = noise(9, 300_000);
        let mock = Mock::new(vec![("m-Q4_0.gguf", bytes.clone())]);
        let cache = cache();
        let hub = mock.hub(cache.path());
        // Three connections that end early, and then one that does not.
        mock.set(Faults { cut: Some((70_000, 3)), no_ranges, ..Faults::default() });
        let mut told = Vec::new();
        let name = HubName::parse("u/m").unwrap();
        let found = hub.get(&name, &mut |p| told.push((p.done, p.total))).unwrap();
        assert_eq!(std::fs::read(&found.path).unwrap(), bytes);
        assert!(told.is_sorted() && told.last() == Some(&(300_000, 300_000)), "{told:?}");
        let ranges: Vec<String> = mock
            .seen()
            .iter()
            .filter(|l| l.starts_with("/elsewhere"))
            .map(|l| l.rsplit(' ').next().unwrap().to_string())
            .collect();
        match no_ranges {
            false => assert_eq!(ranges, ["0", "70000", "140000", "210000"]),
            true => assert!(ranges.len() > 1 && ranges[1] == "70000", "{ranges:?}"),
        }
    }
    // A hub that is gone for good: what came stays, and the next call goes on from there.
    let bytes = noise(3, 200_000);
    let mock = Mock::new(vec![("m-Q4_0.gguf", bytes.clone())]);
    let cache = cache();
    mock.set(Faults { cut: Some((0, 100)), ..Faults::default() });
    let hub = mock.hub(cache.path());
    let blob = cache.path().join("models--u--m/blobs").join(git_hash(&bytes));
    std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
    std::fs::write(blob.with_extension("incomplete"), &bytes[..150_000]).unwrap();
    let error = get(&hub, "u/m").unwrap_err();
    assert!(
        matches!(&error, HubError::Interrupted { problem, .. } if problem.contains("150000 of 2")),
        "{error}"
    );
    mock.set(Faults::default());
    mock.seen();
    assert_eq!(std::fs::read(get(&hub, "u/m").unwrap().path).unwrap(), bytes);
    assert!(mock.seen().iter().any(|line| line.ends_with(" 150000")));
}

fn damage() {
    let bytes = noise(1, 1000);
    let mock = Mock::new(vec![("m-Q4_0.gguf", bytes.clone())]);
    let cache = cache();
    let hub = mock.hub(cache.path());
    mock.set(Faults { wrong: Some(b"GGUF?".to_vec()), ..Faults::default() });
    let error = get(&hub, "u/m").unwrap_err();
    assert!(matches!(&error, HubError::Damaged { file, .. } if file == "m-Q4_0.gguf"), "{error}");
    assert_eq!(leftovers(&cache.path().join("models--u--m")).len(), 1, "but for the lock");
    mock.set(Faults::default());
    assert_eq!(std::fs::read(get(&hub, "u/m").unwrap().path).unwrap(), bytes);
    // A listing whose hash is another's, SHA-256 or git's, and one that lies about its names.
    for hash in ["a".repeat(64), "b".repeat(40)] {
        let hashes = BTreeMap::from([("m-Q4_0.gguf".to_string(), hash)]);
        mock.set(Faults { hashes, ..Faults::default() });
        let other = self::cache();
        assert!(matches!(get(&mock.hub(other.path()), "u/m"), Err(HubError::Damaged { .. })));
    }
    let mock = Mock::new(vec![("../../m-Q4_0.gguf", bytes)]);
    assert!(matches!(get(&mock.hub(cache.path()), "u/x"), Err(HubError::Listing { .. })));
}

fn offline() {
    let (mock, cache) = (Mock::new(fable()), cache());
    let mut hub = mock.hub(cache.path());
    let found = get(&hub, "some/fable").unwrap();
    mock.seen();
    hub.offline = true;
    let kept = get(&hub, "some/fable").unwrap();
    assert_eq!((&kept.path, kept.unasked.is_some()), (&found.path, true));
    assert_eq!(mock.seen(), Vec::<String>::new(), "nothing is asked");
    hub.offline = false;
    // A hub that has trouble, and one that is not there.
    mock.set(Faults { status: Some(503), ..Faults::default() });
    assert_eq!(get(&hub, "some/fable").unwrap().path, found.path);
    hub.endpoint = "http://127.0.0.1:1".to_string();
    assert_eq!(get(&hub, "some/fable").unwrap().path, found.path);
    let error = get(&hub, "some/other").unwrap_err();
    assert!(matches!(error, HubError::Unreached { .. }), "{error}");
}

fn not_whole() {
    let (mock, cache) = (Mock::new(fable()), cache());
    let mut hub = mock.hub(cache.path());
    let found = get(&hub, "some/fable").unwrap();
    let file = |name: &str| found.path.join(name);
    let config = std::fs::read(file("tokenizer.json")).unwrap();
    hub.offline = true;
    let told = |hub: &Hub, name: &str| {
        let error = get(hub, "some/fable").unwrap_err();
        assert!(matches!(&error, HubError::Interrupted { file, .. } if file == name), "{error}");
        assert!(error.to_string().contains("not whole"), "{error}");
    };
    // A disk that was full when another program wrote, and a file that somebody removed.
    std::fs::write(file("tokenizer.json"), &config[..config.len() / 2]).unwrap();
    told(&hub, "tokenizer.json");
    hub.offline = false;
    get(&hub, "some/fable").unwrap();
    assert_eq!(std::fs::read(file("tokenizer.json")).unwrap(), config);
    std::fs::remove_file(file("chat_template.jinja")).unwrap();
    hub.offline = true;
    told(&hub, "chat_template.jinja");
    // What the hub's own tools fetched has no list of its own.
    std::fs::remove_dir_all(cache.path().join("models--some--fable/listings")).unwrap();
    assert_eq!(get(&hub, "some/fable").unwrap().path, found.path);
}

/// A link that another process makes at the same moment leads to the blob, which stays whole.
#[cfg(unix)]
fn link_race() {
    let bytes = noise(5, 1000);
    let mock = Mock::new(vec![("m-Q4_0.gguf", bytes.clone())]);
    let cache = cache();
    let hub = mock.hub(cache.path());
    let place = get(&hub, "u/m").unwrap().path;
    let blob = std::fs::canonicalize(&place).unwrap();
    let (over, other) = (std::sync::atomic::AtomicBool::new(false), place.clone());
    std::thread::scope(|scope| {
        let racing = scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                // Whenever nothing stands there.
                let _ = std::os::unix::fs::symlink(&blob, &other);
            }
        });
        let wrong = cache.path().join("wrong");
        let whole = (0..100).all(|_| {
            // What is not whole is linked anew.
            std::fs::write(&wrong, b"x").and_then(|()| std::fs::rename(&wrong, &place)).is_ok()
                && get(&hub, "u/m").is_ok()
                && std::fs::read(&blob).is_ok_and(|found| found == bytes)
        });
        // Before anything can fail: a failure would wait for the other thread.
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        racing.join().unwrap();
        assert!(whole, "the blob stays whole");
    });
}

fn refusals() {
    let (mock, cache) = (Mock::new(fable()), cache());
    let hub = mock.hub(cache.path());
    for (status, part) in [
        (401, "HF_TOKEN"),
        (404, "check the name"),
        (403, "accept the model's terms"),
        (418, "418"),
    ] {
        mock.set(Faults { status: Some(status), ..Faults::default() });
        let error = get(&hub, "some/fable").unwrap_err().to_string();
        assert!(error.contains("some/fable") && error.contains(part), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(!format!("{hub:?}").contains("secret"));
    let empty = Mock::new(vec![("README.md", Vec::new()), ("pytorch_model.bin", vec![1])]);
    let error = get(&empty.hub(cache.path()), "a/b").unwrap_err().to_string();
    assert!(error.contains("no weights that can be loaded"), "{error}");
}

#[cfg(feature = "cli")]
fn program() {
    use crate::support::program::{Ran, tilewright};
    let (mock, cache) = (Mock::new(fable()), cache());
    let run = |more: &[(&str, &str)]| {
        let mut command = tilewright(&["inspect", "hf:some/fable", "--json"]);
        command.env("HF_ENDPOINT", &mock.endpoint).env("HF_HUB_CACHE", cache.path());
        command.env("HF_TOKEN", "secret").envs(more.iter().copied());
        Ran::of(&command.output().unwrap())
    };
    let first = run(&[]);
    assert!(first.err.contains("fetching model.safetensors"), "{}", first.err);
    let first = first.good();
    let again = run(&[("HF_HUB_OFFLINE", "1")]);
    assert!(again.err.contains("the copy in the cache is used"), "{}", again.err);
    assert_eq!(again.good(), first);
}
