//! Checkpointed segments of models and stacks, from their policy and the run's override.

use std::ops::Range;
use std::rc::Rc;

use crate::tensor::{CheckpointedSegment, SavePolicy};

use super::super::Builder;
use super::{Grouping, RecomputeOverride, RecomputePolicy};

/// Consecutive layers of a stack, which are recomputed together if the segment is checkpointed.
pub(in crate::nn) struct Segment {
    pub(in crate::nn) layers: Range<usize>,
    /// `None` if the layers are not recomputed.
    pub(in crate::nn) checkpointed: Option<Rc<CheckpointedSegment>>,
}

impl Builder<'_> {
    /// Returns the segment of the model in this field, if it is recomputed. An override applies to stacks only.
    pub(super) fn model_segment(
        &self,
        declared: Option<RecomputePolicy>,
    ) -> Option<Rc<CheckpointedSegment>> {
        let policy = declared?;
        self.check_saved(self.path(), policy.save);
        if self.sizes().recompute.is_some() {
            return None;
        }
        let keep = kept_under(&[self.path().to_owned()], policy.save);
        Some(Rc::new(CheckpointedSegment {
            path: self.path().to_owned(),
            keep,
            offload: policy.offload,
        }))
    }

    /// Returns the segments of the stack in this field, which has `count` layers.
    pub(in crate::nn) fn segments(
        &self,
        declared: Option<RecomputePolicy>,
        count: usize,
    ) -> Vec<Segment> {
        if let Some(policy) = declared {
            if policy.grouping == Grouping::Every(0) {
                self.problem(format_args!("`every = 0`: a segment has at least one layer"));
                return Vec::new();
            }
            if count > 0 {
                self.check_saved(&self.join("0"), policy.save);
            }
        }
        let policy = match self.sizes().recompute {
            None => declared,
            Some(_) if self.is_in_stack() => None,
            Some(RecomputeOverride::Off) => None,
            Some(RecomputeOverride::Full) => Some(RecomputePolicy::default()),
            Some(RecomputeOverride::Every(layers)) => Some(grouped(Grouping::Every(layers.get()))),
            Some(RecomputeOverride::Sqrt) => Some(grouped(Grouping::Sqrt)),
            Some(RecomputeOverride::Attention) => return self.attention_segments(count),
        };
        let Some(policy) = policy else {
            return vec![Segment { layers: 0..count, checkpointed: None }];
        };
        self.note_recomputed();
        let per_segment = policy.grouping.layers_per_segment(count);
        let starts = (0..count).step_by(per_segment.max(1));
        starts
            .map(|start| {
                let layers = start..count.min(start + per_segment);
                let path = match layers.len() {
                    1 => self.join(&start.to_string()),
                    _ => self.join(&format!("{start}-{}", layers.end - 1)),
                };
                let roots: Vec<String> =
                    layers.clone().map(|layer| self.join(&layer.to_string())).collect();
                let keep = kept_under(&roots, policy.save);
                Segment {
                    layers,
                    checkpointed: Some(Rc::new(CheckpointedSegment {
                        path,
                        keep,
                        offload: policy.offload,
                    })),
                }
            })
            .collect()
    }

    /// Makes a segment of each layer that contains attention; it saves every result except attention and its inputs.
    fn attention_segments(&self, count: usize) -> Vec<Segment> {
        let layer_segment = |layer: usize| {
            let path = self.join(&layer.to_string());
            let inputs = self.attention_inputs(&path);
            let checkpointed = (!inputs.is_empty()).then(|| {
                self.note_recomputed();
                Rc::new(CheckpointedSegment {
                    path,
                    keep: SavePolicy::AllBut(inputs),
                    offload: false,
                })
            });
            Segment { layers: layer..layer + 1, checkpointed }
        };
        (0..count).map(layer_segment).collect()
    }

    /// Checks that each path of `save` names a field of the model at `root`.
    fn check_saved(&self, root: &str, save: &[&str]) {
        for path in save {
            let mut at = root.to_owned();
            for field in path.split('.') {
                let known = self.field_names(&at);
                if !known.iter().any(|name| name == field) {
                    let parent = at.strip_prefix(root).unwrap_or_default().trim_start_matches('.');
                    let owner = match parent {
                        "" => "the layer".to_owned(),
                        parent => format!("`{parent}`"),
                    };
                    let known = match known.as_slice() {
                        [] => "no fields".to_owned(),
                        known => format!("the fields `{}`", known.join("`, `")),
                    };
                    self.problem(format_args!(
                        "`save = [{path}]` names nothing: {owner} has {known}"
                    ));
                    break;
                }
                at = format!("{at}.{field}");
            }
        }
    }
}

fn grouped(grouping: Grouping) -> RecomputePolicy {
    RecomputePolicy { grouping, ..RecomputePolicy::default() }
}

fn kept_under(roots: &[String], save: &[&str]) -> SavePolicy {
    if save.is_empty() {
        return SavePolicy::Nothing;
    }
    let paths =
        |root: &String| save.iter().map(|path| format!("{root}.{path}")).collect::<Vec<_>>();
    SavePolicy::Under(roots.iter().flat_map(paths).collect())
}
