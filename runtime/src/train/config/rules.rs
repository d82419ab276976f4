//! The rules about several settings.

use std::path::Path;

use crate::layout::{AxisId, AxisSet};
use crate::optim::OptimizerError;
use crate::tensor::ZeroStage;
use meshwright_core::__internal::check_rule;

use super::auto_sizes::{noise_has_parts, sizes_are_chosen};
use super::dry_run_rules::{
    a_cluster_is_of_a_run, a_plan_is_alone, a_simulation_is_of_gpus, dry_runs_end,
    records_are_of_runs,
};
use super::dtype_rules::{bf16_state_exists, reduce_dtype_keeps_precision};
use super::local_sgd_rules::replicas_synchronize;
use super::object_rules::{data_are_kept_on_a_disk, only_checkpoints_and_data_are_objects};
use super::optimizers::{OptimizerEntry, OptimizerFlags};
use super::other_mesh::with_ranks_along;
use super::problems::Problems;
use super::setting_value::{MeshSetting, word};
use super::settings::{FLAGS, REPORTS, RunSettings, SAVING, SIZES, VALIDATION};
use super::{Decay, DeviceChoice, ScheduleSource};

/// A rule, which adds the problems with settings that it finds.
type Rule = fn(&RunSettings, &mut Problems);

/// Every rule.
pub const RULES: &[Rule] = &[
    the_mesh_is_chosen,
    preflights_write_nothing,
    others_are_given,
    a_plan_is_alone,
    a_simulation_is_of_gpus,
    a_cluster_is_of_a_run,
    records_are_of_runs,
    dry_runs_end,
    validation_data_is_given_once,
    mesh_order_has_the_axes,
    zero_needs_shards,
    virtual_stages_fit_the_schedule,
    cp_needs_its_axis,
    reduce_dtype_keeps_precision,
    bf16_state_exists,
    sizes_exclude_a_folder,
    heads_divide,
    the_optimizer_is_known,
    the_optimizer_takes_its_flags,
    the_optimizer_accepts_its_flags,
    decays_fall,
    the_warm_up_ends,
    replicas_synchronize,
    resume_auto_needs_save,
    new_data_begins_once,
    only_checkpoints_and_data_are_objects,
    data_are_kept_on_a_disk,
    stage_times_are_json,
    heartbeats_have_time,
    prometheus_files_are_found,
    quiet_runs_log_nothing,
    sizes_are_chosen,
    noise_has_parts,
];

/// A process sends a heartbeat each second.
fn heartbeats_have_time(settings: &RunSettings, problems: &mut Problems) {
    let limit = settings.heartbeat_limit;
    if limit.0.as_secs() < 2 {
        let message = format!(
            "`{limit}` is too short, as processes send a heartbeat each second; use at least 2s"
        );
        problems.add(&["heartbeat-limit"], message);
    }
}

fn the_mesh_is_chosen(settings: &RunSettings, problems: &mut Problems) {
    if let Some(auto @ MeshSetting::Auto(_)) = settings.mesh {
        let message = match settings.preflight {
            Some(_) => format!("`{auto}` is not compared by --preflight; name the axes of the run"),
            None => {
                "`auto` needs the model: create the trainer by Trainer::from_args, or name the axes"
                    .into()
            }
        };
        problems.add(&["mesh"], message);
    }
}

/// A preflight refuses the settings that it does not read, write or print.
fn preflights_write_nothing(settings: &RunSettings, problems: &mut Problems) {
    let Some(compared) = settings.preflight else { return };
    let total = settings.steps;
    if compared > total {
        let message = format!("{compared} steps are more than --steps {total}");
        problems.add(&["preflight", "steps"], message);
    }
    let groups = [SAVING, REPORTS, VALIDATION];
    let others = FLAGS.iter().filter(|flag| groups.contains(&flag.group));
    // What is held out is not trained on, and no tokens are those that a preflight samples anyway.
    let is_moot = |name| match name {
        "preflight" | "eval-fraction" => true,
        _ => name == "sample-tokens" && settings.sample_tokens == 0,
    };
    for flag in others.filter(|flag| settings.is_on(flag.name) && !is_moot(flag.name)) {
        let message =
            "a --preflight compares steps from the beginning, and writes nothing; leave it out";
        problems.add(&[flag.name], message);
    }
}

/// Some settings need another one. Files may turn switches off.
fn others_are_given(settings: &RunSettings, problems: &mut Problems) {
    let mut need = |is_met: bool, other: &str, names: &str, message: &str| {
        for name in names.split(' ').filter(|name| !is_met && settings.is_on(name)) {
            problems.add(&[name, other], message);
        }
    };
    let has_gpu = settings.device == DeviceChoice::Cuda;
    let message = "the CPU has no nondeterministic algorithms; use --device cuda, or leave it out";
    need(has_gpu, "device", "nondeterministic", message);
    let message = "the CPU has no CUDA graphs; use --device cuda, or leave it out";
    need(has_gpu, "device", "no-graphs", message);
    let is_pipelined = settings.shape().degree(AxisId::Pp) > 1;
    let message = "needs a pp axis, such as --mesh pp=2; add one, or leave it out";
    need(is_pipelined, "mesh", "schedule virtual-stages stages", message);
    let message = "needs --init-from DIR or --architecture PATH, whose keys it names";
    need(settings.has_model_file(), "init-from", "accept-keys", message);
    let has_documents = settings.is_given("documents");
    need(has_documents, "documents", "pack mask-borders", "needs --documents ID");
    let saves = settings.is_given("save");
    need(saves, "save", "save-every keep keep-best max-failed-saves", "needs --save DIR");
    need(saves, "save", "stop-after", "needs --save DIR, from which the run is continued");
    need(
        settings.is_given("resume"),
        "resume",
        "new-data",
        "needs --resume DIR, the run to go on from",
    );
    let validates = settings.is_given("eval-data") || settings.is_given("eval-fraction");
    let message = "needs validation data: --eval-data FILE, or --eval-fraction X of --data";
    need(validates, "eval-data", "eval-every eval-steps early-stop keep-best", message);
    let simulates = settings.is_given("simulate");
    let is_predicted = simulates || settings.is_given("plan");
    let message = "needs --simulate CLUSTERxN or --plan CLUSTERxN; --explain takes it itself, as --explain json";
    need(is_predicted, "simulate", "out", message);
    let is_reported = is_predicted || settings.is_given("explain") || settings.preflight.is_some();
    let message =
        "needs --explain, --simulate CLUSTERxN or --plan CLUSTERxN, whose result it shows";
    need(is_reported, "explain", "report", message);
    need(is_predicted, "simulate", "tokens", "needs --simulate CLUSTERxN or --plan CLUSTERxN");
    let exports = settings.is_given("export-hf");
    need(exports, "export-hf", "export-dtype export-shard-size", "needs --export-hf DIR");
    let message = "needs --save-every N: a run waits for the checkpoint after its last step";
    need(settings.is_given("save-every"), "save-every", "save-async", message);
}

/// Validation data is of one file.
fn validation_data_is_given_once(settings: &RunSettings, problems: &mut Problems) {
    if settings.is_given("eval-data") && settings.is_given("eval-fraction") {
        let message = "cannot be combined with --eval-fraction, which takes validation data from --data; leave one out";
        problems.add(&["eval-data", "eval-fraction"], message);
    }
}

fn mesh_order_has_the_axes(settings: &RunSettings, problems: &mut Problems) {
    let ordered = settings.mesh_order.map(|order| settings.axes().with_order(order));
    if let Some(Err(error)) = ordered {
        problems.add(&["mesh-order"], error.to_string());
    }
}

/// A ZeRO stage above 0 needs ranks that state can be sharded over.
fn zero_needs_shards(settings: &RunSettings, problems: &mut Problems) {
    let mesh = settings.shape();
    let level = settings.zero.filter(|level| *level > ZeroStage::Replicated);
    if let (Some(level), 1) = (level, mesh.degree_of(AxisSet::ZERO)) {
        let (level, instead) = (level.number(), with_ranks_along(&mesh, AxisId::Fsdp));
        let message = format!(
            "{level} shards over fsdp, ep and cp, whose degrees are 1 in --mesh {mesh}; use {instead}, or --zero 0"
        );
        problems.add(&["zero", "mesh"], message);
    }
}

fn virtual_stages_fit_the_schedule(settings: &RunSettings, problems: &mut Problems) {
    let Some(count) = settings.virtual_stages else { return };
    let refused = match settings.schedule() {
        ScheduleSource::File(_) => {
            Some("cannot be combined with a schedule from a file, which places its stages".into())
        }
        // The rule does not depend on the other numbers.
        ScheduleSource::Named(kind) => {
            kind.generate(1, count as usize, 1).err().map(|error| error.to_string())
        }
    };
    if let Some(message) = refused {
        problems.add(&["virtual-stages", "schedule"], message);
    }
}

/// A style of context-parallel attention needs ranks that share sequences.
fn cp_needs_its_axis(settings: &RunSettings, problems: &mut Problems) {
    let mesh = settings.shape();
    if let (Some(style), 1) = (settings.cp, mesh.degree(AxisId::Cp)) {
        let instead = with_ranks_along(&mesh, AxisId::Cp);
        let message = format!(
            "{style} needs context-parallel ranks, but the degree of cp is 1 in --mesh {mesh}; use {instead}, or leave \
             it out"
        );
        problems.add(&["cp", "mesh"], message);
    }
}

/// The sizes of a model come from flags or from one file.
fn sizes_exclude_a_folder(settings: &RunSettings, problems: &mut Problems) {
    let flag = match (&settings.init_from, &settings.architecture) {
        (Some(_), Some(_)) => {
            let message = "cannot be combined with --init-from, whose config.json sets the sizes; leave one out";
            problems.add(&["architecture", "init-from"], message);
            return;
        }
        (Some(_), None) => "--init-from",
        (None, Some(_)) => "--architecture",
        (None, None) => return,
    };
    if settings.is_given("family") {
        let message =
            format!("cannot be combined with {flag}, whose config.json states the family");
        problems.add(&["family"], message);
    }
    for name in SIZES.into_iter().filter(|name| settings.is_given(name)) {
        let message = format!("cannot be combined with {flag}, whose config.json sets the sizes");
        problems.add(&[name], message);
    }
}

fn heads_divide(settings: &RunSettings, problems: &mut Problems) {
    let (hidden, heads) = (settings.hidden, settings.heads);
    if !hidden.is_multiple_of(heads) {
        problems.add(&["heads"], format!("{heads} does not divide --hidden {hidden}"));
    }
    if let Some(kv_heads) = settings.kv_heads.filter(|kv_heads| !heads.is_multiple_of(*kv_heads)) {
        problems.add(&["kv-heads"], format!("{kv_heads} does not divide --heads {heads}"));
    }
}

fn the_optimizer_is_known(settings: &RunSettings, problems: &mut Problems) {
    if let Some(name) = settings.optimizers.duplicate_name() {
        problems.add(&["optimizer"], format!("two optimizers are registered as `{name}`"));
    }
    let known = settings.optimizers.entries().iter().map(|entry| (entry.name(), ()));
    if let Err(message) = word(&settings.optimizer, &Vec::from_iter(known)) {
        problems.add(&["optimizer"], message);
    }
}

/// The flags of other optimizers are refused.
fn the_optimizer_takes_its_flags(settings: &RunSettings, problems: &mut Problems) {
    let (entries, entry) = (settings.optimizers.entries(), settings.optimizer_entry());
    let foreign = |flag: &&str| settings.is_given(flag) && !entry.takes_flag(flag);
    for flag in OptimizerFlags::NAMES.into_iter().filter(foreign) {
        let owners = entries.iter().filter(|entry| entry.takes_flag(flag));
        let owners: Vec<&str> = owners.map(OptimizerEntry::name).collect();
        let name = entry.name();
        let owners = match owners.split_last() {
            None => String::new(),
            Some((only, [])) => format!("; {only} has it"),
            Some((last, others)) => format!("; {} and {last} have it", others.join(", ")),
        };
        let message = format!("is not a setting of --optimizer {name}{owners}, so leave it out");
        problems.add(&[flag, "optimizer"], message);
    }
}

fn the_optimizer_accepts_its_flags(settings: &RunSettings, problems: &mut Problems) {
    let (entry, rule) = (settings.optimizer_entry(), settings.optimizer_choice().rule);
    let own = ["optimizer", "betas", "eps", "momentum", "weight-decay"];
    if rule.name() != entry.name() {
        let (name, of_rule) = (entry.name(), rule.name());
        problems.add(&own, format!("`{name}` is registered for a rule named `{of_rule}`"));
    }
    if let Err(OptimizerError::Rule { message, .. }) = check_rule(&rule) {
        problems.add(&own, format!("{}: {message}", entry.name()));
    }
}

fn decays_fall(settings: &RunSettings, problems: &mut Problems) {
    let (peak, min) = (settings.lr, settings.min_lr);
    let is_constant = settings.lr_schedule == Decay::Constant;
    if is_constant && min > 0.0 && settings.is_given_now("min-lr") {
        let message = "is the end of a decay, and --lr-schedule constant has none; use cosine or wsd, or leave it out";
        problems.add(&["min-lr", "lr-schedule"], message);
    } else if min > peak {
        problems.add(&["min-lr"], format!("{min} is above --lr {peak}"));
    }
}

fn the_warm_up_ends(settings: &RunSettings, problems: &mut Problems) {
    let (warmup, steps) = (settings.warmup, settings.steps);
    if warmup > steps {
        problems.add(&["warmup"], format!("{warmup} is more than --steps {steps}"));
    }
}

/// A restart by `--resume auto` would begin the data again.
fn new_data_begins_once(settings: &RunSettings, problems: &mut Problems) {
    let is_auto = settings.resume.as_deref() == Some(Path::new("auto"));
    if settings.new_data && is_auto {
        let message = "cannot be combined with --resume auto, which would begin the new data again after each restart; \
                       go on once by --resume DIR --new-data, and then by --resume auto";
        problems.add(&["new-data", "resume"], message);
    }
}

fn resume_auto_needs_save(settings: &RunSettings, problems: &mut Problems) {
    let is_auto = settings.resume.as_deref() == Some(Path::new("auto"));
    if is_auto && settings.save.is_none() && settings.preflight.is_none() {
        let message = "auto needs --save DIR, whose newest checkpoint it continues from (a folder of this name is \
                       ./auto)";
        problems.add(&["resume", "save"], message);
    }
}

/// The node exporter reads files with this extension only.
fn prometheus_files_are_found(settings: &RunSettings, problems: &mut Problems) {
    let is_prom = |path: &Path| path.extension().is_some_and(|extension| extension == "prom");
    if let Some(path) = settings.prometheus.as_deref().filter(|path| !is_prom(path)) {
        let path = path.display();
        let message = format!(
            "`{path}` is not a .prom file: a node exporter reads only files with that extension"
        );
        problems.add(&["prometheus"], message);
    }
}

fn quiet_runs_log_nothing(settings: &RunSettings, problems: &mut Problems) {
    if settings.quiet && settings.is_given("log-every") {
        let message = "there are no lines of progress with --quiet; leave one of them out";
        problems.add(&["log-every", "quiet"], message);
    }
}

/// `--stages` takes a name for a file only if it has this extension.
fn stage_times_are_json(settings: &RunSettings, problems: &mut Problems) {
    let is_json = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    if let Some(path) = settings.stage_times.as_deref().filter(|path| !is_json(path)) {
        let path = path.display();
        let message =
            format!("`{path}` is not a .json file: --stages reads only files with that extension");
        problems.add(&["stage-times"], message);
    }
}
