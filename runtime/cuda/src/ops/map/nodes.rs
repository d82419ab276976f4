//! The statements that a generated kernel has for the nodes of an expression: loads, values and gradients.

use std::fmt::Write;

use super::structure::{RequestedGradient, pattern_of};
use meshwright_backend::unary_function::DerivativeOf;
use meshwright_backend::{Expr, Node};

/// Returns the nodes that are vectors of leaves and of dropout factors, with the statements that load them from element
/// `i` on. A leaf that occurs twice is loaded twice in the source; the compiler merges the loads.
pub(super) fn loads(expr: &Expr) -> impl Iterator<Item = (usize, String)> {
    let patterns = expr.stride_patterns();
    expr.nodes.iter().enumerate().filter_map(move |(k, node)| match node {
        Node::Along(leaf, strides) => {
            let pattern = pattern_of(&patterns, strides);
            Some((k, format!("p.along{pattern}.load(p.leaf{leaf}, i, x{k});")))
        }
        Node::Position(_) => Some((k, format!("p.position{k}.load(i, x{k});"))),
        Node::Leaf(leaf) => Some((k, format!("load_vector(p.leaf{leaf} + i, x{k});"))),
        Node::Row(leaf) => {
            Some((k, format!("load_vector(p.leaf{leaf} + modulo(i, p.len{leaf}), x{k});")))
        }
        Node::Dropout(..) => Some((k, format!("p.dropout{k}.mask(i, x{k});"))),
        _ => None,
    })
}

/// Returns the statements that compute every node for element `n` of a vector.
pub(super) fn write_values(text: &mut String, expr: &Expr) {
    for (k, node) in expr.nodes.iter().enumerate() {
        let value = match node {
            Node::Leaf(_) | Node::Row(_) | Node::Along(..) | Node::Position(_) => {
                format!("x{k}[n]")
            }
            Node::Max(a, b) => format!("v{a} > v{b} || v{a} != v{a} ? v{a} : v{b}"),
            Node::Min(a, b) => format!("v{a} < v{b} || v{a} != v{a} ? v{a} : v{b}"),
            Node::Compare(comparison, a, b) => {
                format!("v{a} {} v{b} ? 1.0f : 0.0f", comparison.operator())
            }
            Node::Select(mask, a, b) => format!("v{mask} != 0.0f ? v{a} : v{b}"),
            Node::Pow(a, _) => format!("powf(v{a}, p.exponent{k})"),
            Node::Constant(_) => format!("p.constant{k}"),
            Node::Add(a, b) => add(&format!("v{a}"), &format!("v{b}")),
            Node::Sub(a, b) => format!("__fsub_rn(v{a}, v{b})"),
            Node::Mul(a, b) => format!("__fmul_rn(v{a}, v{b})"),
            Node::Div(a, b) => format!("__fdiv_rn(v{a}, v{b})"),
            Node::Scale(a, _) => format!("__fmul_rn(v{a}, p.factor{k})"),
            Node::Offset(a, _) => add(&format!("v{a}"), &format!("p.offset{k}")),
            Node::Clamp(a, ..) => {
                format!("v{a} < p.min{k} ? p.min{k} : v{a} > p.max{k} ? p.max{k} : v{a}")
            }
            Node::Apply(function, a) => format!("{}_forward(v{a})", function.name()),
            Node::Dropout(a, _) => format!("__fmul_rn(v{a}, x{k}[n])"),
        };
        let _ = writeln!(text, "        [[maybe_unused]] float v{k} = {value};");
    }
}

/// Returns the statements that compute the gradients of nodes, last to first: each is the sum over the nodes that read
/// it.
pub(super) fn write_gradients(text: &mut String, expr: &Expr, requested: &[RequestedGradient]) {
    let last = expr.nodes.len() - 1;
    let mut sent = vec![Vec::new(); expr.nodes.len()];
    let mut of_leaf = vec![Vec::new(); requested.len()];
    sent[last].push("g[n]".to_string());
    let leads = leads_to_requested(expr, requested);
    let keeps_zeros = expr.keeps_zero_gradients();
    // A derivative may be infinite where a selection has left its operand out.
    let sent_by = |k: usize, slope: String| {
        if keeps_zeros { format!("(g{k} == 0.0f ? 0.0f : {slope})") } else { slope }
    };
    for (k, node) in expr.nodes.iter().enumerate().rev() {
        if !leads[k] || sent[k].is_empty() {
            continue;
        }
        let _ = writeln!(text, "        float g{k} = {};", sum(&sent[k]));
        match node {
            Node::Leaf(leaf) | Node::Row(leaf) | Node::Along(leaf, _) => {
                of_leaf[*leaf].push(format!("g{k}"));
            }
            Node::Constant(_) | Node::Position(_) | Node::Compare(..) => {}
            Node::Max(a, b) => {
                sent[*a].push(format!("gradient_of_larger(g{k}, v{a}, v{b})"));
                sent[*b].push(format!("gradient_of_larger(g{k}, v{b}, v{a})"));
            }
            Node::Min(a, b) => {
                sent[*a].push(format!("gradient_of_smaller(g{k}, v{a}, v{b})"));
                sent[*b].push(format!("gradient_of_smaller(g{k}, v{b}, v{a})"));
            }
            Node::Select(mask, a, b) => {
                sent[*a].push(format!("(v{mask} != 0.0f ? g{k} : 0.0f)"));
                sent[*b].push(format!("(v{mask} != 0.0f ? 0.0f : g{k})"));
            }
            Node::Pow(a, _) => {
                sent[*a].push(sent_by(k, format!("gradient_of_power(g{k}, v{a}, p.exponent{k})")));
            }
            Node::Add(a, b) => {
                sent[*a].push(format!("g{k}"));
                sent[*b].push(format!("g{k}"));
            }
            Node::Sub(a, b) => {
                sent[*a].push(format!("g{k}"));
                sent[*b].push(format!("-g{k}"));
            }
            Node::Mul(a, b) => {
                sent[*a].push(sent_by(k, format!("__fmul_rn(g{k}, v{b})")));
                sent[*b].push(sent_by(k, format!("__fmul_rn(g{k}, v{a})")));
            }
            Node::Div(a, b) => {
                sent[*a].push(sent_by(k, format!("__fdiv_rn(g{k}, v{b})")));
                sent[*b].push(sent_by(k, format!("-__fmul_rn(g{k}, __fdiv_rn(v{k}, v{b}))")));
            }
            Node::Scale(a, _) => {
                sent[*a].push(sent_by(k, format!("__fmul_rn(g{k}, p.factor{k})")));
            }
            Node::Offset(a, _) => sent[*a].push(format!("g{k}")),
            Node::Clamp(a, ..) => {
                sent[*a].push(format!("(v{a} < p.min{k} || v{a} > p.max{k} ? 0.0f : g{k})"));
            }
            Node::Apply(function, a) => {
                let operand = match function.derivative_of() {
                    DerivativeOf::Input => a,
                    DerivativeOf::Output => &k,
                };
                let slope = format!("{}_backward(g{k}, v{operand})", function.name());
                sent[*a].push(sent_by(k, slope));
            }
            Node::Dropout(a, _) => sent[*a].push(format!("__fmul_rn(g{k}, x{k}[n])")),
        }
    }
    for (leaf, (requested, sent)) in requested.iter().zip(of_leaf).enumerate() {
        let own = sum(&sent);
        let _ = match requested {
            RequestedGradient::No => Ok(()),
            RequestedGradient::Each => {
                let added = add(&format!("d{leaf}[n]"), &own);
                writeln!(text, "        d{leaf}[n] = p.add{leaf} ? {added} : {own};")
            }
            RequestedGradient::RowSum | RequestedGradient::RepeatedSum => {
                let added = add(&format!("sums.d{leaf}[n]"), &own);
                writeln!(text, "        sums.d{leaf}[n] = {added};")
            }
        };
    }
}

/// Returns the sum of two values.
fn add(a: &str, b: &str) -> String {
    format!("__fadd_rn({a}, {b})")
}

/// Returns the sum of `terms`, in their order; 0 without terms.
fn sum(terms: &[String]) -> String {
    let sum = terms.iter().cloned().reduce(|sum, term| add(&sum, &term));
    sum.unwrap_or_else(|| "0.0f".to_owned())
}

/// Returns, per node, true if a required leaf gradient depends on the gradient of the node.
fn leads_to_requested(expr: &Expr, requested: &[RequestedGradient]) -> Vec<bool> {
    let mut leads = Vec::with_capacity(expr.nodes.len());
    for node in &expr.nodes {
        leads.push(match node.leaf() {
            Some(leaf) => requested[leaf] != RequestedGradient::No,
            None => node.differentiable_operands().any(|operand| leads[operand]),
        });
    }
    leads
}
