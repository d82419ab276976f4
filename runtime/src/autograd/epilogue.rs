//! Which products in an element-wise expression get a bias, and GELU of that.

use crate::backend::{Expr, Node};

/// A product, and what is done to it before anything else.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The leaf that is the product, and the one that is the bias.
    pub product: usize,
    pub bias: usize,
    /// The node that is their sum, or GELU of it.
    pub root: usize,
    pub gelu: bool,
}

/// The sums of a product, one of the leaves that `products` marks, and a row, which nothing but GELU may read beside what
/// it is.
pub(crate) fn biased_products(expr: &Expr, products: &[bool]) -> Vec<Found> {
    let nodes = &expr.nodes;
    let readers = |node: usize| nodes.iter().flat_map(Node::operands).filter(move |x| *x == node);
    let found = |sum: usize, product: usize, bias: usize| {
        let (Node::Leaf(leaf), Node::Row(row)) = (&nodes[product], &nodes[bias]) else {
            return None;
        };
        if !products[*leaf] || readers(product).count() > 1 {
            return None;
        }
        let gelu = nodes.iter().position(|node| *node == Node::GeluTanh(sum));
        let gelu = gelu.filter(|_| readers(sum).count() == 1);
        let root = gelu.unwrap_or(sum);
        Some(Found { product: *leaf, bias: *row, root, gelu: gelu.is_some() })
    };
    let sums = nodes.iter().enumerate().filter_map(|(index, node)| match *node {
        Node::Add(a, b) => found(index, a, b).or_else(|| found(index, b, a)),
        _ => None,
    });
    sums.collect()
}

/// The expression with leaves in the places of nodes, of which pairs are given, and without what is then read no more.
/// Leaves are numbered anew: the second result has their old numbers.
pub(crate) fn with_leaves(expr: &Expr, places: &[(usize, usize)]) -> (Expr, Vec<usize>) {
    let leaf_at =
        |node: usize| places.iter().find(|(place, _)| *place == node).map(|(_, leaf)| *leaf);
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
            (Some(leaf), _) | (None, Node::Leaf(leaf)) => Node::Leaf(renumbered(leaf)),
            (None, Node::Row(leaf)) => Node::Row(renumbered(leaf)),
            (None, node) => node.with_operands(|operand| moved[operand]),
        });
    }
    (Expr { nodes }, leaves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Node::*;

    fn expr(nodes: Vec<Node>) -> Expr {
        Expr { nodes }
    }

    #[test]
    fn a_bias_is_found_on_either_side_and_gelu_after_it() {
        let plain = expr(vec![Leaf(0), Row(1), Add(0, 1)]);
        let found = Found { product: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(biased_products(&plain, &[true, false]), [found]);
        assert_eq!(biased_products(&plain, &[false, false]), []);

        let turned = expr(vec![Row(0), Leaf(1), Add(0, 1), GeluTanh(2)]);
        let found = Found { product: 1, bias: 0, root: 3, gelu: true };
        assert_eq!(biased_products(&turned, &[false, true]), [found]);
        // GELU by the error function is another.
        let exact = expr(vec![Leaf(0), Row(1), Add(0, 1), Gelu(2)]);
        let found = Found { product: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(biased_products(&exact, &[true, false]), [found]);
    }

    #[test]
    fn what_others_read_too_stays_what_it_is() {
        let product_twice = expr(vec![Leaf(0), Row(1), Add(0, 1), Mul(0, 2)]);
        assert_eq!(biased_products(&product_twice, &[true, false]), []);
        let sum_twice = expr(vec![Leaf(0), Row(1), Add(0, 1), GeluTanh(2), Mul(2, 3)]);
        let found = Found { product: 0, bias: 1, root: 2, gelu: false };
        assert_eq!(biased_products(&sum_twice, &[true, false]), [found]);
    }

    #[test]
    fn a_leaf_takes_the_place_of_what_was_computed() {
        // A residual stream, and a product with a bias.
        let stream = expr(vec![Leaf(0), Leaf(1), Row(2), Add(1, 2), Add(0, 3)]);
        assert_eq!(with_leaves(&stream, &[(3, 1)]), (Expr::sum(), vec![0, 1]));
        assert_eq!(with_leaves(&stream, &[]), (stream.clone(), vec![0, 1, 2]));
        // Of two gated products, the second one has a bias.
        let gated = expr(vec![Row(0), Leaf(1), Add(0, 1), Leaf(2), Silu(3), Mul(4, 2)]);
        let left = expr(vec![Leaf(0), Leaf(1), Silu(1), Mul(2, 0)]);
        assert_eq!(with_leaves(&gated, &[(2, 1)]), (left, vec![1, 2]));
        let alone = expr(vec![Leaf(0), Row(1), Add(0, 1), GeluTanh(2)]);
        assert_eq!(with_leaves(&alone, &[(3, 0)]), (expr(vec![Leaf(0)]), vec![0]));
    }
}
