//! The lock of a folder in object storage: a lease, which the run that holds it renews.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use meshwright_remote::{Condition, ObjectFolder, ObjectVersion};

use super::links::{LeaseHolder, LinkRecord};
use crate::checkpoint::history::unique_name;
use crate::checkpoint::storage::HeldFolder;
use crate::checkpoint::{CheckpointError, names};

/// Time after which a lease that was not renewed has ended.
const LIFETIME: Duration = Duration::from_secs(60);

/// Time between two renewals.
const RENEWAL: Duration = Duration::from_secs(15);

/// Time between two looks at the lease of another run.
const INTERVAL: Duration = Duration::from_secs(2);

/// The leases of this process, by the path of their folders.
static HELD: Mutex<Option<HashMap<PathBuf, Arc<Lease>>>> = Mutex::new(None);

/// The lease of a folder.
#[derive(Debug)]
pub struct Lease {
    dir: PathBuf,
    folder: ObjectFolder,
    state: Mutex<LeaseState>,
    ended: Condvar,
}

#[derive(Debug)]
struct LeaseState {
    record: LinkRecord,
    version: ObjectVersion,
    /// The run that has taken the folder, as this one was paused for too long.
    successor: Option<String>,
    has_ended: bool,
    /// False if the last renewal has failed.
    is_reachable: bool,
}

/// A lease that ends when this value is dropped.
#[derive(Debug)]
pub struct HeldLease {
    lease: Arc<Lease>,
    renewal: Option<JoinHandle<()>>,
}

impl HeldFolder for HeldLease {}

impl HeldLease {
    /// Acquires the lease of `dir`. If another run holds it and does not answer, waits until it expires.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another run holds it, and a request that fails.
    pub fn acquire(dir: &Path, folder: ObjectFolder) -> Result<HeldLease, CheckpointError> {
        let holder = LeaseHolder::of_process(unique_name());
        let io = || CheckpointError::io_error("lock", dir);
        // The version of another lease, and the time since which it is known.
        let mut seen: Option<(ObjectVersion, Instant)> = None;
        let (record, version) = loop {
            let (found, version) = LinkRecord::read(&folder, names::LATEST).map_err(io())?;
            if found.is_none() && version.is_some() {
                let reason = format!(
                    "{} is not the record of a run; remove it, or name another folder",
                    dir.join(names::LATEST).display()
                );
                return Err(CheckpointError::Unsuitable { path: dir.to_owned(), reason });
            }
            let found = found.unwrap_or_default();
            if let (Some(other), Some(version)) = (&found.holder, &version) {
                let in_use =
                    || CheckpointError::InUse { path: dir.to_owned(), holder: other.describe() };
                match (other.is_running(), &seen) {
                    (Some(true), _) => return Err(in_use()),
                    (Some(false), _) => {}
                    (None, Some((earlier, _))) if earlier != version => return Err(in_use()),
                    (None, Some((_, since))) if since.elapsed() >= LIFETIME => {}
                    (None, since) => {
                        if since.is_none() {
                            eprintln!(
                                "--save: {} is held by {}; it is taken over if this run is not heard of for {} s",
                                dir.display(),
                                other.describe(),
                                LIFETIME.as_secs()
                            );
                            seen = Some((version.clone(), Instant::now()));
                        }
                        sleep(INTERVAL);
                        continue;
                    }
                }
            }
            let record = LinkRecord { step: found.step, holder: Some(holder.clone()) };
            let condition = version.as_ref().map_or(Condition::IsNew, Condition::Is);
            let taken = folder.put(names::LATEST, &record.to_text(), condition).map_err(io())?;
            // Another run may have been faster, which is looked at then.
            if let Some(version) = taken {
                break (record, version);
            }
        };
        let state =
            LeaseState { record, version, successor: None, has_ended: false, is_reachable: true };
        let lease = Arc::new(Lease {
            dir: dir.to_owned(),
            folder,
            state: Mutex::new(state),
            ended: Condvar::new(),
        });
        let own = Arc::clone(&lease);
        let renewal =
            Builder::new().name("lease of --save".to_owned()).spawn(move || own.renew_all());
        let renewal = Some(renewal.map_err(CheckpointError::io_error("start a thread for", dir))?);
        held().get_or_insert_default().insert(dir.to_owned(), Arc::clone(&lease));
        Ok(HeldLease { lease, renewal })
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        held().get_or_insert_default().remove(&self.lease.dir);
        self.lease.state().has_ended = true;
        self.lease.ended.notify_all();
        if let Some(renewal) = self.renewal.take() {
            // It does not panic.
            let _ = renewal.join();
        }
        // Else the next run finds that this one has ended, or waits.
        if self.lease.state().is_reachable {
            let _ = self.lease.replace(|record| record.holder = None);
        }
    }
}

impl Lease {
    /// Returns the lease of `dir` in this process.
    ///
    /// # Errors
    /// None is held.
    pub fn of(dir: &Path) -> Result<Arc<Lease>, CheckpointError> {
        let lease = held().get_or_insert_default().get(dir).cloned();
        lease.ok_or_else(|| CheckpointError::Unsuitable {
            path: dir.to_owned(),
            reason: "a folder in object storage has to be prepared first, by `CheckpointFolder::prepare` of the same \
                     process"
                .to_owned(),
        })
    }

    /// Checks that the folder is still held, by renewing the lease.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another run has taken it, and a request that fails.
    pub fn confirm(&self) -> Result<(), CheckpointError> {
        self.replace(|_| {})
    }

    /// Sets the step of `latest`.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub fn set_latest(&self, step: u64) -> Result<(), CheckpointError> {
        self.replace(|record| record.step = Some(step))
    }

    fn replace(&self, change: impl FnOnce(&mut LinkRecord)) -> Result<(), CheckpointError> {
        let mut state = self.state();
        if let Some(holder) = &state.successor {
            return Err(CheckpointError::InUse { path: self.dir.clone(), holder: holder.clone() });
        }
        let mut record = state.record.clone();
        change(&mut record);
        if let Some(holder) = &mut record.holder {
            holder.renewals += 1;
        }
        let io = CheckpointError::io_error("write", &self.dir);
        let condition = Condition::Is(&state.version);
        let put = self.folder.put(names::LATEST, &record.to_text(), condition);
        state.is_reachable = put.is_ok();
        match put.map_err(io)? {
            Some(version) => {
                state.version = version;
                state.record = record;
                Ok(())
            }
            None => Err(self.lost_by(&mut state)),
        }
    }

    /// Returns the error of a run that has lost its folder to another one.
    pub fn lost(&self) -> CheckpointError {
        self.lost_by(&mut self.state())
    }

    fn lost_by(&self, state: &mut LeaseState) -> CheckpointError {
        let found = LinkRecord::read(&self.folder, names::LATEST).ok();
        let other = found.and_then(|(record, _)| record?.holder);
        let other = other.filter(|other| Some(other) != state.record.holder.as_ref());
        let holder = other.map_or_else(
            || "which has replaced what this one has written".to_owned(),
            |other| format!("{}, as this one did not renew its lock in time", other.describe()),
        );
        state.successor = Some(holder.clone());
        CheckpointError::InUse { path: self.dir.clone(), holder }
    }

    /// Renews the lease until it has ended.
    fn renew_all(&self) {
        loop {
            let state = self.state();
            let waited = self.ended.wait_timeout_while(state, RENEWAL, |state| !state.has_ended);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.has_ended {
                return;
            }
            drop(state);
            // The next save reports what does not pass.
            let _ = self.confirm();
        }
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held() -> MutexGuard<'static, Option<HashMap<PathBuf, Arc<Lease>>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
