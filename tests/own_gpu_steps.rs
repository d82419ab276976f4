//! Steps that were measured on GPUs, and their predictions by the curves of the catalog.
//!
//! No curve is fitted on a step. Measured times are those of `bench/results/h100.md` and `bench/results/h200.md`, with
//! `--nondeterministic`.

use meshwright::models::{Gpt2, Llama, Mixtral};
use meshwright::sim::cluster::{Catalog, SizedCluster};
use meshwright::train::{Config, LanguageModel, Trainer};

const LLAMA_1B: &str = "--hidden 2048 --layers 16 --heads 32 --kv-heads 8 --ffn 8192 --vocab 32000 --seq 4096 \
                        --batch 4";
const GPT2: &str = "--hidden 768 --layers 12 --heads 12 --ffn 3072 --vocab 50304 --seq 1024 --batch 32 \
                    --recompute none";
const LLAMA_202M: &str =
    "--hidden 1024 --layers 8 --heads 16 --kv-heads 8 --ffn 7168 --seq 2048 --batch 16";
const MIXTRAL: &str =
    "--hidden 1024 --layers 8 --heads 16 --kv-heads 8 --ffn 3584 --seq 2048 --batch 16";

/// Returns the predicted milliseconds of a step on one GPU.
fn predict<M: LanguageModel>(cluster: &str, flags: &str) -> f64 {
    let words =
        format!("train --device cuda --nondeterministic --mesh 1 --simulate {cluster} {flags}");
    let config = Config::parse(words.split(' ')).unwrap();
    let on = SizedCluster::parse(cluster, &Catalog::new()).unwrap();
    Trainer::<M>::new(config).unwrap().simulate(&on).unwrap().step_s * 1e3
}

/// Each prediction is that of the book, within 8 % of the measurement, and within 3 % in the mean.
#[test]
fn predictions() {
    let rows = [
        ("h100x1", LLAMA_1B, predict::<Llama> as fn(&str, &str) -> f64, 224.7, 220.4),
        ("h200x1", LLAMA_1B, predict::<Llama>, 214.2, 209.8),
        ("h100x1", LLAMA_202M, predict::<Llama>, 87.1, 88.5),
        ("h100x1", GPT2, predict::<Gpt2>, 58.2, 61.3),
        ("h200x1", GPT2, predict::<Gpt2>, 55.7, 58.1),
        ("h100x1", MIXTRAL, predict::<Mixtral>, 106.3, 103.7),
    ];
    let mut sum = 0.0;
    for (cluster, flags, predict, measured, expected) in rows {
        let predicted = predict(cluster, flags);
        println!("{cluster} {flags}: {predicted:.1} of {measured} ms");
        assert!((predicted - expected).abs() < 0.06, "{cluster} {flags}: {predicted:.2} ms");
        let error = (predicted / measured - 1.0_f64).abs();
        assert!(error <= 0.08, "{cluster} {flags}: {error:.3}");
        sum += error;
    }
    assert!(sum / rows.len() as f64 <= 0.03, "{sum}");
}
