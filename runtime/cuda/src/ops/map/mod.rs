//! Elementwise expressions: the source of a fused kernel is generated for each.

mod columns;
mod nodes;
mod params;
mod repeats;
mod source;
mod structure;
mod sum_form;
pub mod update;

use super::launch::{address, aligned, covering, vector_width, vectors};
use super::partials::add_partials;
use super::reduce::column_sums;
use crate::{CudaBackend, GpuContext, Grid, KernelFunction, KernelSource};
use columns::Columns;
use meshwright_backend::{
    DType, ElementwiseOps, Expr, LeafGrad, LeafStrides, Node, StreamKind, View, ViewMut,
};
use params::Params;
use repeats::sum_repeated;
pub use structure::Structure;
use structure::{RequestedGradient, inner_stride};

impl ElementwiseOps for CudaBackend {
    fn map(&self, expr: &Expr, leaves: &[View], out: ViewMut) {
        let gpu = self.gpu();
        let out = out.as_view();
        check_operands(expr, leaves, out);
        let kernel = Generated::new(gpu, Structure::forward(expr, out.dtype(), leaves.len()));
        let mut params = kernel.params();
        let (items, is_aligned) = push_elements(&mut params, expr, leaves, &[out], out.len());
        push_inputs(&mut params, expr, leaves, (out.dtype(), is_aligned));
        params.push_param(format_args!("{}* out", source::cpp_type(out.dtype())), address(out));
        kernel.launch_kernel(covering(gpu, items), params, |fields| {
            source::forward(expr, out.dtype(), fields)
        });
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        let gpu = self.gpu();
        check_operands(expr, leaves, grad);
        assert_eq!(leaves.len(), leaf_grads.len(), "one gradient slot per leaf");
        let requested = requested_gradients(expr, leaf_grads);
        for (leaf, slot) in leaf_grads.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            assert_eq!(slot.view.len(), leaves[leaf].len(), "gradient of leaf {leaf} fits");
            let is_sum = matches!(
                requested[leaf],
                RequestedGradient::RowSum | RequestedGradient::RepeatedSum
            );
            let dtype = if is_sum { DType::F32 } else { grad.dtype() };
            assert_eq!(slot.view.dtype(), dtype, "dtype of the gradient of leaf {leaf}");
            // A sum over no rows, or a leaf that the result does not depend on.
            if (requested[leaf] == RequestedGradient::No || grad.is_empty()) && !slot.accumulate {
                slot.view.clear();
            }
        }
        if grad.is_empty() || requested.iter().all(|requested| *requested == RequestedGradient::No)
        {
            return;
        }
        if let Some(leaf) = added_row(expr)
            && requested.iter().filter(|requested| **requested != RequestedGradient::No).count()
                == 1
            && let Some(LeafGrad { view, accumulate }) = &mut leaf_grads[leaf]
        {
            let sums = LeafGrad { view: view.reborrow(), accumulate: *accumulate };
            return column_sums(gpu, grad, sums);
        }

        sum_repeated(gpu, (expr, leaves), grad, &requested, leaf_grads);
        let without_sums = |requested: &RequestedGradient| match requested {
            RequestedGradient::RepeatedSum => RequestedGradient::No,
            other => *other,
        };
        let requested: Vec<RequestedGradient> = requested.iter().map(without_sums).collect();
        if requested.iter().all(|requested| *requested == RequestedGradient::No) {
            return;
        }
        let grads = |kind| {
            let slots = leaf_grads.iter().zip(&requested).enumerate();
            slots.filter_map(move |(leaf, (slot, requested))| match slot {
                Some(slot) if *requested == kind => Some((leaf, slot)),
                _ => None,
            })
        };
        let mut whole = vec![grad];
        whole.extend(grads(RequestedGradient::Each).map(|(_, slot)| slot.view.as_view()));
        let row_lens =
            grads(RequestedGradient::RowSum).map(|(_, slot)| slot.view.len()).collect::<Vec<_>>();
        let columns = (!row_lens.is_empty()).then(|| Columns::new(grad, &row_lens));

        let kernel = Generated::new(gpu, Structure::backward(expr, grad.dtype(), &requested));
        let mut params = kernel.params();
        let (items, is_aligned) = match &columns {
            None => push_elements(&mut params, expr, leaves, &whole, grad.len()),
            Some(columns) => columns.push_columns(&mut params, expr, leaves, &whole),
        };
        push_inputs(&mut params, expr, leaves, (grad.dtype(), is_aligned));
        let element = source::cpp_type(grad.dtype());
        params.push_param(format_args!("const {element}* grad"), address(grad));
        for (leaf, slot) in grads(RequestedGradient::Each) {
            params.push_param(format_args!("{element}* grad{leaf}"), address(slot.view.as_view()));
            params.push_param(format_args!("uint32_t add{leaf}"), u32::from(slot.accumulate));
        }
        let part_bytes = columns.as_ref().map_or(0, |columns| columns.bytes());
        let mut parts = gpu.workspace(part_bytes * row_lens.len());
        let mut sums = Vec::new();
        for (leaf, _) in grads(RequestedGradient::RowSum) {
            params.push_param(format_args!("float* sums{leaf}"), parts);
            sums.push((leaf, parts));
            parts += part_bytes as u64;
        }
        kernel.launch_kernel(covering(gpu, items), params, |fields| {
            source::backward(expr, grad.dtype(), &requested, None, fields)
        });

        for (leaf, parts) in sums {
            let (Some(slot), Some(columns)) = (&mut leaf_grads[leaf], &columns) else { continue };
            let rows = columns.parts * (columns.cols / slot.view.len()) as u64;
            let sum = LeafGrad { view: slot.view.reborrow(), accumulate: slot.accumulate };
            // SAFETY: the kernel before this one has written `columns.parts` rows of `columns.cols` elements, and each
            // of them is some rows of the leaf's length.
            unsafe { add_partials(gpu, [sum], parts, rows) };
        }
    }
}

/// Checks the lengths and dtypes of leaves and the order of nodes, on which the kernels rely.
fn check_operands(expr: &Expr, leaves: &[View], result: View) {
    assert!(!expr.nodes.is_empty(), "an expression has a result");
    for (index, node) in expr.nodes.iter().enumerate() {
        assert!(node.operands().all(|operand| operand < index), "nodes are in topological order");
        match node {
            Node::Leaf(leaf) => {
                assert_eq!(leaves[*leaf].len(), result.len(), "leaf {leaf} is whole")
            }
            Node::Row(leaf) => {
                let row = leaves[*leaf].len();
                let divides = row > 0 && result.len().is_multiple_of(row);
                assert!(divides, "row leaf {leaf} divides the result");
            }
            Node::Along(leaf, strides) => {
                assert_eq!(
                    strides.result_len(),
                    result.len(),
                    "strides of leaf {leaf} fit the result"
                );
                let fits = result.is_empty() || strides.leaf_len() == leaves[*leaf].len();
                assert!(fits, "strides of leaf {leaf} reach all of its elements");
                let mut of_leaf = expr.nodes.iter().filter(|other| other.leaf() == Some(*leaf));
                assert!(of_leaf.all(|other| other == node), "one form of leaf {leaf}");
            }
            Node::Position(positions) => {
                assert_eq!(positions.result_len(), result.len(), "positions fit the result");
            }
            Node::Dropout(_, dropout) => {
                assert_eq!(dropout.index.len(), result.len(), "dropout index fits");
            }
            _ => {}
        }
    }
    for leaf in leaves {
        assert_eq!(leaf.dtype(), result.dtype(), "leaves and result have one dtype");
    }
}

/// Returns the form of the gradient of each leaf; a leaf that occurs as a row is summed over rows in all its
/// occurrences.
fn requested_gradients(expr: &Expr, leaf_grads: &[Option<LeafGrad>]) -> Vec<RequestedGradient> {
    let mut requested = vec![RequestedGradient::No; leaf_grads.len()];
    for node in &expr.nodes {
        match *node {
            Node::Leaf(leaf)
                if leaf_grads[leaf].is_some() && requested[leaf] == RequestedGradient::No =>
            {
                requested[leaf] = RequestedGradient::Each;
            }
            Node::Row(leaf) if leaf_grads[leaf].is_some() => {
                requested[leaf] = RequestedGradient::RowSum
            }
            Node::Along(leaf, _) if leaf_grads[leaf].is_some() => {
                requested[leaf] = RequestedGradient::RepeatedSum
            }
            _ => {}
        }
    }
    requested
}

/// Returns the row leaf of a sum of one whole leaf and one row, whose gradient is that of the sum.
fn added_row(expr: &Expr) -> Option<usize> {
    match expr.nodes[..] {
        [Node::Leaf(_), Node::Row(row), Node::Add(0, 1)] => Some(row),
        _ => None,
    }
}

/// Returns the leaves that occur as whole operands, and those that occur as rows.
fn leaves_of<'a>(expr: &Expr, leaves: &[View<'a>]) -> (Vec<View<'a>>, Vec<View<'a>>) {
    let (mut whole, mut rows) = (Vec::new(), Vec::new());
    for node in &expr.nodes {
        match *node {
            Node::Leaf(leaf) => whole.push(leaves[leaf]),
            Node::Row(leaf) => rows.push(leaves[leaf]),
            _ => {}
        }
    }
    (whole, rows)
}

/// Adds the parameters of a kernel that iterates over `n` elements; `others` are whole operands in addition to the
/// leaves. Returns the number of items for threads, and true if vectors begin at multiples of their width.
fn push_elements(
    params: &mut Params,
    expr: &Expr,
    leaves: &[View],
    others: &[View],
    n: usize,
) -> (u64, bool) {
    let width = vector_width(others[0].dtype());
    let (mut whole, rows) = leaves_of(expr, leaves);
    whole.extend(others);
    let [mut head, mut count] = vectors(&whole, width);
    if !rows.is_empty() && (head > 0 || !are_vectors(&rows, width)) {
        [head, count] = [0; 2];
    }
    params.push_param(format_args!("uint64_t n"), n as u64);
    params.push_param(format_args!("uint64_t head"), head);
    params.push_param(format_args!("uint64_t vectors"), count);
    (count.max(n as u64 - count * width as u64), head == 0)
}

/// Returns true if rows, repeated from an aligned element on, can be read as vectors.
fn are_vectors(rows: &[View], width: usize) -> bool {
    aligned(rows, width) && rows.iter().all(|row| row.len().is_multiple_of(width))
}

/// Adds the leaves and constants of an expression; vectors that the kernel loads begin at multiples of their width if
/// `is_aligned`.
fn push_inputs(
    params: &mut Params,
    expr: &Expr,
    leaves: &[View],
    (dtype, is_aligned): (DType, bool),
) {
    for (index, pattern) in expr.stride_patterns().iter().enumerate() {
        let is_whole = is_aligned && are_runs(pattern, &leaves_along(expr, leaves, pattern), dtype);
        let sizes = pattern.sizes.iter().chain(&pattern.strides).map(|x| *x as u64);
        let (dims, inner) = (pattern.sizes.len(), inner_stride(pattern));
        let words = sizes.chain([u64::from(is_whole)]);
        params.push_words(format_args!("Along<{dims}, {inner}> along{index}"), words);
    }
    for (leaf, view) in leaves.iter().enumerate() {
        params.push_param(
            format_args!("const {}* leaf{leaf}", source::cpp_type(dtype)),
            address(*view),
        );
        if expr.nodes.contains(&Node::Row(leaf)) {
            params.push_param(format_args!("uint64_t len{leaf}"), view.len() as u64);
        }
    }
    for (k, node) in expr.nodes.iter().enumerate() {
        match node {
            Node::Constant(number) => params.push_param(format_args!("float constant{k}"), *number),
            Node::Scale(_, factor) => params.push_param(format_args!("float factor{k}"), *factor),
            Node::Offset(_, offset) => params.push_param(format_args!("float offset{k}"), *offset),
            Node::Clamp(_, min, max) => {
                params.push_param(format_args!("float min{k}"), *min);
                params.push_param(format_args!("float max{k}"), *max);
            }
            Node::Pow(_, exponent) => {
                params.push_param(format_args!("float exponent{k}"), *exponent);
            }
            Node::Position(positions) => {
                let words = [
                    positions.inner(),
                    positions.sizes[positions.dim],
                    positions.offset,
                    positions.gap_at,
                    positions.gap,
                ];
                let words = words.map(|word| word as u64);
                params.push_words(format_args!("Positions position{k}"), words);
            }
            Node::Dropout(_, dropout) => params.push_dropout(format_args!("dropout{k}"), dropout),
            _ => {}
        }
    }
}

/// Returns the leaves that are read along a pattern.
fn leaves_along<'a>(expr: &Expr, leaves: &[View<'a>], pattern: &LeafStrides) -> Vec<View<'a>> {
    let is_along = |node: &Node| match node {
        Node::Along(leaf, strides) if strides.merged() == *pattern => Some(leaves[*leaf]),
        _ => None,
    };
    expr.nodes.iter().filter_map(is_along).collect()
}

/// Returns true if vectors that begin at multiples of their width lie in runs of a pattern, and are aligned in leaves.
fn are_runs(pattern: &LeafStrides, leaves: &[View], dtype: DType) -> bool {
    let (width, inner) = (vector_width(dtype), pattern.sizes.len() - 1);
    let are_multiples = |numbers: &[usize]| numbers.iter().all(|x| x.is_multiple_of(width));
    pattern.sizes[inner].is_multiple_of(width)
        && match pattern.strides[inner] {
            0 => true,
            1 => are_multiples(&pattern.strides[..inner]) && aligned(leaves, width),
            _ => false,
        }
}

/// The kernel of a structure, which is generated and loaded if it is not cached.
struct Generated<'a> {
    gpu: &'a GpuContext,
    structure: Structure,
    known: Option<KernelFunction>,
}

impl<'a> Generated<'a> {
    fn new(gpu: &'a GpuContext, structure: Structure) -> Generated<'a> {
        Generated { gpu, known: gpu.generated(&structure), structure }
    }

    /// Returns the parameter, to be filled.
    fn params(&self) -> Params {
        Params::new(self.known.is_none())
    }

    /// Launches the kernel; `source` generates it from the fields of its parameter.
    fn launch_kernel(
        self,
        grid: Grid,
        mut params: Params,
        source: impl FnOnce(&str) -> KernelSource,
    ) {
        params.finish_struct();
        let function = self.known.unwrap_or_else(|| {
            let fields = params.fields.as_deref().unwrap_or_default();
            self.gpu.generate(self.structure, &source(fields))
        });
        // SAFETY: the fields of the one parameter were declared as their values were put into it, and the operands have
        // the lengths, dtypes and alignment that the kernel was written for.
        unsafe { self.gpu.launch_function(StreamKind::Compute, function, grid, &[&params.bytes]) };
    }
}
