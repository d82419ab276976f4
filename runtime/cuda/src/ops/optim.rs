//! Optimizer steps over shards of parameters.

use bytemuck::{Pod, Zeroable};

use crate::gpu::args;
use crate::kernels::OPTIM;
use crate::{CudaBackend, GpuContext};
use meshwright_backend::__internal::{check_rounding, groups_by_rounding};
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, DType, OptimizerOps, SgdStep, StateRounding, UpdateExpr, UpdateOperands,
    View, ViewMut,
};

use super::launch::{address, covering, float_name, to_u32, vectors};
use super::map::update;
use super::state_rounding::RoundingParams;

/// Elements of a vector: 16 bytes of the master weights.
const VECTOR: usize = 4;

/// `Adam` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Adam {
    beta1: f32,
    beta2: f32,
    eps: f32,
    grad_scale: f32,
    new1: f32,
    new2: f32,
    inv_root: f32,
}

/// Maximum number of groups per launch, as in `kernels/optim.cu`.
const MOST_GROUPS: usize = 64;

/// `AdamGroups` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AdamGroups {
    ends: [u64; MOST_GROUPS],
    decay: [f32; MOST_GROUPS],
    rate: [f32; MOST_GROUPS],
}

/// `RoundedAdamGroups` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RoundedAdamGroups {
    groups: AdamGroups,
    roundings: [RoundingParams; MOST_GROUPS],
}

/// `Sgd` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SgdParams {
    momentum: f32,
    grad_scale: f32,
    decay: f32,
    rate: f32,
    nesterov: u32,
}

/// `RoundedSgd` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RoundedSgdParams {
    step: SgdParams,
    padding: u32,
    of_momentum: RoundingParams,
}

/// `AdamOperands` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AdamOperands {
    p: u64,
    g: u64,
    m: u64,
    v: u64,
    copies: Copies,
}

/// `SgdOperands` of the kernels; no momentum is 0.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SgdOperands {
    p: u64,
    g: u64,
    m: u64,
    copies: Copies,
}

/// `Copies` of the kernels: addresses of the copy of the new weights; at most one is not 0.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Copies {
    wide: u64,
    narrow: u64,
}

impl OptimizerOps for CudaBackend {
    fn adamw(&self, step: &AdamStep, groups: &[AdamGroup], args: AdamwArgs) {
        let AdamwArgs { p, g, m, v, copy, rounding } = args;
        check_rounding(&[&m, &v], rounding, p.len());
        let [p, m, v] = [p.as_view(), m.as_view(), v.as_view()];
        let copy = copy.as_ref().map(ViewMut::as_view);
        check_operands(p, g, &[m, v], copy);
        let len: usize = groups.iter().map(|group| group.len).sum();
        assert_eq!(len, p.len(), "operands of an optimizer step are of one size");
        if len == 0 {
            return;
        }
        let (groups, rounding): (Vec<AdamGroup>, Vec<StateRounding>) = if rounding.is_empty() {
            (groups.to_vec(), Vec::new())
        } else {
            groups_by_rounding(groups, rounding).into_iter().unzip()
        };
        let mut start = 0;
        for (index, groups) in groups.chunks(MOST_GROUPS).enumerate() {
            let rounding = rounding.chunks(MOST_GROUPS).nth(index).unwrap_or_default();
            let end = start + groups.iter().map(|group| group.len).sum::<usize>();
            let [p, g, m, v] = [p, g, m, v].map(|view| view.slice(start..end));
            let copy = copy.map(|copy| copy.slice(start..end));
            launch_adamw(self.gpu(), step, (groups, rounding), [p, g, m, v], copy);
            start = end;
        }
    }

    fn sgd(&self, step: &SgdStep, args: SgdArgs) {
        let SgdArgs { p, g, momentum, copy, rounding } = args;
        check_rounding(&momentum.iter().collect::<Vec<_>>(), rounding, p.len());
        let p = p.as_view();
        let [momentum, copy] = [&momentum, &copy].map(|view| view.as_ref().map(ViewMut::as_view));
        check_operands(p, g, momentum.as_slice(), copy);
        if rounding.is_empty() {
            launch_sgd(self.gpu(), step, None, [p, g], momentum, copy);
            return;
        }
        let mut start = 0;
        for part in rounding {
            let range = start..start + part.len;
            let [p, g] = [p, g].map(|view| view.slice(range.clone()));
            let [momentum, copy] =
                [momentum, copy].map(|view| view.map(|view| view.slice(range.clone())));
            launch_sgd(self.gpu(), step, Some(part), [p, g], momentum, copy);
            start = range.end;
        }
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        update::apply_update(self.gpu(), expr, operands)
    }

    fn round_state(
        &self,
        state: usize,
        x: View,
        accumulate: bool,
        out: ViewMut,
        rounding: &[StateRounding],
    ) {
        assert_eq!(x.len(), out.len(), "round_state: operands of one size");
        assert_eq!(out.dtype(), DType::Bf16, "round_state: a bf16 result");
        check_rounding(&[&out], rounding, x.len());
        let (gpu, out) = (self.gpu(), out.as_view());
        let name = format!("round_state_{}", float_name(x.dtype()));
        let [pair, odd] = [state / 2, state % 2].map(to_u32);
        let mut start = 0;
        for part in rounding {
            let [x, out] = [x, out].map(|view| view.slice(start..start + part.len));
            start += part.len;
            let [head, count] = vectors(&[x, out], VECTOR);
            let n = x.len() as u64;
            let grid = covering(gpu, n.div_ceil(VECTOR as u64));
            let (x, out, accumulate) = (address(x), address(out), u32::from(accumulate));
            let rounding = RoundingParams::new(part, 0);
            // SAFETY: both operands have `n` elements, and the dtypes that the kernel takes.
            unsafe {
                let args = args![x, out, accumulate, pair, odd, rounding, head, count, n];
                gpu.launch((&OPTIM, &name), grid, args);
            }
        }
    }
}

/// Launches a step of AdamW of at most [`MOST_GROUPS`] groups, with their rounding if the moments are bf16, and the
/// views `p`, `g`, `m` and `v`.
fn launch_adamw(
    gpu: &GpuContext,
    step: &AdamStep,
    (groups, rounding): (&[AdamGroup], &[StateRounding]),
    [p, g, m, v]: [View<'_>; 4],
    copy: Option<View<'_>>,
) {
    let adam = Adam {
        beta1: step.beta1 as f32,
        beta2: step.beta2 as f32,
        eps: step.eps,
        grad_scale: step.grad_scale,
        new1: (1.0 - step.beta1) as f32,
        new2: (1.0 - step.beta2) as f32,
        inv_root: 1.0 / step.bias_correction2.sqrt(),
    };
    let mut table = RoundedAdamGroups::zeroed();
    let mut end = 0;
    for (index, group) in groups.iter().enumerate() {
        if let Some(rounding) = rounding.get(index) {
            table.roundings[index] = RoundingParams::new(rounding, end);
        }
        end += group.len;
        table.groups.ends[index] = end as u64;
        table.groups.decay[index] = 1.0 - group.lr * group.weight_decay;
        table.groups.rate[index] = group.lr / step.bias_correction1;
    }
    let operands = AdamOperands {
        p: address(p),
        g: address(g),
        m: address(m),
        v: address(v),
        copies: copy_addresses(copy),
    };
    let [mut head, mut count] = vectors(&[p, g, m, v, copy.unwrap_or(p)], VECTOR);
    // No vector may lie in two groups.
    let of_vectors = |end: &u64| *end >= head && (end - head).is_multiple_of(VECTOR as u64);
    if !table.groups.ends[..groups.len() - 1].iter().all(of_vectors) {
        [head, count] = [0; 2];
    }
    let n = end as u64;
    let grid = covering(gpu, count.max(n - count * VECTOR as u64));
    let name = format!("adamw_{}{}", float_name(g.dtype()), state_suffix(m));
    // SAFETY: all operands have the length of the groups, and the dtypes that the kernel takes.
    unsafe {
        if rounding.is_empty() {
            let table = table.groups;
            gpu.launch((&OPTIM, &name), grid, args![adam, table, operands, head, count, n]);
        } else {
            gpu.launch((&OPTIM, &name), grid, args![adam, table, operands, head, count, n]);
        }
    }
}

/// Launches a step of SGD, with the rounding of its momentum if that is bf16, and the views `p` and `g`.
fn launch_sgd(
    gpu: &GpuContext,
    step: &SgdStep,
    rounding: Option<&StateRounding>,
    [p, g]: [View<'_>; 2],
    momentum: Option<View<'_>>,
    copy: Option<View<'_>>,
) {
    let name = format!("sgd_{}{}", float_name(g.dtype()), momentum.map_or("", state_suffix));
    let step = SgdParams {
        momentum: step.momentum,
        grad_scale: step.grad_scale,
        decay: 1.0 - step.lr * step.weight_decay,
        rate: -step.lr,
        nesterov: u32::from(step.nesterov),
    };
    let views = [p, g, momentum.unwrap_or(p), copy.unwrap_or(p)];
    let operands = SgdOperands {
        p: address(p),
        g: address(g),
        m: momentum.map_or(0, address),
        copies: copy_addresses(copy),
    };
    let [head, count] = vectors(&views, VECTOR);
    let n = p.len() as u64;
    let grid = covering(gpu, n.div_ceil(VECTOR as u64));
    // SAFETY: all operands have the length of `p`, and the dtypes that the kernel takes.
    unsafe {
        match rounding {
            None => gpu.launch((&OPTIM, &name), grid, args![step, operands, head, count, n]),
            Some(rounding) => {
                let of_momentum = RoundingParams::new(rounding, 0);
                let step = RoundedSgdParams { step, padding: 0, of_momentum };
                gpu.launch((&OPTIM, &name), grid, args![step, operands, head, count, n]);
            }
        }
    }
}

/// Returns the end of the name of a kernel for states like this one.
fn state_suffix(state: View<'_>) -> &'static str {
    if state.dtype() == DType::Bf16 { "_rounded" } else { "" }
}

/// Checks that master weights are f32, and that all operands are equally long.
fn check_operands(p: View, g: View, states: &[View], copy: Option<View>) {
    assert_eq!(p.dtype(), DType::F32, "parameters are f32");
    assert!(
        states.iter().chain([&g]).chain(copy.as_ref()).all(|view| view.len() == p.len()),
        "operands of an optimizer step are of one size"
    );
}

fn copy_addresses(copy: Option<View>) -> Copies {
    let Some(copy) = copy else { return Copies { wide: 0, narrow: 0 } };
    match copy.dtype() {
        DType::F32 => Copies { wide: address(copy), narrow: 0 },
        DType::Bf16 => Copies { wide: 0, narrow: address(copy) },
        DType::U32 | DType::F64 => panic!("parameters are copied in f32 or bf16"),
    }
}
