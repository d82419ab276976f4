//! Matmuls with epilogues of cuBLASLt, next to separate kernels for each part.

use meshwright::backend::{
    Backend, Buffer, DType, Expr, Gemm, GemmEpilogue, LeafGrad, Node, UnaryFunction,
};

use super::matmul::plain;
use super::report::{Report, Work};
use super::sizes::{Model, Sizes};

pub fn rows(report: &mut Report, sizes: &Sizes) {
    for model in [&sizes.llama, &sizes.gpt2] {
        report.table(&format!("epilogues of {}, bf16", model.name));
        up(report, model);
    }
}

/// Measures the first weight of the MLP with a bias, forward and backward.
fn up(report: &mut Report, model: &Model) {
    let (tokens, inner, outer) = (model.tokens(), model.hidden, model.ffn);
    let x = report.random(DType::Bf16, tokens * inner);
    let weight = report.random(DType::Bf16, inner * outer);
    let bias = report.random(DType::Bf16, outer);
    let dy = report.random(DType::Bf16, tokens * outer);
    let [mut y, mut inside] = [(); 2].map(|()| report.alloc(DType::Bf16, tokens * outer));
    let mut dweight = report.random(DType::F32, inner * outer);
    let mut dbias = report.alloc(DType::F32, outer);
    let forward = plain(tokens, outer, inner);
    let to_weight = Gemm { trans_a: true, accumulate: true, ..plain(inner, outer, tokens) };
    let work = Work::Flops(2.0 * (tokens * inner * outer) as f64);

    report.row_if("bias: fused", work, |backend| {
        let ending = GemmEpilogue::Bias(bias.view());
        backend.gemm_with_epilogue(&forward, x.view(), weight.view(), ending, y.view_mut())
    });
    let added = Expr { nodes: vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)] };
    report.row("bias: unfused", work, |backend| {
        backend.gemm(&forward, x.view(), weight.view(), inside.view_mut());
        backend.map(&added, &[inside.view(), bias.view()], y.view_mut());
    });
    report.row_if("bias and GELU, pre-activation kept: fused", work, |backend| {
        let inside = Some(inside.view_mut());
        let ending = GemmEpilogue::BiasGelu { bias: bias.view(), pre_activation: inside };
        backend.gemm_with_epilogue(&forward, x.view(), weight.view(), ending, y.view_mut())
    });
    let activated = Expr {
        nodes: [added.nodes.clone(), vec![Node::Apply(UnaryFunction::GeluTanh, 2)]].concat(),
    };
    report.row("bias and GELU: unfused", work, |backend| {
        backend.gemm(&forward, x.view(), weight.view(), inside.view_mut());
        backend.map(&activated, &[inside.view(), bias.view()], y.view_mut());
    });
    report.row("weight and bias gradients", work, |backend| {
        backend.gemm(&to_weight, x.view(), dy.view(), dweight.view_mut());
        bias_gradient(backend, &added, [&inside, &bias, &dy], &mut dbias);
    });
}

/// Sums the columns of a gradient, as the backward pass of a separate bias does.
fn bias_gradient(
    backend: &dyn Backend,
    added: &Expr,
    [x, bias, dy]: [&Buffer; 3],
    dbias: &mut Buffer,
) {
    let gradient = Some(LeafGrad { view: dbias.view_mut(), accumulate: false });
    backend.map_backward(added, &[x.view(), bias.view()], dy.view(), &mut [None, gradient]);
}
