//! Exports that fail: what they leave in a folder with an earlier one.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::super::faults::{Fault, with_fault};
use super::super::hf::{HfConfig, HfExport, HfFolder, HfFormat, HfSettings};
use super::super::*;

/// A configuration without settings.
struct Plain;

impl HfConfig for Plain {
    const MODEL_TYPE: &'static str = "plain";

    fn from_settings(_: &HfSettings<'_>) -> Result<Plain, String> {
        Ok(Plain)
    }

    fn to_json(&self) -> Value {
        json!({ "model_type": Plain::MODEL_TYPE })
    }

    fn layers(&self) -> (&'static str, usize) {
        ("layers", 1)
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A model of four tensors with `tensors` of them in each file.
fn format(tensors: usize) -> HfFormat {
    let shapes = NAMES.map(|name| (name.to_owned(), vec![2]));
    HfFormat::new(&Plain, shapes.into()).with_part_bytes(8 * tensors)
}

/// Exports a model whose numbers are all `value`.
fn export(folder: &Path, format: &HfFormat, value: f32) -> Result<(), CheckpointError> {
    let mut export = HfExport::create(folder, format)?;
    NAMES.iter().try_for_each(|name| export.write(name, &[value; 2]))?;
    export.finish()
}

/// Returns the numbers of the model in a folder, if it can be read.
fn numbers(folder: &Path) -> Option<Vec<f32>> {
    let (_, weights) = HfFolder::open::<Plain>(folder, &[]).ok()?;
    let read = |name: &&str| weights.read(name, &[2], &TensorBox::whole(&[2])).unwrap();
    Some(NAMES.iter().flat_map(read).collect())
}

/// Each operation fails, or is not reached because of a crash: the folder has the earlier model or the new one, and
/// between files of equal names none, but never a part of each.
#[test]
fn failed_exports_leave_whole_models() {
    for (earlier, new) in [(4, 4), (4, 2), (2, 4), (2, 1), (1, 1)] {
        let mut is_over = false;
        for index in 0.. {
            for fault in [Fault::Error(index), Fault::Crash(index)] {
                let dir = tempfile::tempdir().unwrap();
                export(dir.path(), &format(earlier), 1.0).unwrap();
                let (exported, occurred) =
                    with_fault(fault, || export(dir.path(), &format(new), 2.0));
                let context = format!("{earlier}, {new}, {fault:?}: {exported:?}");
                assert!(exported.is_ok() || occurred, "{context}");
                let is_whole = |value: f32| numbers(dir.path()) == Some(vec![value; 8]);
                if earlier == new && new < 4 {
                    let has_none = numbers(dir.path()).is_none();
                    assert!(is_whole(1.0) || is_whole(2.0) || has_none, "{context}");
                } else {
                    assert!(is_whole(1.0) || is_whole(2.0), "{context}");
                }
                assert!(exported.is_err() || is_whole(2.0), "{context}");
                let entries = fs::read_dir(dir.path()).unwrap();
                let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
                let left = names.filter(|name| name.starts_with(".tmp-")).count();
                assert!(left == 0 || fault == Fault::Crash(index), "{context}");
                is_over = !occurred;
            }
            if is_over {
                break;
            }
        }
    }
}
