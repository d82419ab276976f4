//! Elementwise kernels, sums and random numbers.

use half::bf16;

use super::{
    Kernel, Results, assert_rounds, half_unit, input, on_every_backend, unwritten, values, view,
    view_mut,
};
use crate::float::Float;
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{
    AdamGroup, AdamStep, Backend, BlockCopy, BlockIndex, DropoutMask, Expr, LeafGrad, MiddleDim,
    Node, SgdStep, UnaryFunction,
};

struct Map {
    nodes: Vec<Node>,
    len: usize,
    row: usize,
    accumulate: bool,
}

impl Kernel for Map {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Map { ref nodes, len, row, accumulate } = self;
        let expr = Expr { nodes: nodes.clone() };
        let leaves = [input::<T>(len, 1, 4.0), input(len, 2, 4.0), input(row, 3, 2.0)];
        let leaves = [view(&leaves[0]), view(&leaves[1]), view(&leaves[2])];
        let grad = input::<T>(len, 4, 1.0);
        let mut out = unwritten::<T>(len);
        cpu.map(&expr, &leaves, view_mut(&mut out));
        let [mut first, mut second] =
            [5, 6].map(|seed| if accumulate { input::<T>(len, seed, 1.0) } else { unwritten(len) });
        let mut of_row = if accumulate { values(row, 7) } else { unwritten(row) };
        let slots = [view_mut(&mut first), view_mut(&mut second), view_mut(&mut of_row)];
        let mut slots = slots.map(|view| Some(LeafGrad { view, accumulate }));
        cpu.map_backward(&expr, &leaves, view(&grad), &mut slots);
        Results {
            rounded: vec![("out", out), ("first gradient", first), ("second gradient", second)],
            wide: vec![("row gradient", of_row)],
        }
    }
}

#[test]
fn maps() {
    use Node::*;
    use UnaryFunction::*;
    for (len, row) in [(1, 1), (35, 7), (1024, 64), (5000, 1250), (66_000, 33)] {
        let index = BlockIndex::whole(&[len]);
        for nodes in [
            vec![Leaf(0)],
            vec![Row(2)],
            vec![Leaf(0), Leaf(1), Add(0, 1)],
            vec![Leaf(0), Leaf(1), Sub(0, 1)],
            vec![Leaf(0), Apply(Silu, 0), Leaf(1), Mul(1, 2)],
            vec![Leaf(0), Leaf(0), Mul(0, 1), Leaf(0), Sub(2, 3)],
            vec![Leaf(0), Row(2), Add(0, 1), Apply(Gelu, 2), Row(2), Mul(3, 4)],
            vec![Leaf(0), Apply(Tanh, 0), Mul(1, 1), Leaf(1), Mul(2, 3), Add(1, 4)],
            vec![
                Leaf(0),
                Apply(GeluTanh, 0),
                Apply(Relu, 1),
                Apply(Exp, 2),
                Scale(3, -0.3),
                Offset(4, 0.5),
            ],
            vec![Leaf(0), Apply(Exp, 0)],
            vec![Leaf(0), Apply(Sigmoid, 0), Apply(Softplus, 1), Apply(Log, 2), Apply(Abs, 3)],
            vec![Leaf(0), Apply(Square, 0), Offset(1, 0.5), Apply(Sqrt, 2), Apply(Rsqrt, 3)],
            vec![
                Leaf(0),
                Row(2),
                Apply(Square, 1),
                Offset(2, 0.5),
                Div(0, 3),
                Clamp(4, -0.5, 0.75),
                Apply(Recip, 3),
                Mul(5, 6),
            ],
            vec![Leaf(0), Scale(0, 0.7), Dropout(1, DropoutMask { key: 7, rate: 0.3, index })],
        ] {
            for accumulate in [false, true] {
                let what = format!("{nodes:?} of {len}, accumulate {accumulate}");
                assert_rounds(&what, &Map { nodes: nodes.clone(), len, row, accumulate }, 1e-6);
            }
        }
    }
}

#[test]
fn a_leaf_that_is_also_a_row_has_one_f32_gradient() {
    let nodes = vec![Node::Leaf(0), Node::Row(0), Node::Mul(0, 1)];
    let (x, grad) = (input::<bf16>(3000, 1, 1.0), input::<bf16>(3000, 2, 1.0));
    on_every_backend(|cpu| {
        let mut dx = unwritten::<f32>(3000);
        let slot = LeafGrad { view: view_mut(&mut dx), accumulate: false };
        let expr = Expr { nodes: nodes.clone() };
        cpu.map_backward(&expr, &[view(&x)], view(&grad), &mut [Some(slot)]);
        for i in 0..dx.len() {
            assert_eq!(dx[i], 2.0 * x[i].to_f32() * grad[i].to_f32());
        }
    });
}

struct Sums([usize; 3]);

impl Kernel for Sums {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Sums([outer, n, inner]) = self;
        let (x, dy) = (input::<T>(outer * n * inner, 1, 1.0), input::<T>(outer * inner, 2, 1.0));
        let wide_dy = values(outer * inner, 3);
        let (mut y, mut wide_y) = (unwritten::<T>(outer * inner), unwritten::<f32>(outer * inner));
        let [mut dx, mut wide_dx] = [(); 2].map(|()| unwritten::<T>(x.len()));
        cpu.sum_dim(MiddleDim { outer, len: n, inner }, view(&x), view_mut(&mut y), 0.3);
        cpu.sum_dim(MiddleDim { outer, len: n, inner }, view(&x), view_mut(&mut wide_y), 0.3);
        cpu.broadcast_dim(MiddleDim { outer, len: n, inner }, view(&dy), view_mut(&mut dx), 0.3);
        cpu.broadcast_dim(
            MiddleDim { outer, len: n, inner },
            view(&wide_dy),
            view_mut(&mut wide_dx),
            0.3,
        );
        Results {
            rounded: vec![("sum", y), ("broadcast", dx), ("broadcast of f32", wide_dx)],
            wide: vec![("sum in f32", wide_y)],
        }
    }
}

#[test]
fn sums_over_a_dim() {
    for sizes in [[1, 1, 1], [5, 300, 1], [1, 33, 5000], [3, 4, 7], [40, 17, 130]] {
        assert_rounds(&format!("{sizes:?}"), &Sums(sizes), 1e-6);
    }
}

struct Plain(usize);

impl Kernel for Plain {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let len = self.0;
        let src = input::<T>(len, 1, 1.0);
        let wide_src = values(len, 2);
        let [mut sum, mut wide_sum, mut average, mut scaled, mut filled] =
            [3, 4, 5, 6, 7].map(|seed| input::<T>(len, seed, 1.0));
        let [mut f32_sum, mut f32_average] = [8, 9].map(|seed| values(len, seed));
        cpu.add_assign(view_mut(&mut sum), view(&src));
        cpu.add_assign(view_mut(&mut wide_sum), view(&wide_src));
        cpu.add_assign(view_mut(&mut f32_sum), view(&src));
        cpu.lerp(view_mut(&mut average), view(&src), 0.1);
        cpu.lerp(view_mut(&mut f32_average), view(&src), 0.1);
        cpu.scale(view_mut(&mut scaled), 0.3);
        cpu.fill(view_mut(&mut filled), 0.3);
        let mut deviates = unwritten::<T>(len);
        cpu.fill_normal(5, 2.0, &BlockIndex::whole(&[len]), view_mut(&mut deviates));
        let squares = cpu.sum_squares(view(&src)) as f32;
        let mut copied = unwritten::<T>(len + 3);
        copied[len..].fill(T::ZERO);
        cpu.copy_blocks(
            &BlockCopy { blocks: 1, len, src_start: 0, src_stride: 0, dst_start: 0, dst_stride: 0 },
            view(&src),
            view_mut(&mut copied),
        );
        Results {
            rounded: vec![
                ("sum", sum),
                ("sum with f32", wide_sum),
                ("average", average),
                ("scaled", scaled),
                ("filled", filled),
                ("normal", deviates),
                ("copied", copied),
            ],
            wide: vec![
                ("sum in f32", f32_sum),
                ("average in f32", f32_average),
                ("squares", vec![squares]),
            ],
        }
    }
}

#[test]
fn plain_arithmetic() {
    for len in [1, 17, 40_001] {
        assert_rounds(&format!("{len} elements"), &Plain(len), 0.0);
    }
}

const ADAM: AdamStep = AdamStep {
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-6,
    bias_correction1: 0.3,
    bias_correction2: 0.2,
    grad_scale: 0.5,
};

const SGD: SgdStep =
    SgdStep { lr: 0.01, momentum: 0.9, nesterov: true, weight_decay: 0.1, grad_scale: 0.5 };

struct Steps(usize);

impl Kernel for Steps {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let len = self.0;
        let g = input::<T>(len, 1, 1.0);
        let [mut adam_p, mut m, mut sgd_p, mut momentum] = [2, 3, 4, 5].map(|s| values(len, s));
        let mut v: Vec<f32> = values(len, 6).into_iter().map(f32::abs).collect();
        let [mut adam_copy, mut sgd_copy] = [(); 2].map(|()| unwritten::<T>(len));
        let (m_out, v_out) = (view_mut(&mut m), view_mut(&mut v));
        let copy = Some(view_mut(&mut adam_copy));
        let group = AdamGroup { len, lr: 0.01, weight_decay: 0.1 };
        cpu.adamw(
            &ADAM,
            &[group],
            AdamwArgs { p: view_mut(&mut adam_p), g: view(&g), m: m_out, v: v_out, copy },
        );
        let (buffer, copy) = (Some(view_mut(&mut momentum)), Some(view_mut(&mut sgd_copy)));
        cpu.sgd(&SGD, SgdArgs { p: view_mut(&mut sgd_p), g: view(&g), momentum: buffer, copy });
        for (p, copy) in [(&adam_p, &adam_copy), (&sgd_p, &sgd_copy)] {
            for (p, copy) in p.iter().zip(copy) {
                assert_eq!(
                    T::narrow_from_f32(*p).widen_to_f32(),
                    copy.widen_to_f32(),
                    "the copy is the parameter"
                );
            }
        }
        Results {
            rounded: vec![("adamw copy", adam_copy), ("sgd copy", sgd_copy)],
            wide: vec![("adamw", adam_p), ("m", m), ("v", v), ("sgd", sgd_p), ("buf", momentum)],
        }
    }
}

#[test]
fn optimizer_steps() {
    for len in [1, 19, 50_003] {
        assert_rounds(&format!("{len} elements"), &Steps(len), 1e-6);
    }
}

#[test]
fn half_units_are_those_of_bf16() {
    for x in [1.0f32, 1.99, 0.3, 5e-39, 3e38] {
        let up = bf16::from_bits(bf16::from_f32(x).to_bits() & 0x7f80);
        let next = bf16::from_bits(up.to_bits() + 1);
        assert_eq!(half_unit(x), (next.to_f32() - up.to_f32()) / 2.0, "{x}");
    }
}
