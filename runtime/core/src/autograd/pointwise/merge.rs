//! Merging of elementwise expressions: what several parts of an expression read is computed once.

use meshwright_backend::{Expr, Node};

use super::expression::{Binary, Pointwise};
use super::leaf::ExprLeaf;

impl Pointwise {
    /// Combines the results of two expressions. Leaves and nodes of `other` that the expression has already are not
    /// repeated.
    pub(crate) fn binary(mut self, other: Pointwise, op: Binary) -> Pointwise {
        let a = self.expr.nodes.len() - 1;
        let b = self.add_expression(other);
        self.expr.nodes.push(match op {
            Binary::Add => Node::Add(a, b),
            Binary::Sub => Node::Sub(a, b),
            Binary::Mul => Node::Mul(a, b),
            Binary::Div => Node::Div(a, b),
            Binary::Max => Node::Max(a, b),
            Binary::Min => Node::Min(a, b),
            Binary::Compare(comparison) => Node::Compare(comparison, a, b),
        });
        self
    }

    /// Returns the elements of `chosen` if those of the expression are not 0, and the elements of `other` elsewhere.
    pub(crate) fn select(mut self, chosen: Pointwise, other: Pointwise) -> Pointwise {
        let mask = self.expr.nodes.len() - 1;
        let a = self.add_expression(chosen);
        let b = self.add_expression(other);
        self.expr.nodes.push(Node::Select(mask, a, b));
        self
    }

    /// Adds the leaves and nodes of `other`, and returns the node of its result.
    fn add_expression(&mut self, other: Pointwise) -> usize {
        let mut leaves = Vec::with_capacity(other.leaves.len());
        for (index, leaf) in other.leaves.into_iter().enumerate() {
            let form = form_of_leaf(&other.expr, index);
            let known =
                self.leaves.iter().enumerate().position(|(known, own)| {
                    *own == leaf && form_of_leaf(&self.expr, known) == form
                });
            leaves.push(known.unwrap_or_else(|| {
                self.leaves.push(leaf);
                self.leaves.len() - 1
            }));
        }
        merge(&mut self.expr, other.expr, &leaves)
    }
}

/// Returns the node that reads a leaf, as if it were leaf 0: all nodes that read a leaf have one form.
fn form_of_leaf(expr: &Expr, leaf: usize) -> Option<Node> {
    let node = expr.nodes.iter().find(|node| node.leaf() == Some(leaf));
    node.map(|node| node.clone().with_leaf(|_| 0))
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
        let node = node.with_leaf(|leaf| leaves[leaf]).with_operands(|operand| moved[operand]);
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
