//! Descriptions of the files of ranks, inside of an incomplete checkpoint.
//!
//! By these, the rank that completes a checkpoint learns that the files of others are on disk, without communication:
//! the ranks are training meanwhile.

use std::path::Path;
use std::time::Duration;

use super::{CheckpointError, RankFile, files, names};

/// Time between two looks for a description.
const INTERVAL: Duration = Duration::from_millis(20);

/// Writes the description of a rank's file, which is on disk, to the folder of an incomplete checkpoint.
pub fn describe_rank_file(
    folder: &Path,
    rank: usize,
    file: &RankFile,
) -> Result<(), CheckpointError> {
    let description = serde_json::to_vec(file).expect("names and numbers are JSON");
    let path = names::rank_description(folder, rank);
    // Under its own name, it is complete.
    let incomplete = path.with_extension("tmp");
    files::write(&incomplete, &description)?;
    files::rename_path(&incomplete, &path)
}

/// Waits for the descriptions of the files of `ranks` ranks, and removes them. Returns `None` once `is_cancelled`
/// returns true.
pub fn wait_for_rank_files(
    folder: &Path,
    ranks: usize,
    is_cancelled: impl Fn() -> bool,
) -> Result<Option<Vec<RankFile>>, CheckpointError> {
    let mut found = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let path = names::rank_description(folder, rank);
        while !files::is_taken(&path) {
            if is_cancelled() {
                return Ok(None);
            }
            std::thread::sleep(INTERVAL);
        }
        let description = serde_json::from_slice(&files::read_text(&path, files::MAX_JSON_BYTES)?)
            .map_err(|error| CheckpointError::damaged(&path, error.to_string()))?;
        files::remove_path(&path)?;
        found.push(description);
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn file(rank: usize) -> RankFile {
        let name = format!("rank-{rank:05}.safetensors");
        RankFile { name, bytes: 8, xxh3: "00".into(), shards: Vec::new() }
    }

    /// In any order, and nothing stays behind.
    #[test]
    fn all_descriptions_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for_rank_files(dir.path(), 3, || false));
            for rank in [2, 0] {
                describe_rank_file(dir.path(), rank, &file(rank)).unwrap();
            }
            std::thread::sleep(3 * INTERVAL);
            assert!(!waiting.is_finished());
            describe_rank_file(dir.path(), 1, &file(1)).unwrap();
            let found = waiting.join().unwrap().unwrap().unwrap();
            assert_eq!(found, [0, 1, 2].map(file));
        });
        assert_eq!(files::file_names(dir.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn waiting_can_be_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        describe_rank_file(dir.path(), 0, &file(0)).unwrap();
        let is_cancelled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                wait_for_rank_files(dir.path(), 2, || is_cancelled.load(Ordering::Relaxed))
            });
            std::thread::sleep(3 * INTERVAL);
            assert!(!waiting.is_finished());
            is_cancelled.store(true, Ordering::Relaxed);
            assert_eq!(waiting.join().unwrap().unwrap(), None);
        });
    }

    #[test]
    fn a_damaged_description_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(names::rank_description(dir.path(), 0), "{").unwrap();
        let text = wait_for_rank_files(dir.path(), 1, || false).unwrap_err().to_string();
        assert!(text.contains("rank-00000.json is damaged: "), "{text}");
    }
}
