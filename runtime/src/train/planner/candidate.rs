//! A candidate: the settings that a search chooses.

use std::fmt;

use crate::layout::AxisId;
use crate::mesh::MeshShape;
use crate::nn::RecomputeOverride;
use crate::schedule::ScheduleKind;
use crate::tensor::ZeroStage;
use crate::train::config::{MeshSetting, RunSettings, ScheduleSource};
use meshwright_sim::cluster::SizedCluster;

/// Settings that a search chooses. Its text form are the flags, as they are typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub mesh: MeshShape,
    pub zero: ZeroStage,
    /// The schedule and the stages of a rank, if the mesh has a `pp` axis.
    pub schedule: Option<(ScheduleKind, usize)>,
    pub micro_batches: usize,
    pub recompute: RecomputeOverride,
    /// True for `--no-graphs`.
    pub is_eager: bool,
}

impl Candidate {
    /// Returns the settings of a simulation on all GPUs of `on`.
    pub fn settings(&self, of: &RunSettings, on: &SizedCluster) -> RunSettings {
        let mut settings = self.apply(of);
        settings.simulate = Some(on.clone());
        settings.cluster = None;
        settings
    }

    /// Returns the settings of a run.
    pub fn apply(&self, to: &RunSettings) -> RunSettings {
        let mut settings = to.clone();
        settings.mesh = Some(MeshSetting::Axes(self.mesh));
        settings.zero = Some(self.zero);
        settings.schedule = self.schedule.map(|(kind, _)| ScheduleSource::Named(kind));
        settings.virtual_stages = self.schedule.map(|(_, stages)| stages as u64);
        settings.micro_batches = self.micro_batches;
        settings.recompute = Some(self.recompute);
        settings.no_graphs = self.is_eager;
        // Of the search, and not of each candidate.
        (settings.trace, settings.report, settings.out) = (None, None, None);
        settings
    }

    /// Returns the number of axes with more than one rank.
    pub fn axes(&self) -> usize {
        AxisId::ALL.into_iter().filter(|axis| self.mesh.degree(*axis) > 1).count()
    }

    /// Returns the rank of the recomputation: 0 for none, larger for more FLOPs.
    pub fn recomputed(&self) -> usize {
        match self.recompute {
            RecomputeOverride::Off => 0,
            RecomputeOverride::Attention => 1,
            _ => 2,
        }
    }

    pub fn pp(&self) -> usize {
        self.mesh.degree(AxisId::Pp)
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Candidate { mesh, zero, schedule, micro_batches, recompute, is_eager } = self;
        write!(f, "--mesh {mesh} --zero {}", zero.number())?;
        if let Some((kind, stages)) = schedule {
            write!(f, " --schedule {kind}")?;
            if *stages != kind.default_chunks() {
                write!(f, " --virtual-stages {stages}")?;
            }
        }
        write!(f, " --micro-batches {micro_batches} --recompute {recompute}")?;
        if *is_eager { f.write_str(" --no-graphs") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_typed() {
        let mut candidate = Candidate {
            mesh: "pp=16,fsdp=128,tp=8".parse().unwrap(),
            zero: ZeroStage::Optimizer,
            schedule: Some((ScheduleKind::Interleaved, 7)),
            micro_batches: 16,
            recompute: RecomputeOverride::Attention,
            is_eager: false,
        };
        assert_eq!(
            candidate.to_string(),
            "--mesh pp=16,fsdp=128,tp=8 --zero 1 --schedule interleaved --virtual-stages 7 --micro-batches 16 \
             --recompute attn"
        );
        candidate.schedule = Some((ScheduleKind::OneFOneB, 1));
        assert!(candidate.to_string().contains("--schedule 1f1b --micro-batches"));
        candidate.is_eager = true;
        assert!(candidate.to_string().ends_with("--recompute attn --no-graphs"));
        assert_eq!((candidate.axes(), candidate.recomputed()), (3, 1));
    }
}
