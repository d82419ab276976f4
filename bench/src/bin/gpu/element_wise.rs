//! Norms, rotary positions, activations, sums and copies.

use meshwright::backend::{Buffer, DType, Expr, LeafGrad, Node, RopeShape};

use super::report::{Report, Work};
use super::{BATCH, FFN, HEAD_DIM, HEADS, HIDDEN, SEQ, TOKENS};

pub fn rows(report: &mut Report) {
    report.table("element-wise and norms, bf16");
    norms(report);
    swiglu(report);
    let len = TOKENS * HIDDEN;
    let bytes = |moved: usize| Work::Bytes(moved as f64);
    let [a, b] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let mut sum = report.room(DType::Bf16, len);
    report.row("residual sum", bytes(6 * len), |backend| {
        backend.map(&Expr::sum(), &[a.view(), b.view()], sum.view_mut());
    });
    report.row("add_assign", bytes(6 * len), |backend| {
        backend.add_assign(sum.view_mut(), a.view());
    });
    let rope = RopeShape { batch: BATCH, seq: SEQ, heads: HEADS, head_dim: HEAD_DIM };
    let [cos, sin] = [(); 2].map(|()| report.random(DType::F32, SEQ * HEAD_DIM / 2));
    report.row("rope", bytes(4 * len), |backend| {
        backend.rope(&rope, a.view(), cos.view(), sin.view(), false, sum.view_mut());
    });
    let mut wide = report.room(DType::F32, len);
    report.row("cast, bf16 to f32", bytes(6 * len), |backend| {
        backend.cast(a.view(), wide.view_mut());
    });
}

fn norms(report: &mut Report) {
    let len = TOKENS * HIDDEN;
    let [x, dy] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let [weight, bias] = [(); 2].map(|()| report.random(DType::Bf16, HIDDEN));
    let mut out = report.room(DType::Bf16, len);
    let [mut mean, mut scale] = [(); 2].map(|()| report.room(DType::F32, TOKENS));
    let [mut dweight, mut dbias] = [(); 2].map(|()| report.random(DType::F32, HIDDEN));
    let bytes = |moved: usize| Work::Bytes(moved as f64);
    report.row("rms_norm: forward", bytes(4 * len), |backend| {
        backend.rms_norm(x.view(), weight.view(), 1e-5, out.view_mut(), scale.view_mut());
    });
    report.row("rms_norm: backward", bytes(6 * len), |backend| {
        let (dx, dweight) = (grad(&mut out, false), Some(grad(&mut dweight, true)));
        let [x, weight, scale, dy] = [&x, &weight, &scale, &dy].map(|x| x.view());
        backend.rms_norm_backward(x, weight, scale, dy, dx, dweight);
    });
    report.row("rms_norm: backward, onto the residual's", bytes(8 * len), |backend| {
        let (dx, dweight) = (grad(&mut out, true), Some(grad(&mut dweight, true)));
        let [x, weight, scale, dy] = [&x, &weight, &scale, &dy].map(|x| x.view());
        backend.rms_norm_backward(x, weight, scale, dy, dx, dweight);
    });
    report.row("layer_norm: forward", bytes(4 * len), |backend| {
        let [x, weight, bias] = [&x, &weight, &bias].map(|x| x.view());
        let [mean, scale] = [&mut mean, &mut scale].map(|x| x.view_mut());
        backend.layer_norm(x, weight, bias, 1e-5, out.view_mut(), mean, scale);
    });
    report.row("layer_norm: backward", bytes(6 * len), |backend| {
        let [dweight, dbias] = [&mut dweight, &mut dbias].map(|x| Some(grad(x, true)));
        let [x, weight, mean, scale, dy] = [&x, &weight, &mean, &scale, &dy].map(|x| x.view());
        let dx = grad(&mut out, false);
        backend.layer_norm_backward(x, weight, mean, scale, dy, dx, dweight, dbias);
    });
}

fn grad(to: &mut Buffer, accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: to.view_mut(), accumulate }
}

fn swiglu(report: &mut Report) {
    let len = TOKENS * FFN;
    let [gate, up, dy] = [(); 3].map(|()| report.random(DType::Bf16, len));
    let [mut out, mut dgate, mut dup] = [(); 3].map(|()| report.room(DType::Bf16, len));
    let nodes = vec![Node::Leaf(0), Node::Silu(0), Node::Leaf(1), Node::Mul(1, 2)];
    let expr = Expr { nodes };
    report.row("silu(gate) * up: forward", Work::Bytes(6.0 * len as f64), |backend| {
        backend.map(&expr, &[gate.view(), up.view()], out.view_mut());
    });
    report.row("silu(gate) * up: backward", Work::Bytes(10.0 * len as f64), |backend| {
        let mut gradients = [&mut dgate, &mut dup]
            .map(|buffer| Some(LeafGrad { view: buffer.view_mut(), accumulate: false }));
        backend.map_backward(&expr, &[gate.view(), up.view()], dy.view(), &mut gradients);
    });
}
