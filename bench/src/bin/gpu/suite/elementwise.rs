//! Norms, rotary positions, activations, sums and copies.

use meshwright::backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright::backend::ops::rope::RopeArgs;
use meshwright::backend::{
    Buffer, DType, Expr, LeafGrad, Node, ResidualSum, RopeShape, UnaryFunction,
};

use super::report::{Report, Work};
use super::sizes::{Model, Sizes};

pub fn rows(report: &mut Report, sizes: &Sizes) {
    let Sizes { llama, gpt2, .. } = sizes;
    report.table(&format!("elementwise and norms of {}, bf16", llama.name));
    rms_norm(report, llama);
    let swiglu =
        vec![Node::Leaf(0), Node::Apply(UnaryFunction::Silu, 0), Node::Leaf(1), Node::Mul(1, 2)];
    activation(report, "silu(gate) * up", swiglu, llama);
    sums(report, llama);
    rope(report, llama);
    report.table(&format!("elementwise and norms of {}, bf16", gpt2.name));
    layer_norm(report, gpt2);
    activation(
        report,
        "gelu_tanh",
        vec![Node::Leaf(0), Node::Apply(UnaryFunction::GeluTanh, 0)],
        gpt2,
    );
    sums(report, gpt2);
}

fn rms_norm(report: &mut Report, model: &Model) {
    let (tokens, hidden) = (model.tokens(), model.hidden);
    let len = tokens * hidden;
    let [x, dy] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let weight = report.random(DType::Bf16, hidden);
    let [mut out, mut sum] = [(); 2].map(|()| report.alloc(DType::Bf16, len));
    let mut scale = report.alloc(DType::F32, tokens);
    let mut dweight = report.random(DType::F32, hidden);
    let bytes = |moved: usize| Work::Bytes((moved * len) as f64);
    report.row("rms_norm: forward", bytes(4), |backend| {
        backend.rms_norm(RmsNormArgs {
            x: x.view(),
            residual: None,
            weight: weight.view(),
            offset: 0.0,
            eps: 1e-5,
            squares: None,
            y: out.view_mut(),
            inv_rms: scale.view_mut(),
        });
    });
    report.row("residual_rms_norm: forward", bytes(8), |backend| {
        let [sum, out, scale] = [&mut sum, &mut out, &mut scale].map(|x| x.view_mut());
        backend.rms_norm(RmsNormArgs {
            x: x.view(),
            residual: Some(ResidualSum { term: dy.view(), sum }),
            weight: weight.view(),
            offset: 0.0,
            eps: 1e-5,
            squares: None,
            y: out,
            inv_rms: scale,
        });
    });
    report.row("rms_norm: backward", bytes(6), |backend| {
        let (dx, dweight) = (gradient(&mut out, false), Some(gradient(&mut dweight, true)));
        let [x, weight, scale, dy] = [&x, &weight, &scale, &dy].map(|x| x.view());
        backend.rms_norm_backward(RmsNormBackwardArgs {
            x,
            weight,
            offset: 0.0,
            inv_rms: scale,
            dy,
            dots: None,
            dx,
            dweight,
        });
    });
    report.row("rms_norm: backward, added to the residual's", bytes(8), |backend| {
        let (dx, dweight) = (gradient(&mut out, true), Some(gradient(&mut dweight, true)));
        let [x, weight, scale, dy] = [&x, &weight, &scale, &dy].map(|x| x.view());
        backend.rms_norm_backward(RmsNormBackwardArgs {
            x,
            weight,
            offset: 0.0,
            inv_rms: scale,
            dy,
            dots: None,
            dx,
            dweight,
        });
    });
}

fn layer_norm(report: &mut Report, model: &Model) {
    let (tokens, hidden) = (model.tokens(), model.hidden);
    let len = tokens * hidden;
    let [x, dy] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let [weight, bias] = [(); 2].map(|()| report.random(DType::Bf16, hidden));
    let [mut out, mut sum] = [(); 2].map(|()| report.alloc(DType::Bf16, len));
    let [mut mean, mut scale] = [(); 2].map(|()| report.alloc(DType::F32, tokens));
    let [mut dweight, mut dbias] = [(); 2].map(|()| report.random(DType::F32, hidden));
    let bytes = |moved: usize| Work::Bytes((moved * len) as f64);
    report.row("layer_norm: forward", bytes(4), |backend| {
        let [x, weight, bias] = [&x, &weight, &bias].map(|x| x.view());
        let [out, mean, scale] = [&mut out, &mut mean, &mut scale].map(|x| x.view_mut());
        backend.layer_norm(LayerNormArgs {
            x,
            residual: None,
            weight,
            bias,
            eps: 1e-5,
            y: out,
            mean,
            inv_std: scale,
        });
    });
    report.row("residual_layer_norm: forward", bytes(8), |backend| {
        let [x, dy, weight, bias] = [&x, &dy, &weight, &bias].map(|x| x.view());
        let [sum, out] = [&mut sum, &mut out].map(|x| x.view_mut());
        let [mean, scale] = [&mut mean, &mut scale].map(|x| x.view_mut());
        backend.layer_norm(LayerNormArgs {
            x,
            residual: Some(ResidualSum { term: dy, sum }),
            weight,
            bias,
            eps: 1e-5,
            y: out,
            mean,
            inv_std: scale,
        });
    });
    report.row("layer_norm: backward", bytes(6), |backend| {
        let [dweight, dbias] = [&mut dweight, &mut dbias].map(|x| Some(gradient(x, true)));
        let [x, weight, mean, scale, dy] = [&x, &weight, &mean, &scale, &dy].map(|x| x.view());
        let dx = gradient(&mut out, false);
        backend.layer_norm_backward(LayerNormBackwardArgs {
            x,
            weight,
            mean,
            inv_std: scale,
            dy,
            dx,
            dweight,
            dbias,
        });
    });
}

fn gradient(to: &mut Buffer, accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: to.view_mut(), accumulate }
}

/// Measures an activation of the feed-forward, with all leaves of its expression.
fn activation(report: &mut Report, name: &str, nodes: Vec<Node>, model: &Model) {
    let len = model.tokens() * model.ffn;
    let count = nodes.iter().filter(|node| matches!(node, Node::Leaf(_))).count();
    let expr = Expr { nodes };
    let leaves: Vec<_> = (0..count).map(|_| report.random(DType::Bf16, len)).collect();
    let dy = report.random(DType::Bf16, len);
    let mut out = report.alloc(DType::Bf16, len);
    let mut gradients: Vec<_> = (0..count).map(|_| report.alloc(DType::Bf16, len)).collect();
    let bytes = |tensors: usize| Work::Bytes((2 * tensors * len) as f64);
    report.row(&format!("{name}: forward"), bytes(count + 1), |backend| {
        let views: Vec<_> = leaves.iter().map(|leaf| leaf.view()).collect();
        backend.map(&expr, &views, out.view_mut());
    });
    report.row(&format!("{name}: backward"), bytes(2 * count + 1), |backend| {
        let views: Vec<_> = leaves.iter().map(|leaf| leaf.view()).collect();
        let written = gradients.iter_mut().map(|gradient| gradient.view_mut());
        let mut written: Vec<_> =
            written.map(|view| Some(LeafGrad { view, accumulate: false })).collect();
        backend.map_backward(&expr, &views, dy.view(), &mut written);
    });
}

fn sums(report: &mut Report, model: &Model) {
    let len = model.tokens() * model.hidden;
    let [a, b] = [(); 2].map(|()| report.random(DType::Bf16, len));
    let mut sum = report.alloc(DType::Bf16, len);
    let bytes = Work::Bytes((6 * len) as f64);
    report.row("residual sum", bytes, |backend| {
        backend.map(&Expr::sum(), &[a.view(), b.view()], sum.view_mut());
    });
    report.row("add_assign", bytes, |backend| {
        backend.add_assign(sum.view_mut(), a.view());
    });
    let mut wide = report.alloc(DType::F32, len);
    report.row("cast, bf16 to f32", bytes, |backend| {
        backend.cast(a.view(), wide.view_mut());
    });
}

fn rope(report: &mut Report, model: &Model) {
    let (batch, seq, heads, head_dim) = (model.batch, model.seq, model.heads, model.head_dim());
    let shape = RopeShape::whole_heads(batch, seq, heads, head_dim);
    let [cos, sin] = [(); 2].map(|()| report.random(DType::F32, seq * head_dim / 2));
    let len = model.tokens() * model.hidden;
    let x = report.random(DType::Bf16, len);
    let mut out = report.alloc(DType::Bf16, len);
    report.row("rope", Work::Bytes((4 * len) as f64), |backend| {
        backend.rope(
            &shape,
            RopeArgs {
                x: x.view(),
                cos: cos.view(),
                sin: sin.view(),
                inverse: false,
                y: out.view_mut(),
            },
        );
    });
}
