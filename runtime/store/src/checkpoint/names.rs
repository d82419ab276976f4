//! Names of files and folders in a folder of checkpoints.

use std::path::{Path, PathBuf};

use super::lock;

/// The link to the newest checkpoint.
pub const LATEST: &str = "latest";

/// The link to the checkpoint of the lowest validation loss.
pub const BEST: &str = "best";

/// The file that describes a checkpoint.
pub const MANIFEST: &str = "manifest.json";

/// The file with the hash of the manifest.
pub const MANIFEST_HASH: &str = "manifest.xxh3";

/// The log of a supervised run.
pub const RUN_LOG: &str = "run.log";

/// Prefix of the names of incomplete files and folders.
pub(super) const TEMPORARY: &str = ".tmp-";

/// Prefix of the name of a checkpoint while a new one of the same step takes its place.
const REPLACED: &str = ".replaced-";

/// Part of the names of files that show that a folder can be written to.
const PROBE: &str = "probe";

/// Returns the folder name of the checkpoint after `step` steps.
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Returns the step of a checkpoint's folder name; `None` for another name.
pub fn step_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("step-")?;
    digits.parse().ok().filter(|step| folder_name(*step) == name)
}

/// Returns true if `folder` has a manifest.
pub fn has_manifest(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// Returns the step of the folder at the end of a path; `None` for another name.
pub fn step_of_path(path: &Path) -> Option<u64> {
    step_of(path.file_name()?.to_str()?)
}

/// Returns the path of the checkpoint that `path` names without the leading zeros of its step, if only that exists.
pub fn with_all_digits(path: PathBuf) -> PathBuf {
    let step = || path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok();
    let whole = || Some(path.with_file_name(folder_name(step()?))).filter(|whole| whole.is_dir());
    if path.exists() { path } else { whole().unwrap_or(path) }
}

/// Returns the step of a replaced checkpoint's folder name; `None` for another name.
pub fn replaced_step_of(name: &str) -> Option<u64> {
    step_of(name.strip_prefix(REPLACED)?)
}

/// Returns the name of the file of a rank.
pub fn rank_file(rank: usize) -> String {
    format!("rank-{rank:05}.safetensors")
}

/// Returns the name of the file of a rank, of an attempt with a token.
#[cfg(any(test, feature = "remote"))]
pub fn rank_file_of(rank: usize, token: &str) -> String {
    format!("rank-{rank:05}-{token}.safetensors")
}

/// Returns true for the name of the file of a rank, with or without a token.
pub fn is_rank_file(name: &str) -> bool {
    let stem = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let digits = stem.map(|stem| stem.split_once('-').map_or(stem, |(digits, _)| digits));
    let rank = digits.and_then(|digits| digits.parse().ok());
    let token = token_of(name).filter(|token| {
        token.len() == 16 && token.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
    });
    rank.is_some_and(|rank| {
        let plain = rank_file(rank);
        match token {
            Some(token) => name == plain.replace(".safetensors", &format!("-{token}.safetensors")),
            None => name == plain,
        }
    })
}

/// Returns the token in the name of the file of a rank, which distinguishes attempts to save the same step in object
/// storage.
pub fn token_of(name: &str) -> Option<&str> {
    name.strip_prefix("rank-")?
        .strip_suffix(".safetensors")?
        .split_once('-')
        .map(|(_, token)| token)
}

/// Returns the path of the description of a rank's file, in the folder of an incomplete checkpoint.
pub fn rank_description(folder: &Path, rank: usize) -> PathBuf {
    folder.join(rank_file(rank)).with_extension("json")
}

/// Returns the path to which the checkpoint of `step` moves while a new one takes its place.
pub fn replaced_path(dir: &Path, step: u64) -> PathBuf {
    dir.join(format!("{REPLACED}{}", folder_name(step)))
}

/// Returns the path of an incomplete checkpoint.
pub fn temporary_folder(dir: &Path, step: u64) -> PathBuf {
    dir.join(format!("{TEMPORARY}{}", folder_name(step)))
}

/// Returns the path of a link that is to become `link`.
pub fn temporary_link(dir: &Path, link: &str) -> PathBuf {
    dir.join(format!("{TEMPORARY}{link}"))
}

/// Returns the path of the file with which the process of `rank` checks that it can write to `dir`.
pub fn probe_path(dir: &Path, rank: usize) -> PathBuf {
    dir.join(format!("{TEMPORARY}{PROBE}-{rank:05}"))
}

/// Returns true for a name that a run gives to an entry of a folder of checkpoints.
pub fn is_name_of_checkpoints(name: &str) -> bool {
    [LATEST, BEST, RUN_LOG, lock::CHECKPOINTS].contains(&name)
        || step_of(name).or_else(|| replaced_step_of(name)).is_some()
        || is_temporary(name)
}

/// Returns true for names of incomplete files and folders that a run has made. Other names with the same prefix are the
/// user's.
pub fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY).is_some_and(|rest| {
        // In object storage, a probe has a token.
        let is_probe = |rank: &str| {
            let (rank, token) = rank.split_once('.').unwrap_or((rank, "0"));
            rank.bytes().all(|byte| byte.is_ascii_digit())
                && token.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        [LATEST, BEST].contains(&rest)
            || step_of(rest).is_some()
            || rest
                .strip_prefix(PROBE)
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(is_probe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ranks_are_rank_files() {
        for rank in [0, 7, 12_345, 123_456] {
            assert!(is_rank_file(&rank_file(rank)));
            assert!(is_rank_file(&rank_file_of(rank, "0123456789abcdef")));
        }
        for name in [
            "",
            "rank-0.safetensors",
            "rank-000001.safetensors",
            "rank-+0001.safetensors",
            "rank-00001.json",
            "../rank-00001.safetensors",
            "rank-00001-.safetensors",
            "rank-00001-0123456789ABCDEF.safetensors",
            "rank-00001-0123456789abcdef0.safetensors",
            "rank-00001-../../../abcdefg.safetensors",
            "/etc/passwd",
            "rank-00001.safetensors\0",
        ] {
            assert!(!is_rank_file(name), "{name}");
        }
    }

    #[test]
    fn leading_zeros_may_be_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join(folder_name(12));
        std::fs::create_dir(&whole).unwrap();
        for name in ["step-12", "step-0012", "step-00000012"] {
            assert_eq!(with_all_digits(dir.path().join(name)), whole);
        }
        for name in ["step-1", "step-", "12", "step-12x"] {
            assert_eq!(with_all_digits(dir.path().join(name)), dir.path().join(name));
        }
    }

    #[test]
    fn only_names_of_runs_are_temporary() {
        let dir = Path::new("out");
        let links = [LATEST, BEST].map(|link| temporary_link(dir, link));
        for path in links.into_iter().chain([temporary_folder(dir, 4), probe_path(dir, 3)]) {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_temporary(name), "{name}");
            assert_eq!((step_of(name), replaced_step_of(name)), (None, None));
        }
        let replaced = replaced_path(dir, 4);
        let replaced = replaced.file_name().unwrap().to_str().unwrap();
        assert!(!is_temporary(replaced));
        assert_eq!(replaced_step_of(replaced), Some(4));
        for name in [
            ".tmp-",
            ".tmp-notes",
            ".tmp-step-4",
            ".tmp-step-00000004.bak",
            ".tmp-latest2",
            ".tmp-probe-x",
            ".tmp-model.safetensors",
            "step-00000004",
        ] {
            assert!(!is_temporary(name), "{name}");
        }
    }
}
