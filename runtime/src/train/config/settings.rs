//! The table of all settings, from which the command line, the keys of `--config` files, `--help` and the values are
//! made.

use std::path::PathBuf;

use serde::Serialize;

use crate::backend::Bytes;
use crate::checkpoint::StoredDtype;
use crate::data::{DocumentOptions, Encoding, Order};
use crate::mesh::{AxisOrder, MeshShape};
use crate::nn::{ContextStyle, RecomputeOverride};
use crate::pipeline::StageCut;
use crate::tensor::{Checks, ZeroStage};
use meshwright_sim::cluster::{Cluster, SizedCluster};

use super::fixed_degrees::FixedDegrees;
use super::flags::{Change, Flag};
use super::given_value::GivenMap;
use super::own_rows::OwnRows;
use super::problems::Problems;
use super::setting_value::{
    AutoSize, AutoSizes, FamilyName, Fraction, Key, KeyList, MeshSetting, Natural, Number,
    OpenFraction, OptimizerName, OutputForm, Pair, Positive, Seed, SettingType, Size, TokenCount,
    Weight, WholeNumber,
};
use super::settings_macro::{
    as_optional_text, as_text, dashed, kept, read_next, settings, text_of, zero_stage_number,
};
use super::task_input::TaskInput;
use super::{
    Decay, DeviceChoice, LoadBalancing, LocalSgdConfig, ModelSource, OnNan, OptimizerConfig,
    Optimizers, PipelineConfig, Precision, SaveConfig, ScheduleSource, TimeLimit, ValidationConfig,
};

const MACHINE: &str = "Devices and ranks";
const MODEL: &str = "Model";
const DATA: &str = "Data";
/// Heading of validation.
pub const VALIDATION: &str = "Validation";
const SHARDING: &str = "Sharding, memory and precision";
const OPTIMIZER: &str = "Optimizer";
const LOCAL_SGD: &str = "Local SGD";
/// Heading of checkpoints and exports.
pub const SAVING: &str = "Saving";
/// Heading of what a run prints and writes about itself.
pub const REPORTS: &str = "Reports";

settings! {
    group MACHINE {
        "Read settings from a file with the same keys; flags override it"
        config: Option<PathBuf>, "FILE.toml" => #[serde(skip)] config_file;
        "Ranks along each axis: dp (replicas), fsdp (sharded replicas), tp (tensor-parallel), cp (context-parallel), \
         ep (experts), pp (pipeline), such as dp=2,tp=2; an axis left out has degree 1; auto=N chooses a mesh of N \
         ranks [default: dp=2,tp=2 without --data, --init-from and --architecture, else one rank]"
        mesh: Option<MeshSetting>, "AXIS=N,..", at "/mesh" Free;
        "Order of the axes in rank numbers, outermost first, such as dp,pp,tp: ranks along the last one are neighbors \
         [default: pp,dp,fsdp,ep,cp,tp]"
        mesh_order: Option<AxisOrder>, "AXIS,..", at "/mesh-order" Warn;
        "Device of the ranks: cpu, or cuda (also gpu) in a program built with --features cuda"
        device: DeviceChoice = "cpu", "DEVICE", at "/device" Free => device;
        "Threads of each rank [default: cores divided by ranks, at least 1]"
        threads: Option<Size>, "N" => threads;
        "Steps in which ranks check that they train one model on one batch: off, first, every"
        checks: Checks = "every", "STEPS" => #[serde(skip)] checks;
        "After every N steps, compare the parameters of ranks that hold copies of each other; a difference ends the \
         run with exit code 4"
        check_replicas: Option<Positive>, "N" => #[serde(skip)] check_replicas;
        "Allow attention and matmul algorithms that are faster but nondeterministic: results differ in the last bits \
         from run to run [needs --device cuda]"
        nondeterministic: bool => nondeterministic;
        "Launch the kernels of every step eagerly, without CUDA graphs [needs --device cuda]"
        no_graphs: bool;
        "Time after which a call that waits for other ranks fails, such as 90s or 1h; longer while ranks read files"
        comm_timeout: TimeLimit = "10m", "TIME" => #[serde(skip)] comm_timeout;
        "Time without a heartbeat after which the other processes give up a process, at least 2s"
        heartbeat_limit: TimeLimit = "1m", "TIME" => #[serde(skip)] heartbeat_limit;
    }
    group SHARDING {
        "ZeRO stage, sharded over the fsdp, ep and cp axes: 0 nothing, 1 optimizer state and master weights, 2 also \
         gradients, 3 also parameters [default: 0 without an fsdp axis, else 3, or 1 with a pp axis]"
        zero: Option<ZeroStage>, "STAGE", at "/zero" Warn;
        "Gradient accumulation: micro-batches per step on each rank; auto takes the fewest that fit in memory"
        micro_batches: AutoSize = "1", "N", at "/micro-batches" Warn => micro_batches;
        "Pipeline schedule: gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipev, or FILE.csv in PyTorch's notation; \
         `meshwright schedule` draws them [default: 1f1b; needs a pp axis]"
        schedule: Option<ScheduleSource>, "NAME", at "/pipeline/schedule" Warn;
        "Pipeline stages of each rank [default: 2 for interleaved, zb-v and dualpipev, else 1; needs a pp axis]"
        virtual_stages: Option<WholeNumber<1, 4096>>, "N", at "/pipeline/virtual-stages" Warn;
        "Layers of each pipeline stage: auto (balances FLOPs), even (balances layers), a list such as 7,8,8,7, whose \
         first and last may be 0, or FILE.json with measured milliseconds per layer [default: auto; needs a pp axis]"
        stages: Option<StageCut>, "CUT", at "/pipeline/stages" Warn;
        "Activation checkpointing of layers: none, full (each layer is recomputed from its input), every=N (segments \
         of N layers), sqrt (segments of about the square root of the number of layers), attn (attention only) \
         [default: as the model declares]"
        recompute: Option<RecomputeOverride>, "POLICY", at "/recompute" Free
            => #[serde(serialize_with = "as_optional_text")] recompute;
        "Style of the model's context-parallel attention: ring, ulysses, gather, hybrid, or hybrid=N (N ranks exchange \
         heads) [default: as the model declares; needs a cp axis]"
        cp: Option<ContextStyle>, "STYLE", at "/context" Warn => #[serde(serialize_with = "as_optional_text")] context;
        "Memory limit of each rank, such as 2GB or 512MiB; a run that needs more is refused"
        memory_limit: Option<Bytes>, "BYTES" => memory_limit;
        "Compute dtype, also of activations and their gradients in collectives, which are summed in f32; master \
         weights are always f32 [default: f32 on cpu, bf16 on cuda]"
        dtype: Option<Precision>, "DTYPE", at "/dtype" Warn;
        "Dtype of the gradient reduction over the data ranks [bf16 needs --dtype bf16]"
        reduce_dtype: Precision = "f32", "DTYPE", at "/reduce-dtype" Warn => reduce_dtype;
        "Dtype of accumulated gradients: f32, or bf16, in which the sum of micro-batches is rounded stochastically"
        grad_dtype: Precision = "f32", "DTYPE", at "/grad-dtype" Warn => grad_dtype;
        "Dtype of the optimizer's moments: f32, or bf16, updated in f32 and rounded stochastically"
        state_dtype: Precision = "f32", "DTYPE", at "/state-dtype" Warn => state_dtype;
    }
    group MODEL {
        "Load sizes and weights from a Hugging Face folder of the model's family, or from hf://OWNER/NAME in a program \
         built with --features hub"
        init_from: Option<PathBuf>, "DIR", at "/model/init-from" Free;
        "Train a new model of the sizes of a config.json, or of that in a folder, of the model's family; weights are \
         not read"
        architecture: Option<PathBuf>, "PATH", at "/model/architecture" Free;
        "Leave out these keys of the config.json of --init-from or --architecture, which the program does not know"
        accept_keys: Option<KeyList>, "KEY,..", at "/accept-keys" Free;
        "Family of a new model, its model_type: llama, qwen3 or another one that the program trains [default: the \
         program's first]"
        family: Option<FamilyName>, "NAME", at "/family" Free => family;
        "Width of the residual stream"
        hidden: Size = "128", "N", at "/model/new/hidden" Free;
        "Transformer blocks"
        layers: Size = "4", "N", at "/model/new/layers" Free;
        "Attention heads; each is hidden / heads wide"
        heads: Size = "4", "N", at "/model/new/heads" Free;
        "Key and value heads, each shared by heads / kv-heads query heads [default: --heads]"
        kv_heads: Option<Size>, "N", at "/model/new/kv-heads" Free;
        "Width of the feed-forward [default: 8/3 of --hidden rounded up to a multiple of 64 for a Llama, 4 times \
         --hidden for a GPT-2]"
        ffn: Option<Size>, "N", at "/model/new/ffn" Free;
        "Vocabulary size; without it, that of --tokenizer or of the record of --data, if there is one"
        vocab: Size = "256", "N", at "/model/new/vocab" Free;
        "Use one weight for the token embedding and the output head"
        tied: bool, at "/model/new/tied" Free;
        "Experts of each block, num_local_experts of a config.json [default: 8 for families with experts]"
        experts: Option<Size>, "N", at "/model/new/experts" Free;
        "Experts that each token chooses, num_experts_per_tok of a config.json [default: 2]"
        top_k: Option<Size>, "N", at "/model/new/top-k" Free;
        "Load balancing of each router of experts: none, batch=X for a load-balancing loss of weight X, or bias=X for \
         a bias of the choice that changes by X after each step [default: router_aux_loss_coef or router_bias_rate of \
         the config.json of --init-from or --architecture, else batch=0.01, and bias=0.001 for a DeepSeek-V3]"
        balance: Option<LoadBalancing>, "WAY", at "/balance" Warn => balance;
        "Weight of the z-loss of each router of experts, which keeps its logits small [default: router_z_loss_coef of \
         the config.json of --init-from or --architecture, else 0]"
        z_loss: Option<Weight>, "X", at "/z-loss" Warn => z_loss;
    }
    group DATA {
        "Text, JSONL or Parquet, also in gzip or zstd, or token ids: raw (.bin), .npy, of llm.c or Megatron; a file, \
         folder, glob or comma-separated list; a mixture as web.bin:0.7,code.bin:0.3 or a .toml file [default: the \
         project's own book]; each also in object storage, as s3://BUCKET/tokens.bin, gs:// or az://"
        data: Option<PathBuf>, "FILES", at "/data" Free => data;
        "Keep parts of data in object storage in this folder [default: one among the system's temporary files]"
        data_cache: Option<PathBuf>, "DIR" => #[serde(skip)] data_cache;
        "Largest size of --data-cache, at least 100MB; what was used least recently is removed [default: 10GB]"
        data_cache_size: Option<Bytes>, "BYTES" => #[serde(skip)] data_cache_size;
        "Key of the text in JSONL, and its column in Parquet [default: text]"
        text_key: Option<Key>, "KEY", at "/text-key" Free => text_key;
        "Width of raw token ids: u16 or u32 [default: that of their record or name, or the only one that the \
         vocabulary and the ids allow]"
        token_dtype: Option<Encoding>, "DTYPE", at "/token-dtype" Free => token_dtype;
        "Tokenize text with a Hugging Face tokenizer.json [default: byte by byte]"
        tokenizer: Option<PathBuf>, "FILE.json", at "/tokenizer" Free => tokenizer;
        "Order of the samples: sequential, or reshuffled every epoch"
        order: Order = "sequential", "ORDER", at "/order" Refuse => order;
        "Separate documents in attention and positions, each ending after the token ID; the model must use documents \
         [default: each row is one document]"
        documents: Option<Natural>, "ID", at "/documents/end" Refuse;
        "Pack each row with whole documents, best fit first; only documents longer than --seq are cut [needs \
         --documents]"
        pack: bool, at "/documents/packs" Refuse;
        "Do not count the prediction of the next document's first token in the loss [needs --documents]"
        mask_borders: bool, at "/documents/masks-borders" Refuse;
        "Global batch: sequences per step over all ranks; auto takes the most that fit in memory"
        batch: AutoSize = "16", "B", at "/batch" Refuse => batch;
        "Sequence length in tokens"
        seq: Size = "128", "T", at "/seq" Refuse => seq;
        "Optimizer steps in total, including those before --resume"
        steps: Positive = "600", "N", at "/steps" Warn => steps;
        "Seed of initialization, sample order, dropout and sampling"
        seed: Seed = "0", "K", at "/seed" Refuse => seed;
    }
    group VALIDATION {
        "Evaluate the loss on these tokens, or this text, which are read as those of --data"
        eval_data: Option<PathBuf>, "FILES", at "/validation/data" Free;
        "Hold this fraction of --data out, at its end, and evaluate the loss on it"
        eval_fraction: Option<OpenFraction>, "X", at "/eval-fraction" Refuse => eval_fraction;
        "Evaluate after every N steps, and after the last one [default: 100]"
        eval_every: Option<Positive>, "N", at "/validation/every" Free;
        "Batches of --batch sequences of each evaluation, the same ones each time [default: all]"
        eval_steps: Option<Positive>, "N", at "/validation/steps" Free;
        "End the run, as a complete one, when N evaluations in a row have not lowered the loss"
        early_stop: Option<Positive>, "N", at "/validation/early-stop" Free;
    }
    group OPTIMIZER {
        "adamw, sgd (with momentum), or muon (for matrices of layers; adamw for the rest)"
        optimizer: OptimizerName = "adamw", "NAME", at "/optimizer/optimizer" Free;
        "Peak learning rate"
        lr: Number = "1e-3", "X", at "/optimizer/lr/peak" Warn;
        "Schedule after the warm-up: constant, cosine decay, or wsd (stable, then linear decay over the last fifth)"
        lr_schedule: Decay = "constant", "NAME", at "/optimizer/lr/decay" Warn;
        "Warm-up steps, over which the learning rate rises linearly"
        warmup: Natural = "0", "N", at "/optimizer/lr/warmup" Warn;
        "Learning rate at the end of a decay"
        min_lr: Number = "0", "X", at "/optimizer/lr/min" Warn;
        "Decay of the two moments, in [0, 1) [adamw, muon]"
        betas: Pair = "0.9,0.95", "A,B", at "/optimizer/betas" Warn;
        "Added to the square root of the second moment [adamw, muon]"
        eps: Number = "1e-8", "X", at "/optimizer/eps" Warn;
        "Momentum, in [0, 1) [sgd, muon; default: 0.9 for sgd, 0.95 for muon]"
        momentum: Option<Fraction>, "X", at "/optimizer/momentum" Warn;
        "Decoupled weight decay of parameters with two or more dims"
        weight_decay: Number = "0.1", "X", at "/optimizer/weight-decay" Warn;
        "Gradient clipping by global norm; 0 turns it off"
        clip: Number = "1.0", "X", at "/optimizer/clip" Warn;
        "A step whose loss or gradient norm is infinite or NaN: stop ends the run; skip=N leaves out its update, and \
         ends the run when N steps in a row are such"
        on_nan: OnNan = "stop", "RULE" => #[serde(skip)] on_nan;
        "Exponential moving average of the parameters with this decay in [0, 1), used for --export-hf and the \
         continuation at the end"
        ema: Option<Fraction>, "DECAY", at "/optimizer/ema" Warn;
    }
    group LOCAL_SGD {
        "Local SGD: the replicas along dp train apart for H steps each time, without any reduction over dp, and are \
         synchronized after them by a step of the outer optimizer, SGD with Nesterov momentum (DiLoCo) [default: every \
         step reduces the gradients over dp]"
        local_steps: Option<Positive>, "H", at "/local-sgd/steps" Warn;
        "Learning rate of the outer optimizer [default: 0.7; needs --local-steps]"
        outer_lr: Option<Number>, "X", at "/local-sgd/outer-lr" Warn;
        "Momentum of the outer optimizer, in [0, 1) [default: 0.9; needs --local-steps]"
        outer_momentum: Option<Fraction>, "X", at "/local-sgd/outer-momentum" Warn;
        "Fragments of the model that are synchronized in turn, one after every H / P steps (streaming DiLoCo) \
         [default: 1; needs --local-steps]"
        fragments: Option<Positive>, "P", at "/local-sgd/fragments" Warn;
        "Steps in which a synchronization goes on while the replicas train, fewer than H / P [default: 0; needs \
         --local-steps]"
        fragment_delay: Option<Natural>, "N", at "/local-sgd/delay" Warn;
        "Share of a replica's own parameters in those that it goes on from, in [0, 1) [default: 0.5 with \
         --fragment-delay, else 0; needs --local-steps]"
        fragment_alpha: Option<Fraction>, "X", at "/local-sgd/alpha" Warn;
    }
    group SAVING {
        "Save checkpoints of the whole training state in DIR, or in object storage: s3://BUCKET/RUN, gs:// or az://"
        save: Option<PathBuf>, "DIR";
        "Also save after every N steps, not only after the last [needs --save]"
        save_every: Option<Positive>, "N";
        "Write the checkpoints of --save-every while training goes on, from a copy of the state in host memory"
        save_async: bool;
        "Remove all but the newest K checkpoints [needs --save]"
        keep: Option<Size>, "K";
        "Also save after each evaluation that lowers the validation loss, and keep that checkpoint as DIR/best until \
         another one is better [needs --save]"
        keep_best: bool;
        "End the run when N saves in a row have failed, such as on a full disk (3 without this flag); fewer are a \
         warning, except for the last save"
        max_failed_saves: Option<Size>, "N";
        "Keep files of checkpoints in object storage here, while they are sent or read, instead of in the system's \
         folder of temporary files"
        save_cache: Option<PathBuf>, "DIR" => #[serde(skip)] save_cache;
        "Continue from a checkpoint: DIR/latest, DIR/step-N or DIR; auto continues from the newest intact one of \
         --save, or begins if there is none"
        resume: Option<PathBuf>, "DIR/latest";
        "Go on with other data, --batch or --seq than the checkpoint's, from the first row of the data [needs --resume]"
        new_data: bool => #[serde(skip)] new_data;
        "Stop after this time, such as 3h50m, 90s or 2d, as by SIGTERM: complete the step, save, and exit with code 75 \
         [needs --save]"
        stop_after: Option<TimeLimit>, "TIME" => #[serde(skip)] stop_after;
        "At the end, write the model as a Hugging Face folder"
        export_hf: Option<PathBuf>, "DIR" => export_hf;
        "Dtype of the weights of --export-hf [default: that of the folder of --init-from; for a new model that of \
         --dtype]"
        export_dtype: Option<StoredDtype>, "DTYPE" => #[serde(skip)] export_dtype;
        "Largest file of weights of --export-hf, such as 500MB; a larger model has several with an index [default: 5GB]"
        export_shard_size: Option<Bytes>, "BYTES" => #[serde(skip)] export_shard_size;
    }
    group REPORTS {
        "Folder for the last calls of each rank, which are written when a run fails and on SIGUSR2, for `meshwright \
         flight` [default: flight in the folder of --save]"
        flight: Option<PathBuf>, "DIR" => #[serde(skip)] flight;
        "Write one JSON object per step"
        metrics: Option<PathBuf>, "FILE.jsonl" => metrics;
        "Write the metrics of each step to an event file in DIR, for TensorBoard"
        tensorboard: Option<PathBuf>, "DIR" => tensorboard;
        "Write the latest metrics in the text format of Prometheus, at most every 10 s, for a node exporter"
        prometheus: Option<PathBuf>, "FILE.prom" => prometheus;
        "Print no progress and no description of the run, only warnings, errors and the summary at its end"
        quiet: bool => #[serde(skip)] quiet;
        "Time between two lines of the loss, such as 30s; a terminal shows each step below them"
        log_every: TimeLimit = "10s", "TIME" => #[serde(skip)] log_every;
        "Write a trace of compute and communication of every rank, for Perfetto; with --simulate and --plan, of the \
         simulated step"
        trace: Option<PathBuf>, "FILE.json" => trace;
        "Measure the milliseconds of each layer, and write them for --stages; steps run without CUDA graphs"
        stage_times: Option<PathBuf>, "FILE.json" => stage_times;
        "Measure the kernels and calls of the last steps, and write them for `meshwright calibrate`; needs 3 steps, \
         which run without CUDA graphs"
        record: Option<PathBuf>, "FILE.json" => #[serde(skip)] record;
        "Measure the gradient noise scale in sequences, for the metrics: compares the norms of the gradients of a \
         micro-batch and of the batch; steps run without CUDA graphs [needs two micro-batches or data ranks]"
        noise_scale: bool => #[serde(skip)] noise_scale;
        "Tokens of the continuation sampled at the end"
        sample_tokens: Natural = "200", "N", at "/sample-tokens" Free;
        "Print the collectives of a training step, with their bytes and the computations that they overlap with, its \
         kernels by layer, and the peak of its memory, as text or json, and exit; without --data no data is read \
         [FORMAT: text]"
        explain: Option<OutputForm>, "FORMAT", alone "text" => #[serde(skip)] explain;
        "Simulate a step on N GPUs of a cluster, such as h100x64 or my.tomlx64, print its time, utilization and \
         memory, and exit; `meshwright clusters` lists the clusters [default of --mesh: the best plan]"
        simulate: Option<SizedCluster>, "CLUSTERxN" => #[serde(skip)] simulate;
        "Cluster of the run: its steps are simulated at the end, beside the measured ones, and --mesh auto=N plans on \
         its GPUs; a name of `meshwright clusters` or a file [default: that of the GPUs, if known]"
        cluster: Option<Cluster>, "CLUSTER" => #[serde(skip)] cluster;
        "Search the mesh, the pipeline schedule, the micro-batches, the ZeRO stage and the recomputation of the \
         fastest run on N GPUs of a cluster, print the flags to type, the simulated step and the reasons, and exit; \
         settings that are given are kept"
        plan: Option<SizedCluster>, "CLUSTERxN";
        "Plans that --plan prints [default: 5]"
        top: Option<Size>, "N";
        "Ranks along some axes that --plan keeps, such as tp=8,cp=1"
        fix: Option<FixedDegrees>, "AXIS=N,..";
        "Tokens of a whole run, such as 15.6T, whose days and GPU-hours --simulate prints"
        tokens: Option<TokenCount>, "COUNT" => #[serde(skip)] tokens;
        "Form of what --simulate and --plan print: text, json [default: text]"
        out: Option<OutputForm>, "FORM" => #[serde(skip)] out;
        "Write what --explain, --simulate or --plan has found as one HTML page, with drawings"
        report: Option<PathBuf>, "FILE.html" => #[serde(skip)] report;
        "Compare the losses, gradients and updates of the first steps on the mesh, as threads on the CPU, with one \
         rank, and exit [STEPS: 3]"
        preflight: Option<Positive>, "STEPS", alone "3" => #[serde(skip)] preflight;
    }
    derived {
        /// `--mesh` and `--mesh-order`.
        #[serde(serialize_with = "as_text")]
        mesh: MeshShape = RunSettings::shape;
        /// `--zero`: the ZeRO stage; by default 3 if the mesh has an `fsdp` axis, and 1 if it has a `pp` axis as well.
        #[serde(serialize_with = "zero_stage_number")]
        zero: ZeroStage = |settings| settings.zero.unwrap_or(ZeroStage::suited_to(&settings.shape()));
        /// `--schedule` and its settings, if the mesh has a `pp` axis.
        pipeline: Option<PipelineConfig> = RunSettings::pipeline;
        /// CUDA graphs: on for GPUs, unless `--no-graphs` is given, or a pipeline reduces gradients.
        graphs: bool = RunSettings::uses_graphs;
        /// `--dtype`: compute dtype of parameters and activations.
        dtype: Precision = RunSettings::dtype;
        /// `--init-from` or `--architecture`, or the sizes of a new model.
        model: ModelSource = RunSettings::model;
        /// `--accept-keys`: unknown keys of the `config.json` of `--init-from` or `--architecture` that are left out.
        accept_keys: Vec<String> = |settings| settings.accept_keys.clone().unwrap_or_default();
        /// `--documents`, `--pack` and `--mask-borders`: how rows are made of documents; `None` if each row is one.
        documents: Option<DocumentOptions> = RunSettings::document_options;
        /// The rows that the program makes, instead of `--data`.
        #[serde(skip)]
        rows: Option<OwnRows> = |settings| settings.rows.clone();
        /// The flags of the task, and the examples that the program makes.
        #[serde(skip)]
        task: Option<TaskInput> = |settings| settings.task.clone();
        /// `--optimizer` and its settings.
        optimizer: OptimizerConfig = RunSettings::optimizer_config;
        /// `--local-steps` and the settings of the outer optimizer.
        local_sgd: Option<LocalSgdConfig> = RunSettings::local_sgd_config;
        /// `--eval-data` or `--eval-fraction`, and their settings.
        validation: Option<ValidationConfig> = RunSettings::validation_config;
        /// `--save` and its settings.
        save: Option<SaveConfig> = RunSettings::save_config;
        /// `--resume`; for `auto`, the folder of `--save`. The trainer of a command line takes the settings of the
        /// checkpoint from it.
        resume: Option<PathBuf> = |settings| Some(settings.resume_path()?.0.to_owned());
        /// `--resume auto`: without an intact checkpoint, the run begins.
        #[serde(skip)]
        resume_auto: bool = |settings| settings.resume_path().is_some_and(|(_, is_auto)| is_auto);
        /// `--sample-tokens`: length of the continuation sampled at the end, possibly 0.
        sample_tokens: usize = |settings| settings.sample_tokens as usize;
    }
}

/// Flags with the sizes of a new model.
pub const SIZES: [&str; 9] =
    ["hidden", "layers", "heads", "kv-heads", "ffn", "vocab", "tied", "experts", "top-k"];
