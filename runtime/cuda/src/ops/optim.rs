//! Optimizer steps over shards of parameters.

use bytemuck::{Pod, Zeroable};

use crate::gpu::args;
use crate::kernels::OPTIM;
use crate::{CudaBackend, GpuContext};
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, DType, OptimizerOps, SgdStep, UpdateExpr, UpdateOperands, View, ViewMut,
};

use super::launch::{address, covering, float_name, vectors};
use super::map::update;

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
        let AdamwArgs { p, g, m, v, copy } = args;
        let [p, m, v] = [p.as_view(), m.as_view(), v.as_view()];
        let copy = copy.as_ref().map(ViewMut::as_view);
        check_operands(p, g, &[m, v], copy);
        let len: usize = groups.iter().map(|group| group.len).sum();
        assert_eq!(len, p.len(), "operands of an optimizer step are of one size");
        if len == 0 {
            return;
        }
        let mut start = 0;
        for groups in groups.chunks(MOST_GROUPS) {
            let end = start + groups.iter().map(|group| group.len).sum::<usize>();
            let [p, g, m, v] = [p, g, m, v].map(|view| view.slice(start..end));
            let copy = copy.map(|copy| copy.slice(start..end));
            launch_adamw(self.gpu(), step, groups, [p, g, m, v], copy);
            start = end;
        }
    }

    fn sgd(&self, step: &SgdStep, args: SgdArgs) {
        let SgdArgs { p, g, momentum, copy } = args;
        let p = p.as_view();
        let [momentum, copy] = [&momentum, &copy].map(|view| view.as_ref().map(ViewMut::as_view));
        check_operands(p, g, momentum.as_slice(), copy);
        let name = format!("sgd_{}", float_name(g.dtype()));
        let constants = SgdParams {
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
        let grid = covering(self.gpu(), n.div_ceil(VECTOR as u64));
        // SAFETY: all operands have the length of `p`, and the dtypes that the kernel takes.
        unsafe {
            self.gpu().launch((&OPTIM, &name), grid, args![constants, operands, head, count, n]);
        }
    }

    fn apply_update(&self, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
        update::apply_update(self.gpu(), expr, operands)
    }
}

/// Launches a step of AdamW of at most [`MOST_GROUPS`] groups, with the views `p`, `g`, `m` and `v`.
fn launch_adamw(
    gpu: &GpuContext,
    step: &AdamStep,
    groups: &[AdamGroup],
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
    let mut table = AdamGroups::zeroed();
    let mut end = 0;
    for (index, group) in groups.iter().enumerate() {
        end += group.len;
        table.ends[index] = end as u64;
        table.decay[index] = 1.0 - group.lr * group.weight_decay;
        table.rate[index] = group.lr / step.bias_correction1;
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
    if !table.ends[..groups.len() - 1].iter().all(of_vectors) {
        [head, count] = [0; 2];
    }
    let n = end as u64;
    let grid = covering(gpu, count.max(n - count * VECTOR as u64));
    let name = format!("adamw_{}", float_name(g.dtype()));
    // SAFETY: all operands have the length of the groups, and the dtypes that the kernel takes.
    unsafe {
        gpu.launch((&OPTIM, &name), grid, args![adam, table, operands, head, count, n]);
    }
}

/// Checks that master weights and states are f32, and that all operands are equally long.
fn check_operands(p: View, g: View, states: &[View], copy: Option<View>) {
    let masters = states.iter().chain([&p]);
    assert!(
        masters.clone().all(|view| view.dtype() == DType::F32),
        "parameters and the optimizer state are f32"
    );
    assert!(
        masters.chain([&g]).chain(copy.as_ref()).all(|view| view.len() == p.len()),
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
