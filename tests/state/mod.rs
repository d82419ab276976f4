//! Bitwise reproducibility: repeated runs, resumed runs, and recovery from damaged checkpoints.

mod context;
mod divergence;
mod experts;
mod resharding;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use meshwright::checkpoint::{Checkpoint, TensorBox, TensorSource};
use meshwright::models::llama::Llama;
use meshwright::train::{LanguageModel, Summary};
use meshwright_tests::compare::{Report, Tensors};
use meshwright_tests::run::train_with_flags;
use tempfile::TempDir;

const BATCH: usize = 8;
const SEQ: usize = 13;
const VOCAB: usize = 61;
const STEPS: usize = 10;

/// Flags of a model divisible by four, with uneven sequences and vocabulary.
const SMALL: &str = "--hidden 32 --heads 4 --kv-heads 4 --ffn 48";
/// Flags of a model large enough for several threads per rank.
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
fn a_resumed_run_has_the_same_bits() {
    for (mesh, sharding) in [
        ("1", ""),
        ("tp=2", ""),
        ("dp=2", ""),
        ("dp=2,tp=2", ""),
        ("fsdp=2", "--zero 3 --dtype bf16 --micro-batches 2 --recompute full"),
        ("dp=2,fsdp=2", "--zero 2 --dtype bf16 --reduce-dtype bf16 --micro-batches 2"),
        ("fsdp=2,tp=2", "--zero 1 --dtype bf16 --micro-batches 4"),
        ("fsdp=4", "--zero 3"),
        ("fsdp=2,tp=2", "--zero 1 --state-dtype bf16 --grad-dtype bf16 --micro-batches 2"),
        (
            "dp=2",
            "--dtype bf16 --state-dtype bf16 --grad-dtype bf16 --optimizer muon --micro-batches 2",
        ),
        ("pp=2", "--micro-batches 4 --schedule zb-h1 --ema 0.9"),
        ("pp=2,fsdp=2", "--micro-batches 2 --schedule interleaved --layers 4 --optimizer muon"),
    ] {
        let run = Run::new();
        let [straight, resumed] = ["straight", "resumed"].map(|name| run.dir(name));
        let more = format!(
            "{SMALL} --order shuffled --warmup 7 --lr-schedule cosine --save-every 5 {sharding}"
        );
        let whole = run.train(mesh, &more, &[("--save", straight.clone())]).unwrap();
        let half = straight.join("step-00000005");
        let rest =
            run.train(mesh, &more, &[("--resume", half), ("--save", resumed.clone())]).unwrap();
        assert_eq!(rest.losses, whole.losses[5..], "{mesh}: losses");
        assert_eq!(rest.grad_norms, whole.grad_norms[5..], "{mesh}: gradient norms");
        assert!(bytes(&resumed, 10) == bytes(&straight, 10), "{mesh}: parameters and moments");
    }
}

/// All optimizers, with the moving average of the parameters; Lion is that of the examples.
const OPTIMIZERS: [&str; 4] = [
    "--optimizer adamw",
    "--optimizer sgd --momentum 0.8 --lr 3e-2",
    "--optimizer muon",
    "--optimizer lion",
];

#[test]
fn every_optimizer_resumes_bitwise_at_every_stage() {
    for (mesh, level) in [("1", "0"), ("fsdp=2", "1"), ("fsdp=2,tp=2", "2"), ("dp=2,fsdp=2", "3")] {
        for optimizer in OPTIMIZERS {
            let run = Run::new();
            let [straight, resumed] = ["straight", "resumed"].map(|name| run.dir(name));
            let more = format!("{SMALL} {optimizer} --zero {level} --ema 0.8 --save-every 5");
            let more = if mesh == "1" { more.replace("--zero 0", "") } else { more };
            let whole = run.train(mesh, &more, &[("--save", straight.clone())]).unwrap();
            let half = straight.join("step-00000005");
            let paths = [("--resume", half), ("--save", resumed.clone())];
            let rest = run.train(mesh, &more, &paths).unwrap();
            let label = format!("{optimizer} on {mesh} at level {level}");
            assert_eq!(rest.losses, whole.losses[5..], "{label}: losses");
            assert!(bytes(&resumed, 10) == bytes(&straight, 10), "{label}: state");
        }
    }
}

#[test]
fn any_mesh_and_stage_resumes_from_any_other() {
    let places =
        [("1", ""), ("fsdp=2", "--zero 1"), ("fsdp=3,tp=2", "--zero 3"), ("dp=2,tp=2", "")];
    let mut report = Report::default();
    for optimizer in OPTIMIZERS {
        let run = Run::new();
        let common = format!("{SMALL} {optimizer} --ema 0.8 --batch 12 --save-every 5");
        let whole = run.train("1", &common, &[("--save", run.dir("whole"))]).unwrap();
        for (from, (mesh, level)) in places.iter().enumerate() {
            let saved = run.dir(&format!("saved {from}"));
            run.train(mesh, &format!("{common} {level} --steps 5"), &[("--save", saved.clone())])
                .unwrap();
            let (mesh, level) = places[(from + 1) % places.len()];
            let paths = [("--resume", saved), ("--save", run.dir(&format!("rest {from}")))];
            let rest = run.train(mesh, &format!("{common} {level}"), &paths).unwrap();
            report.scalars("loss", mesh, &rest.losses, &whole.losses[5..], 1e-5);
            let [got, one] = ["whole".to_owned(), format!("rest {from}")]
                .map(|name| tensors(&run.dir(&name).join("step-00000010")));
            report.tensors("state", &format!("{optimizer} to {mesh}"), &got, &one, 1e-3);
        }
    }
    report.print();
}

#[test]
fn another_optimizer_than_the_checkpoints_is_refused() {
    let run = Run::new();
    let resume = |saved: &Path, more: &str| {
        let paths = [("--resume", saved.to_owned())];
        run.train("1", &format!("{SMALL} {more} --steps 3"), &paths).map(|summary| summary.losses)
    };
    for (saved, other, expected) in [
        (
            "adamw",
            "--optimizer sgd",
            "whose state sgd with momentum cannot use; use --optimizer adamw",
        ),
        ("adamw", "--optimizer muon", "whose state muon cannot use; use --optimizer adamw"),
        ("sgd", "--optimizer adamw", "whose state adamw cannot use; use --optimizer sgd"),
        (
            "sgd",
            "--optimizer sgd --momentum 0",
            "whose state sgd without momentum cannot use; use --optimizer sgd with --momentum above 0",
        ),
        ("muon", "--optimizer adamw", "whose state adamw cannot use; use --optimizer muon"),
        ("lion", "--optimizer adamw", "whose state adamw cannot use; use --optimizer lion"),
        ("adamw", "--optimizer lion", "whose state lion cannot use; use --optimizer adamw"),
    ] {
        let dir = run.dir(saved);
        run.train(
            "1",
            &format!("{SMALL} --optimizer {saved} --steps 1"),
            &[("--save", dir.clone())],
        )
        .unwrap();
        let message = resume(&dir, other).unwrap_err().to_string();
        assert!(message.starts_with("--optimizer: "), "{message}");
        assert!(message.ends_with(expected), "{message}");
        assert!(resume(&dir, &format!("--optimizer {saved}")).is_ok());
        // An average may begin, and end, later.
        assert!(resume(&dir, &format!("--optimizer {saved} --ema 0.9")).is_ok());
    }
    let dir = run.dir("averaged");
    run.train("1", &format!("{SMALL} --ema 0.9 --steps 1"), &[("--save", dir.clone())]).unwrap();
    assert_eq!(resume(&dir, "").unwrap(), resume(&dir, "--ema 0.9").unwrap());
}

#[test]
fn an_export_is_the_average_if_there_is_one() {
    for (mesh, level) in [("1", ""), ("fsdp=2,tp=2", "--zero 3")] {
        let run = Run::new();
        let [hf, saved, plain] = ["hf", "saved", "plain"].map(|name| run.dir(name));
        let more = format!("{SMALL} {level} --steps 3");
        let paths = [("--export-hf", hf.clone()), ("--save", saved.clone())];
        run.train(mesh, &format!("{more} --ema 0.7"), &paths).unwrap();
        run.train(mesh, &more, &[("--export-hf", plain.clone())]).unwrap();
        let saved = tensors(&saved.join("step-00000003"));
        for (folder, kind) in [(hf, "ema"), (plain, "params")] {
            let exported = read(&folder.join("model.safetensors"));
            assert_eq!(
                exported["model.embed_tokens.weight"],
                saved[&format!("{kind}.embed.weight")]
            );
            assert_eq!(exported["model.norm.weight"], saved[&format!("{kind}.norm.weight")]);
        }
        assert_ne!(saved["ema.embed.weight"], saved["params.embed.weight"]);
    }
}

#[test]
fn damaged_checkpoints_are_named_and_skipped() {
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

    /// Writes the data of all steps, with `token(sample, position)`.
    fn tokens(&self, name: &str, token: impl Fn(usize, usize) -> usize) -> PathBuf {
        let path = self.dir(name);
        let count = STEPS * BATCH * SEQ + 1;
        let bytes: Vec<u8> = (0..count)
            .flat_map(|index| (token(index / SEQ, index % SEQ) as u16).to_le_bytes())
            .collect();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Trains for ten steps, unless `more` or `paths` set another number: later flags replace earlier ones.
    fn train(
        &self,
        mesh: &str,
        more: &str,
        paths: &[(&str, PathBuf)],
    ) -> meshwright::Result<Summary> {
        self.train_model::<Llama>(mesh, more, paths)
    }

    /// [`train`](Self::train)s an `M`.
    fn train_model<M: LanguageModel>(
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
        train_with_flags::<M>(&flags.into_iter().collect::<Vec<_>>())
    }
}

/// Reads the global tensors of a checkpoint.
fn tensors(folder: &Path) -> Tensors {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let tensors = checkpoint.manifest().tensors.iter();
    tensors
        .map(|(name, tensor)| {
            let whole = TensorBox::whole(&tensor.shape);
            (name.clone(), checkpoint.read(name, &tensor.shape, &whole).unwrap())
        })
        .collect()
}

/// Reads the tensors of a file.
fn read(path: &Path) -> Tensors {
    let content = fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&content).unwrap();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let values = |data: &[u8]| data.chunks_exact(4).map(number).collect();
    file.iter().map(|(name, tensor)| (name.to_owned(), values(tensor.data()))).collect()
}

/// Reads the files of a checkpoint with parameters and moments.
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
