//! Fused elementwise expressions: all nodes are evaluated on a block of elements while it is in the L1 cache.

mod along;
mod backward;
mod block;

use super::CpuBackend;
use super::float::{Float, by_float, store_rounded, workplace};
use super::scratch::with_scratch;
use super::simd::dispatch;
use super::workers::{Rows, Workers};
use along::merge_strides;
use backward::map_backward;
use block::{BLOCK, ElementBlock, check_expr};
use meshwright_backend::{ElementwiseOps, Expr, LeafGrad, Node, View, ViewMut};

impl ElementwiseOps for CpuBackend {
    fn map(&self, expr: &Expr, leaves: &[View], mut out: ViewMut) {
        let expr = &*merge_strides(expr);
        by_float!(out.dtype() => T; map_elements::<T>(&self.workers, expr, &typed(leaves), out.typed()));
    }

    fn map_backward(
        &self,
        expr: &Expr,
        leaves: &[View],
        grad: View,
        leaf_grads: &mut [Option<LeafGrad>],
    ) {
        let (workers, expr) = (&self.workers, &*merge_strides(expr));
        by_float!(grad.dtype() => T;
            map_backward::<T>(workers, expr, &typed(leaves), grad.typed(), leaf_grads));
    }
}

fn typed<'a, T: Float>(leaves: &[View<'a>]) -> Vec<&'a [T]> {
    leaves.iter().map(View::typed::<T>).collect()
}

fn map_elements<T: Float>(workers: &Workers, expr: &Expr, leaves: &[&[T]], out: &mut [T]) {
    check_expr(expr, leaves, out.len());
    let blocks = out.len().div_ceil(BLOCK);
    workers.rows(blocks, BLOCK * expr.nodes.len(), Rows(out, BLOCK), |range, out| {
        with_scratch(expr.nodes.len() * BLOCK, |values| {
            map_range(expr, leaves, range.start * BLOCK, values, out.0);
        });
    });
}

dispatch! {
    fn map_range<const FMA: bool, T: Float>(
        expr: &Expr, leaves: &[&[T]], first: usize, values: &mut [f32], out: &mut [T],
    ) {
        let last = expr.nodes.len() - 1;
        for (block, out) in out.chunks_mut(BLOCK).enumerate() {
            let block = ElementBlock { expr, leaves, start: first + block * BLOCK, len: out.len() };
            if let Node::Leaf(leaf) = expr.nodes[last] {
                out.copy_from_slice(&leaves[leaf][block.start..][..block.len]);
                continue;
            }
            for node in 0..last {
                let (earlier, this) = values.split_at_mut(node * BLOCK);
                block.evaluate::<FMA>(node, earlier, &mut this[..block.len]);
            }
            let (earlier, this) = values.split_at_mut(last * BLOCK);
            block.evaluate::<FMA>(last, earlier, workplace(&mut *out, &mut *this));
            store_rounded(this, out);
        }
    }
}
