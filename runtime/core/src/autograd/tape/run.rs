//! The tape runs backward from losses, or from the results of a micro-batch pass or of a recomputed segment.

use std::sync::Arc;

use crate::context::Rank;
use crate::context::scope::{self, Location, Pass, SpanStart};
use meshwright_backend::Buffer;

use super::gradients::{LossSeed, TapeGradients, WeightGradientJob};
use super::reached::ReachedNodes;
use super::{NodeId, TapeNode};

/// Runs the tape backward from `roots`, `seed` having the gradient of each. The saved values of an operation are freed
/// as soon as its backward function has run; operations that lead to other losses stay recorded.
pub(in super::super) fn backpropagate(rank: &Rank, roots: Vec<NodeId>, seed: LossSeed) {
    let roots: Vec<_> = roots.into_iter().map(|root| (root, Arc::clone(&seed.gradient))).collect();
    let mut reachable = rank.tape().reachable_nodes();
    let keep = |node: &TapeNode| reachable.contains(node);
    let (kept, _) = run_nodes(rank, roots, Some(seed), None, keep);
    rank.tape().put_back(kept);
}

/// Runs the tape of a micro-batch pass backward from losses, whose gradient `seed` has, and from its outputs, each with
/// its gradient, and clears it. Weight gradients are appended to `deferred`, if given, instead of computed.
pub(in super::super) fn backpropagate_pass(
    rank: &Rank,
    losses: Vec<NodeId>,
    outputs: Vec<(NodeId, Arc<Buffer>)>,
    seed: LossSeed,
    deferred: Option<Vec<WeightGradientJob>>,
) -> Vec<WeightGradientJob> {
    let losses = losses.into_iter().map(|root| (root, Arc::clone(&seed.gradient)));
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

/// Runs the tape of a recomputed segment backward from `roots`, each with its gradient, and clears it. The segment is
/// part of the backward of `outer`.
pub(in super::super) fn backpropagate_segment(
    outer: &TapeGradients<'_>,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
) {
    run_nodes(outer.rank, roots, outer.seed.clone(), None, |_| false);
}

/// Runs the tape backward. Returns the operations that no gradient has reached and that `keep` selects, and the
/// deferred weight gradients.
fn run_nodes(
    rank: &Rank,
    roots: impl IntoIterator<Item = (NodeId, Arc<Buffer>)>,
    seed: Option<LossSeed>,
    deferred: Option<Vec<WeightGradientJob>>,
    mut keep: impl FnMut(&TapeNode) -> bool,
) -> (Vec<TapeNode>, Vec<WeightGradientJob>) {
    let _pass = scope::begin_pass(Pass::Backward);
    let outer = scope::set_backward_location(Location::default());
    let mut nodes = rank.tape().take_all();
    let slots = nodes.iter().map(|node| (node.serial, None)).collect();
    let mut gradients = TapeGradients { rank, slots, seed, deferred };
    for (root, gradient) in roots {
        gradients.add_gradient(&root, gradient);
    }
    let reached = ReachedNodes::find(&nodes, &gradients);
    reached.suspend_others(&nodes);
    let mut kept = Vec::new();
    // Consecutive operations of one forward function are one span of the trace.
    let mut span: Option<(&str, Option<SpanStart>)> = None;
    while let Some(node) = nodes.pop() {
        let arrived = gradients.slots[nodes.len()].1.take();
        let zeros = || reached.zeros_at_boundary(rank, nodes.len(), &node);
        let Some(gradient) = arrived.or_else(zeros) else {
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
        scope::set_backward_location(node.location);
        (node.backward)(&mut gradients, gradient);
    }
    scope::set_backward_location(outer);
    if let Some((open, start)) = span {
        scope::end_span(("backward", open.trim_end_matches("::forward")), start);
    }
    kept.reverse();
    kept.iter().for_each(|node| node.dependencies.resume_uses());
    (kept, gradients.deferred.unwrap_or_default())
}
