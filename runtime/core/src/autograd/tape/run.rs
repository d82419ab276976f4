//! The tape runs backward from losses, or from the results of a micro-batch pass or of a recomputed segment.

use std::sync::Arc;

use crate::context::Rank;
use crate::context::scope::{self, Pass, SpanStart};
use meshwright_backend::Buffer;

use super::gradients::{TapeGradients, WeightGradientJob};
use super::{NodeId, TapeNode};

/// Runs the tape backward from `roots`, `seed` being the gradient of each. The saved values of an operation are freed
/// as soon as its backward function has run; operations that lead to other losses stay recorded.
pub(in super::super) fn backpropagate(rank: &Rank, roots: Vec<NodeId>, seed: Buffer) {
    let seed = Arc::new(seed);
    let roots: Vec<_> = roots.into_iter().map(|root| (root, Arc::clone(&seed))).collect();
    let (kept, _) = run_nodes(rank, roots, Some(seed), None, TapeNode::is_referenced);
    rank.tape().put_back(kept);
}

/// Runs the tape of a micro-batch pass backward from losses, whose gradient is `seed`, and from its outputs, each with
/// its gradient, and clears it. Weight gradients are appended to `deferred`, if given, instead of computed.
pub(in super::super) fn backpropagate_pass(
    rank: &Rank,
    losses: Vec<NodeId>,
    outputs: Vec<(NodeId, Arc<Buffer>)>,
    seed: Buffer,
    deferred: Option<Vec<WeightGradientJob>>,
) -> Vec<WeightGradientJob> {
    let seed = Arc::new(seed);
    let losses = losses.into_iter().map(|root| (root, Arc::clone(&seed)));
    let roots: Vec<_> = losses.chain(outputs).collect();
    run_nodes(rank, roots, Some(seed), deferred, |_| false).1
}

/// Computes deferred weight gradients, in order.
pub(in super::super) fn run_weight_gradient_jobs(rank: &Rank, jobs: Vec<WeightGradientJob>) {
    let _pass = scope::begin_pass(Pass::Backward);
    let start = scope::begin_span();
    let gradients = TapeGradients { rank, slots: Vec::new(), seed: None, deferred: None };
    jobs.into_iter().for_each(|job| job(&gradients));
    scope::end_span("weight gradients", start);
}

/// Runs the tape of a recomputed segment backward from `roots`, each with its gradient, and clears it.
pub(in super::super) fn backpropagate_segment(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
) {
    run_nodes(rank, roots, None, None, |_| false);
}

/// Runs the tape backward. Returns the operations that no gradient has reached and that `keep` selects, and the
/// deferred weight gradients.
fn run_nodes(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
    seed: Option<Arc<Buffer>>,
    deferred: Option<Vec<WeightGradientJob>>,
    keep: impl Fn(&TapeNode) -> bool,
) -> (Vec<TapeNode>, Vec<WeightGradientJob>) {
    let _pass = scope::begin_pass(Pass::Backward);
    let mut nodes = rank.tape().take_all();
    let slots = nodes.iter().map(|node| (node.serial, None)).collect();
    let mut gradients = TapeGradients { rank, slots, seed, deferred };
    for (root, gradient) in roots {
        gradients.add_gradient(&root, gradient);
    }
    suspend_unreached(&nodes, &gradients);
    let mut kept = Vec::new();
    // Consecutive operations of one forward function are one span of the trace.
    let mut span: Option<(&str, Option<SpanStart>)> = None;
    while let Some(node) = nodes.pop() {
        let Some(gradient) = gradients.slots[nodes.len()].1.take() else {
            // Its consumer may have passed on no gradient, although it was to be reached.
            node.dependencies.suspend_uses();
            // Dropping an operation drops its references to earlier ones.
            if keep(&node) {
                kept.push(node);
            }
            continue;
        };
        if let Some((open, start)) = span.take_if(|(open, _)| *open != node.scope) {
            scope::end_span(("backward", open.trim_end_matches("::forward")), start);
        }
        span.get_or_insert_with(|| (node.scope, scope::begin_span()));
        (node.backward)(&mut gradients, gradient);
    }
    if let Some((open, start)) = span {
        scope::end_span(("backward", open.trim_end_matches("::forward")), start);
    }
    kept.reverse();
    kept.iter().for_each(|node| node.dependencies.resume_uses());
    (kept, gradients.deferred.unwrap_or_default())
}

/// Suspends the uses of operations that no gradient will reach. Which of them are still recorded depends on the tensors
/// that this rank has kept, and the gradients have to be complete after the same operations on every rank.
fn suspend_unreached(nodes: &[TapeNode], gradients: &TapeGradients<'_>) {
    let mut is_reached: Vec<bool> =
        gradients.slots.iter().map(|(_, gradient)| gradient.is_some()).collect();
    for (index, TapeNode { dependencies, .. }) in nodes.iter().enumerate().rev() {
        if is_reached[index] {
            // One that is not found belongs to another tape, which the operation reports.
            let sources = dependencies.sources.iter().filter_map(|serial| gradients.find(*serial));
            sources.for_each(|source| is_reached[source] = true);
        } else {
            dependencies.suspend_uses();
        }
    }
}
