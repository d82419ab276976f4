//! The folder of `--save` of several processes, which has to be the same on all hosts.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checkpoint::CheckpointFolder;
use crate::data::is_remote;
use crate::launch::Store;
use crate::train::{Error, Result};

/// Key of the lock of rank 0, which names its process and host.
const KEY: &str = "lock of --save";

/// Name of the file of the lock.
const LOCK: &str = ".lock";

/// Time in which the file of another host is seen in a folder on a network.
const LIMIT: Duration = Duration::from_secs(3);

/// Checks that this process sees the folder that rank 0 has locked. Every process calls it.
///
/// # Errors
/// A folder of this host alone.
pub fn require_shared(store: &Store, dir: &Path) -> Result<()> {
    if is_remote(dir) {
        return Ok(());
    }
    let rank = store.assignment().rank;
    let own = || fs::read(dir.join(LOCK)).unwrap_or_default();
    if rank == 0 {
        // A connection that is lost is reported by the next call.
        let _ = store.set(KEY, &own());
        return Ok(());
    }
    // Nothing, if rank 0 has failed, which is reported by the next call, or its file system has no locks.
    let Some(lock) = store.get(KEY).ok().filter(|lock| !lock.is_empty()) else { return Ok(()) };
    let start = Instant::now();
    while own() != lock {
        if start.elapsed() > LIMIT {
            let holder = String::from_utf8_lossy(&lock);
            return Err(Error::Input(format!(
                "--save: rank {rank} does not see {} of rank 0 ({}), but another folder of this name on its own host; \
                 name a folder that all hosts share, or a path in object storage",
                dir.display(),
                holder.trim()
            )));
        }
        sleep(Duration::from_millis(100));
        // A write makes a network file system look again.
        CheckpointFolder::check_writable(dir, rank).map_err(Error::of_flag("--save"))?;
    }
    Ok(())
}
