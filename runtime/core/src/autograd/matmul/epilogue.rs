//! Epilogue fusion: finds the matmuls in an elementwise expression to which a bias is added, and GELU applied.

use meshwright_backend::{Expr, Node, UnaryFunction};

/// A matmul in an expression, and the epilogue that can be fused into it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FusableEpilogue {
    /// Leaf that is the matmul, and leaf that is the bias.
    pub matmul: usize,
    pub bias: usize,
    /// Node of the sum of matmul and bias, or of its GELU.
    pub root: usize,
    pub gelu: bool,
}

/// Finds the sums of a matmul, one of the leaves that `matmuls` marks, and a bias row. The epilogue is fused if the
/// matmul has no other reader, with GELU if the sum has none either.
pub(crate) fn fusable_epilogues(expr: &Expr, matmuls: &[bool]) -> Vec<FusableEpilogue> {
    let nodes = &expr.nodes;
    let readers = |node: usize| nodes.iter().flat_map(Node::operands).filter(move |x| *x == node);
    let epilogue = |sum: usize, matmul: usize, bias: usize| {
        let (Node::Leaf(leaf), Node::Row(row)) = (&nodes[matmul], &nodes[bias]) else {
            return None;
        };
        if !matmuls[*leaf] || readers(matmul).count() > 1 {
            return None;
        }
        let gelu = nodes.iter().position(|node| *node == Node::Apply(UnaryFunction::GeluTanh, sum));
        let gelu = gelu.filter(|_| readers(sum).count() == 1);
        let root = gelu.unwrap_or(sum);
        Some(FusableEpilogue { matmul: *leaf, bias: *row, root, gelu: gelu.is_some() })
    };
    let sums = nodes.iter().enumerate().filter_map(|(index, node)| match *node {
        Node::Add(a, b) => epilogue(index, a, b).or_else(|| epilogue(index, b, a)),
        _ => None,
    });
    sums.collect()
}

/// Replaces nodes of an expression by leaves, given as pairs, and removes the nodes that are no longer read. The second
/// result maps the new numbers of leaves to the old ones.
pub(crate) fn replace_by_leaves(expr: &Expr, replaced: &[(usize, usize)]) -> (Expr, Vec<usize>) {
    let leaf_at = |node: usize| {
        replaced.iter().find(|(replaced, _)| *replaced == node).map(|(_, leaf)| *leaf)
    };
    let mut is_read = vec![false; expr.nodes.len()];
    let mut open = vec![expr.nodes.len() - 1];
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut is_read[node], true) && leaf_at(node).is_none() {
            open.extend(expr.nodes[node].operands());
        }
    }
    let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
    let mut moved = vec![0; expr.nodes.len()];
    let mut renumbered = |leaf: usize| {
        let known = leaves.iter().position(|known| *known == leaf);
        known.unwrap_or_else(|| {
            leaves.push(leaf);
            leaves.len() - 1
        })
    };
    for (index, node) in expr.nodes.iter().enumerate().filter(|(index, _)| is_read[*index]) {
        moved[index] = nodes.len();
        nodes.push(match (leaf_at(index), node.clone()) {
            (Some(leaf), _) => Node::Leaf(renumbered(leaf)),
            (None, node) => node.with_leaf(&mut renumbered).with_operands(|operand| moved[operand]),
        });
    }
    (Expr { nodes }, leaves)
}

/// Returns the expression `x + bias`, or its GELU if `gelu` is set.
pub(super) fn bias_expr(gelu: bool) -> Expr {
    let mut nodes = vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)];
    nodes.extend(gelu.then_some(Node::Apply(UnaryFunction::GeluTanh, 2)));
    Expr { nodes }
}

/// Returns the expression of GELU of its only leaf.
pub(super) fn gelu_expr() -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::Apply(UnaryFunction::GeluTanh, 0)] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Node::*;

    fn expr(nodes: Vec<Node>) -> Expr {
        Expr { nodes }
    }

    #[test]
    fn finds_bias_on_either_side_and_gelu_after_it() {
        let plain = expr(vec![Leaf(0), Row(1), Add(0, 1)]);
        let found = FusableEpilogue { matmul: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(fusable_epilogues(&plain, &[true, false]), [found]);
        assert_eq!(fusable_epilogues(&plain, &[false, false]), []);

        let turned = expr(vec![Row(0), Leaf(1), Add(0, 1), Apply(UnaryFunction::GeluTanh, 2)]);
        let found = FusableEpilogue { matmul: 1, bias: 0, root: 3, gelu: true };
        assert_eq!(fusable_epilogues(&turned, &[false, true]), [found]);
        // GELU by the error function is another.
        let exact = expr(vec![Leaf(0), Row(1), Add(0, 1), Apply(UnaryFunction::Gelu, 2)]);
        let found = FusableEpilogue { matmul: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(fusable_epilogues(&exact, &[true, false]), [found]);
    }

    #[test]
    fn matmuls_with_other_readers_are_not_fused() {
        let matmul_twice = expr(vec![Leaf(0), Row(1), Add(0, 1), Mul(0, 2)]);
        assert_eq!(fusable_epilogues(&matmul_twice, &[true, false]), []);
        let sum_twice =
            expr(vec![Leaf(0), Row(1), Add(0, 1), Apply(UnaryFunction::GeluTanh, 2), Mul(2, 3)]);
        let found = FusableEpilogue { matmul: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(fusable_epilogues(&sum_twice, &[true, false]), [found]);
    }

    #[test]
    fn computed_nodes_are_replaced_by_leaves() {
        // A residual stream, and a matmul with a bias.
        let stream = expr(vec![Leaf(0), Leaf(1), Row(2), Add(1, 2), Add(0, 3)]);
        assert_eq!(replace_by_leaves(&stream, &[(3, 1)]), (Expr::sum(), vec![0, 1]));
        assert_eq!(replace_by_leaves(&stream, &[]), (stream.clone(), vec![0, 1, 2]));
        // Of two gated matmuls, the second one has a bias.
        let gated = expr(vec![
            Row(0),
            Leaf(1),
            Add(0, 1),
            Leaf(2),
            Apply(UnaryFunction::Silu, 3),
            Mul(4, 2),
        ]);
        let left = expr(vec![Leaf(0), Leaf(1), Apply(UnaryFunction::Silu, 1), Mul(2, 0)]);
        assert_eq!(replace_by_leaves(&gated, &[(2, 1)]), (left, vec![1, 2]));
        let alone = expr(vec![Leaf(0), Row(1), Add(0, 1), Apply(UnaryFunction::GeluTanh, 2)]);
        assert_eq!(replace_by_leaves(&alone, &[(3, 0)]), (expr(vec![Leaf(0)]), vec![0]));
    }
}
