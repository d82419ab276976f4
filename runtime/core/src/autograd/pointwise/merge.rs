//! Merging of elementwise expressions: what several parts of an expression read is computed once.

use meshwright_backend::{Expr, Node};

use super::expression::{Binary, Pointwise};
use super::leaf::ExprLeaf;

impl Pointwise {
    /// Combines the results of two expressions. Leaves and nodes of `other` that the expression has already are not
    /// repeated.
    pub(crate) fn binary(mut self, other: Pointwise, op: Binary) -> Pointwise {
        let a = self.expr.nodes.len() - 1;
        let add_leaf = |leaf| position_or_push(&mut self.leaves, leaf, ExprLeaf::eq);
        let leaves: Vec<usize> = other.leaves.into_iter().map(add_leaf).collect();
        let b = merge(&mut self.expr, other.expr, &leaves);
        self.expr.nodes.push(match op {
            Binary::Add => Node::Add(a, b),
            Binary::Sub => Node::Sub(a, b),
            Binary::Mul => Node::Mul(a, b),
            Binary::Div => Node::Div(a, b),
        });
        self
    }
}

impl PartialEq for ExprLeaf {
    fn eq(&self, other: &ExprLeaf) -> bool {
        match (self, other) {
            (ExprLeaf::Value(a), ExprLeaf::Value(b)) => a.is_same(b),
            (ExprLeaf::Param(a, a_axes), ExprLeaf::Param(b, b_axes)) => {
                a.is_same(b) && a_axes == b_axes
            }
            _ => false,
        }
    }
}

/// Adds the nodes of `other` to `expr`, with its leaves renumbered by `leaves`, and returns the node of its result.
fn merge(expr: &mut Expr, other: Expr, leaves: &[usize]) -> usize {
    let mut moved: Vec<usize> = Vec::with_capacity(other.nodes.len());
    for node in other.nodes {
        let node = match node {
            Node::Leaf(leaf) => Node::Leaf(leaves[leaf]),
            Node::Row(leaf) => Node::Row(leaves[leaf]),
            node => node.with_operands(|operand| moved[operand]),
        };
        moved.push(position_or_push(&mut expr.nodes, node, Node::is_same));
    }
    moved[moved.len() - 1]
}

fn position_or_push<T>(items: &mut Vec<T>, item: T, is_same: impl Fn(&T, &T) -> bool) -> usize {
    items.iter().position(|known| is_same(known, &item)).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_backend::UnaryFunction;

    #[test]
    fn common_parts_occur_once() {
        let tanh = || Expr {
            nodes: vec![Node::Leaf(0), Node::Apply(UnaryFunction::Tanh, 0), Node::Scale(1, 2.0)],
        };
        // The same leaf.
        let mut expr = tanh();
        assert_eq!(merge(&mut expr, tanh(), &[0]), 2);
        assert_eq!(expr, tanh());
        // Another one, which shares nothing.
        assert_eq!(merge(&mut expr, tanh(), &[1]), 5);
        assert_eq!(
            expr.nodes[3..],
            [Node::Leaf(1), Node::Apply(UnaryFunction::Tanh, 3), Node::Scale(4, 2.0)]
        );
        // Another constant.
        let other = Expr {
            nodes: vec![Node::Leaf(0), Node::Apply(UnaryFunction::Tanh, 0), Node::Scale(1, 3.0)],
        };
        assert_eq!(merge(&mut expr, other, &[0]), 6);
        assert_eq!(expr.nodes[6..], [Node::Scale(1, 3.0)]);
    }

    /// Zeros of both signs are different divisors.
    #[test]
    fn constants_of_different_signs_stay() {
        let divided =
            |number| Expr { nodes: vec![Node::Leaf(0), Node::Constant(number), Node::Div(0, 1)] };
        let mut expr = divided(0.0);
        assert_eq!(merge(&mut expr, divided(0.0), &[0]), 2);
        assert_eq!(merge(&mut expr, divided(-0.0), &[0]), 4);
    }
}
