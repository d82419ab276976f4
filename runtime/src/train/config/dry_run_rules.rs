//! The rules about runs that are only predicted: simulations and searches.

use crate::layout::AxisId;
use crate::os::counted;
use meshwright_sim::cluster::SizedCluster;

use super::problems::Problems;
use super::settings::RunSettings;
use super::{DeviceChoice, ScheduleSource};

/// Most micro-batches of a dry run: it takes about half a millisecond for each of a small model.
const MOST_MICRO_BATCHES: usize = 65_536;

/// A record has the times of a run.
pub fn records_are_of_runs(settings: &RunSettings, problems: &mut Problems) {
    for name in ["explain", "simulate"].into_iter().filter(|_| settings.record.is_some()) {
        if settings.is_given(name) {
            problems
                .add(&["record", name], "a dry run has no times to record; leave one of them out");
        }
    }
}

/// A dry run computes each of the micro-batches that it reports about.
pub fn dry_runs_end(settings: &RunSettings, problems: &mut Problems) {
    let report = ["explain", "simulate"].into_iter().find(|name| settings.is_given(name));
    if let Some(report) = report
        && settings.micro_batches > MOST_MICRO_BATCHES
    {
        let message = format!(
            "{} are too many for --{report}, which computes each of them; use at most {MOST_MICRO_BATCHES}",
            settings.micro_batches
        );
        problems.add(&["micro-batches", report], message);
    }
}

/// A simulation is of a run on all GPUs of its cluster, and of nothing else.
pub fn a_simulation_is_of_gpus(settings: &RunSettings, problems: &mut Problems) {
    let Some(SizedCluster { cluster, gpus }) = &settings.simulate else { return };
    if settings.device != DeviceChoice::of_cluster(cluster) {
        let message = if cluster.gpu.is_shared() {
            "simulates ranks on a CPU; leave out --device cuda"
        } else {
            "simulates GPUs; leave out --device cpu"
        };
        problems.add(&["simulate", "device"], message);
    }
    if settings.explain.is_some() {
        problems.add(&["simulate", "explain"], "prints another report; leave one of them out");
    }
    let mesh = settings.shape();
    if mesh.world_size() != *gpus {
        let message = format!(
            "the mesh has {}, but {} of {} are simulated; make them equal, or leave out --mesh to have one chosen",
            counted(mesh.world_size(), "rank"),
            counted(*gpus, "GPU"),
            cluster.name
        );
        problems.add(&["mesh", "simulate"], message);
    }
}

/// A simulation and a search name the cluster themselves.
pub fn a_cluster_is_of_a_run(settings: &RunSettings, problems: &mut Problems) {
    let report = ["simulate", "plan"].into_iter().find(|name| settings.is_given(name));
    if let (Some(_), Some(report)) = (&settings.cluster, report) {
        let message = format!("--{report} has a cluster of its own; leave it out");
        problems.add(&["cluster", report], message);
    }
}

/// A search chooses the mesh, begins a new run, and prints one report.
pub fn a_plan_is_alone(settings: &RunSettings, problems: &mut Problems) {
    let Some(SizedCluster { cluster, gpus }) = &settings.plan else {
        let is_unused = |name: &&str| settings.is_on(name) && !settings.is_given("plan");
        for name in ["top", "fix"].into_iter().filter(is_unused) {
            problems.add(&[name, "plan"], "needs --plan CLUSTERxN");
        }
        return;
    };
    for (name, message) in [
        ("mesh", "--plan chooses the mesh; leave it out, or keep some degrees by --fix tp=8"),
        ("simulate", "simulates one mesh, and --plan compares many; leave one of them out"),
        ("explain", "explains one mesh, and --plan compares many; leave one of them out"),
        ("resume", "--plan plans new runs; leave one of them out"),
        ("stage-times", "--plan runs nothing; leave one of them out"),
        ("record", "--plan runs nothing; leave one of them out"),
        ("stages", "--plan cuts the model for several numbers of stages; leave it out"),
    ] {
        if settings.is_given(name) {
            problems.add(&[name, "plan"], message);
        }
    }
    if settings.is_given("device") && settings.device == DeviceChoice::Cpu {
        problems.add(&["device", "plan"], "--plan plans runs on GPUs; leave out --device cpu");
    }
    if let ScheduleSource::File(_) = settings.schedule() {
        let message = "--plan compares schedules with a name; name one, or leave it out";
        problems.add(&["schedule", "plan"], message);
    }
    if cluster.gpu.is_shared() {
        let message =
            "--plan plans runs on GPUs, and this cluster is a CPU; simulate meshes by --simulate";
        problems.add(&["plan"], message);
    }
    let Some(fixed) = &settings.fix else { return };
    let node = cluster.node();
    let ranks = fixed.ranks();
    let tp = fixed.degree(AxisId::Tp).unwrap_or(1);
    if tp > 1 && !node.is_multiple_of(tp) {
        let message = format!(
            "tp={tp} does not divide a node of {node} GPUs of {}; use a divisor, since collectives over tp are in \
             every layer",
            cluster.name
        );
        problems.add(&["fix", "plan"], message);
    } else if !gpus.is_multiple_of(ranks) {
        let message = format!(
            "{} do not divide {}; use other degrees, or another number of GPUs",
            counted(ranks, "fixed rank"),
            counted(*gpus, "GPU")
        );
        problems.add(&["fix", "plan"], message);
    } else if ranks != *gpus && AxisId::ALL.into_iter().all(|axis| fixed.degree(axis).is_some()) {
        let message = format!("the degrees of all axes are {ranks}, and not {gpus} GPUs");
        problems.add(&["fix", "plan"], message);
    }
}
