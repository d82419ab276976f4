//! Machine code that was made before, in files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::libraries::Version;
use crate::backend::cuda::Source;

/// A folder of machine code. Where it cannot be read or written, it is as if it were empty.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: Option<PathBuf>,
}

/// What machine code is made of.
pub struct Key {
    name: String,
    hash: u128,
}

/// A file begins with this, then come the number of bytes of code and their hash, then the code.
const MAGIC: &[u8; 8] = b"MWCUBIN1";

const HEADER: usize = MAGIC.len() + 8 + 16;

impl Cache {
    /// The environment variable with the folder.
    pub const VARIABLE: &str = "MESHWRIGHT_CACHE";

    /// In the folder that the environment names: `MESHWRIGHT_CACHE`, or `meshwright` in the user's folder of caches.
    pub fn from_environment() -> Cache {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let user = || {
            let caches = variable("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")));
            Some(caches?.join("meshwright"))
        };
        Cache { folder: variable(Cache::VARIABLE).map(PathBuf::from).or_else(user) }
    }

    /// In this folder.
    pub fn in_folder(folder: &Path) -> Cache {
        Cache { folder: Some(folder.to_path_buf()) }
    }

    /// The code for a key, if it is there and whole.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let mut file = fs::read(self.path(key)?).ok()?;
        let (header, code) = file.split_at_checked(HEADER)?;
        if header != Cache::header(code) {
            return None;
        }
        file.drain(..HEADER);
        Some(file)
    }

    /// Keeps code for the next time, if it can.
    pub fn put(&self, key: &Key, code: &[u8]) {
        // A cache that cannot be written costs time and nothing else, so there is nothing to report.
        let _ = self.write(key, code);
    }

    fn write(&self, key: &Key, code: &[u8]) -> Option<()> {
        let path = self.path(key)?;
        let folder = path.parent()?;
        fs::create_dir_all(folder).ok()?;
        // Several ranks may write the same code: each writes a file of its own, and gives it its name when it is whole.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(format!(".{}-{count}", std::process::id()));
        let written = fs::File::create(&unfinished).and_then(|mut file| {
            file.write_all(&Cache::header(code))?;
            file.write_all(code)
        });
        let renamed = written.and_then(|()| fs::rename(&unfinished, &path));
        if renamed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        renamed.ok()
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}-{:032x}.cubin", key.name, key.hash)))
    }

    fn header(code: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&(code.len() as u64).to_le_bytes());
        header[16..].copy_from_slice(&xxh3_128(code).to_le_bytes());
        header
    }
}

impl Key {
    /// Of everything that code depends on: the source, the text that is compiled for it, the architecture, the compiler
    /// and its options.
    pub fn new(
        source: &Source,
        text: &str,
        architecture: &str,
        compiler: Version,
        options: &[&str],
    ) -> Key {
        let mut hash = Xxh3::new();
        let compiler = compiler.to_string();
        for part in [text, architecture, &compiler].iter().chain(options) {
            // Lengths keep what moves from one part to the next from looking the same.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let name: String = source.name.chars().take(40).map(plain).collect();
        Key { name: format!("{name}-{architecture}"), hash: hash.digest128() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &'static str, text: &str) -> Key {
        let source = Source { name: name.into(), text: "".into() };
        Key::new(&source, text, "sm_90a", Version::new(13, 0, 0), &["-o"])
    }

    #[test]
    fn code_comes_back_for_its_key_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(&dir.path().join("made/when/needed"));
        cache.put(&key("a", "text"), b"code");
        assert_eq!(cache.get(&key("a", "text")).unwrap(), b"code");
        assert_eq!(cache.get(&key("a", "other")), None);
        cache.put(&key("a", "text"), b"newer");
        assert_eq!(cache.get(&key("a", "text")).unwrap(), b"newer");
        let left = fs::read_dir(dir.path().join("made/when/needed")).unwrap().count();
        assert_eq!(left, 1, "no unfinished file is left");
    }

    #[test]
    fn every_part_of_a_key_counts() {
        let source = Source { name: "map x*2/../y".into(), text: "".into() };
        let version = Version::new(13, 0, 0);
        let key =
            |text, arch, version, options: &[&str]| Key::new(&source, text, arch, version, options);
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
    fn a_damaged_file_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(dir.path());
        let key = key("a", "text");
        cache.put(&key, b"machine code");
        let path = cache.path(&key).unwrap();
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
        cache.put(&key, b"machine code");
        assert_eq!(cache.get(&key).unwrap(), b"machine code");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = Cache::in_folder(&file.join("folder"));
        cache.put(&key("a", "text"), b"code");
        assert_eq!(cache.get(&key("a", "text")), None);
        let none = Cache { folder: None };
        none.put(&key("a", "text"), b"code");
        assert_eq!(none.get(&key("a", "text")), None);
    }
}
