//! The checkpoint that a path on a disk names: itself, a link, or the newest one of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::{files, names};

/// Most links that are followed, as many as the system follows.
const MAX_LINKS: usize = 40;

/// The checkpoints that a path names.
pub enum Located {
    /// One checkpoint.
    One(PathBuf),
    /// The newest checkpoint of a folder, or its next older one.
    Newest {
        /// The folder.
        dir: PathBuf,
        /// The step of the newest checkpoint, if there is a link `latest` to it.
        latest: Option<u64>,
    },
}

/// Finds the checkpoints that `path` names: `DIR/step-N`, with or without its leading zeros, or a copy of it,
/// `DIR/latest`, `DIR`, or a link to one of them.
pub fn locate(path: &Path) -> Located {
    let followed = Followed::new(path);
    if let Some(located) = followed.newest() {
        return located;
    }
    let Followed { target, latest_dir } = followed;
    let target = names::with_all_digits(target);
    // A copy of one checkpoint may have any name, `latest` too.
    if names::step_of_path(&target).is_some() || names::has_manifest(&target) {
        return Located::One(target);
    }
    let dir = match latest_dir {
        Some(dir) if !target.is_dir() => dir,
        _ if is_latest(&target) => parent_of(&target),
        _ => target,
    };
    let newest = Followed::new(&dir.join(names::LATEST)).newest();
    newest.unwrap_or(Located::Newest { dir, latest: None })
}

/// A path whose links have been followed, up to a name of a checkpoint.
struct Followed {
    target: PathBuf,
    /// The folder of the first link `latest` on the way.
    latest_dir: Option<PathBuf>,
}

impl Followed {
    fn new(path: &Path) -> Followed {
        // Without the slash at its end, which would make the system follow a link.
        let mut target: PathBuf = path.components().collect();
        let mut latest_dir = None;
        for _ in 0..MAX_LINKS {
            if names::step_of_path(&target).is_some() {
                break;
            }
            let Ok(link) = fs::read_link(&target) else { break };
            let dir = parent_of(&target);
            let next = dir.join(link).components().collect();
            if is_latest(&target) {
                latest_dir.get_or_insert(dir);
            }
            target = next;
        }
        Followed { target, latest_dir }
    }

    /// Returns the checkpoint to which `latest` leads, and its folder for older ones.
    fn newest(&self) -> Option<Located> {
        let latest = names::step_of_path(&self.target)?;
        let dir = self.latest_dir.as_ref()?;
        let is_there = files::is_taken(&self.target);
        let dir = if is_there { parent_of(&self.target) } else { dir.clone() };
        Some(Located::Newest { dir, latest: Some(latest) })
    }
}

fn is_latest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == names::LATEST)
}

/// Returns the folder that holds `path`. That of a bare name is the working directory.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}
