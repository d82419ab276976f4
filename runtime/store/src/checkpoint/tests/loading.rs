//! Loading: the checkpoint that a path names, and the errors after which no older one is used.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::super::*;
use super::{folder, refusal, save};

/// Timeout of a load, after which it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the step of the checkpoint that `path` names, and the number of skipped ones.
#[track_caller]
fn opened(path: &Path) -> (u64, usize) {
    let checkpoint = Checkpoint::open(path).unwrap();
    (checkpoint.manifest().state.step, checkpoint.skipped().len())
}

#[test]
fn links_and_slashes_are_resolved() {
    let dir = folder();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    save(&out, 10);
    let newest = save(&out, 20);
    for (target, link) in [
        ("step-00000010", "out/best"),
        ("out/step-00000010", "best"),
        ("best", "best-again"),
        ("out", "run"),
        ("out/latest", "newest"),
        ("out/step-00000020", "latest"),
    ] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    for link in ["out/best", "best", "best-again", "run/best", "run/step-00000010"] {
        for end in ["", "/", "/."] {
            assert_eq!(opened(&dir.path().join(format!("{link}{end}"))), (10, 0), "{link}{end}");
        }
    }
    let all = ["out", "run", "out/latest", "run/latest", "newest", "latest", "."];
    for step in [(20, 0), (10, 1)] {
        for link in all {
            for end in ["", "/", "/."] {
                assert_eq!(opened(&dir.path().join(format!("{link}{end}"))), step, "{link}{end}");
            }
        }
        fs::remove_file(newest.join("manifest.json")).unwrap_or_default();
    }
    symlink("loop", dir.path().join("loop")).unwrap();
    let text = refusal(&dir.path().join("loop"));
    assert!(text.starts_with("cannot read "), "{text}");
    symlink("gone", dir.path().join("dangling")).unwrap();
    let text = refusal(&dir.path().join("dangling"));
    assert!(text.contains("gone: there is no such folder"), "{text}");
}

/// A folder whose `latest` leads to itself, and a link `latest` that leads to no checkpoint.
#[test]
fn an_unusable_latest_is_ignored() {
    let dir = folder();
    save(dir.path(), 10);
    let latest = dir.path().join("latest");
    for target in [".", "gone", "/gone/step-00000010"] {
        fs::remove_file(&latest).unwrap();
        symlink(target, &latest).unwrap();
        for path in [dir.path(), &latest] {
            assert_eq!(opened(path), (10, 0), "{target}");
        }
    }
    fs::remove_file(&latest).unwrap();
    assert_eq!(opened(dir.path()), (10, 0));
    assert_eq!(opened(&latest), (10, 0));
}

/// A copy whose links were replaced by their targets.
#[test]
fn a_copied_latest_is_one_checkpoint() {
    let dir = folder();
    save(dir.path(), 10);
    fs::remove_file(dir.path().join("latest")).unwrap();
    let copy = dir.path().join("latest");
    fs::rename(save(&dir.path().join("other"), 20), &copy).unwrap();
    assert_eq!(opened(&copy), (20, 0));
    assert_eq!(opened(&dir.path().join("latest/")), (20, 0));
    assert_eq!(opened(dir.path()), (10, 0));
}

#[test]
fn unreadable_checkpoints_are_not_skipped() {
    for name in ["manifest.json", "manifest.xxh3", "rank-00001.safetensors"] {
        let dir = folder();
        save(dir.path(), 10);
        let file = save(dir.path(), 20).join(name);
        fs::remove_file(&file).unwrap();
        // A link to itself, which no privilege can read.
        symlink(name, &file).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("latest")] {
            let text = refusal(&path);
            assert!(text.starts_with(&format!("cannot read {}: ", file.display())), "{text}");
            assert!(text.contains("; remove the cause, or name an older checkpoint"), "{text}");
            assert!(text.ends_with("step-00000010"), "{text}");
        }
        // Without an older one, there is no such advice.
        fs::remove_dir_all(dir.path().join("step-00000010")).unwrap();
        let text = refusal(dir.path());
        assert!(text.starts_with("cannot read ") && !text.contains("older"), "{text}");
    }
}

#[test]
fn files_that_are_not_regular_are_refused() {
    for name in ["manifest.json", "manifest.xxh3", "rank-00001.safetensors"] {
        let dir = folder();
        save(dir.path(), 10);
        let newest = save(dir.path(), 20);
        let file = newest.join(name);
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send((refusal(&newest), opened(dir.path()))));
        let (text, fallback) = receiver.recv_timeout(PATIENCE).expect("the load ends");
        assert!(text.ends_with(&format!("{name} is damaged: it is not a regular file")), "{text}");
        assert_eq!(fallback, (10, 1));
    }
}

/// A supervisor goes back to an older checkpoint if the newest one, or the link to it, is damaged.
#[test]
fn the_newest_checkpoint_is_the_last_readable_one() {
    let dir = tempfile::tempdir().unwrap();
    let newest = || NewestCheckpoint::find(dir.path()).map(|found| (found.step, found.folder));
    assert_eq!(newest(), None);
    let folders = [10, 20, 30].map(|step| save(dir.path(), step));
    assert_eq!(newest(), Some((30, folders[2].clone())));
    fs::write(folders[2].join("manifest.json"), "").unwrap();
    assert_eq!(newest(), Some((20, folders[1].clone())));
    fs::remove_dir_all(&folders[2]).unwrap();
    fs::remove_file(dir.path().join("latest")).unwrap();
    assert_eq!(newest(), Some((20, folders[1].clone())));
}
