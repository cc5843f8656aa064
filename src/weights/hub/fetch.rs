//! The hub over HTTP: the list of a repository's files, and one file after the other, gone on with
//! where an earlier try ended.

use super::cache::{Cache, io_error, make_parent};
use super::choose::Listed;
use super::digest::{Hash, is_hash};
use super::name::is_file;
use super::{Hub, HubError, Progress};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Tries per file; a try that brought something counts anew.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(250);
/// The list of a repository's files in bytes, at most.
const LISTING_MAX: u64 = 64 << 20;

/// Why the hub was of no help.
pub(super) enum Failure {
    /// It answered, and asking again would not change that.
    Final(HubError),
    /// It did not answer, or not now.
    Passing(String),
}

pub(super) struct Fetch {
    agent: Agent,
    endpoint: String,
    repo: String,
    token: Option<String>,
}

impl Fetch {
    pub fn new(hub: &Hub, repo: &str) -> Result<Self, HubError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            // Files often lie on another machine, which the token is not for.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("tilewright/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &hub.certificates {
            let items = parse_pem(pem).filter_map(Result::ok);
            let certificates: Vec<_> = items
                .filter_map(|item| match item {
                    PemItem::Certificate(certificate) => Some(certificate),
                    _ => None,
                })
                .collect();
            let roots = RootCerts::new_with_certs(&certificates);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        Ok(Self {
            agent: config.build().new_agent(),
            endpoint: hub.endpoint.trim_end_matches('/').to_string(),
            repo: repo.to_string(),
            token: hub.token.clone(),
        })
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.call()
    }

    /// The commit that `revision` is, and the files it holds.
    pub fn listing(&self, revision: &str) -> Result<(String, Vec<Listed>), Failure> {
        let url =
            format!("{}/api/models/{}/revision/{revision}?blobs=true", self.endpoint, self.repo);
        let mut response = self.get(&url, 0).map_err(|e| Failure::Passing(e.to_string()))?;
        self.check(response.status(), "the list of its files")?;
        let body = response.body_mut().with_config().limit(LISTING_MAX).read_to_vec();
        let body = body.map_err(|e| Failure::Passing(e.to_string()))?;
        let wrong = |problem: String| {
            let repo = self.repo.clone();
            Failure::Final(HubError::Listing { repo, problem })
        };
        let body: Value = serde_json::from_slice(&body)
            .map_err(|e| wrong(format!("the list of files is no JSON: {e}")))?;
        let commit = body["sha"]
            .as_str()
            .filter(|sha| is_hash(sha))
            .ok_or_else(|| wrong("the list of files names no commit (`sha`)".to_string()))?;
        let files = body["siblings"].as_array().into_iter().flatten().map(|file| {
            listed(file).map_err(|what| wrong(format!("the list of files: {what} in {file}")))
        });
        Ok((commit.to_string(), files.collect::<Result<_, _>>()?))
    }

    fn check(&self, status: StatusCode, what: &str) -> Result<(), Failure> {
        let repo = self.repo.clone();
        match status.as_u16() {
            200 | 206 => Ok(()),
            401 | 404 => Err(Failure::Final(HubError::NoRepo { repo })),
            status @ 403 => {
                let page = format!("{}/{repo}", self.endpoint);
                Err(Failure::Final(HubError::Refused { repo, status, page }))
            }
            status @ (408 | 429 | 500..) => Err(Failure::Passing(format!("status {status}"))),
            status => {
                let what = what.to_string();
                Err(Failure::Final(HubError::Status { repo, status, what }))
            }
        }
    }

    /// Brings one file into the cache.
    pub fn file(
        &self,
        cache: &Cache,
        commit: &str,
        file: &Listed,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), HubError> {
        let blob = cache.blob(&file.hash);
        make_parent(&blob)?;
        // Another process may be at the same file.
        let lock_path = cache.blob(&format!("{}.lock", file.hash));
        let lock = File::create(&lock_path);
        let lock = lock.map_err(|error| io_error(&lock_path, "cannot be made", error))?;
        lock.lock().map_err(|error| io_error(&lock_path, "cannot be locked", error))?;
        let whole = fs::metadata(&blob).is_ok_and(|found| found.len() == file.bytes);
        if !whole {
            let part = cache.blob(&format!("{}.incomplete", file.hash));
            self.complete(commit, file, &part, progress)?;
            fs::rename(&part, &blob).map_err(|error| io_error(&blob, "cannot be named", error))?;
        }
        cache.link(commit, file)?;
        // The lock is held by its handle; the name may go.
        let _ = fs::remove_file(&lock_path);
        Ok(())
    }

    /// Fills `part` up to the whole file, and checks it.
    fn complete(
        &self,
        commit: &str,
        file: &Listed,
        part: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), HubError> {
        let url =
            format!("{}/{}/resolve/{commit}/{}", self.endpoint, self.repo, escaped(&file.path));
        let out = OpenOptions::new().create(true).append(true).open(part);
        let mut out = out.map_err(|error| io_error(part, "cannot be opened", error))?;
        let mut hash = Hash::new(&file.hash, file.bytes);
        let mut done = rehash(part, &mut hash).map_err(|e| io_error(part, "cannot be read", e))?;
        if done > file.bytes {
            out.set_len(0).map_err(|e| io_error(part, "cannot be emptied", e))?;
            (done, hash) = (0, Hash::new(&file.hash, file.bytes));
        }
        let (mut tries, mut reason) = (0, String::new());
        while done < file.bytes {
            if tries == TRIES {
                let problem = format!(
                    "{done} of {} bytes came and then {reason}; the next try goes on from there",
                    file.bytes
                );
                return Err(HubError::Interrupted { file: file.path.clone(), problem });
            }
            std::thread::sleep(PAUSE * tries * tries);
            tries += 1;
            let before = done;
            let mut taken =
                Taken { file, out: &mut out, hash: &mut hash, done: &mut done, progress };
            match self.more(&url, &mut taken) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing(why)) => reason = why,
            }
            if done > before {
                tries = 0;
            }
        }
        out.sync_all().map_err(|error| io_error(part, "cannot be written", error))?;
        let found = hash.hex();
        if found != file.hash || done != file.bytes {
            let _ = fs::remove_file(part);
            let problem = format!("its hash is {found}, the hub says {}", file.hash);
            return Err(HubError::Damaged { file: file.path.clone(), problem });
        }
        Ok(())
    }

    /// One request for what is missing.
    fn more(&self, url: &str, taken: &mut Taken<'_>) -> Result<(), Failure> {
        let passing = |error: &dyn std::fmt::Display| Failure::Passing(error.to_string());
        let response = self.get(url, *taken.done).map_err(|e| passing(&e))?;
        let status = response.status();
        self.check(status, &taken.file.path)?;
        // A server that sends all of it again has not understood the range.
        let mut skip = if status == StatusCode::PARTIAL_CONTENT { 0 } else { *taken.done };
        if status == StatusCode::PARTIAL_CONTENT {
            let range = response.headers().get("content-range").and_then(|v| v.to_str().ok());
            if !range.unwrap_or_default().starts_with(&format!("bytes {}-", taken.done)) {
                return Err(passing(&format!("a part came that was not asked for ({range:?})")));
            }
        }
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 1 << 17];
        loop {
            let n = body.read(&mut buffer).map_err(|e| passing(&e))?;
            if n == 0 {
                return Err(passing(&"the connection ended"));
            }
            let passed = skip.min(n as u64);
            skip -= passed;
            if taken.take(&buffer[passed as usize..n])? {
                return Ok(());
            }
        }
    }
}

/// A file that is coming.
struct Taken<'a> {
    file: &'a Listed,
    out: &'a mut File,
    hash: &'a mut Hash,
    done: &'a mut u64,
    progress: &'a mut dyn FnMut(Progress<'_>),
}

impl Taken<'_> {
    /// Keeps more of it; true if that is all. What comes beyond the end is not kept.
    fn take(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let left = self.file.bytes - *self.done;
        let bytes = &bytes[..(bytes.len() as u64).min(left) as usize];
        self.out.write_all(bytes).map_err(|source| {
            let path = self.file.path.clone();
            Failure::Final(HubError::Io { path, doing: "cannot be written", source })
        })?;
        self.hash.update(bytes);
        *self.done += bytes.len() as u64;
        let (file, total) = (self.file.path.as_str(), self.file.bytes);
        (self.progress)(Progress { file, done: *self.done, total });
        Ok(*self.done == total)
    }
}

/// Hashes what is there of a file already; its length.
fn rehash(path: &Path, hash: &mut Hash) -> io::Result<u64> {
    let (mut file, mut buffer, mut all) = (File::open(path)?, vec![0; 1 << 20], 0);
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(all);
        }
        hash.update(&buffer[..n]);
        all += n as u64;
    }
}

fn listed(file: &Value) -> Result<Listed, &'static str> {
    let path = file["rfilename"].as_str().filter(|path| is_file(path)).ok_or("a name is wrong")?;
    let bytes =
        file["lfs"]["size"].as_u64().or(file["size"].as_u64()).ok_or("a size is missing")?;
    let hash = file["lfs"]["sha256"].as_str().or(file["blobId"].as_str());
    let hash = hash.filter(|hash| is_hash(hash)).ok_or("a hash is missing")?;
    Ok(Listed { path: path.to_string(), bytes, hash: hash.to_string() })
}

/// A path as a URL has it.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
