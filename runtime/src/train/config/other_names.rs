//! Names that settings have in other trainers: PyTorch's torchtitan, Megatron-LM, the Hugging Face Trainer, nanoGPT,
//! litgpt, DeepSpeed and their launchers.

/// A setting of other trainers.
pub struct OtherName {
    names: &'static [&'static str],
    /// Our flag with its value; empty if there is none.
    usage: &'static str,
    /// The difference in meaning, or the reason why there is none.
    remark: &'static str,
}

impl OtherName {
    /// Finds a setting by its name in another trainer, with dashes or underscores.
    pub fn find(name: &str) -> Option<&'static OtherName> {
        let dashed = name.replace('_', "-");
        let find = |name: &str| OTHER_NAMES.iter().find(|other| other.names.contains(&name));
        find(name).or_else(|| find(&dashed))
    }

    /// Describes what to write here, for a message about an unknown flag or, if `prefix` is empty, key.
    pub fn advice(&self, prefix: &str) -> String {
        let remark = Some(self.remark).filter(|remark| !remark.is_empty());
        match (self.flag(), remark) {
            (None, remark) => remark.unwrap_or("there is no such setting").to_owned(),
            (Some(flag), remark) => {
                let usage = if prefix.is_empty() { flag } else { self.usage };
                let remark = remark.map_or(String::new(), |remark| format!(": {remark}"));
                format!("here it is `{usage}`{remark}")
            }
        }
    }

    /// Returns the name of our flag.
    fn flag(&self) -> Option<&'static str> {
        self.usage.strip_prefix("--")?.split(' ').next()
    }
}

macro_rules! other_names {
    ($($($name:literal)|+ => $usage:literal $(, $remark:literal)?;)*) => {
        /// All settings, grouped as in `--help`.
        const OTHER_NAMES: &[OtherName] = &[$(
            OtherName {
                names: &[$($name),+],
                usage: $usage,
                remark: concat!($($remark)?),
            }
        ),*];
    };
}

other_names! {
    "tp" | "tp-size" | "tensor-parallel-size" | "tensor-model-parallel-size" | "tensor-parallel-degree"
        => "--mesh tp=N";
    "dp" | "ddp" | "data-parallel-size" | "data-parallel-degree" | "data-parallel-replicate-degree" => "--mesh dp=N";
    "fsdp" | "fsdp-size" | "use-fsdp" | "data-parallel-shard-degree" | "sharding-strategy" => "--mesh fsdp=N";
    "pp" | "pp-size" | "pipeline-parallel-size" | "pipeline-model-parallel-size" | "pipeline-parallel-degree"
        => "--mesh pp=N";
    "cp-size" | "context-parallel-size" | "context-parallel-degree" => "--mesh cp=N";
    "ep" | "ep-size" | "expert-parallel-size" | "expert-model-parallel-size" | "expert-parallel-degree"
        => "--mesh ep=N";
    "world-size" | "nproc-per-node" | "num-processes" | "num-gpus" | "n-gpus" | "gpus" | "devices" | "ranks"
        => "--mesh AXIS=N,..", "the product of its degrees is the number of ranks";
    "accelerator" | "device-type" | "cuda" | "gpu" => "--device cuda";
    "no-cuda" | "use-cpu" => "--device cpu";
    "nnodes" | "node-rank" | "local-rank" | "master-addr" | "master-port"
        => "", "a launcher such as torchrun, srun or mpirun sets it in the environment";
    "deterministic" | "use-deterministic-algorithms" => "", "runs are deterministic without --nondeterministic";

    "zero-stage" | "deepspeed" | "use-distributed-optimizer" => "--zero STAGE";
    "gradient-accumulation-steps" | "grad-accum-steps" | "grad-accum" | "accumulate-grad-batches"
        | "accumulation-steps" | "num-microbatches"
        => "--micro-batches N", "--batch stays the whole batch of a step";
    "pipeline-parallel-schedule" | "schedule-type" => "--schedule NAME";
    "num-layers-per-virtual-pipeline-stage" | "interleaved-stages" => "--virtual-stages N";
    "gradient-checkpointing" | "activation-checkpointing" | "activation-checkpoint-mode" | "checkpoint-activations"
        | "recompute-activations" | "recompute-granularity" | "remat"
        => "--recompute full";
    "bf16" | "precision" | "mixed-precision" | "amp" | "torch-dtype" => "--dtype bf16";
    "fp16" | "half" | "float16" => "--dtype bf16", "there is no f16";
    "fp32" | "float32" => "--dtype f32";
    "fp8" | "float8" | "load-in-4bit" | "load-in-8bit" => "", "dtypes are f32 and bf16";
    "sequence-parallel" | "enable-sequence-parallel"
        => "", "the model declares it, by `Split<Seq, Tp>` and `scatter = Seq`";
    "overlap-grad-reduce" | "overlap-param-gather" | "ddp-bucket-size" | "bucket-cap-mb"
        => "", "communication always overlaps with compute";
    "compile" | "torch-compile" | "jit" => "", "the model is compiled with the program";
    "flash-attn" | "use-flash-attn" | "attn-implementation" | "attention-backend"
        => "", "attention chooses its kernel by itself";

    "model" | "model-name" | "model-name-or-path" | "pretrained-model-name-or-path" | "base-model" | "hf-model"
        | "initial-load-path"
        => "--init-from DIR";
    "n-embd" | "hidden-size" | "d-model" | "embed-dim" | "model-dim" | "dim" => "--hidden N";
    "n-layer" | "n-layers" | "num-layers" | "num-hidden-layers" | "depth" => "--layers N";
    "n-head" | "n-heads" | "num-heads" | "num-attention-heads" => "--heads N";
    "n-kv-heads" | "num-kv-heads" | "num-key-value-heads" | "num-query-groups" => "--kv-heads N";
    "ffn-hidden-size" | "intermediate-size" | "d-ff" | "ffn-dim" => "--ffn N";
    "vocab-size" | "padded-vocab-size" => "--vocab N";
    "tie-word-embeddings" | "tie-embeddings" | "weight-tying" => "--tied";
    "moe-aux-loss-coeff" | "router-aux-loss-coef" | "aux-loss-coef" => "--balance batch=X";
    "moe-z-loss-coeff" | "router-z-loss-coef" => "--z-loss X";
    "num-experts" | "num-local-experts" | "n-experts"
        => "--experts N";
    "moe-router-topk" | "num-experts-per-tok" | "experts-per-token" | "router-topk" => "--top-k N";
    "bias" | "add-bias-linear" => "", "the model declares it, by the layer `Bias`";
    "dropout" | "attention-dropout" | "hidden-dropout" => "", "the model declares it, by the layer `Dropout`";

    "dataset" | "dataset-name" | "dataset-path" | "data-path" | "data-dir" | "train-data" | "train-file"
        | "train-data-path" | "training-data"
        => "--data FILE";
    "tokenizer-path" | "tokenizer-name" | "tokenizer-name-or-path" | "tokenizer-model" | "vocab-file"
        => "--tokenizer FILE.json";
    "batch-size" | "train-batch-size" | "global-batch-size" | "total-batch-size"
        => "--batch B", "the sequences of all ranks in a step";
    "micro-batch-size" | "device-batch-size" | "local-batch-size" | "per-device-train-batch-size"
        => "--batch B", "the sequences of all ranks in a step, which --micro-batches divides";
    "seq-len" | "seq-length" | "sequence-length" | "max-seq-len" | "max-seq-length" | "block-size"
        | "context-length" | "ctx-len" | "n-ctx" | "max-length"
        => "--seq T";
    "sync-every" | "sync-steps" | "diloco-steps" => "--local-steps H";
    "num-fragments" | "n-fragments" => "--fragments P";
    "fragment-sync-delay" => "--fragment-delay N";
    "fragment-update-alpha" => "--fragment-alpha X";
    "max-steps" | "num-steps" | "total-steps" | "training-steps" | "train-iters" | "max-iters" | "num-iterations"
        | "max-train-steps" | "iters"
        => "--steps N";
    "epochs" | "num-epochs" | "max-epochs" | "num-train-epochs" | "train-epochs"
        => "--steps N", "an epoch is the tokens of --data, divided by --batch and --seq";
    "shuffle" | "shuffle-data" => "--order shuffled";
    "random-seed" | "manual-seed" => "--seed K";
    "eod-token" | "reset-attention-mask" | "reset-position-ids" => "--documents ID";
    "packing" | "sample-packing" => "--pack", "with --documents ID";
    "eod-mask-loss" => "--mask-borders", "with --documents ID";
    "text-column" | "text-field" | "json-keys" => "--text-key KEY";
    "val-data" | "valid-data" | "validation-data" | "validation-file" | "eval-file" | "eval-dataset"
        => "--eval-data FILE";
    "eval-interval" | "eval-freq" | "val-interval" | "val-check-interval" | "validation-freq" => "--eval-every N";
    // With an underscore; ours is another number.
    "eval_steps" => "--eval-every N", "--eval-steps is the number of batches of an evaluation";
    "evaluation-strategy" | "eval-strategy" => "--eval-every N";
    "eval-iters" | "val-iters" | "eval-batches" | "limit-val-batches" => "--eval-steps N";
    "val-split" | "validation-split" | "validation-split-percentage" | "split" => "--eval-fraction X";
    "early-stopping" | "early-stopping-patience" | "patience" => "--early-stop N";
    "load-best-model-at-end" | "save-best"
        => "--keep-best", "a run exports its last parameters, and prints the flags that export the best ones";
    "do-train" | "do-eval" | "train" => "", "a run trains, and evaluates with --eval-data or --eval-fraction";
    "num-workers" | "dataloader-num-workers" | "prefetch-factor" => "", "batches are always read ahead";

    "optim" | "optimizer-name" | "optimizer-type" => "--optimizer NAME";
    "learning-rate" | "max-lr" | "peak-lr" | "base-lr" => "--lr X";
    "lr-scheduler" | "lr-scheduler-type" | "lr-decay-style" | "scheduler" | "decay-lr" => "--lr-schedule NAME";
    "warmup-steps" | "warmup-iters" | "num-warmup-steps" | "lr-warmup-iters" | "lr-warmup-steps" => "--warmup N";
    "warmup-ratio" | "warmup-fraction" | "lr-warmup-fraction" => "--warmup N", "a number of steps";
    "lr-decay-iters" | "lr-decay-steps" => "", "the learning rate decays up to the last of --steps";
    "min-learning-rate" | "lr-min" | "end-lr" => "--min-lr X";
    "beta1" | "beta2" | "adam-beta1" | "adam-beta2" => "--betas B1,B2";
    "epsilon" | "adam-eps" | "adam-epsilon" => "--eps X";
    "wd" | "adam-weight-decay" => "--weight-decay X";
    "grad-clip" | "clip-grad" | "clip-grad-norm" | "max-grad-norm" | "max-norm" | "gradient-clipping"
        | "gradient-clip-val"
        => "--clip X";
    "ema-decay" | "use-ema" => "--ema DECAY";

    "output" | "output-dir" | "out-dir" | "save-dir" | "checkpoint-dir" | "checkpoint-folder" | "ckpt-dir"
        | "dump-folder"
        => "--save DIR";
    "save-steps" | "save-interval" | "save-freq" | "checkpoint-interval" | "checkpointing-steps" => "--save-every N";
    "save-total-limit" | "keep-latest-k" | "keep-last-n" => "--keep K";
    "async-save" | "async-mode" => "--save-async";
    "load" | "load-checkpoint" | "resume-from" | "resume-from-checkpoint" => "--resume DIR";
    "max-time" | "max-duration" | "time-limit" | "exit-duration-in-mins" => "--stop-after TIME";
    "export" | "export-dir" | "hf-export" | "save-hf" => "--export-hf DIR";
    "export-precision" | "save-dtype" => "--export-dtype DTYPE";
    "max-shard-size" => "--export-shard-size BYTES";

    "metrics-file" | "log-file" | "jsonl" => "--metrics FILE.jsonl";
    "tensorboard-dir" | "tensorboard-log-dir" | "tensorboard-logdir" | "tb-dir" | "log-dir" | "logdir" | "logging-dir"
        | "save-tb-folder" | "enable-tensorboard" | "use-tensorboard"
        => "--tensorboard DIR";
    "log-interval" | "log-freq" | "logging-steps" | "logging-interval" => "--log-every TIME", "a time such as 30s";
    "prometheus-file" | "prom-file" | "textfile" => "--prometheus FILE.prom";
    "silent" | "no-progress" | "disable-tqdm" | "no-progress-bar" => "--quiet";
    "wandb" | "wandb-project" | "wandb-log" | "use-wandb" | "report-to"
        => "--tensorboard DIR", "event files, which trackers can read";
    "profile" | "profiler" | "enable-profiling" | "torch-profile" => "--trace FILE.json";
    "generate" | "max-new-tokens" | "num-samples" => "--sample-tokens N";
    "dry-run" | "dryrun" => "--explain", "it checks the settings and the memory, too";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::config::FLAGS;

    #[test]
    fn names_are_unknown_here_and_lead_to_known_flags() {
        let mut names: Vec<&str> =
            OTHER_NAMES.iter().flat_map(|other| other.names).copied().collect();
        let n_names = names.len();
        assert!(n_names >= 200, "{n_names}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n_names, "each name is listed once");
        let is_known = |name: &str| FLAGS.iter().any(|flag| flag.name == name);
        for name in names {
            assert!(!is_known(name), "--{name} is a flag of ours");
            let other = OtherName::find(name).unwrap();
            assert!(other.flag().map_or(!other.remark.is_empty(), is_known), "{name}");
        }
    }

    #[test]
    fn advice_names_the_flag_or_the_reason() {
        let advice = |name| OtherName::find(name).unwrap().advice("--");
        assert_eq!(advice("tp"), "here it is `--mesh tp=N`");
        assert_eq!(
            advice("batch-size"),
            "here it is `--batch B`: the sequences of all ranks in a step"
        );
        assert_eq!(advice("compile"), "the model is compiled with the program");
        assert_eq!(OtherName::find("tp").unwrap().advice(""), "here it is `mesh`");
    }
}
