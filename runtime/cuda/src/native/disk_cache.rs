//! The on-disk cache of compiled kernels and autotuned algorithms.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::vendor_library::Version;
use crate::KernelSource;

/// A cache folder. A folder that cannot be read or written acts as an empty cache.
#[derive(Debug, Clone)]
pub struct DiskCache {
    folder: Option<PathBuf>,
}

/// Identity of a cached file.
pub struct CacheKey {
    name: String,
    hash: u128,
    extension: &'static str,
}

/// Magic number of a cached file, followed by the size of the contents, their hash, and the contents. All kinds of
/// contents share it.
const MAGIC: &[u8; 8] = b"MWCUBIN1";

const HEADER: usize = MAGIC.len() + 8 + 16;

impl DiskCache {
    /// Environment variable with the cache folder.
    pub const VARIABLE: &str = "MESHWRIGHT_CACHE";

    /// Returns the cache in the folder `MESHWRIGHT_CACHE`, or else in `meshwright` in the user's cache folder.
    pub fn from_environment() -> DiskCache {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let user = || {
            let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")));
            Some(caches?.join("meshwright"))
        };
        DiskCache { folder: variable(DiskCache::VARIABLE).map(PathBuf::from).or_else(user) }
    }

    /// Returns the cache in this folder.
    pub fn in_folder(folder: &Path) -> DiskCache {
        DiskCache { folder: Some(folder.to_path_buf()) }
    }

    /// Returns the contents for a key if they are present and intact.
    pub fn get(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let mut file = fs::read(self.code_path(key)?).ok()?;
        let (header, contents) = file.split_at_checked(HEADER)?;
        if header != DiskCache::header(contents) {
            return None;
        }
        file.drain(..HEADER);
        Some(file)
    }

    /// Stores contents if possible.
    pub fn put_code(&self, key: &CacheKey, code: &[u8]) {
        // A cache that cannot be written costs only time, so errors are ignored.
        let _ = self.write_code(key, code, |from, to| fs::rename(from, to));
    }

    /// Stores contents unless the key is already present, and returns the contents present then: all concurrent
    /// writers, threads or processes, get the same.
    pub fn put_first(&self, key: &CacheKey, contents: &[u8]) -> Vec<u8> {
        let _ = self.write_code(key, contents, |from, to| {
            let linked = fs::hard_link(from, to);
            if linked.is_err() && self.get(key).is_none() {
                // The present file is damaged, or the file system has no hard links.
                return fs::rename(from, to);
            }
            fs::remove_file(from)
        });
        self.get(key).unwrap_or_else(|| contents.to_vec())
    }

    /// Writes a temporary file, which `publish` then gives its name.
    fn write_code(
        &self,
        key: &CacheKey,
        code: &[u8],
        publish: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Option<()> {
        let path = self.code_path(key)?;
        let folder = path.parent()?;
        fs::create_dir_all(folder).ok()?;
        // Concurrent writers use a temporary file each and rename it when it is complete.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Processes on different hosts that share the folder may have the same id.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let unfinished = folder.join(format!(".{}-{time}-{count}", std::process::id()));
        let written = fs::File::create(&unfinished).and_then(|mut file| {
            file.write_all(&DiskCache::header(code))?;
            file.write_all(code)
        });
        let published = written.and_then(|()| publish(&unfinished, &path));
        if published.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        published.ok()
    }

    fn code_path(&self, key: &CacheKey) -> Option<PathBuf> {
        let CacheKey { name, hash, extension } = key;
        Some(self.folder.as_ref()?.join(format!("{name}-{hash:032x}.{extension}")))
    }

    fn header(code: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&(code.len() as u64).to_le_bytes());
        header[16..].copy_from_slice(&xxh3_128(code).to_le_bytes());
        header
    }
}

impl CacheKey {
    /// Creates the key of compiled code from everything it depends on: the source, the text compiled for it, the
    /// architecture, the compiler and its options.
    pub fn of_code(
        source: &KernelSource,
        text: &str,
        architecture: &str,
        compiler: Version,
        options: &[&str],
    ) -> CacheKey {
        let compiler = compiler.to_string();
        let parts: Vec<_> =
            [text, architecture, &compiler].iter().chain(options).copied().collect();
        CacheKey::of_parts(
            &format!("{}-{architecture}", CacheKey::file_name_part(&source.name)),
            "cubin",
            &parts,
        )
    }

    /// Creates the key of a file with this name and extension from everything its contents depend on.
    pub fn of_parts(name: &str, extension: &'static str, parts: &[&str]) -> CacheKey {
        let mut hash = Xxh3::new();
        for part in parts {
            // Hashing lengths distinguishes the boundaries between parts.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        CacheKey { name: name.to_owned(), hash: hash.digest128(), extension }
    }

    /// Returns a name reduced to characters that are valid in file names.
    fn file_name_part(name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        name.chars().take(40).map(plain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &'static str, text: &str) -> CacheKey {
        let source = KernelSource { name: name.into(), text: "".into() };
        CacheKey::of_code(&source, text, "sm_90a", Version::new(13, 0, 0), &["-o"])
    }

    #[test]
    fn contents_are_found_by_their_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::in_folder(&dir.path().join("made/when/needed"));
        cache.put_code(&key("a", "text"), b"code");
        assert_eq!(cache.get(&key("a", "text")).unwrap(), b"code");
        assert_eq!(cache.get(&key("a", "other")), None);
        cache.put_code(&key("a", "text"), b"newer");
        assert_eq!(cache.get(&key("a", "text")).unwrap(), b"newer");
        let left = fs::read_dir(dir.path().join("made/when/needed")).unwrap().count();
        assert_eq!(left, 1, "no unfinished file is left");
    }

    #[test]
    fn every_part_of_a_key_matters() {
        let source = KernelSource { name: "map x*2/../y".into(), text: "".into() };
        let version = Version::new(13, 0, 0);
        let key = |text, arch, version, options: &[&str]| {
            CacheKey::of_code(&source, text, arch, version, options)
        };
        let all = [
            key("t", "sm_80", version, &["-a"]),
            key("u", "sm_80", version, &["-a"]),
            key("t", "sm_90a", version, &["-a"]),
            key("t", "sm_80", Version::new(13, 1, 0), &["-a"]),
            key("t", "sm_80", version, &["-a", "-b"]),
            key("t", "sm_80", version, &["-a-b"]),
        ];
        let hashes: std::collections::HashSet<_> = all.iter().map(|key| key.hash).collect();
        assert_eq!(hashes.len(), all.len());
        assert_eq!(all[0].name, "map-x-2----y-sm_80");
    }

    #[test]
    fn damaged_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::in_folder(dir.path());
        let key = key("a", "text");
        cache.put_code(&key, b"machine code");
        let path = cache.code_path(&key).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in [0, 5, HEADER - 1, HEADER, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(cache.get(&key), None, "cut to {cut} bytes");
        }
        for byte in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&key), None, "byte {byte} changed");
        }
        cache.put_code(&key, b"machine code");
        assert_eq!(cache.get(&key).unwrap(), b"machine code");
    }

    /// Concurrent writers all get the first contents; damaged contents are replaced.
    #[test]
    fn all_writers_get_the_first_contents() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::in_folder(&dir.path().join("made/when/needed"));
        let key = || CacheKey::of_parts("choice", "algorithm", &["a", "b"]);
        let got: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|number| {
                    scope.spawn({
                        let cache = &cache;
                        move || cache.put_first(&key(), &[number; 64])
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(got.iter().all(|one| *one == got[0]), "{got:?}");
        assert_eq!(cache.get(&key()).unwrap(), got[0]);
        let path = cache.code_path(&key()).unwrap();
        assert_eq!(path.extension().unwrap(), "algorithm");
        fs::write(&path, "damaged").unwrap();
        assert_eq!(cache.put_first(&key(), b"newer"), b"newer");
        assert_eq!(cache.put_first(&key(), b"newest"), b"newer");
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no unfinished file is left");
        let none = DiskCache { folder: None };
        assert_eq!(none.put_first(&key(), b"own"), b"own");
    }

    #[test]
    fn unwritable_folder_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = DiskCache::in_folder(&file.join("folder"));
        cache.put_code(&key("a", "text"), b"code");
        assert_eq!(cache.get(&key("a", "text")), None);
        let none = DiskCache { folder: None };
        none.put_code(&key("a", "text"), b"code");
        assert_eq!(none.get(&key("a", "text")), None);
    }
}
