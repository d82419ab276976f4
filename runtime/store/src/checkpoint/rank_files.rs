//! Descriptions of the files of ranks, inside of an incomplete checkpoint.
//!
//! By these, the rank that completes a checkpoint learns that the files of others are on disk, without communication:
//! the ranks are training meanwhile.

use std::path::Path;
use std::time::Duration;

use super::{CheckpointError, files, names};

/// Time between two looks for a description.
const INTERVAL: Duration = Duration::from_millis(20);

/// Writes the description of a rank's file, which is on disk, to the folder of an incomplete checkpoint.
pub fn describe_rank_file(
    folder: &Path,
    rank: usize,
    description: &[u8],
) -> Result<(), CheckpointError> {
    let path = names::rank_description(folder, rank);
    // Under its own name, it is complete.
    let incomplete = path.with_extension("tmp");
    files::write(&incomplete, description)?;
    files::rename_path(&incomplete, &path)
}

/// Waits for the description of the file of a rank, and removes it. Returns `None` once `is_cancelled` returns true.
pub fn wait_for_rank_file(
    folder: &Path,
    rank: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Vec<u8>>, CheckpointError> {
    let path = names::rank_description(folder, rank);
    while !files::is_taken(&path) {
        if is_cancelled() {
            return Ok(None);
        }
        std::thread::sleep(INTERVAL);
    }
    let description = files::read_text(&path, files::MAX_JSON_BYTES)?;
    files::remove_path(&path)?;
    Ok(Some(description))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::checkpoint::{CheckpointWriter, RankFile};

    fn writer(dir: &Path) -> CheckpointWriter {
        CheckpointWriter::begin_checkpoint(dir, 1).unwrap()
    }

    fn describe(dir: &Path, rank: usize) {
        let description = serde_json::to_vec(&file(rank)).unwrap();
        describe_rank_file(&names::temporary_folder(dir, 1), rank, &description).unwrap();
    }

    fn file(rank: usize) -> RankFile {
        let name = format!("rank-{rank:05}.safetensors");
        RankFile { name, bytes: 8, xxh3: "00".into(), parts: None, shards: Vec::new() }
    }

    /// In any order, and nothing stays behind.
    #[test]
    fn all_descriptions_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| writer.wait_for_ranks(3, || false));
            for rank in [2, 0] {
                describe(dir.path(), rank);
            }
            std::thread::sleep(3 * INTERVAL);
            assert!(!waiting.is_finished());
            describe(dir.path(), 1);
            let found = waiting.join().unwrap().unwrap().unwrap();
            assert_eq!(found, [0, 1, 2].map(file));
        });
        let temporary = names::temporary_folder(dir.path(), 1);
        assert_eq!(files::file_names(&temporary).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn waiting_can_be_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        describe(dir.path(), 0);
        let is_cancelled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| writer.wait_for_ranks(2, || is_cancelled.load(Ordering::Relaxed)));
            std::thread::sleep(3 * INTERVAL);
            assert!(!waiting.is_finished());
            is_cancelled.store(true, Ordering::Relaxed);
            assert_eq!(waiting.join().unwrap().unwrap(), None);
        });
    }

    #[test]
    fn a_damaged_description_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        let temporary = names::temporary_folder(dir.path(), 1);
        std::fs::write(names::rank_description(&temporary, 0), "{").unwrap();
        let text = writer.wait_for_ranks(1, || false).unwrap_err().to_string();
        assert!(text.contains("rank-00000.json is damaged: "), "{text}");
    }
}
