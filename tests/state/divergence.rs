//! Divergence: every rank stops at a step whose loss or gradient is not finite, and earlier checkpoints are kept.

use std::fs;
use std::path::Path;

use meshwright::checkpoint::Checkpoint;

use super::{BATCH, Run, SMALL, VOCAB, bytes};

#[test]
fn a_nan_loss_stops_all_ranks() {
    let run = Run::new();
    let model = run.dir("model");
    run.train("1", SMALL, &[("--export-hf", model.clone())]).unwrap();
    // Token 60 is read by the second half of the rows of step 3 only: by the second data rank, or in the second
    // micro-batch.
    change(
        &model,
        "model.embed_tokens.weight",
        |row, x| if row == VOCAB - 1 { f32::NAN } else { x },
    );
    let broken = run.tokens("broken.bin", |sample, _| {
        let (step, row) = (sample / BATCH, sample % BATCH);
        if step == 2 && row >= BATCH / 2 { VOCAB - 1 } else { sample % (VOCAB - 1) }
    });
    for (index, (mesh, sharding, ranks)) in [
        ("dp=2,tp=2", "", "ranks 2, 3"),
        ("fsdp=2,tp=2", "--zero 1", "ranks 2, 3"),
        ("fsdp=2,tp=2", "--zero 2 --micro-batches 2", "ranks 0, 1, 2, 3"),
        ("fsdp=2,tp=2", "--zero 3 --micro-batches 2 --dtype bf16", "ranks 0, 1, 2, 3"),
        // The last pipeline stage computes the loss.
        ("pp=2", "--micro-batches 4 --schedule zb-h1", "rank 1"),
        ("dp=2,pp=2", "--micro-batches 2", "ranks 2, 3"),
    ]
    .into_iter()
    .enumerate()
    {
        let [saved, kept] = ["saved", "kept"].map(|name| run.dir(&format!("{name}-{index}")));
        let train = |steps: &str, save: &Path| {
            let paths = [
                ("--init-from", model.clone()),
                ("--data", broken.clone()),
                ("--save", save.to_owned()),
            ];
            run.train(mesh, &format!("{steps} {sharding}"), &paths)
        };
        let message = train("--steps 4", &saved).unwrap_err().to_string();
        let origin = format!("step 3: the loss is NaN on {ranks};");
        for part in [&origin, "training stopped", "the state before"] {
            assert!(message.contains(part), "{sharding}: no `{part}` in {message}");
        }
        train("--steps 2", &kept).unwrap();
        assert!(bytes(&saved, 2) == bytes(&kept, 2), "{sharding}: not the state before the step");
        assert_eq!(Checkpoint::open(&saved).unwrap().manifest().state.step, 2);
    }
}

/// The head's weights are so large that their matmuls overflow in backward; in forward, the norm before it compensates.
#[test]
fn infinite_gradients_stop_all_ranks() {
    let run = Run::new();
    let model = run.dir("model");
    run.train("1", &format!("{SMALL} --steps 1"), &[("--export-hf", model.clone())]).unwrap();
    change(&model, "lm_head.weight", |_, x| x * 1e38 * 30.0);
    change(&model, "model.norm.weight", |_, x| x * 1e-38 / 30.0);
    for (index, sharding) in
        ["--zero 0", "--zero 2 --micro-batches 2", "--zero 3"].iter().enumerate()
    {
        let saved = run.dir(&format!("saved-{index}"));
        let paths = [("--init-from", model.clone()), ("--save", saved.clone())];
        let message = run.train("fsdp=2", sharding, &paths).unwrap_err().to_string();
        for part in ["step 1: the gradient norm is ", "training stopped", "the state before"] {
            assert!(message.contains(part), "{sharding}: no `{part}` in {message}");
        }
        // The checkpoint is intact: on another mesh the same step fails again, after the same loss.
        let paths = [("--resume", saved), ("--save", run.dir(&format!("again-{index}")))];
        let again = run.train("dp=2", SMALL, &paths).unwrap_err().to_string();
        assert!(again.contains("step 1: the gradient norm is "), "{sharding}: {again}");
    }
}

/// Changes each element of a tensor of an exported model, given its row.
fn change(model: &Path, name: &str, new: impl Fn(usize, f32) -> f32) {
    let path = model.join("model.safetensors");
    let mut content = fs::read(&path).unwrap();
    let (start, len, width) = {
        let tensors = safetensors::SafeTensors::deserialize(&content).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let start = tensor.data().as_ptr() as usize - content.as_ptr() as usize;
        (start, tensor.data().len(), tensor.shape().get(1).copied().unwrap_or(1))
    };
    for (index, element) in content[start..][..len].chunks_exact_mut(4).enumerate() {
        let old = f32::from_le_bytes(element.try_into().unwrap());
        element.copy_from_slice(&new(index / width, old).to_le_bytes());
    }
    fs::write(path, content).unwrap();
}
