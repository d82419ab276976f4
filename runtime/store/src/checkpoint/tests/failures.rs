//! The folder of a run: what failures leave in it, and what it refuses.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::faults::{Fault, with_fault};
use super::super::names::step_of;
use super::super::*;
use super::{folder, names, save, try_save_on};

/// Most operations of one call.
const MAX_OPERATIONS: usize = 100;

/// Saves step 20 as a run does that has prepared the folder.
fn save_again(dir: &Path) -> Result<(), CheckpointError> {
    let folder = CheckpointFolder::prepare(dir)?;
    let saved = try_save_on(dir, 20, 2, Some(1));
    if saved.is_err() {
        folder.abandon();
    }
    saved.map(drop)
}

/// Asserts that step 20 is found by every path, and that no checkpoint is incomplete.
#[track_caller]
fn assert_complete(dir: &Path, context: &str) {
    for path in [dir.to_owned(), dir.join("latest"), dir.join("step-00000020")] {
        let opened = Checkpoint::open(&path);
        let checkpoint = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(checkpoint.manifest().state.step, 20, "{context}");
        assert!(checkpoint.skipped().is_empty(), "{context}: {:?}", checkpoint.skipped());
    }
    for name in names(dir).iter().filter(|name| step_of(name).is_some()) {
        Checkpoint::open(&dir.join(name)).unwrap_or_else(|error| panic!("{context}: {error}"));
    }
}

/// Prepares the folder, with a crash in each of its operations before it succeeds.
fn recover_with_crashes(dir: &Path, context: &str) {
    for index in 0..MAX_OPERATIONS {
        let (prepared, occurred) =
            with_fault(Fault::Crash(index), || CheckpointFolder::prepare(dir).map(drop));
        assert_eq!(prepared.is_err(), occurred, "{context}");
        assert_complete(dir, &format!("{context}, crash in operation {index} of the recovery"));
        if !occurred {
            return;
        }
    }
    panic!("a recovery takes more than {MAX_OPERATIONS} operations");
}

/// Every operation of a run that saves a step again fails, or is not reached because of a crash. The step is found at
/// any time, and the error is the first one.
#[test]
fn a_replaced_checkpoint_is_never_lost() {
    for index in 0..MAX_OPERATIONS {
        let mut is_over = false;
        for fault in [Fault::Error(index), Fault::Crash(index)] {
            let context = format!("{fault:?}");
            let dir = folder();
            save(dir.path(), 10);
            save(dir.path(), 20);
            let (saved, occurred) = with_fault(fault, || save_again(dir.path()));
            assert_complete(dir.path(), &context);
            match saved {
                Ok(()) => assert!(!occurred, "{context}: no error"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("fault in operation {index}")), "{text}");
                }
            }
            // A run that goes on after an error leaves the checkpoint under its name.
            let is_named = dir.path().join("step-00000020").is_dir();
            assert!(is_named || fault == Fault::Crash(index), "{context}");
            recover_with_crashes(dir.path(), &context);
            let mut left = names(dir.path());
            left.retain(|name| name != "latest" && step_of(name).is_none());
            assert!(left.is_empty(), "{context}: {left:?}");
            is_over = !occurred;
        }
        if is_over {
            return;
        }
    }
    panic!("a save takes more than {MAX_OPERATIONS} operations");
}

#[test]
fn files_of_the_user_stay() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path(".tmp-data")).unwrap();
    for name in [".tmp-notes", ".tmp-data/x", ".tmp-step-4"] {
        fs::write(path(name), name).unwrap();
    }
    let prepared = CheckpointFolder::prepare(dir.path()).unwrap();
    save(dir.path(), 4);
    fs::create_dir(path(".tmp-step-00000008")).unwrap();
    prepared.abandon();
    drop(prepared);
    let left = [".tmp-data", ".tmp-notes", ".tmp-step-4", "latest", "step-00000004"];
    assert_eq!(names(dir.path()), left);
    assert!(path(".tmp-data/x").is_file());
}

#[test]
fn a_second_run_is_refused() {
    let dir = folder();
    let first = CheckpointFolder::prepare(dir.path()).unwrap();
    save(dir.path(), 4);
    fs::create_dir(dir.path().join(".tmp-step-00000008")).unwrap();
    let before = names(dir.path());
    let text = CheckpointFolder::prepare(dir.path()).unwrap_err().to_string();
    let holder = format!(
        "another run saves in {} (process {} on ",
        dir.path().display(),
        std::process::id()
    );
    assert!(text.starts_with(&holder), "{text}");
    assert!(text.ends_with("); wait for its end, or name another folder"), "{text}");
    assert_eq!(names(dir.path()), before);
    // Another process of the first run.
    CheckpointFolder::check_writable(dir.path(), 3).unwrap();
    assert_eq!(names(dir.path()), before);
    drop(first);
    drop(CheckpointFolder::prepare(dir.path()).unwrap());
    assert_eq!(names(dir.path()), ["latest", "step-00000004"]);
}

#[test]
fn a_copied_latest_is_refused_at_the_start() {
    for kind in ["folder", "file"] {
        let dir = folder();
        let latest = dir.path().join("latest");
        let made = if kind == "file" { fs::write(&latest, "") } else { fs::create_dir(&latest) };
        made.unwrap();
        let text = CheckpointFolder::prepare(dir.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("latest is a {kind}, not the link")), "{text}");
        assert!(text.contains("rename it to step-NNNNNNNN"), "{text}");
        assert_eq!(names(dir.path()), ["latest"]);
        fs::rename(&latest, dir.path().join("step-00000004")).unwrap();
        let renamed = CheckpointFolder::prepare(dir.path()).map(drop);
        // The folder may be a damaged checkpoint.
        assert_eq!(renamed.is_ok(), kind == "folder");
    }
}

#[test]
fn what_no_run_has_saved_is_not_replaced() {
    let dir = folder();
    let step = dir.path().join("step-00000004");
    fs::create_dir(&step).unwrap();
    fs::write(step.join("notes.txt"), "").unwrap();
    let text = CheckpointFolder::prepare(dir.path()).unwrap_err().to_string();
    assert!(text.contains("step-00000004 has the name of a checkpoint, but was not"), "{text}");
    // Part of a checkpoint, whose manifest was lost.
    fs::write(step.join("rank-00000.safetensors"), "").unwrap();
    drop(CheckpointFolder::prepare(dir.path()).unwrap());
}

#[test]
fn a_file_system_without_links_is_refused() {
    let dir = folder();
    let refused = (0..MAX_OPERATIONS).find_map(|index| {
        let prepare = || CheckpointFolder::prepare(dir.path());
        let error = with_fault(Fault::Error(index), prepare).0.err()?.to_string();
        error.contains("symbolic link").then_some(error)
    });
    let text = refused.unwrap();
    assert!(text.contains("`latest` is a symbolic link, but cannot create "), "{text}");
    assert!(text.ends_with("name a folder on a file system with links"), "{text}");
}

#[test]
fn a_link_to_no_folder_is_named() {
    let dir = folder();
    let link = dir.path().join("link");
    symlink("elsewhere", &link).unwrap();
    for path in [link.clone(), link.join("below")] {
        let text = CheckpointFolder::prepare(&path).unwrap_err().to_string();
        assert!(text.contains("link is a link to elsewhere, which does not exist"), "{text}");
        assert!(text.ends_with("create that folder or remove the link"), "{text}");
    }
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    drop(CheckpointFolder::prepare(&link).unwrap());
}
