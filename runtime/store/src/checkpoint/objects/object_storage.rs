//! The operations on checkpoints, in object storage.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use meshwright_remote::{Condition, ObjectContent, ObjectFolder, ObjectVersion};

use super::lease::{HeldLease, Lease};
use super::leftovers::{remove_leftovers, remove_objects};
use super::links::LinkRecord;
use super::shards::ObjectShards;
use super::temporary::temporary_file;
use crate::checkpoint::history::unique_name;
use crate::checkpoint::locate::Located;
use crate::checkpoint::storage::{CheckpointAttempt, CheckpointStorage, HeldFolder, StoredShards};
use crate::checkpoint::{CheckpointError, RankFile, files, names};

/// Limits of the length of the parts of a file that are hashed separately.
const PART_BYTES: [u64; 2] = [4 << 10, 4 << 20];

/// Parts of a shard of the mean size: a box that begins and ends within a part needs little more than its bytes.
const PARTS_OF_SHARD: u64 = 32;

/// Most bytes of the hashes of a manifest.
const MAX_HASHES: u64 = 4 << 10;

/// Time between two looks for a description.
const INTERVAL: Duration = Duration::from_millis(300);

/// Object storage.
#[derive(Debug)]
pub struct ObjectStorage;

impl CheckpointStorage for ObjectStorage {
    fn locate(&self, path: &Path) -> Result<Located, CheckpointError> {
        let newest = |dir: &Path| -> Result<Located, CheckpointError> {
            let latest = self.linked_step(dir, names::LATEST)?;
            Ok(Located::Newest { dir: dir.to_owned(), latest })
        };
        let (name, dir) = (path.file_name().and_then(|name| name.to_str()), path.parent());
        match (name, dir.filter(|dir| opened(dir).is_ok())) {
            (Some(names::LATEST), Some(dir)) => newest(dir),
            (Some(names::BEST), Some(dir)) => match self.linked_step(dir, names::BEST)? {
                Some(step) => Ok(Located::One(dir.join(names::folder_name(step)))),
                None => Err(CheckpointError::not_found(path, "there is no such object")),
            },
            (Some(name), _) => match name.strip_prefix("step-").map(str::parse) {
                Some(Ok(step)) => Ok(Located::One(path.with_file_name(names::folder_name(step)))),
                _ if self.has_manifest(path)? => Ok(Located::One(path.to_owned())),
                _ => newest(path),
            },
            (None, _) => newest(path),
        }
    }

    fn check_folder(&self, path: &Path) -> Result<(), CheckpointError> {
        let has_any = match names::step_of_path(path) {
            // Its manifest is read next.
            Some(_) => true,
            None => !self.names_in(path)?.is_empty(),
        };
        let reason = "there are no checkpoints of this path in the bucket";
        if has_any { Ok(()) } else { Err(CheckpointError::not_found(path, reason)) }
    }

    /// Lists the names in a folder, of steps only those that have a manifest.
    fn names_in(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let found = opened(folder)?.list().map_err(CheckpointError::io_error("list", folder))?;
        let mut names = BTreeSet::new();
        for (name, _) in &found {
            let (first, inner) = name.split_once('/').unwrap_or((name, ""));
            if names::step_of(first).is_none() || inner == names::MANIFEST {
                names.insert(first.to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    fn read_text(&self, folder: &Path, name: &str, limit: u64) -> Result<Vec<u8>, CheckpointError> {
        let path = folder.join(name);
        match opened(folder)?.get(name, limit) {
            Ok(Some(ObjectContent { bytes, .. })) if bytes.contains(&0) => {
                Err(CheckpointError::damaged(&path, "it has bytes of value 0, and is not text"))
            }
            Ok(Some(ObjectContent { bytes, .. })) => Ok(bytes.into()),
            Ok(None) => {
                let reason = format!("there is no object {name}, the last one that a run writes");
                Err(CheckpointError::not_found(folder, reason))
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(CheckpointError::damaged(&path, error.to_string()))
            }
            Err(error) => Err(CheckpointError::io_error("read", &path)(error)),
        }
    }

    fn linked_step(&self, dir: &Path, name: &str) -> Result<Option<u64>, CheckpointError> {
        let found = LinkRecord::read(&opened(dir)?, name);
        let (record, _) = found.map_err(CheckpointError::io_error("read", &dir.join(name)))?;
        Ok(record.and_then(|record| record.step))
    }

    fn open_files(
        &self,
        folder: &Path,
        files: &[RankFile],
    ) -> Result<Vec<Box<dyn StoredShards>>, CheckpointError> {
        let objects = opened(folder)?;
        let found = objects.list().map_err(CheckpointError::io_error("list", folder))?;
        let lengths: HashMap<String, u64> = found.into_iter().collect();
        let open = |file: &RankFile| -> Result<Box<dyn StoredShards>, CheckpointError> {
            let path = folder.join(&file.name);
            match lengths.get(&file.name) {
                Some(length) if *length == file.bytes => {
                    Ok(Box::new(ObjectShards::new(objects.clone(), path, file.clone())))
                }
                Some(length) => {
                    let reason = format!("it has {length} bytes, the manifest says {}", file.bytes);
                    Err(CheckpointError::damaged(&path, reason))
                }
                None => Err(CheckpointError::damaged(&path, "it is missing")),
            }
        };
        files.iter().map(open).collect()
    }

    fn prepare(&self, dir: &Path) -> Result<Box<dyn HeldFolder>, CheckpointError> {
        let folder = opened(dir)?;
        self.check_writable(dir, 0)?;
        let held = HeldLease::acquire(dir, folder.clone())?;
        let removed = remove_leftovers(&folder);
        removed.map_err(CheckpointError::io_error("remove what a failed run has left in", dir))?;
        Ok(Box::new(held))
    }

    fn check_writable(&self, dir: &Path, rank: usize) -> Result<(), CheckpointError> {
        let folder = opened(dir)?;
        // Runs that start together must not meet in one object.
        let path = names::probe_path(Path::new(""), rank).with_extension(unique_name());
        let name = path.to_string_lossy();
        let checked = has_conditional_writes(&folder, &name);
        let removed = folder.remove([name.clone().into_owned()]);
        let checked = checked.and_then(|has| removed.map(|()| has));
        if checked.map_err(CheckpointError::io_error("write", dir))? {
            return Ok(());
        }
        let reason = "its service writes objects without regard to conditions (If-Match), which keep two runs from \
                      replacing what the other one saves; name a folder, or a bucket of another service"
            .to_owned();
        Err(CheckpointError::Unsuitable { path: dir.to_owned(), reason })
    }

    fn check_best(&self, _: &Path) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn abandon(&self, dir: &Path) {
        // The user has to see the failure instead; the next failed save, or the next run, retries.
        if let (Ok(folder), Ok(Ok(()))) = (opened(dir), Lease::of(dir).map(|lease| lease.confirm()))
        {
            let _ = remove_leftovers(&folder);
        }
    }

    fn begin(&self, dir: &Path, step: u64) -> Result<CheckpointAttempt, CheckpointError> {
        Lease::of(dir)?.confirm()?;
        Ok(CheckpointAttempt { dir: dir.to_owned(), step, token: unique_name() })
    }

    fn create_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
    ) -> Result<(File, PathBuf, String), CheckpointError> {
        let name = names::rank_file_of(rank, &attempt.token);
        Ok((temporary_file()?, step_of(attempt).join(&name), name))
    }

    fn part_bytes(&self, shards: usize, bytes: u64) -> Option<u64> {
        let part = bytes / (PARTS_OF_SHARD * shards.max(1) as u64);
        let [least, most] = PART_BYTES;
        Some(part.max(1).next_power_of_two().clamp(least, most))
    }

    fn store_file(
        &self,
        attempt: &CheckpointAttempt,
        name: &str,
        (file, length): (&File, u64),
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), CheckpointError> {
        let folder = step_of(attempt);
        let uploaded = opened(&folder)?.upload(name, file, length, is_cancelled);
        let path = folder.join(name);
        let io = CheckpointError::io_error("upload", &path);
        match uploaded {
            Ok(true) => Ok(()),
            Ok(false) => Err(io(io::Error::new(ErrorKind::Interrupted, "the run has failed"))),
            Err(error) => Err(io(error)),
        }
    }

    fn describe_file(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        description: &[u8],
    ) -> Result<(), CheckpointError> {
        let (folder, name) = (step_of(attempt), description_of(attempt, rank));
        let put = opened(&folder)?.put(&name, description, Condition::Always);
        put.map(drop).map_err(CheckpointError::io_error("write", &folder.join(name)))
    }

    fn wait_for_description(
        &self,
        attempt: &CheckpointAttempt,
        rank: usize,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, CheckpointError> {
        let (folder, name) = (step_of(attempt), description_of(attempt, rank));
        let objects = opened(&folder)?;
        let io = || CheckpointError::io_error("read", &folder);
        loop {
            if let Some(found) = objects.get(&name, files::MAX_JSON_BYTES).map_err(io())? {
                objects.remove([name]).map_err(io())?;
                return Ok(Some(found.bytes.into()));
            }
            if is_cancelled() {
                return Ok(None);
            }
            sleep(INTERVAL);
        }
    }

    fn complete(
        &self,
        attempt: &CheckpointAttempt,
        (manifest, hash): (&[u8], &str),
    ) -> Result<PathBuf, CheckpointError> {
        let (lease, path) = (Lease::of(&attempt.dir)?, step_of(attempt));
        let folder = opened(&path)?;
        let io = || CheckpointError::io_error("write", &path);
        let replaced = folder.list().map_err(io())?;
        let old_manifest = folder.head(names::MANIFEST).map_err(io())?.map(|(_, version)| version);
        let old_hashes = folder.get(names::MANIFEST_HASH, MAX_HASHES).map_err(io())?;
        // Only what was read before it is known to be of this run, or older.
        lease.confirm()?;
        let replace = |name, content: &[u8], version: Option<&ObjectVersion>| {
            let condition = version.map_or(Condition::IsNew, Condition::Is);
            match folder.put(name, content, condition).map_err(io())? {
                Some(version) => Ok(version),
                None => Err(lease.lost()),
            }
        };
        let mut hashes = format!("{hash}\n").into_bytes();
        if let (Some(_), Some(old)) = (&old_manifest, &old_hashes) {
            hashes.extend_from_slice(&old.bytes);
        }
        let hash_version =
            replace(names::MANIFEST_HASH, &hashes, old_hashes.map(|own| own.version).as_ref())?;
        replace(names::MANIFEST, manifest, old_manifest.as_ref())?;
        lease.set_latest(attempt.step)?;
        if old_manifest.is_some() {
            replace(names::MANIFEST_HASH, format!("{hash}\n").as_bytes(), Some(&hash_version))?;
        }
        let own = Some(attempt.token.as_str());
        let of_others = replaced.into_iter().map(|(name, _)| name);
        let of_others =
            of_others.filter(|name| names::is_rank_file(name) && names::token_of(name) != own);
        remove_objects(&folder, of_others).map_err(io())?;
        Ok(path)
    }

    fn link(&self, dir: &Path, name: &str, step: u64) -> Result<(), CheckpointError> {
        let folder = opened(dir)?;
        let path = dir.join(name);
        let io = || CheckpointError::io_error("write", &path);
        let (_, version) = LinkRecord::read(&folder, name).map_err(io())?;
        let condition = version.as_ref().map_or(Condition::IsNew, Condition::Is);
        let record = LinkRecord { step: Some(step), holder: None };
        match folder.put(name, &record.to_text(), condition).map_err(io())? {
            Some(_) => Ok(()),
            None => Err(Lease::of(dir)?.lost()),
        }
    }

    fn remove(&self, dir: &Path, step: u64) -> Result<(), CheckpointError> {
        let path = dir.join(names::folder_name(step));
        let remove = |folder: ObjectFolder| -> io::Result<()> {
            folder.remove([names::MANIFEST.to_owned()])?;
            let found = folder.list()?.into_iter().map(|(name, _)| name);
            let is_own = |name: &String| names::is_rank_file(name) || name == names::MANIFEST_HASH;
            folder.remove(found.filter(is_own))
        };
        remove(opened(&path)?).map_err(CheckpointError::io_error("remove", &path))
    }
}

impl ObjectStorage {
    fn has_manifest(&self, path: &Path) -> Result<bool, CheckpointError> {
        let found = opened(path)?.head(names::MANIFEST);
        Ok(found.map_err(CheckpointError::io_error("read", path))?.is_some())
    }
}

/// Opens a folder by its URL.
fn opened(path: &Path) -> Result<ObjectFolder, CheckpointError> {
    let url = path.to_str().unwrap_or_default();
    ObjectFolder::open(url).map_err(CheckpointError::io_error("open", path))
}

/// Returns true if the service heeds the conditions of writes.
fn has_conditional_writes(folder: &ObjectFolder, name: &str) -> io::Result<bool> {
    let Some(first) = folder.put(name, b"1", Condition::IsNew)? else { return Ok(false) };
    let Some(second) = folder.put(name, b"2", Condition::Is(&first))? else { return Ok(false) };
    let refuses = folder.put(name, b"3", Condition::IsNew)?.is_none()
        && folder.put(name, b"4", Condition::Is(&first))?.is_none();
    Ok(refuses && first != second)
}

fn step_of(attempt: &CheckpointAttempt) -> PathBuf {
    attempt.dir.join(names::folder_name(attempt.step))
}

fn description_of(attempt: &CheckpointAttempt, rank: usize) -> String {
    let file = names::rank_file_of(rank, &attempt.token);
    Path::new(&file).with_extension("json").to_string_lossy().into_owned()
}
