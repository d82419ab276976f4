//! Saving and loading together.

mod exports;
mod failures;
mod loading;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::data::DataPosition;

/// A tensor of 6 x 4 and one of 3, filled from `step`.
fn values(step: u64) -> (Vec<f32>, Vec<f32>) {
    let weight = (0..24).map(|i| (step * 100 + i) as f32 * 0.1).collect();
    (weight, vec![f32::NAN, -0.0, step as f32])
}

fn state(step: u64) -> TrainState {
    let data = Some(DataPosition::without_data(step * 4, u64::MAX));
    let config = serde_json::json!({ "lr": 0.1 });
    TrainState {
        step,
        seed: u64::MAX,
        mesh: "tp=2".into(),
        mesh_order: Some("tp,dp".into()),
        data,
        history: RunHistory::default(),
        evaluation: None,
        config,
        skipped: 0,
        own_loop: None,
    }
}

/// Saves on `ranks` ranks that split the weight by rows; rank 0 has the bias.
pub(super) fn try_save_on(
    dir: &Path,
    step: u64,
    ranks: usize,
    keep: Option<usize>,
) -> Result<PathBuf, CheckpointError> {
    save_with(dir, step, ranks, keep, &RunHistory::default())
}

/// Saves as [`try_save_on`], by a run with this history.
fn save_with(
    dir: &Path,
    step: u64,
    ranks: usize,
    keep: Option<usize>,
    history: &RunHistory,
) -> Result<PathBuf, CheckpointError> {
    let (weight, bias) = values(step);
    let rows = 6 / ranks;
    let writer = CheckpointWriter::begin_checkpoint(dir, step)?;
    let write = |rank: usize| {
        let mut entries = vec![ShardEntry {
            name: "params.weight".into(),
            global_shape: vec![6, 4],
            tensor_box: TensorBox::new(&[rank * rows, 0], &[rows, 4]),
            data: &weight[rank * rows * 4..(rank + 1) * rows * 4],
        }];
        if rank == 0 {
            entries.push(ShardEntry {
                name: "params.bias".into(),
                global_shape: vec![3],
                tensor_box: TensorBox::whole(&[3]),
                data: &bias,
            });
        }
        writer.write_rank(rank, &entries).unwrap()
    };
    let files = std::thread::scope(|scope| {
        let write = &write;
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || write(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let state = TrainState { history: history.clone(), ..state(step) };
    writer.commit(files, state, Keep { newest: keep, is_best: false })
}

fn save_on(dir: &Path, step: u64, ranks: usize, keep: Option<usize>) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    try_save_on(dir, step, ranks, keep).unwrap()
}

pub(super) fn save(dir: &Path, step: u64) -> PathBuf {
    save_on(dir, step, 2, None)
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let mut names = files::file_names(dir).unwrap();
    names.sort();
    names
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

pub(super) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) fn refusal(path: &Path) -> String {
    Checkpoint::open(path).unwrap_err().to_string()
}

/// Changes one byte in the middle of a file.
fn flip(path: &Path) {
    let mut content = fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(path, content).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

#[test]
fn any_box_reads_back_bit_for_bit() {
    let (weight, bias) = values(7);
    for ranks in [1, 2, 3, 6] {
        let dir = folder();
        save_on(dir.path(), 7, ranks, None);
        let checkpoint = Checkpoint::open(&dir.path().join("latest")).unwrap();
        assert_eq!(checkpoint.manifest().state, state(7));
        assert!(checkpoint.skipped().is_empty());
        let whole = checkpoint.read("params.weight", &[6, 4], &TensorBox::whole(&[6, 4])).unwrap();
        assert_eq!(bits(&whole), bits(&weight));
        let columns = TensorBox::new(&[1, 2], &[4, 2]);
        let expected: Vec<_> =
            (1..5).flat_map(|row| [weight[row * 4 + 2], weight[row * 4 + 3]]).collect();
        let columns = checkpoint.read("params.weight", &[6, 4], &columns).unwrap();
        assert_eq!(bits(&columns), bits(&expected));
        let read = checkpoint.read("params.bias", &[3], &TensorBox::whole(&[3])).unwrap();
        assert_eq!(bits(&read), bits(&bias));
    }
}

#[test]
fn a_rank_may_hold_several_boxes_of_one_tensor() {
    let dir = folder();
    let writer = CheckpointWriter::begin_checkpoint(dir.path(), 1).unwrap();
    let entry = |start, data| ShardEntry {
        name: "x".into(),
        global_shape: vec![4],
        tensor_box: TensorBox::new(&[start], &[2]),
        data,
    };
    let file = writer.write_rank(0, &[entry(2, &[3.0, 4.0]), entry(0, &[1.0, 2.0])]).unwrap();
    writer.commit(vec![file], state(1), Keep::default()).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let read = checkpoint.read("x", &[4], &TensorBox::whole(&[4])).unwrap();
    assert_eq!(read, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn every_form_of_path_opens() {
    let dir = folder();
    save(dir.path(), 10);
    save(dir.path(), 20);
    assert_eq!(names(dir.path()), ["latest", "step-00000010", "step-00000020"]);
    let step = |path: &Path| Checkpoint::open(path).unwrap().manifest().state.step;
    assert_eq!(step(dir.path()), 20);
    assert_eq!(step(&dir.path().join("latest")), 20);
    assert_eq!(step(&dir.path().join("step-00000010")), 10);
    let copy = folder();
    for (from, to) in [("step-00000010", "best"), ("step-00000010", "latest")] {
        let (from, to) = (dir.path().join(from), copy.path().join(to));
        fs::create_dir(&to).unwrap();
        for name in names(&from) {
            fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
        assert_eq!(step(&to), 10);
    }
    // A run resumed from step 10 saves a step before the newest, and one that exists.
    save(dir.path(), 15);
    assert_eq!(step(dir.path()), 15);
    save(dir.path(), 15);
    assert_eq!(step(dir.path()), 15);
    assert_eq!(names(dir.path()).len(), 4);
}

/// The best checkpoint is not counted, and one that was saved for its loss only goes when another one is better.
#[test]
fn the_best_checkpoint_stays() {
    let dir = folder();
    let save = |step: u64, newest: Option<usize>, [is_best, is_only_best]: [bool; 2]| {
        let writer = CheckpointWriter::begin_checkpoint(dir.path(), step).unwrap();
        let (_, bias) = values(step);
        let entry = ShardEntry {
            name: "params.bias".into(),
            global_shape: vec![3],
            tensor_box: TensorBox::whole(&[3]),
            data: &bias,
        };
        let files = vec![writer.write_rank(0, &[entry]).unwrap()];
        let data = DataPosition::without_data(8, 0);
        let evaluation =
            EvaluationRecord { data, step, best: None, without_improvement: 0, is_only_best };
        let state = TrainState { evaluation: Some(evaluation), ..state(step) };
        writer.commit(files, state, Keep { newest, is_best }).unwrap();
        let steps = names(dir.path()).iter().filter_map(|name| names::step_of(name)).collect();
        let best = fs::read_link(dir.path().join("best")).ok();
        (steps, best.and_then(|best| names::step_of_path(&best)))
    };
    type Found = (Vec<u64>, Option<u64>);
    let expected: [Found; 8] = [
        (vec![1], None),
        (vec![1, 2], Some(2)),
        (vec![1, 2, 3], Some(2)),
        (vec![1, 3, 4], Some(4)),
        (vec![1, 3, 4, 5], Some(5)),
        (vec![5, 6], Some(5)),
        (vec![5, 7], Some(5)),
        (vec![7, 8], Some(8)),
    ];
    let found = [
        save(1, None, [false, false]),
        save(2, None, [true, true]),
        save(3, None, [false, false]),
        save(4, None, [true, false]),
        save(5, None, [true, false]),
        save(6, Some(1), [false, false]),
        save(7, Some(1), [false, false]),
        save(8, Some(1), [true, true]),
    ];
    assert_eq!(found, expected);
    assert_eq!(Checkpoint::open(&dir.path().join("best")).unwrap().manifest().state.step, 8);
}

#[test]
fn keep_removes_older_checkpoints_only() {
    let dir = folder();
    for step in [10, 20, 30] {
        save_on(dir.path(), step, 1, Some(2));
    }
    assert_eq!(names(dir.path()), ["latest", "step-00000020", "step-00000030"]);
    save_on(dir.path(), 25, 1, Some(1));
    assert_eq!(names(dir.path()), ["latest", "step-00000025", "step-00000030"]);
}

/// Checkpoints of an abandoned branch are neither counted nor removed, and not loaded for damaged ones of another
/// branch.
#[test]
fn branches_are_kept_apart() {
    let dir = folder();
    let first = RunHistory::begin(None);
    for step in [10, 20, 30] {
        save_with(dir.path(), step, 1, None, &first).unwrap();
    }
    let branch = RunHistory::begin(Some((&first, 10)));
    for step in [25, 40] {
        save_with(dir.path(), step, 1, Some(2), &branch).unwrap();
    }
    let kept = ["latest", "step-00000020", "step-00000025", "step-00000030", "step-00000040"];
    assert_eq!(names(dir.path()), kept);
    let lock = CheckpointFolder::prepare(dir.path()).unwrap();
    assert_eq!(lock.other_steps(&branch).unwrap(), [20, 30]);
    assert_eq!(lock.other_steps(&first).unwrap(), [25, 40]);
    let opened = Checkpoint::open(dir.path()).unwrap();
    assert_eq!((opened.manifest().state.step, opened.other_branch()), (40, None));
    let abandoned = dir.path().join("step-00000030");
    let latest = dir.path().join("step-00000040");
    assert_eq!(Checkpoint::open(&abandoned).unwrap().other_branch(), Some(latest.clone()));

    flip(&latest.join("rank-00000.safetensors"));
    let opened = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(opened.manifest().state.step, 25);
    assert!(
        matches!(&opened.skipped()[1], CheckpointError::OtherBranch { path } if *path == abandoned)
    );
}

#[test]
fn damaged_checkpoints_are_skipped_by_name() {
    let rank = "rank-00001.safetensors";
    type Damage = fn(&Path);
    let cases: [(&str, Damage, &str); 8] = [
        (rank, |path| flip(path), "is damaged: its content differs from the hash in the manifest"),
        (rank, |path| cut(path, 1), "bytes, the manifest says"),
        (rank, |path| cut(path, fs::metadata(path).unwrap().len()), "it is empty"),
        (rank, |path| fs::remove_file(path).unwrap(), "No such file"),
        ("manifest.json", |path| flip(path), "its content differs from the hash in manifest.xxh3"),
        ("manifest.json", |path| cut(path, 30), "its content differs from the hash"),
        ("manifest.json", |path| fs::remove_file(path).unwrap(), "No such file"),
        ("manifest.xxh3", |path| fs::remove_file(path).unwrap(), "No such file"),
    ];
    for (name, damage, reason) in cases {
        let dir = folder();
        save(dir.path(), 10);
        let newest = save(dir.path(), 20);
        damage(&newest.join(name));
        for path in [dir.path().to_owned(), dir.path().join("latest")] {
            let checkpoint = Checkpoint::open(&path).unwrap();
            assert_eq!(checkpoint.manifest().state.step, 10);
            let skipped = checkpoint.skipped()[0].to_string();
            assert!(skipped.contains(name) && skipped.contains(reason), "{skipped}");
        }
        let text = refusal(&newest);
        assert!(text.contains(name) && text.contains(reason), "{text}");
        damage(&dir.path().join("step-00000010").join(name));
        let text = refusal(dir.path());
        assert!(text.starts_with("no usable checkpoint in "), "{text}");
        assert_eq!(text.matches(name).count(), 2, "{text}");
    }
}

#[test]
fn crashes_keep_the_previous_checkpoint() {
    let dir = folder();
    save(dir.path(), 10);
    let writer = CheckpointWriter::begin_checkpoint(dir.path(), 20).unwrap();
    writer.write_rank(0, &[]).unwrap();
    drop(writer);
    assert!(names(dir.path()).contains(&".tmp-step-00000020".to_owned()));
    assert_eq!(Checkpoint::open(dir.path()).unwrap().manifest().state.step, 10);
    drop(CheckpointFolder::prepare(dir.path()).unwrap());
    assert_eq!(names(dir.path()), ["latest", "step-00000010"]);
    // Between the two renames: the folder is there, `latest` has not moved.
    let complete = save(dir.path(), 20);
    fs::remove_file(dir.path().join("latest")).unwrap();
    std::os::unix::fs::symlink("step-00000010", dir.path().join("latest")).unwrap();
    assert_eq!(Checkpoint::open(dir.path()).unwrap().manifest().state.step, 10);
    // `latest` names a folder that was removed by hand.
    save(dir.path(), 20);
    fs::remove_dir_all(complete).unwrap();
    let checkpoint = Checkpoint::open(&dir.path().join("latest")).unwrap();
    assert_eq!(checkpoint.manifest().state.step, 10);
    let skipped = checkpoint.skipped()[0].to_string();
    assert!(skipped.contains("step-00000020: there is no such folder"), "{skipped}");
}

#[test]
fn missing_checkpoints_are_reported_with_path() {
    let dir = folder();
    let text = refusal(dir.path());
    assert!(
        text.starts_with("no checkpoint at ") && text.ends_with("holds no step-* folder"),
        "{text}"
    );
    let text = refusal(&dir.path().join("missing/latest"));
    assert!(text.contains("missing/latest: there is no such folder"), "{text}");
    let text = refusal(&dir.path().join("step-00000001"));
    assert!(text.contains("step-00000001: there is no such folder"), "{text}");
}

#[test]
fn unwritable_folders_are_reported_at_the_start() {
    let dir = folder();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let text = CheckpointFolder::prepare(&file.join("checkpoints")).unwrap_err().to_string();
    assert!(text.contains("cannot create ") && text.contains("file/checkpoints"), "{text}");
    let writer = CheckpointWriter::join(&dir.path().join("missing"), 3, "");
    let text = writer.write_rank(2, &[]).unwrap_err().to_string();
    assert!(text.contains("cannot create ") && text.contains("rank-00002.safetensors"), "{text}");
}

#[test]
fn incomplete_shards_are_refused() {
    let commit = |boxes: &[(usize, usize, usize)]| {
        let dir = folder();
        let writer = CheckpointWriter::begin_checkpoint(dir.path(), 1).unwrap();
        let write = |(rank, (start, rows, width)): (usize, &(usize, usize, usize))| {
            let entry = ShardEntry {
                name: "x".into(),
                global_shape: vec![4, *width],
                tensor_box: TensorBox::new(&[*start, 0], &[*rows, 2]),
                data: &vec![0.0; rows * 2],
            };
            writer.write_rank(rank, &[entry]).unwrap()
        };
        let files = boxes.iter().enumerate().map(write).collect();
        writer.commit(files, state(1), Keep::default()).map_err(|error| error.to_string())
    };
    commit(&[(0, 2, 2), (2, 2, 2)]).unwrap();
    for (boxes, reason) in [
        (
            &[(0, 2, 2), (1, 2, 2)][..],
            "rank-00000.safetensors and rank-00001.safetensors both hold [1..2, 0..2]",
        ),
        (&[(0, 2, 2)], "the files hold 4 elements of a tensor of shape [4, 2]"),
        (&[(0, 2, 2), (3, 2, 2)], "holds [3..5, 0..2], outside its shape [4, 2]"),
        (&[(0, 2, 2), (2, 2, 3)], "says its shape is [4, 3], another file says [4, 2]"),
    ] {
        let text = commit(boxes).unwrap_err();
        assert!(text.starts_with("the shards of tensor `x` do not make it up"), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn another_model_is_refused_tensor_by_tensor() {
    let dir = folder();
    save(dir.path(), 1);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let read = |name, shape: &[usize], tensor_box| {
        checkpoint.read(name, shape, &tensor_box).unwrap_err().to_string()
    };
    let text = read("params.other", &[1], TensorBox::whole(&[1]));
    assert!(text.contains("tensor `params.other` is missing"), "{text}");
    let text = read("params.weight", &[4, 6], TensorBox::whole(&[4, 6]));
    assert!(text.contains("`params.weight` has shape [6, 4], the model expects [4, 6]"), "{text}");
    let text = read("params.weight", &[6, 4], TensorBox::new(&[5, 0], &[2, 4]));
    assert!(text.contains("of shape [6, 4] has no part [5..7, 0..4]"), "{text}");

    let check = |bias: &str, shape: &[usize]| {
        let weight = ("params.weight".to_owned(), vec![6, 4]);
        checkpoint.check_tensors([weight, (bias.to_owned(), shape.to_vec())])
    };
    let shape = checkpoint.manifest().tensors["params.bias"].shape.clone();
    check("params.bias", &shape).unwrap();
    let text = check("params.gain", &shape).unwrap_err().to_string();
    assert!(text.contains("\n  - missing: params.gain\n  - unexpected: params.bias"), "{text}");
    let text = check("params.bias", &[7, 7]).unwrap_err().to_string();
    assert!(text.contains(&format!("params.bias has shape {shape:?}, expected [7, 7]")), "{text}");
}

#[test]
fn a_manifest_of_another_version_is_refused() {
    let dir = folder();
    let step = save(dir.path(), 1);
    let path = step.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"version\": 1", "\"version\": 2");
    fs::write(&path, &text).unwrap();
    fs::write(step.join("manifest.xxh3"), tensors::hash_of(text.as_bytes())).unwrap();
    let text = refusal(&step);
    assert!(text.contains("meshwright-checkpoint version 2; this version reads"), "{text}");
}
