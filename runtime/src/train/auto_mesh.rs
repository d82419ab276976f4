//! `--mesh auto=N`: the choice of a mesh for a number of ranks.

use crate::backend::Bytes;
use crate::layout::AxisId;
use crate::mesh::MeshShape;

use super::config::{Config, ConfigError, DeviceChoice, Problem, RunSettings};
use super::console::counted;
use super::machine::{Machine, host_memory};
use super::{Error, Result};

/// Most tensor-parallel ranks that are tried: as many as a node has, whose links carry two collectives per layer and
/// pass.
const MAX_TP: usize = 8;
/// Most refused meshes that are named.
const MAX_NAMED: usize = 4;

/// Most smaller numbers of ranks that are tried for a message.
const MAX_SMALLER: usize = 8;

/// The axes that are chosen, those first that cost most per rank: `pp` leaves ranks idle at both ends of a step, `cp`
/// and `tp` wait for collectives within each layer, `fsdp` gathers parameters while it computes, and `dp` only reduces
/// gradients.
const COSTLIEST_FIRST: [AxisId; 4] = [AxisId::Pp, AxisId::Cp, AxisId::Tp, AxisId::Fsdp];

/// A chosen mesh.
pub struct ChosenMesh {
    /// The settings with this mesh.
    pub config: Config,
    /// The reason, with the cheaper meshes that were refused.
    pub reason: String,
}

/// Chooses the cheapest mesh of `ranks` ranks that fits: the first of all meshes with fewest ranks along `pp`, then
/// `cp`, `tp` and `fsdp`, whose settings are valid and which `check` accepts.
///
/// # Errors
/// The problems of the settings if they have some with every mesh; else the reasons against each mesh.
pub fn choose_mesh(
    settings: &RunSettings,
    ranks: usize,
    mut check: impl FnMut(&Config) -> Result<()>,
) -> Result<ChosenMesh> {
    let meshes = meshes_of(ranks);
    let mut refused = Vec::new();
    let mut common: Option<Vec<Problem>> = None;
    for mesh in &meshes {
        let config = match settings.with_mesh(mesh).resolve() {
            Ok(config) => config,
            Err(ConfigError::Invalid(problems)) => {
                let reason = problems.first().map(ToString::to_string).unwrap_or_default();
                refused.push((mesh, reason));
                let before = common.take().unwrap_or_else(|| problems.clone());
                common = Some(before.into_iter().filter(|one| problems.contains(one)).collect());
                continue;
            }
            Err(asked) => return Err(Error::Config(asked)),
        };
        common = Some(Vec::new());
        match check(&config) {
            Ok(()) => return Ok(ChosenMesh { reason: explain(mesh, &refused), config }),
            Err(error) => refused.push((mesh, error.to_string())),
        }
    }
    match common {
        Some(problems) if !problems.is_empty() => {
            Err(Error::Config(ConfigError::Invalid(problems)))
        }
        _ => {
            let other = match fewer_ranks(settings, ranks, check) {
                Some(fewer) => {
                    format!("{}, the nearest smaller number that fits", counted(fewer, "rank"))
                }
                None => "another number of ranks".to_owned(),
            };
            let (count, reasons) = (counted(ranks, "rank"), list(&refused));
            Err(Error::Input(format!(
                "--mesh: no mesh of {count} fits:{reasons}\nuse {other}, or change these settings"
            )))
        }
    }
}

/// Returns the nearest smaller number of ranks than `ranks` that has a mesh which fits.
fn fewer_ranks(
    settings: &RunSettings,
    ranks: usize,
    mut check: impl FnMut(&Config) -> Result<()>,
) -> Option<usize> {
    let mut fits = |mesh: &MeshShape| {
        settings.with_mesh(mesh).resolve().is_ok_and(|config| check(&config).is_ok())
    };
    let mut smaller = (1..ranks).rev().take(MAX_SMALLER);
    smaller.find(|count| meshes_of(*count).iter().any(&mut fits))
}

/// Returns the memory of all ranks together that a chosen mesh has to fit, if it is known: that of the machine. A run
/// that is only listed has the machine of its `--memory-limit`, or else this host.
pub fn memory_for_choice(config: &Config, machine: &dyn Machine) -> Option<f64> {
    match config {
        _ if !config.is_dry_run() => machine.memory(),
        Config { simulate: Some(_), .. } | Config { cluster: Some(_), .. } => machine.memory(),
        Config { memory_limit: None, device: DeviceChoice::Cpu, .. } => host_memory(),
        _ => None,
    }
}

/// Returns a line about a choice without a count of memory: `memory` is that of this machine, which holds a run on some
/// mesh if `fits_here`. Empty for other choices.
pub fn note_on_memory(config: &Config, memory: Option<f64>, fits_here: bool) -> String {
    if !config.is_dry_run() || config.memory_limit.is_some() || config.simulate.is_some() {
        return String::new();
    }
    let reason = match memory {
        Some(_) if fits_here => return String::new(),
        Some(memory) => format!("no mesh fits in the {} of this machine", Bytes(memory)),
        None => "no memory is known".to_owned(),
    };
    format!("\n{reason}, so memory is not counted; set that of each rank by --memory-limit")
}

/// Returns the meshes of `ranks` ranks, the cheapest first.
fn meshes_of(ranks: usize) -> Vec<MeshShape> {
    let mut meshes = Vec::new();
    let mut add = |degrees: [usize; 4]| {
        let dp = ranks / degrees.iter().product::<usize>();
        let degrees = COSTLIEST_FIRST.into_iter().zip(degrees).chain([(AxisId::Dp, dp)]);
        meshes.extend(MeshShape::new(degrees));
    };
    for pp in divisors(ranks) {
        for cp in divisors(ranks / pp) {
            for tp in divisors(ranks / pp / cp).filter(|tp| *tp <= MAX_TP) {
                divisors(ranks / pp / cp / tp).for_each(|fsdp| add([pp, cp, tp, fsdp]));
            }
        }
    }
    meshes.sort_by_key(|mesh| COSTLIEST_FIRST.map(|axis| mesh.degree(axis)));
    meshes
}

/// Returns the divisors of `number` in ascending order.
pub fn divisors(number: usize) -> impl Iterator<Item = usize> {
    let small: Vec<usize> = (1..=number.isqrt()).filter(|x| number.is_multiple_of(*x)).collect();
    let large: Vec<usize> =
        small.iter().rev().map(|x| number / x).filter(|x| *x > number.isqrt()).collect();
    small.into_iter().chain(large)
}

fn explain(mesh: &MeshShape, refused: &[(&MeshShape, String)]) -> String {
    if refused.is_empty() {
        return format!(
            "--mesh auto: {mesh}, the cheapest mesh of {}",
            counted(mesh.world_size(), "rank")
        );
    }
    format!("--mesh auto: {mesh}; cheaper ones do not fit:{}", list(refused))
}

/// Lists meshes with the first line of the reason against each.
fn list(refused: &[(&MeshShape, String)]) -> String {
    let line = |(mesh, reason): &(&MeshShape, String)| {
        // A list that follows is left out.
        let reason = reason.lines().next().unwrap_or_default().trim_end_matches(':');
        format!("\n  {mesh}: {reason}")
    };
    let mut text: String = refused.iter().take(MAX_NAMED).map(line).collect();
    if refused.len() > MAX_NAMED {
        text += &format!("\n  and {} more", refused.len() - MAX_NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::train::Optimizers;

    fn settings(line: &str) -> RunSettings {
        let words = line.split(' ').map(OsString::from);
        RunSettings::read(words, &Optimizers::default()).unwrap()
    }

    fn refuse(reason: &str) -> Result<()> {
        Err(Error::Input(reason.into()))
    }

    #[test]
    fn all_meshes_are_tried_the_cheapest_first() {
        let names: Vec<_> = meshes_of(4).iter().map(ToString::to_string).collect();
        let tp = ["dp=4", "dp=2,fsdp=2", "fsdp=4", "dp=2,tp=2", "fsdp=2,tp=2", "tp=4"];
        let cp = ["dp=2,cp=2", "fsdp=2,cp=2", "cp=2,tp=2", "cp=4"];
        let pp = ["pp=2,dp=2", "pp=2,fsdp=2", "pp=2,tp=2", "pp=2,cp=2", "pp=4"];
        assert_eq!(names, [&tp[..], &cp, &pp].concat());
        for ranks in [1, 6, 16, 64] {
            assert!(meshes_of(ranks).iter().all(|mesh| mesh.world_size() == ranks));
        }
        assert!(meshes_of(64).iter().all(|mesh| mesh.degree(AxisId::Tp) <= MAX_TP));
    }

    #[test]
    fn divisors_ascend() {
        for number in 0..100usize {
            let expected = (1..=number).filter(|x| number.is_multiple_of(*x));
            assert!(divisors(number).eq(expected), "{number}");
        }
        assert_eq!(divisors(4_000_000_000).count(), 120);
    }

    #[test]
    fn the_cheapest_mesh_that_fits_is_chosen() {
        let settings = settings("t --mesh auto=4");
        let first = choose_mesh(&settings, 4, |_| Ok(())).unwrap();
        assert_eq!(first.reason, "--mesh auto: dp=4, the cheapest mesh of 4 ranks");
        let narrow = |config: &Config| match config.mesh.degree(AxisId::Tp) {
            2 => Ok(()),
            _ => refuse("too wide, for 2 reasons:\n  - width\n  - height"),
        };
        let chosen = choose_mesh(&settings, 4, narrow).unwrap();
        assert_eq!(chosen.config.mesh.to_string(), "dp=2,tp=2");
        assert_eq!(
            chosen.reason,
            "--mesh auto: dp=2,tp=2; cheaper ones do not fit:\n  dp=4: too wide, for 2 reasons\n  dp=2,fsdp=2: too \
             wide, for 2 reasons\n  fsdp=4: too wide, for 2 reasons"
        );
    }

    #[test]
    fn settings_that_need_an_axis_get_it() {
        let sharded = choose_mesh(&settings("t --mesh auto=4 --zero 2"), 4, |_| Ok(())).unwrap();
        assert_eq!(sharded.config.mesh.to_string(), "dp=2,fsdp=2");
        let shared = choose_mesh(&settings("t --mesh auto=4 --cp ring"), 4, |_| Ok(())).unwrap();
        assert_eq!(shared.config.mesh.to_string(), "dp=2,cp=2");
        assert!(
            shared.reason.contains("\n  dp=4: --cp: ring needs context-parallel"),
            "{}",
            shared.reason
        );
    }

    #[test]
    fn without_a_fitting_mesh_all_reasons_are_given() {
        let none = choose_mesh(&settings("t --mesh auto=2"), 2, |_| refuse("no")).err().unwrap();
        let text = none.to_string();
        assert!(text.starts_with("--mesh: no mesh of 2 ranks fits:\n  dp=2: no\n"), "{text}");
        assert!(
            text.ends_with("\nuse another number of ranks, or change these settings"),
            "{text}"
        );
        let of_six = |config: &Config| match config.mesh.world_size() {
            6 => Ok(()),
            _ => refuse("no"),
        };
        let smaller = choose_mesh(&settings("t --mesh auto=8 --batch 6"), 8, of_six).err().unwrap();
        let end = "\nuse 6 ranks, the nearest smaller number that fits, or change these settings";
        assert!(smaller.to_string().ends_with(end), "{smaller}");
        // A mistake that no mesh mends is reported alone.
        let wrong = choose_mesh(&settings("t --mesh auto=2 --lr fast"), 2, |_| Ok(())).err();
        let text = wrong.unwrap().to_string();
        assert!(text.contains("--lr") && !text.contains("mesh"), "{text}");
    }
}
