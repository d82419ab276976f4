//! Expressions whose result is repeated along the dims of a larger one.

use meshwright_backend::{Expr, LeafPositions, LeafStrides, Node};
use meshwright_mesh::Extent;

use super::super::value::Value;
use super::expression::Pointwise;
use super::leaf::ExprLeaf;

/// Limit of [`Expr::stride_patterns`]: kernels compute an index for each of them.
const MAX_PATTERNS: usize = 4;

impl Value {
    /// Returns the expression of the value repeated along the dims of `extents` that are not among `places`, which
    /// holds the position of each dim of the value. It may be extended as that of [`to_pointwise`](Self::to_pointwise).
    #[track_caller]
    pub(crate) fn to_pointwise_along(&self, places: &[usize], extents: &[Extent]) -> Pointwise {
        let mut pointwise = self.to_pointwise();
        if !pointwise.is_repeatable() {
            pointwise = Pointwise::leaf(self.unchanged_computed());
        }
        let local = |extents: &[Extent]| extents.iter().map(|extent| extent.local).collect();
        let placed = Placed { sizes: local(self.extents()), places, result: local(extents) };
        pointwise.expr = placed.repeat(&pointwise.expr, &pointwise.leaves);
        pointwise
    }
}

impl Pointwise {
    /// Returns true if each node can be computed for an element of a larger result: a dropout mask has the size of its
    /// own, and a matmul is fused with its bias before it is repeated.
    fn is_repeatable(&self) -> bool {
        let is_matmul =
            |leaf: &ExprLeaf| matches!(leaf, ExprLeaf::Value(value) if value.is_deferred_matmul());
        let has_dropout = self.expr.nodes.iter().any(|node| matches!(node, Node::Dropout(..)));
        !has_dropout && !self.leaves.iter().any(is_matmul)
    }

    /// Returns true if an expression over these has no more stride patterns than kernels take.
    pub(crate) fn fit_together(expressions: &[&Pointwise]) -> bool {
        let mut patterns: Vec<LeafStrides> = Vec::new();
        for pattern in expressions.iter().flat_map(|pointwise| pointwise.expr.stride_patterns()) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        patterns.len() <= MAX_PATTERNS
    }
}

/// Dims in a larger result.
struct Placed<'a> {
    /// Sizes of the dims.
    sizes: Vec<usize>,
    /// Position of each dim in the result.
    places: &'a [usize],
    /// Sizes of the result.
    result: Vec<usize>,
}

impl Placed<'_> {
    fn repeat(&self, expr: &Expr, leaves: &[ExprLeaf]) -> Expr {
        let nodes = expr.nodes.iter().map(|node| match node {
            Node::Leaf(leaf) | Node::Row(leaf) => {
                let leaf_len = leaves[*leaf].len();
                self.leaf_node(*leaf, &leaves[*leaf], &trailing_strides(&self.sizes, leaf_len))
            }
            Node::Along(leaf, strides) => self.leaf_node(*leaf, &leaves[*leaf], &strides.strides),
            Node::Position(positions) => Node::Position(LeafPositions {
                sizes: self.result.clone(),
                dim: self.places[positions.dim],
                ..positions.clone()
            }),
            node => node.clone(),
        });
        Expr { nodes: nodes.collect() }
    }

    /// Returns the node that reads a leaf with these strides along the dims, in its simplest form.
    fn leaf_node(&self, leaf: usize, read: &ExprLeaf, strides: &[usize]) -> Node {
        let mut placed = vec![0; self.result.len()];
        for (place, stride) in self.places.iter().zip(strides) {
            placed[*place] = *stride;
        }
        let strides = LeafStrides { sizes: self.result.clone(), strides: placed };
        let merged = strides.merged();
        let is_value = matches!(read, ExprLeaf::Value(_));
        let is_whole = strides.result_len() == read.len();
        match (&merged.sizes[..], &merged.strides[..]) {
            ([_], [1]) | ([1], [0]) if is_whole && is_value => Node::Leaf(leaf),
            // The gradient of a parameter is f32, as that of a row.
            ([_], [1]) | ([1], [0]) if is_whole && read.len() > 0 => Node::Row(leaf),
            ([_, row], [0, 1]) if *row == read.len() && *row > 0 => Node::Row(leaf),
            _ => Node::Along(leaf, strides),
        }
    }
}

/// Returns the strides of a leaf of `len` elements that has the last of these dims.
fn trailing_strides(sizes: &[usize], len: usize) -> Vec<usize> {
    let mut strides = vec![0; sizes.len()];
    let mut stride = 1;
    for (size, to) in sizes.iter().zip(&mut strides).rev() {
        if stride == len && *size != 1 {
            break;
        }
        *to = stride;
        stride *= size;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_strides_of_trailing_dims() {
        assert_eq!(trailing_strides(&[2, 3, 4], 24), [12, 4, 1]);
        assert_eq!(trailing_strides(&[2, 3, 4], 12), [0, 4, 1]);
        assert_eq!(trailing_strides(&[2, 3, 4], 4), [0, 0, 1]);
        assert_eq!(trailing_strides(&[2, 3, 4], 1), [0, 0, 0]);
        assert_eq!(trailing_strides(&[2, 1, 4], 4), [0, 4, 1]);
        assert_eq!(trailing_strides(&[0, 4], 0), [4, 1]);
    }
}
