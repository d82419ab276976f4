//! Auxiliary losses: terms whose gradients begin where they are computed, when a backward pass reaches them.

use std::panic::Location;
use std::sync::Arc;

use crate::layout::AxisSet;
use crate::promise::LossSum;
use meshwright_backend::{Buffer, MiddleDim};

use super::tape::{Dependencies, LossFactor, TapeGradients};
use super::value::{Computed, Value};

impl Value {
    /// Returns the value as the result of an operation that changes nothing, whose backward adds the gradient of the
    /// sum of `terms`, which vary over the axes `varies`.
    ///
    /// # Panics
    /// If the terms are computed from another micro-batch.
    #[track_caller]
    pub(crate) fn with_auxiliary_loss(&self, terms: &Value, varies: AxisSet) -> Value {
        let rank = self.rank();
        rank.check_same(terms.rank());
        rank.check_same_micro_batch(terms.rank());
        rank.tape().count_auxiliary_loss();
        let x = self.compute();
        if rank.records_operations() {
            let (source, line) = (x.node, Location::caller());
            let Computed { data, node: Some(of_terms) } = terms.compute() else {
                return self.unchanged();
            };
            let sum = || rank.read(data.view()).into_iter().map(f64::from).sum();
            let loss = LossSum::of_checked_loss(rank, varies, line, sum).of_auxiliary_loss(line);
            let (len, sources) = (data.len(), source.iter().chain([&of_terms]));
            let node = rank.tape().record(Dependencies::on(sources), move |gradients, gradient| {
                if let Some(backward) = gradients.rank.running_backward() {
                    backward.add_auxiliary_loss(loss);
                }
                let of_terms_sum = Arc::new(gradients.gradient_of_auxiliary_loss(len, line));
                gradients.add_gradient(&of_terms, of_terms_sum);
                if let Some(source) = &source {
                    gradients.add_gradient(source, gradient);
                }
            });
            rank.tape().mark_auxiliary_loss();
            return self.result_of(Some(node), None);
        }
        match terms.segment_of_result() {
            Some(segment) => self.result_of(None, Some(segment)),
            None => self.unchanged(),
        }
    }
}

impl TapeGradients<'_> {
    /// Returns the gradient of `len` terms of an auxiliary loss, which was attached at `line`.
    ///
    /// # Panics
    /// If backward began with losses that have different factors.
    fn gradient_of_auxiliary_loss(&self, len: usize, line: &'static Location<'static>) -> Buffer {
        let seed = self.seed.as_ref().expect("a backward with auxiliary losses begins with losses");
        let LossFactor::Same(factor) = seed.factor else {
            panic!(
                "the backward{} begins with losses that have different weights or counts, and reaches an auxiliary \
                 loss (attached at {line}), which has those of one: make it a part of that loss, \
                 `loss.with_penalty(&terms).weighted(..)`, or differentiate losses with one weight",
                self.rank.backward_line()
            );
        };
        let mut gradient = self.rank.alloc_activation(len);
        let all = MiddleDim { outer: 1, len, inner: 1 };
        let backend = self.rank.backend();
        backend.broadcast_dim(all, seed.gradient.view(), gradient.view_mut(), factor);
        gradient
    }
}
