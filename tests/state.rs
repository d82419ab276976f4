//! Bits that must be the same: of two runs, of a run that was interrupted, of what is left after damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use meshwright::checkpoint::Checkpoint;
use meshwright::train::Summary;
use meshwright_examples::llama::Llama;
use meshwright_tests::compare::Report;
use meshwright_tests::run::train_with_flags;
use tempfile::TempDir;

const BATCH: usize = 8;
const SEQ: usize = 13;
const VOCAB: usize = 61;
const STEPS: usize = 10;

/// A model that divides by four, with uneven sequences and vocabulary.
const SMALL: &str = "--hidden 32 --heads 4 --kv-heads 4 --ffn 48";
/// One that is large enough for the threads of a rank to share its work.
const LARGE: &str = "--hidden 256 --heads 8 --kv-heads 4 --ffn 512";

#[test]
fn two_runs_on_one_mesh_give_the_same_bytes() {
    let run = Run::new();
    for (mesh, threads, model) in [
        ("dp=2,tp=2", "1", SMALL),
        ("dp=4", "1", SMALL),
        ("tp=4", "1", SMALL),
        ("1", "2", LARGE),
        ("dp=2,tp=2", "2", LARGE),
    ] {
        let [first, second] = ["first", "second"].map(|name| {
            let more = format!("--threads {threads} {model} --order shuffled");
            let summary = run.train(mesh, &more, &[("--save", run.dir(name))]).unwrap();
            (summary.losses, summary.grad_norms, bytes(&run.dir(name), 10))
        });
        assert!(first == second, "{mesh} with {threads} threads");
    }
}

#[test]
fn a_resumed_run_goes_on_with_the_same_bits() {
    for mesh in ["1", "tp=2", "dp=2", "dp=2,tp=2"] {
        let run = Run::new();
        let [straight, resumed] = ["straight", "resumed"].map(|name| run.dir(name));
        let more =
            format!("{SMALL} --order shuffled --warmup 7 --lr-schedule cosine --save-every 5");
        let whole = run.train(mesh, &more, &[("--save", straight.clone())]).unwrap();
        let half = straight.join("step-00000005");
        let rest =
            run.train(mesh, &more, &[("--resume", half), ("--save", resumed.clone())]).unwrap();
        assert_eq!(rest.losses, whole.losses[5..], "{mesh}: losses");
        assert_eq!(rest.grad_norms, whole.grad_norms[5..], "{mesh}: gradient norms");
        assert!(bytes(&resumed, 10) == bytes(&straight, 10), "{mesh}: parameters and moments");
    }
}

#[test]
fn a_run_resumed_on_another_mesh_goes_on() {
    let run = Run::new();
    let saved = run.dir("saved");
    let more = format!("{SMALL} --save-every 5");
    let whole = run.train("dp=2,tp=2", &more, &[("--save", saved.clone())]).unwrap();
    let mut report = Report::default();
    for mesh in ["1", "tp=4", "dp=4", "dp=4,tp=2"] {
        let half = saved.join("step-00000005");
        let rest = run.train(mesh, SMALL, &[("--resume", half)]).unwrap();
        report.scalars("loss", mesh, &rest.losses, &whole.losses[5..], 1e-6);
        report.scalars("gradient norm", mesh, &rest.grad_norms, &whole.grad_norms[5..], 1e-5);
    }
    report.print();
}

#[test]
fn damage_is_named_and_the_checkpoint_before_it_used() {
    let run = Run::new();
    let saved = run.dir("saved");
    let more = format!("{SMALL} --save-every 5");
    let whole = run.train("tp=2", &more, &[("--save", saved.clone())]).unwrap();
    let resume = |from: &str| run.train("tp=2", SMALL, &[("--resume", saved.join(from))]);

    let torn = saved.join("step-00000010/rank-00001.safetensors");
    let length = fs::metadata(&torn).unwrap().len();
    fs::OpenOptions::new().write(true).open(&torn).unwrap().set_len(length - 7).unwrap();
    let message = resume("step-00000010").unwrap_err().to_string();
    assert!(message.contains("step-00000010/rank-00001.safetensors is damaged"), "{message}");
    assert_eq!(resume("latest").unwrap().losses, whole.losses[5..]);

    let altered = saved.join("step-00000005/rank-00000.safetensors");
    let mut content = fs::read(&altered).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&altered, content).unwrap();
    let message = resume("latest").unwrap_err().to_string();
    for part in ["no usable checkpoint", "step-00000010/rank-00001", "step-00000005/rank-00000"] {
        assert!(message.contains(part), "no `{part}` in {message}");
    }
}

#[test]
fn a_loss_that_is_not_a_number_stops_all_ranks_and_keeps_the_state() {
    let run = Run::new();
    let [model, saved, kept] = ["model", "saved", "kept"].map(|name| run.dir(name));
    run.train("1", SMALL, &[("--export-hf", model.clone())]).unwrap();
    // Token 60 is read only by the second data rank, from step 2 on.
    break_row(&model.join("model.safetensors"), "model.embed_tokens.weight", VOCAB - 1);
    let broken = run.tokens("broken.bin", |sample, _| {
        let (step, row) = (sample / BATCH, sample % BATCH);
        if step == 2 && row >= BATCH / 2 { VOCAB - 1 } else { sample % (VOCAB - 1) }
    });
    let train = |steps: &str, save: &Path| {
        let paths = [
            ("--init-from", model.clone()),
            ("--data", broken.clone()),
            ("--save", save.to_owned()),
        ];
        run.train("dp=2,tp=2", steps, &paths)
    };
    let message = train("--steps 4", &saved).unwrap_err().to_string();
    for part in ["step 2: the loss is NaN on ranks 2, 3", "training stopped", "the state before"] {
        assert!(message.contains(part), "no `{part}` in {message}");
    }
    train("--steps 2", &kept).unwrap();
    assert!(bytes(&saved, 2) == bytes(&kept, 2), "not the state before the step");
    assert_eq!(Checkpoint::open(&saved).unwrap().manifest().state.step, 2);
}

/// Makes one row of a matrix NaN.
fn break_row(path: &Path, name: &str, row: usize) {
    let mut content = fs::read(path).unwrap();
    let (start, width) = {
        let tensors = safetensors::SafeTensors::deserialize(&content).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let start = tensor.data().as_ptr() as usize - content.as_ptr() as usize;
        (start, tensor.shape()[1] * 4)
    };
    for element in content[start + row * width..][..width].chunks_exact_mut(4) {
        element.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    fs::write(path, content).unwrap();
}

/// Folders and data of one test.
struct Run {
    root: TempDir,
}

impl Run {
    fn new() -> Run {
        let run = Run { root: tempfile::tempdir().unwrap() };
        run.tokens("tokens.bin", |sample, position| (sample * 7 + position * position) % VOCAB);
        run
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes the data of all steps: `token` of sample and position.
    fn tokens(&self, name: &str, token: impl Fn(usize, usize) -> usize) -> PathBuf {
        let path = self.dir(name);
        let count = STEPS * BATCH * SEQ + 1;
        let bytes: Vec<u8> = (0..count)
            .flat_map(|index| (token(index / SEQ, index % SEQ) as u16).to_le_bytes())
            .collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Ten steps, unless `more` or `paths` say otherwise: later flags replace earlier ones.
    fn train(
        &self,
        mesh: &str,
        more: &str,
        paths: &[(&str, PathBuf)],
    ) -> meshwright::Result<Summary> {
        let data = self.dir("tokens.bin");
        let (batch, seq) = (BATCH.to_string(), SEQ.to_string());
        let (steps, vocab) = (STEPS.to_string(), VOCAB.to_string());
        let mut flags = BTreeMap::from([
            ("--mesh", mesh.as_ref()),
            ("--batch", batch.as_ref()),
            ("--seq", seq.as_ref()),
            ("--steps", steps.as_ref()),
            ("--layers", "2".as_ref()),
            ("--vocab", vocab.as_ref()),
            ("--lr", "3e-3".as_ref()),
            ("--data", data.as_os_str()),
        ]);
        let words: Vec<&str> = more.split_whitespace().collect();
        flags.extend(words.chunks_exact(2).map(|pair| (pair[0], pair[1].as_ref())));
        flags.extend(paths.iter().map(|(flag, path)| (*flag, path.as_os_str())));
        if flags.contains_key("--init-from") {
            flags.retain(|flag, _| !["--layers", "--vocab"].contains(flag));
        }
        train_with_flags::<Llama>(&flags.into_iter().collect::<Vec<_>>())
    }
}

/// The tensors of a checkpoint, file by file: parameters and moments.
fn bytes(dir: &Path, step: u64) -> BTreeMap<String, Vec<u8>> {
    let folder = dir.join(format!("step-{step:08}"));
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeMap<String, Vec<u8>> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".safetensors"))
        .map(|name| (name.clone(), fs::read(folder.join(name)).unwrap()))
        .collect();
    assert!(!files.is_empty(), "{} holds no tensors", folder.display());
    files
}
