//! Optimizer steps: every operand is read and written once.

mod rounded;

use super::float::{Float, by_float};
use super::math::fma;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use super::{CpuBackend, update};
use meshwright_backend::__internal::{check_rounding, groups_by_rounding};
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, DType, OptimizerOps, SgdStep, StateRounding, UpdateExpr, UpdateOperands,
    View, ViewMut,
};

impl OptimizerOps for CpuBackend {
    fn adamw(&self, step: &AdamStep, groups: &[AdamGroup], args: AdamwArgs) {
        let AdamwArgs { mut p, g, mut m, mut v, mut copy, rounding } = args;
        let len: usize = groups.iter().map(|group| group.len).sum();
        assert_eq!([p.len(), g.len(), m.len(), v.len()], [len; 4], "adamw: operands of one size");
        check_rounding(&[&m, &v], rounding, len);
        let is_wide = m.dtype() == DType::F32;
        let mut start = 0;
        let mut update = |group: &AdamGroup, rounding: Option<StateRounding>| {
            let range = start..start + group.len;
            let args = AdamwArgs {
                p: p.slice(range.clone()),
                g: g.slice(range.clone()),
                m: m.slice(range.clone()),
                v: v.slice(range.clone()),
                copy: copy.as_mut().map(|copy| copy.slice(range.clone())),
                rounding: &[],
            };
            start = range.end;
            let kernel = AdamKernel::new(step, group);
            by_float!(args.g.dtype() => G, copy_dtype(&args.copy) => C; match rounding {
                None => adamw::<G, C>(&self.workers, &kernel, args),
                Some(rounding) => rounded::adamw::<G, C>(&self.workers, &kernel, args, rounding),
            });
        };
        if is_wide {
            groups.iter().for_each(|group| update(group, None));
        } else {
            for (group, rounding) in groups_by_rounding(groups, rounding) {
                update(&group, Some(rounding));
            }
        }
    }

    fn sgd(&self, step: &SgdStep, args: SgdArgs) {
        let SgdArgs { mut p, g, mut momentum, mut copy, rounding } = args;
        let len = p.len();
        assert_eq!(g.len(), len, "sgd: operands of one size");
        assert!(momentum.as_ref().is_none_or(|m| m.len() == len), "sgd: operands of one size");
        check_rounding(&momentum.iter().collect::<Vec<_>>(), rounding, len);
        if momentum.as_ref().is_none_or(|momentum| momentum.dtype() == DType::F32) {
            let args = SgdArgs { p, g, momentum, copy, rounding };
            by_float!(args.g.dtype() => G, copy_dtype(&args.copy) => C;
                sgd::<G, C>(&self.workers, step, args));
            return;
        }
        let mut start = 0;
        for part in rounding {
            let range = start..start + part.len;
            let args = SgdArgs {
                p: p.slice(range.clone()),
                g: g.slice(range.clone()),
                momentum: momentum.as_mut().map(|momentum| momentum.slice(range.clone())),
                copy: copy.as_mut().map(|copy| copy.slice(range.clone())),
                rounding: &[],
            };
            start = range.end;
            by_float!(args.g.dtype() => G, copy_dtype(&args.copy) => C;
                rounded::sgd::<G, C>(&self.workers, step, args, *part));
        }
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        expr.check_operands(&operands);
        let UpdateOperands { mut param, gradient, mut states, rounding, mut copy } = operands;
        let copy_dtype = copy_dtype(&copy);
        let state_dtype = states.first().map_or(DType::F32, ViewMut::dtype);
        by_float!(gradient.dtype() => G, copy_dtype => C, state_dtype => S; {
            let states = states.iter_mut().map(ViewMut::typed::<S>).collect();
            let copy = copy.as_mut().map(ViewMut::typed::<C>);
            let (param, gradient) = (param.typed(), gradient.typed::<G>());
            update::apply_update(&self.workers, expr, param, gradient, (states, rounding), copy);
        });
    }

    fn round_state(
        &self,
        state: usize,
        x: View,
        accumulate: bool,
        mut out: ViewMut,
        rounding: &[StateRounding],
    ) {
        assert_eq!(x.len(), out.len(), "round_state: operands of one size");
        assert_eq!(out.dtype(), DType::Bf16, "round_state: a bf16 result");
        check_rounding(&[&out], rounding, x.len());
        by_float!(x.dtype() => T; rounded::round_state::<T>(
            &self.workers, state, x.typed(), accumulate, out.typed(), rounding));
    }
}

/// Returns the dtype of the copy of the weights; any if there is none.
fn copy_dtype(copy: &Option<ViewMut>) -> DType {
    copy.as_ref().map_or(DType::F32, ViewMut::dtype)
}

/// Updates the parameters of one group.
fn adamw<G: Float, C: Float>(workers: &Workers, adam: &AdamKernel, args: AdamwArgs) {
    let AdamwArgs { mut p, g, mut m, mut v, mut copy, .. } = args;
    let (p, g, m, v) = (p.typed(), g.typed::<G>(), m.typed(), v.typed());
    let copy = copy.as_mut().map(ViewMut::typed::<C>);
    let len = p.len();
    check_copy(&copy, len);
    let state = (Rows(m, 1), Rows(v, 1));
    let outputs = (Rows(p, 1), state, copy.map(|copy| Rows(copy, 1)));
    workers.rows(len, 4, outputs, |range, (p, (m, v), copy)| {
        adamw_range(adam, p.0, &g[range], m.0, v.0, copy.map(|copy| copy.0));
    });
}

fn check_copy<C>(copy: &Option<&mut [C]>, len: usize) {
    assert!(copy.as_ref().is_none_or(|copy| copy.len() == len), "the copy has the same size");
}

dispatch! {
    fn adamw_range<const FMA: bool, G: Float, C: Float>(
        adam: &AdamKernel,
        p: &mut [f32],
        g: &[G],
        m: &mut [f32],
        v: &mut [f32],
        copy: Option<&mut [C]>,
    ) {
        let len = p.len();
        let (g, m, v) = (&g[..len], &mut m[..len], &mut v[..len]);
        match copy {
            None => {
                for i in 0..len {
                    adam.element::<FMA>(&mut p[i], g[i].widen_to_f32(), &mut m[i], &mut v[i]);
                }
            }
            // One fused loop: copying block by block after it takes a third longer.
            Some(copy) => {
                let copy = &mut copy[..len];
                for i in 0..len {
                    adam.element::<FMA>(&mut p[i], g[i].widen_to_f32(), &mut m[i], &mut v[i]);
                    copy[i] = C::narrow_from_f32(p[i]);
                }
            }
        }
    }
}

/// Constants of an AdamW step of a group.
struct AdamKernel<'a> {
    step: &'a AdamStep,
    /// Factors on the moments, and on the new gradients.
    betas: [f32; 2],
    new: [f32; 2],
    decay: f32,
    rate: f32,
    inv_root: f32,
}

impl<'a> AdamKernel<'a> {
    fn new(step: &'a AdamStep, group: &AdamGroup) -> Self {
        AdamKernel {
            step,
            betas: [step.beta1 as f32, step.beta2 as f32],
            new: [(1.0 - step.beta1) as f32, (1.0 - step.beta2) as f32],
            decay: 1.0 - group.lr * group.weight_decay,
            rate: group.lr / step.bias_correction1,
            inv_root: 1.0 / step.bias_correction2.sqrt(),
        }
    }

    #[inline(always)]
    fn element<const FMA: bool>(&self, p: &mut f32, g: f32, m: &mut f32, v: &mut f32) {
        let &AdamStep { eps, grad_scale, .. } = self.step;
        let ([beta1, beta2], [new1, new2]) = (self.betas, self.new);
        let grad = g * grad_scale;
        *m = fma::<FMA>(beta1, *m, new1 * grad);
        *v = fma::<FMA>(beta2, *v, new2 * grad * grad);
        let denominator = fma::<FMA>(v.sqrt(), self.inv_root, eps);
        *p = self.decay * *p - self.rate * (*m / denominator);
    }
}

fn sgd<G: Float, C: Float>(workers: &Workers, step: &SgdStep, args: SgdArgs) {
    let SgdArgs { mut p, g, mut momentum, mut copy, .. } = args;
    let (p, g) = (p.typed(), g.typed::<G>());
    let momentum = momentum.as_mut().map(ViewMut::typed);
    let copy = copy.as_mut().map(ViewMut::typed::<C>);
    let len = p.len();
    check_copy(&copy, len);
    let state = momentum.map(|momentum| Rows(momentum, 1));
    let outputs = (Rows(p, 1), state, copy.map(|copy| Rows(copy, 1)));
    workers.rows(len, 3, outputs, |range, (p, momentum, copy)| {
        let (momentum, copy) = (momentum.map(|m| m.0), copy.map(|copy| copy.0));
        sgd_range(step, p.0, &g[range], momentum, copy);
    });
}

dispatch! {
    fn sgd_range<const FMA: bool, G: Float, C: Float>(
        step: &SgdStep,
        p: &mut [f32],
        g: &[G],
        momentum: Option<&mut [f32]>,
        copy: Option<&mut [C]>,
    ) {
        let len = p.len();
        let g = &g[..len];
        match (momentum, copy) {
            (None, None) => {
                for i in 0..len {
                    descend::<FMA>(step, &mut p[i], g[i].widen_to_f32());
                }
            }
            (None, Some(copy)) => {
                let copy = &mut copy[..len];
                for i in 0..len {
                    descend::<FMA>(step, &mut p[i], g[i].widen_to_f32());
                    copy[i] = C::narrow_from_f32(p[i]);
                }
            }
            (Some(momentum), None) => {
                let momentum = &mut momentum[..len];
                for i in 0..len {
                    update_with_momentum::<FMA>(step, &mut p[i], g[i].widen_to_f32(), &mut momentum[i]);
                }
            }
            (Some(momentum), Some(copy)) => {
                let (momentum, copy) = (&mut momentum[..len], &mut copy[..len]);
                for i in 0..len {
                    update_with_momentum::<FMA>(step, &mut p[i], g[i].widen_to_f32(), &mut momentum[i]);
                    copy[i] = C::narrow_from_f32(p[i]);
                }
            }
        }
    }
}

/// Updates one element without momentum.
#[inline(always)]
fn descend<const FMA: bool>(step: &SgdStep, p: &mut f32, g: f32) {
    let grad = g * step.grad_scale;
    *p = fma::<FMA>(1.0 - step.lr * step.weight_decay, *p, -step.lr * grad);
}

/// Updates one element with momentum.
#[inline(always)]
fn update_with_momentum<const FMA: bool>(step: &SgdStep, p: &mut f32, g: f32, momentum: &mut f32) {
    let grad = g * step.grad_scale;
    *momentum = fma::<FMA>(step.momentum, *momentum, grad);
    let ahead = fma::<FMA>(step.momentum, *momentum, grad);
    let direction = if step.nesterov { ahead } else { *momentum };
    *p = fma::<FMA>(1.0 - step.lr * step.weight_decay, *p, -step.lr * direction);
}
