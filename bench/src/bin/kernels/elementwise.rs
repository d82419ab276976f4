//! Norms, rotary embedding and elementwise expressions.

use meshwright::backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright::backend::ops::rope::RopeArgs;
use meshwright::backend::{
    BlockIndex, DropoutMask, Expr, LeafGrad, Node, RopeShape, UnaryFunction,
};

use crate::report::{Report, Work};
use crate::{FFN, HIDDEN, LAYERS, Number, TOKENS, filled, view, view_mut};

pub fn rows<T: Number>(report: &mut Report) {
    let len = TOKENS * HIDDEN;
    let moved = |operands: usize| Work::Bytes(operands * len * size_of::<T>());
    let (x, w, dy) = (filled::<T>(len, 0.5), filled::<T>(HIDDEN, 1.0), filled::<T>(len, 0.1));
    let (mut y, mut dx) = (filled::<T>(len, 0.0), filled::<T>(len, 0.0));
    let (mut inv, mut mean) = (filled::<f32>(TOKENS, 1.0), filled::<f32>(TOKENS, 0.0));
    let (mut dw, mut db) = (filled::<f32>(HIDDEN, 0.0), filled::<f32>(HIDDEN, 0.0));
    let norms = 2 * LAYERS + 1;
    report.row("rms_norm", norms, moved(2), |cpu| {
        cpu.rms_norm(RmsNormArgs {
            x: view(&x),
            residual: None,
            weight: view(&w),
            offset: 0.0,
            eps: 1e-5,
            squares: None,
            y: view_mut(&mut y),
            inv_rms: view_mut(&mut inv),
        });
    });
    // Only the last norm has no residual stream around it.
    report.row("rms_norm_backward", 1, moved(3), |cpu| {
        let (dx, dw) = (grad(&mut dx, false), Some(grad(&mut dw, true)));
        cpu.rms_norm_backward(RmsNormBackwardArgs {
            x: view(&x),
            weight: view(&w),
            offset: 0.0,
            inv_rms: view(&inv),
            dy: view(&dy),
            dots: None,
            dx,
            dweight: dw,
        });
    });
    report.row("rms_norm_backward, onto the residual's", norms - 1, moved(4), |cpu| {
        let (dx, dw) = (grad(&mut dx, true), Some(grad(&mut dw, true)));
        cpu.rms_norm_backward(RmsNormBackwardArgs {
            x: view(&x),
            weight: view(&w),
            offset: 0.0,
            inv_rms: view(&inv),
            dy: view(&dy),
            dots: None,
            dx,
            dweight: dw,
        });
    });
    report.row("layer_norm", 0, moved(2), |cpu| {
        let (y, mean, inv) = (view_mut(&mut y), view_mut(&mut mean), view_mut(&mut inv));
        cpu.layer_norm(LayerNormArgs {
            x: view(&x),
            residual: None,
            weight: view(&w),
            bias: view(&w),
            eps: 1e-5,
            y,
            mean,
            inv_std: inv,
        });
    });
    report.row("layer_norm_backward", 0, moved(3), |cpu| {
        let (dw, db) = (Some(grad(&mut dw, true)), Some(grad(&mut db, true)));
        let (dx, mean, inv) = (grad(&mut dx, false), view(&mean), view(&inv));
        cpu.layer_norm_backward(LayerNormBackwardArgs {
            x: view(&x),
            weight: view(&w),
            mean,
            inv_std: inv,
            dy: view(&dy),
            dx,
            dweight: dw,
            dbias: db,
        });
    });
    let rope = RopeShape::whole_heads(4, 512, 8, 64);
    let table = filled::<f32>(512 * 32, 0.7);
    report.row("rope, q and k, both ways", 4 * LAYERS, moved(2), |cpu| {
        cpu.rope(
            &rope,
            RopeArgs {
                x: view(&x),
                cos: view(&table),
                sin: view(&table),
                inverse: false,
                y: view_mut(&mut y),
            },
        );
    });
    let add = Expr { nodes: vec![Node::Leaf(0), Node::Leaf(1), Node::Add(0, 1)] };
    report.row("map residual", 2 * LAYERS, moved(3), |cpu| {
        cpu.map(&add, &[view(&x), view(&dy)], view_mut(&mut y));
    });
    report.row("add_assign", 0, moved(3), |cpu| {
        cpu.add_assign(view_mut(&mut dx), view(&dy));
    });
    feed_forward::<T>(report);
    dropout::<T>(report);
}

fn grad<T: Number>(to: &mut [T], accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: view_mut(to), accumulate }
}

/// Dropout of a residual stream, which the Llama does not use.
fn dropout<T: Number>(report: &mut Report) {
    let len = TOKENS * HIDDEN;
    let index = BlockIndex::whole(&[TOKENS, HIDDEN]);
    let dropout = DropoutMask { key: 1, rate: 0.1, index };
    let expr = Expr { nodes: vec![Node::Leaf(0), Node::Dropout(0, dropout)] };
    let (x, grad) = (filled::<T>(len, 0.5), filled::<T>(len, 0.1));
    let [mut out, mut dx] = [(); 2].map(|()| filled::<T>(len, 0.0));
    let moved = || Work::Bytes(2 * len * size_of::<T>());
    report.row("map dropout", 0, moved(), |cpu| {
        cpu.map(&expr, &[view(&x)], view_mut(&mut out));
    });
    report.row("map_backward dropout", 0, moved(), |cpu| {
        let slot = LeafGrad { view: view_mut(&mut dx), accumulate: false };
        cpu.map_backward(&expr, &[view(&x)], view(&grad), &mut [Some(slot)]);
    });
}

fn feed_forward<T: Number>(report: &mut Report) {
    let len = TOKENS * FFN;
    let moved = |operands: usize| Work::Bytes(operands * len * size_of::<T>());
    let (a, b, grad) = (filled::<T>(len, 0.5), filled::<T>(len, 0.25), filled::<T>(len, 0.1));
    let [mut out, mut da, mut db] = [(); 3].map(|()| filled::<T>(len, 0.0));
    let nodes =
        vec![Node::Leaf(0), Node::Apply(UnaryFunction::Silu, 0), Node::Leaf(1), Node::Mul(1, 2)];
    let swiglu = Expr { nodes };
    report.row("map silu(a) * b", LAYERS, moved(3), |cpu| {
        cpu.map(&swiglu, &[view(&a), view(&b)], view_mut(&mut out));
    });
    report.row("map_backward silu(a) * b", LAYERS, moved(5), |cpu| {
        let slots = [&mut da, &mut db]
            .map(|grad| Some(LeafGrad { view: view_mut(grad), accumulate: false }));
        cpu.map_backward(&swiglu, &[view(&a), view(&b)], view(&grad), &mut { slots });
    });
    for function in [UnaryFunction::Gelu, UnaryFunction::Tanh, UnaryFunction::Exp] {
        let expr = Expr { nodes: vec![Node::Leaf(0), Node::Apply(function, 0)] };
        report.row(&format!("map {}", function.name()), 0, moved(2), |cpu| {
            cpu.map(&expr, &[view(&a)], view_mut(&mut out));
        });
    }
}
