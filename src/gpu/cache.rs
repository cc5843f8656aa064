//! Compiled pipelines on disk, where the API hands them out (Vulkan), so that a later start need
//! not compile them. A file that is damaged, or of another driver, device or build, is passed over
//! and written anew; nothing here stops a start.

use super::health::{Asked, Health, Scope};
use crate::base::{checksum, replace_file};
use crate::kernels::sources;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: [u8; 8] = *b"twpipes1";
/// Magic, key, length and checksum.
const HEAD: usize = 32;

/// What a device found on disk when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheFile {
    /// It keeps none: no folder was given, or the API hands nothing out.
    Off,
    /// There was none yet.
    New,
    /// So many bytes of pipelines.
    Read(usize),
    /// One that is of no use, and why.
    Ignored(PathBuf, &'static str),
    /// A folder in which none can be kept, and why.
    Unusable(PathBuf, String),
}

/// The pipelines of one device on their way to disk.
pub struct Cache {
    pub handle: wgpu::PipelineCache,
    place: PathBuf,
    key: u64,
    /// Checksum of what the file holds.
    kept: AtomicU64,
}

impl Cache {
    /// Reads what `folder` holds for the device.
    pub fn open(
        folder: Option<&Path>,
        device: &wgpu::Device,
        info: &wgpu::AdapterInfo,
        health: &Health,
    ) -> (Option<Cache>, CacheFile) {
        let name = wgpu::util::pipeline_cache_key(info);
        let there = device.features().contains(wgpu::Features::PIPELINE_CACHE);
        let (Some(folder), Some(name), true) = (folder, name, there) else {
            return (None, CacheFile::Off);
        };
        let version = env!("CARGO_PKG_VERSION");
        let place = folder.join(format!("{name}-{version}.bin"));
        let stamp = sources::stamp().to_le_bytes();
        let texts = [version, &info.name, &info.driver, &info.driver_info].map(str::as_bytes);
        let key = checksum(texts.into_iter().chain([&stamp[..]]));
        let (file, mut found) = match fs::read(&place) {
            Ok(file) => match contents(&file, key) {
                Ok(data) => (Some(data.to_vec()), CacheFile::Read(data.len())),
                Err(why) => (None, CacheFile::Ignored(place.clone(), why)),
            },
            Err(_) => (
                None,
                writable(&place).map_or_else(
                    |error| CacheFile::Unusable(folder.to_path_buf(), error.to_string()),
                    |()| CacheFile::New,
                ),
            ),
        };
        let mut handle = create(device, file.as_deref(), health);
        if handle.is_none() && file.is_some() {
            found = CacheFile::Ignored(place.clone(), "the driver refuses it");
            handle = create(device, None, health);
        }
        let Some(handle) = handle else { return (None, CacheFile::Off) };
        let kept = match (&found, &file) {
            (CacheFile::Read(_), Some(data)) => checksum([&data[..]]),
            _ => 0,
        };
        (Some(Cache { handle, place, key, kept: kept.into() }), found)
    }

    /// Writes what is new. Where that cannot be, the next start compiles again.
    pub fn save(&self) {
        let Some(data) = self.handle.get_data() else { return };
        let sum = checksum([&data[..]]);
        if self.kept.swap(sum, Ordering::Relaxed) == sum {
            return;
        }
        let head = [self.key, data.len() as u64, sum].map(u64::to_le_bytes).concat();
        let _ = replace_file(&self.place, &[&MAGIC[..], &head, &data].concat());
    }
}

/// Whether something can be put at `place`; makes its folder as that would.
fn writable(place: &Path) -> io::Result<()> {
    let probe = place.with_extension("probe");
    replace_file(&probe, &[])?;
    // Another process may have taken its own away.
    let _ = fs::remove_file(&probe);
    Ok(())
}

/// What a file holds, if it is whole and of `key`.
fn contents(file: &[u8], key: u64) -> Result<&[u8], &'static str> {
    let word = |at: usize| {
        file.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    if file.len() < HEAD || file[..8] != MAGIC {
        return Err("it is no file of pipelines");
    }
    let data = &file[HEAD..];
    match (word(8) == key, word(16) == data.len() as u64, word(24) == checksum([data])) {
        (false, ..) => Err("it is of another driver or build"),
        (true, true, true) => Ok(data),
        _ => Err("it is damaged"),
    }
}

fn create(
    device: &wgpu::Device,
    data: Option<&[u8]>,
    health: &Health,
) -> Option<wgpu::PipelineCache> {
    let scope = Scope::open(device);
    let asked = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
    // SAFETY: the bytes are what `get_data` gave for the same adapter, driver and build, as their
    // key and checksum say.
    let cache = unsafe { device.create_pipeline_cache(&asked) };
    let asked = Asked::Pipeline { variant: "pipeline cache".into() };
    scope.close(asked, health, &mut Vec::new()).ok().map(|()| cache)
}
