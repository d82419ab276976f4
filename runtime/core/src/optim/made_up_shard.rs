//! A shard of a made-up parameter, to check an update rule.

use crate::tensor::{Extent, Rank};
use meshwright_backend::{Buffer, Category, View, ViewMut};

use super::slice_param::SliceParam;
use super::unit_state::check_kinds_are_kept;

/// Elements of the made-up parameter, and of its first shard: no multiple of a size of blocks.
pub(super) const SIZE: usize = 91;
pub(super) const CUT: usize = 37;

/// A shard of the made-up parameter, with its gradient and its states.
pub(super) struct MadeUpShard {
    start: usize,
    params: Buffer,
    gradient: Buffer,
    states: Vec<(&'static str, Buffer)>,
}

impl MadeUpShard {
    /// Creates the elements from `start` on, as they are before step `step`, with states of `kinds`.
    pub(super) fn new(
        rank: &Rank,
        start: usize,
        len: usize,
        kinds: &[&'static str],
        step: u64,
    ) -> Self {
        let buffer = |number: &dyn Fn(usize) -> f32| {
            let numbers: Vec<f32> = (start..start + len).map(number).collect();
            rank.allocator().copy_of(&numbers, Category::Workspace)
        };
        // The first step begins with zeros, and later ones with positive numbers, which second moments are.
        let state = |index: usize| 0.1 + wave(index, 3.7).abs();
        let states = kinds.iter().map(|kind| {
            let data = if step == 1 { buffer(&|_| 0.0) } else { buffer(&state) };
            (*kind, data)
        });
        // The second shard has other norms.
        let scale = |index| if index < CUT { 1.0 } else { 0.0625 };
        MadeUpShard {
            start,
            params: buffer(&|index| scale(index) * wave(index, 1.3)),
            gradient: buffer(&|index| scale(index) * wave(index, 2.1)),
            states: states.collect(),
        }
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.params.len()
    }

    /// Updates all elements by `kernel`.
    pub(super) fn update<const N: usize>(
        &mut self,
        kinds: [&str; N],
        kernel: impl FnOnce(ViewMut<'_>, View<'_>, [ViewMut<'_>; N]),
    ) {
        let kept: Vec<&str> = self.states.iter().map(|(kind, _)| *kind).collect();
        check_kinds_are_kept(&kinds, &kept);
        let mut views = [const { None }; N];
        for (kind, buffer) in &mut self.states {
            if let Some(index) = kinds.iter().position(|wanted| wanted == kind) {
                views[index] = Some(buffer.view_mut());
            }
        }
        let views = views.map(|view| view.expect("an update names each of its states once"));
        kernel(self.params.view_mut(), self.gradient.view(), views);
    }

    /// Returns the elements.
    pub(super) fn slice_param(&self) -> SliceParam {
        SliceParam::new("made up", 0..self.len(), self.start, &[Extent::whole(SIZE)])
    }

    /// Iterates over the parameter and its states.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&'static str, Vec<f32>)> {
        let states = self.states.iter().map(|(kind, data)| (*kind, data.view().to_vec()));
        [("parameter", self.params.view().to_vec())].into_iter().chain(states)
    }
}

fn wave(index: usize, frequency: f32) -> f32 {
    ((index + 1) as f32 * frequency).sin()
}
