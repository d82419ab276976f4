//! AdamW, one fused pass over each unit.

use std::rc::Rc;

use crate::backend::{AdamStep, Buffer, Category, DType, View, ViewMut};
use crate::tensor::{Gradients, ParamRef, Rank, Summed, Unit};

/// The constants of [`AdamW`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// Decay rates of the two moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled decay, on parameters of two dims or more.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    /// Betas 0.9 and 0.95, eps 1e-8, weight decay 0.1.
    fn default() -> Self {
        AdamWOptions { betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019), as PyTorch computes it.
pub struct AdamW {
    options: AdamWOptions,
    state: Vec<Moments>,
    step: u64,
}

/// The moments of one unit, laid out as its parameters.
pub struct Moments {
    unit: Rc<Unit>,
    first: Buffer,
    second: Buffer,
}

impl AdamW {
    /// An optimiser of the parameters of `units`, with moments of zero.
    pub fn new(rank: &Rank, units: &[Rc<Unit>], options: AdamWOptions) -> AdamW {
        let zeros = |unit: &Unit| rank.meter().zeros(DType::F32, unit.len(), Category::Optimizer);
        let state = units
            .iter()
            .map(|unit| Moments { unit: Rc::clone(unit), first: zeros(unit), second: zeros(unit) })
            .collect();
        AdamW { options, state, step: 0 }
    }

    /// Applies `gradients` with learning rate `lr`.
    pub fn step<State: Summed>(&mut self, lr: f64, gradients: Gradients<State>) {
        self.step += 1;
        let (beta1, beta2) = self.options.betas;
        let step = AdamStep {
            lr: lr as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: self.options.eps as f32,
            weight_decay: 0.0,
            bias_correction1: (1.0 - beta1.powf(self.step as f64)) as f32,
            bias_correction2: (1.0 - beta2.powf(self.step as f64)) as f32,
            grad_scale: gradients.scale(),
        };
        let decay = self.options.weight_decay as f32;
        for moments in &mut self.state {
            moments.apply(gradients.rank(), &step, decay);
        }
    }

    /// Number of steps applied so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Says how many steps were applied, when the moments come from a checkpoint.
    pub fn set_steps(&mut self, steps: u64) {
        self.step = steps;
    }

    /// The moments, unit by unit.
    pub fn moments(&self) -> &[Moments] {
        &self.state
    }

    /// The moments, unit by unit, to be changed.
    pub fn moments_mut(&mut self) -> &mut [Moments] {
        &mut self.state
    }
}

impl Moments {
    /// The parameters that these are the moments of.
    pub fn params(&self) -> Vec<ParamRef> {
        self.unit.params()
    }

    /// First and second moment of one of the parameters on this rank, row-major.
    pub fn of(&self, param: &ParamRef) -> (&[f32], &[f32]) {
        (&self.first.typed()[param.range()], &self.second.typed()[param.range()])
    }

    /// First and second moment of one of the parameters on this rank, row-major, to be changed.
    pub fn of_mut(&mut self, param: &ParamRef) -> (&mut [f32], &mut [f32]) {
        (&mut self.first.typed_mut()[param.range()], &mut self.second.typed_mut()[param.range()])
    }

    fn apply(&mut self, rank: &Rank, step: &AdamStep, decay: f32) {
        for run in self.params().chunk_by(|a, b| a.decays() == b.decays()) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            // The gaps between parameters are zeros in every buffer, and stay so.
            let range = first.range().start..last.range().end;
            let step = AdamStep { weight_decay: if first.decays() { decay } else { 0.0 }, ..*step };
            let first_moment = &mut self.first.typed_mut::<f32>()[range.clone()];
            let second_moment = &mut self.second.typed_mut::<f32>()[range.clone()];
            self.unit.with_data_and_gradient(range, |data, gradient| {
                rank.backend().adamw(
                    &step,
                    ViewMut::from(data),
                    View::from(gradient),
                    first_moment.into(),
                    second_moment.into(),
                );
            });
        }
    }
}
