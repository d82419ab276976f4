//! Generated kernel sources of typical models.

use std::sync::Arc;

use meshwright_backend::ops::attention::{AttentionArgs, AttentionBackwardArgs};
use meshwright_backend::{
    AttentionShape, Backend, Band, BlockIndex, Buffer, CachingAllocator, Category, DType,
    DistanceBias, DropoutMask, Expr, GlobalPositions, LeafGrad, Node, UnaryFunction, UpdateExpr,
    UpdateNode, UpdateOperands, View, WeightDropout,
};
use meshwright_cuda::{
    ATTENTION_BIAS_DROPOUT, CudaBackend, KernelSource, NullDriver, PLAIN_ATTENTION_DROPOUT, SOURCES,
};

/// Columns and rows of operands.
const COLS: usize = 512;
const ROWS: usize = 64;

/// Returns the sources that the backend generates for the elementwise expressions and attention of typical models, and
/// fixed ones that it compiles on first use.
///
/// They are recorded from the backend's own calls on a null driver.
pub fn generated_sources() -> Vec<KernelSource> {
    let driver = Arc::new(NullDriver::new(|_, _| {}));
    let backend = CudaBackend::new(driver.clone());
    let memory = CachingAllocator::on(backend.device(), usize::MAX);
    for dtype in [DType::F32, DType::Bf16] {
        for expr in expressions() {
            elementwise(&backend, &memory, &expr, dtype);
        }
        optimizer_update(&backend, &memory, dtype);
    }
    for (dims, variants) in ATTENTION {
        for extras in variants {
            attention(&backend, &memory, dims, *extras);
        }
    }
    let fixed = |source: &KernelSource| SOURCES.contains(&source);
    let generated = driver.loaded_sources().into_iter().filter(|source| !fixed(source));
    // Compiled on first use, as generated ones are.
    let dropout = [&PLAIN_ATTENTION_DROPOUT, &ATTENTION_BIAS_DROPOUT];
    generated.chain(dropout.map(KernelSource::clone)).collect()
}

/// Returns expressions that layers evaluate between matmuls.
fn expressions() -> Vec<Expr> {
    use Node::*;
    let dropout = DropoutMask { key: 1, rate: 0.1, index: BlockIndex::whole(&[ROWS, COLS]) };
    let with_bias = |function| vec![Leaf(0), Row(1), Add(0, 1), Apply(function, 2)];
    let mut all: Vec<Vec<Node>> = UnaryFunction::ALL.iter().copied().map(with_bias).collect();
    all.extend([
        // A gated unit, without and with biases.
        vec![Leaf(0), Leaf(1), Apply(UnaryFunction::Silu, 0), Mul(2, 1)],
        vec![
            Leaf(0),
            Leaf(1),
            Row(2),
            Row(3),
            Add(0, 2),
            Apply(UnaryFunction::Silu, 4),
            Add(1, 3),
            Mul(5, 6),
        ],
        // A residual stream, with a bias and dropout.
        vec![Leaf(0), Leaf(1), Add(0, 1)],
        vec![Leaf(0), Leaf(1), Row(2), Add(1, 2), Dropout(3, dropout), Add(0, 4)],
        vec![Leaf(0), Leaf(1), Sub(0, 1), Scale(2, 0.5), Offset(3, 1.0)],
        vec![Leaf(0), Row(1), Mul(0, 1)],
        vec![Leaf(0), Row(1), Div(0, 1), Clamp(2, -1.0, 1.0)],
        vec![Leaf(0), Constant(2.0), Div(1, 0), Constant(1e-40), Div(2, 3)],
    ]);
    all.into_iter().map(|nodes| Expr { nodes }).collect()
}

fn elementwise(backend: &dyn Backend, memory: &Arc<CachingAllocator>, expr: &Expr, dtype: DType) {
    let buffer = |dtype, len| memory.alloc(dtype, len, Category::Activations);
    // Leaves in the order of their indices: a whole operand, or a row.
    let rows: Vec<bool> = expr
        .nodes
        .iter()
        .filter_map(|node| match node {
            Node::Leaf(_) => Some(false),
            Node::Row(_) => Some(true),
            _ => None,
        })
        .collect();
    let len = |row: &bool| if *row { COLS } else { ROWS * COLS };
    let leaves: Vec<Buffer> = rows.iter().map(|row| buffer(dtype, len(row))).collect();
    let views: Vec<View> = leaves.iter().map(Buffer::view).collect();
    let mut out = buffer(dtype, ROWS * COLS);
    backend.map(expr, &views, out.view_mut());

    let grad_dtype = |row: &bool| if *row { DType::F32 } else { dtype };
    let mut grads: Vec<Buffer> = rows.iter().map(|row| buffer(grad_dtype(row), len(row))).collect();
    let mut slots: Vec<Option<LeafGrad>> = grads
        .iter_mut()
        .map(|grad| Some(LeafGrad { view: grad.view_mut(), accumulate: true }))
        .collect();
    backend.map_backward(expr, &views, out.view(), &mut slots);
}

/// The sign of an updated momentum, as in Lion.
fn optimizer_update(backend: &dyn Backend, memory: &Arc<CachingAllocator>, dtype: DType) {
    use UpdateNode::*;
    let nodes =
        vec![Param, Gradient, State(0), Add(1, 2), Sign(3), Constant(0.1), Mul(4, 5), Sub(0, 6)];
    let buffer = |dtype| memory.alloc(dtype, ROWS * COLS, Category::Optimizer);
    let [mut param, mut state] = [DType::F32; 2].map(buffer);
    let (gradient, mut copy) = (buffer(DType::F32), buffer(dtype));
    let operands = UpdateOperands {
        param: param.view_mut(),
        gradient: gradient.view(),
        states: vec![state.view_mut()],
        rounding: &[],
        copy: (dtype != DType::F32).then(|| copy.view_mut()),
    };
    backend.apply_update(&UpdateExpr { nodes, param: 7, states: vec![3] }, operands);
}

/// Masks and biases of typical models.
#[derive(Clone, Copy)]
struct GeneratedExtras {
    /// A window of this many positions.
    window: Option<usize>,
    soft_cap: Option<f32>,
    bias: bool,
    sinks: bool,
    dropout: bool,
    /// Results in f32 that are accumulated, as over parts of the keys.
    parts: bool,
}

impl GeneratedExtras {
    const NONE: Self = Self {
        window: None,
        soft_cap: None,
        bias: false,
        sinks: false,
        dropout: false,
        parts: false,
    };
    const MASK: Self = Self { window: Some(64), ..Self::NONE };
    const WINDOW: Self = Self { window: Some(64), sinks: true, ..Self::NONE };
    const DROPOUT: Self = Self { dropout: true, ..Self::NONE };
    /// Biased windows with dropout.
    const DROPPED_BIAS: Self = Self { dropout: true, bias: true, ..Self::MASK };
    const BIAS: Self = Self { bias: true, ..Self::NONE };
    const PARTS: Self = Self { parts: true, ..Self::NONE };
    /// Biased windows over parts of the keys.
    const BIASED_PARTS: Self = Self { bias: true, parts: true, ..Self::MASK };
    const ALL: Self = Self { soft_cap: Some(50.0), sinks: true, parts: true, ..Self::DROPPED_BIAS };
}

/// Head sizes of keys and of values, and the variants that are compiled for them: those that models have, and all flags
/// together.
const ATTENTION: [([usize; 2], &[GeneratedExtras]); 6] = [
    (
        [64, 64],
        &[
            GeneratedExtras::NONE,
            GeneratedExtras::DROPOUT,
            GeneratedExtras::DROPPED_BIAS,
            GeneratedExtras::WINDOW,
            GeneratedExtras::BIASED_PARTS,
            GeneratedExtras::ALL,
        ],
    ),
    ([64, 128], &[GeneratedExtras::NONE, GeneratedExtras::WINDOW]),
    (
        [96, 96],
        &[
            GeneratedExtras::NONE,
            GeneratedExtras::DROPOUT,
            GeneratedExtras::MASK,
            GeneratedExtras::WINDOW,
        ],
    ),
    (
        [128, 128],
        &[
            GeneratedExtras::NONE,
            GeneratedExtras::DROPOUT,
            GeneratedExtras::WINDOW,
            GeneratedExtras::BIAS,
            GeneratedExtras::PARTS,
            GeneratedExtras::ALL,
        ],
    ),
    ([256, 256], &[GeneratedExtras::NONE, GeneratedExtras::DROPOUT]),
    ([192, 128], &[GeneratedExtras::NONE]),
];

fn attention(
    backend: &dyn Backend,
    memory: &Arc<CachingAllocator>,
    dims: [usize; 2],
    x: GeneratedExtras,
) {
    let (batch, seq, heads, kv_heads, distances) = (1, 256, 2, 1, 32);
    let [head_dim, value_dim] = dims;
    let band = Band { before: x.window, ..Band::CAUSAL };
    let at = GlobalPositions::consecutive(0);
    let dropout =
        WeightDropout { key: 1, rate: 0.1, rows: at, first_head: 0, queries: at, keys: at };
    let shape = AttentionShape {
        value_dim,
        soft_cap: x.soft_cap,
        dropout: x.dropout.then_some(dropout),
        ..AttentionShape::new(batch, seq, [heads, kv_heads, head_dim], band)
    };
    let result = if x.parts { DType::F32 } else { DType::Bf16 };
    let buffer = |dtype, len| memory.alloc(dtype, len, Category::Activations);
    let queries = |dtype, dim| buffer(dtype, batch * seq * heads * dim);
    let keys = |dtype, dim| buffer(dtype, batch * seq * kv_heads * dim);
    let (q, dout) = (queries(DType::Bf16, head_dim), queries(DType::Bf16, value_dim));
    let (k, v) = (keys(DType::Bf16, head_dim), keys(DType::Bf16, value_dim));
    let mut out = queries(result, value_dim);
    let mut lse = buffer(DType::F32, batch * heads * seq);
    let (of_bias, of_sinks) = (buffer(DType::F32, heads * distances), buffer(DType::F32, heads));
    let bias = DistanceBias { values: of_bias.view(), distances, zero: distances - 1 };
    let bias = x.bias.then_some(bias);
    let sinks = x.sinks.then(|| of_sinks.view());
    let (q, k, v, ranges) = (q.view(), k.view(), v.view(), None);
    let (into_out, into_lse) = (out.view_mut(), lse.view_mut());
    let args = AttentionArgs { q, k, v, ranges, bias, sinks, out: into_out, lse: into_lse };
    backend.attention(&shape, args);
    let (mut dq, mut dk, mut dv) =
        (queries(result, head_dim), keys(result, head_dim), keys(result, value_dim));
    let (dq, dk, dv) = (dq.view_mut(), dk.view_mut(), dv.view_mut());
    let (out, lse, dout) = (out.view(), lse.view(), dout.view());
    let (dbias, dsinks, accumulate) = (None, None, x.parts);
    backend.attention_backward(
        &shape,
        AttentionBackwardArgs {
            q,
            k,
            v,
            ranges,
            bias,
            sinks,
            out,
            lse,
            dout,
            accumulate,
            dq,
            dk,
            dv,
            dbias,
            dsinks,
        },
    );
}
