use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::object_bytes::ObjectBytes;
use super::range_cache::RangeCache;
use super::range_reader::{Patience, RangeReader};
use super::segment::{BLOCK_BYTES, BLOCKS};
use crate::data::byte_source::ByteSource;
use crate::data::interruption::interrupt_by;

/// The result of a read that fails.
type Fault = fn(Vec<Vec<u8>>) -> io::Result<Vec<Vec<u8>>>;

/// An object in memory, which counts reads.
#[derive(Debug, Clone, Default)]
struct Object {
    content: Arc<Vec<u8>>,
    reads: Arc<Mutex<Vec<Range<u64>>>>,
    faults: Arc<Mutex<VecDeque<Fault>>>,
}

impl Object {
    fn new(len: usize) -> Object {
        let content = (0..len).map(|at| (at * at / 7 + at / 311) as u8).collect();
        Object { content: Arc::new(content), ..Object::default() }
    }

    fn opened(&self, folder: &Path) -> ObjectBytes<Object> {
        self.opened_with(folder, 1 << 40)
    }

    fn opened_with(&self, folder: &Path, limit: u64) -> ObjectBytes<Object> {
        let cache = Arc::new(RangeCache::open(folder, limit).unwrap());
        let patience =
            Patience { first_wait: Duration::from_millis(1), limit: Duration::from_millis(300) };
        ObjectBytes::new(Path::new("s3://bucket/a.bin"), self.clone(), cache)
            .with_patience(patience)
    }

    fn fail(&self, faults: &[Fault]) {
        self.faults.lock().unwrap().extend(faults);
    }

    fn bytes_read(&self) -> u64 {
        self.reads.lock().unwrap().iter().map(|range| range.end - range.start).sum()
    }

    #[track_caller]
    fn assert_parts(&self, bytes: &ObjectBytes<Object>) {
        let len = self.content.len();
        for range in [0..len, 0..1, len - 1..len, len / 2..len / 2, 65_000..66_000.min(len)] {
            assert!(
                *bytes.part(range.clone()).unwrap() == self.content[range.clone()],
                "{range:?}"
            );
        }
    }
}

impl RangeReader for Object {
    fn length(&self) -> u64 {
        self.content.len() as u64
    }

    fn version(&self) -> &str {
        "\"v1\""
    }

    fn read(
        &self,
        ranges: &[Range<u64>],
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        let read =
            |range: &Range<u64>| self.content[range.start as usize..range.end as usize].to_vec();
        let found: Vec<Vec<u8>> = ranges.iter().map(read).collect();
        self.reads.lock().unwrap().extend(ranges.iter().cloned());
        let fault = self.faults.lock().unwrap().pop_front();
        let found = fault.map_or(Ok(found.clone()), |fault| fault(found));
        if is_cancelled() { Err(ErrorKind::Interrupted.into()) } else { found }
    }
}

const LOST: Fault = |_| Err(ErrorKind::ConnectionAborted.into());
const SHORT: Fault = |mut found| {
    found[0].pop();
    Ok(found)
};
const REPLACED: Fault = |_| Err(ErrorKind::StaleNetworkFileHandle.into());
const DENIED: Fault = |_| Err(ErrorKind::PermissionDenied.into());

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn each_byte_is_read_once() {
    for len in [70_000, 3 * BLOCK_BYTES, BLOCKS as usize * BLOCK_BYTES + 12_345] {
        let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(len));
        object.assert_parts(&object.opened(dir.path()));
        assert_eq!(object.bytes_read(), len as u64);
        // Neighbors are one range.
        assert!(object.reads.lock().unwrap().len() <= 2);
        // Another process.
        object.assert_parts(&object.opened(dir.path()));
        assert_eq!(object.bytes_read(), len as u64);
    }
}

#[test]
fn ranges_are_fetched_together() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(40 * BLOCK_BYTES));
    let bytes = object.opened(dir.path());
    let at = |block: usize| block * BLOCK_BYTES..block * BLOCK_BYTES + 10;
    bytes.prepare(&[at(7), at(3), at(4), at(20), at(3), 0..0]);
    let ranges = object.reads.lock().unwrap().clone();
    let block = BLOCK_BYTES as u64;
    assert_eq!(ranges, [3 * block..5 * block, 7 * block..8 * block, 20 * block..21 * block]);
    for block in [7, 3, 4, 20] {
        assert!(*bytes.part(at(block)).unwrap() == object.content[at(block)]);
    }
    assert_eq!(object.reads.lock().unwrap().len(), 3);
}

/// Threads with caches of their own are as processes.
#[test]
fn processes_share_what_one_has_read() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(150 * BLOCK_BYTES + 9));
    std::thread::scope(|scope| {
        for reader in 0..6 {
            let (bytes, object) = (object.opened(dir.path()), &object);
            scope.spawn(move || {
                for start in (0..object.content.len()).step_by(100_000) {
                    let range = start..object.content.len().min(start + 100_000 + reader);
                    if reader % 2 == 0 {
                        bytes.prepare(std::slice::from_ref(&range));
                    }
                    assert!(*bytes.part(range.clone()).unwrap() == object.content[range]);
                }
            });
        }
    });
    assert_eq!(object.bytes_read(), object.content.len() as u64);
}

#[test]
fn damage_is_noticed_and_repaired() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(5 * BLOCK_BYTES + 77));
    object.assert_parts(&object.opened(dir.path()));
    let file = files(dir.path()).remove(0);
    let intact = fs::read(&file).unwrap();
    for at in [0, 8, 39, 4096, 4096 + BLOCK_BYTES, intact.len() - 1] {
        let mut damaged = intact.clone();
        damaged[at] ^= 1;
        fs::write(&file, damaged).unwrap();
        let before = object.bytes_read();
        object.assert_parts(&object.opened(dir.path()));
        let read = object.bytes_read() - before;
        assert!(read == BLOCK_BYTES as u64 || read == 77, "{at}: {read}");
        assert!(fs::read(&file).unwrap() == intact);
    }
    for len in [0, 7, 4096, intact.len() / 2, intact.len() - 1] {
        fs::write(&file, &intact[..len]).unwrap();
        object.assert_parts(&object.opened(dir.path()));
        assert!(fs::read(&file).unwrap() == intact, "{len}");
    }
    // A file of another object in its place.
    let other =
        Object { content: Arc::new(vec![7; object.content.len() + 1]), ..Object::default() };
    other.assert_parts(&other.opened(dir.path()));
    let of_other = files(dir.path()).into_iter().find(|path| *path != file).unwrap();
    fs::copy(of_other, &file).unwrap();
    object.assert_parts(&object.opened(dir.path()));
}

#[test]
fn faults_that_pass_are_waited_for() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(200_000));
    object.fail(&[LOST, SHORT, LOST]);
    object.assert_parts(&object.opened(dir.path()));
    // What cannot be fetched ahead is fetched when it is read.
    let (dir, all) = (tempfile::tempdir().unwrap(), 0..200_000);
    let opened = object.opened(dir.path());
    object.fail(&[DENIED]);
    opened.prepare(std::slice::from_ref(&all));
    object.assert_parts(&opened);
}

#[test]
fn faults_that_stay_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let object = Object::new(200_000);
    let error = |faults: &[Fault]| {
        object.fail(faults);
        let error = object.opened(dir.path()).part(0..9).unwrap_err();
        object.faults.lock().unwrap().clear();
        (error.to_string(), meshwright_os::exit_code::code_of_error(&error))
    };
    let start = Instant::now();
    let (text, code) = error(&[LOST; 1000]);
    assert!(
        text.starts_with("--data: cannot read s3://bucket/a.bin: connection aborted"),
        "{text}"
    );
    assert!(text.ends_with(" (tried for 0 s)"), "{text}");
    assert_eq!(code, meshwright_os::exit_code::LOST);
    assert!(start.elapsed() > Duration::from_millis(100), "it is not tried again");
    let (text, code) = error(&[REPLACED]);
    assert!(text.contains("s3://bucket/a.bin was replaced since the run began"), "{text}");
    assert_eq!(code, meshwright_os::exit_code::REFUSED);
    let (text, code) = error(&[DENIED]);
    assert!(text.ends_with("s3://bucket/a.bin: permission denied"), "{text}");
    assert_eq!(code, meshwright_os::exit_code::REFUSED);
    object.assert_parts(&object.opened(dir.path()));
}

#[test]
fn an_interrupted_thread_does_not_wait() {
    let (dir, object) = (tempfile::tempdir().unwrap(), Object::new(200_000));
    let patience =
        Patience { first_wait: Duration::from_secs(60), limit: Duration::from_secs(3600) };
    let bytes = object.opened(dir.path()).with_patience(patience);
    let (flag, is_waiting) = (Arc::new(AtomicBool::new(false)), object.faults.clone());
    object.fail(&[LOST]);
    let own = Arc::clone(&flag);
    let reader = std::thread::spawn(move || {
        interrupt_by(own);
        bytes.part(0..9).unwrap_err().to_string()
    });
    while !is_waiting.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    flag.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap().contains("cannot read s3://bucket/a.bin"));
}

#[test]
fn the_cache_stays_below_its_size() {
    let (dir, limit) = (tempfile::tempdir().unwrap(), 12 << 20);
    let object = Object::new(40 << 20);
    let bytes = object.opened_with(dir.path(), limit);
    let note = dir.path().join("note.txt");
    fs::write(&note, "of the user").unwrap();
    let used = || -> u64 {
        files(dir.path()).iter().map(|path| 512 * fs::metadata(path).unwrap().blocks()).sum()
    };
    for start in (0..object.content.len()).step_by(1 << 20) {
        let range = start..start + (1 << 20);
        assert!(*bytes.part(range.clone()).unwrap() == object.content[range]);
        assert!(used() <= limit + (2 << 20), "{} at {start}", used());
    }
    assert!(used() > limit / 2);
    // The last bytes are there, and the first ones are not.
    let before = object.bytes_read();
    let again = object.opened_with(dir.path(), limit);
    again.part(39 << 20..40 << 20).unwrap();
    assert_eq!(object.bytes_read(), before);
    again.part(0..9).unwrap();
    assert!(object.bytes_read() > before);
    assert_eq!(fs::read_to_string(note).unwrap(), "of the user");
}

#[test]
fn a_cache_that_cannot_be_written_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cache");
    let object = Object::new(300_000);
    let bytes = object.opened(&folder);
    fs::remove_dir_all(&folder).unwrap();
    object.assert_parts(&bytes);
    assert_eq!(object.bytes_read(), 300_000, "the folder is created again");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "a file").unwrap();
    object.assert_parts(&object.clone().opened_beside(&bytes));
    RangeCache::open(&folder, 1 << 40).unwrap_err();
}

impl Object {
    /// Opens the object with the cache of another one.
    fn opened_beside(self, other: &ObjectBytes<Object>) -> ObjectBytes<Object> {
        ObjectBytes::new(Path::new("s3://bucket/b.bin"), self, Arc::clone(other.cache()))
    }
}
