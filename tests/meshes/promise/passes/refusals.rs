//! Wrong uses of forward passes, which are refused with a message.

use meshwright::nn::Built;
use meshwright::prelude::*;
use meshwright::tensor::{ForwardPass, WeightGradients};

use super::super::harness::{MeshCase, ONE, Spot, mesh, refused, stage3};
use super::super::net::Ids;
use super::{Lm, Stream, batch, model};

const FILE: &str = "tests/meshes/promise/passes/refusals.rs";

const MISUSE_CASES: [MeshCase; 3] = [ONE, mesh("tp=2"), stage3("fsdp=2")];

/// Asserts that `body` is refused at the line of its spot.
#[track_caller]
fn assert_refused<T: Send>(parts: &[&str], body: impl Fn(&Rank, &Built<Lm>, &Spot) -> T + Sync) {
    for case in MISUSE_CASES {
        refused(case, FILE, parts, |rank, spot| body(rank, &model(rank, true), spot));
    }
}

type First = (Stream, ForwardPass<Ids, Stream>);

fn first(rank: &Rank, built: &Built<Lm>, i: usize) -> First {
    ForwardPass::record(rank, &batch(rank, i, 2).tokens, |tokens| built.model.first(tokens))
}

#[test]
fn tensor_of_another_pass_is_refused() {
    assert_refused(&["no longer recorded", "`ForwardPass`"], |rank, built, spot| {
        let mut left = None;
        let tokens = batch(rank, 0, 2).tokens;
        let (_, first) = ForwardPass::record(rank, &tokens, |tokens| {
            let x = built.model.first(tokens);
            left = Some(x.clone());
            x
        });
        let left = left.expect("the pass has run");
        let (y, mut last) = ForwardPass::record(rank, &tokens, |_| built.model.last(&left));
        last.add_loss(&y, |y| Loss::mean_of(y));
        spot.next(line!());
        let mut gradients = Gradients::of_passes(rank);
        last.backward(&mut gradients, None, WeightGradients::Now { complete: &built.units });
        drop(first);
    });
}

#[test]
fn changed_parameter_is_refused() {
    assert_refused(
        &["was changed", "between its forward pass and its backward"],
        |rank, built, spot| {
            let (x, mut pass) = first(rank, built, 0);
            pass.add_loss(&x, |x| Loss::mean_of(x));
            for param in built.params() {
                param.write_global(&vec![0.5; param.global_len()]);
            }
            spot.next(line!());
            let mut gradients = Gradients::of_passes(rank);
            pass.backward(&mut gradients, None, WeightGradients::Now { complete: &built.units });
        },
    );
}

#[test]
fn contribution_after_completion_is_refused() {
    assert_refused(&["after its reduction over the ranks has started"], |rank, built, spot| {
        let [mut one, mut other] = [first(rank, built, 0), first(rank, built, 1)];
        one.1.add_loss(&one.0, |x| Loss::mean_of(x));
        other.1.add_loss(&other.0, |x| Loss::mean_of(x));
        spot.next(line!());
        let mut gradients = Gradients::of_passes(rank);
        one.1.backward(&mut gradients, None, WeightGradients::Now { complete: &built.units });
        other.1.backward(&mut gradients, None, WeightGradients::Now { complete: &built.units });
    });
}

#[test]
fn incomplete_gradients_are_refused() {
    assert_refused(&["of the last pass that reaches it"], |rank, built, spot| {
        let (x, mut pass) = first(rank, built, 0);
        pass.add_loss(&x, |x| Loss::mean_of(x));
        spot.next(line!());
        let mut gradients = Gradients::of_passes(rank);
        let without_the_first = WeightGradients::Now { complete: &built.units[1..] };
        pass.backward(&mut gradients, None, without_the_first);
        gradients.complete().reduce().norm()
    });
    assert_refused(&["are deferred, and were not computed"], |rank, built, spot| {
        let (x, mut pass) = first(rank, built, 0);
        pass.add_loss(&x, |x| Loss::mean_of(x));
        spot.next(line!());
        let mut gradients = Gradients::of_passes(rank);
        let (_, deferred) = pass.backward(&mut gradients, None, WeightGradients::Deferred);
        drop(deferred);
        gradients.complete().reduce().norm()
    });
}

#[test]
fn misplaced_passes_are_refused() {
    assert_refused(&["inside of `rank.evaluate(..)`"], |rank, built, spot| {
        rank.evaluate(|| {
            let tokens = batch(rank, 0, 2).tokens;
            spot.next(line!());
            let (_, pass) = ForwardPass::record(rank, &tokens, |tokens| built.model.first(tokens));
            drop(pass);
        });
    });
    assert_refused(&["or another `ForwardPass`"], |rank, built, spot| {
        let tokens = batch(rank, 0, 2).tokens;
        let (_, outer) = ForwardPass::record(rank, &tokens, |tokens| {
            spot.next(line!());
            let (x, inner) = ForwardPass::record(rank, tokens, |tokens| built.model.first(tokens));
            drop(inner);
            x
        });
        drop(outer);
    });
    assert_refused(&["needs gradients of its output, or a loss"], |rank, built, spot| {
        let (_, pass) = first(rank, built, 0);
        let mut gradients = Gradients::of_passes(rank);
        spot.next(line!());
        pass.backward(&mut gradients, None, WeightGradients::Now { complete: &built.units });
    });
    assert_refused(&["but reads the output of another"], |rank, built, spot| {
        let [one, mut other] = [first(rank, built, 0), first(rank, built, 1)];
        spot.next(line!());
        other.1.add_loss(&one.0, |x| Loss::mean_of(x));
    });
}

/// Gradients that are handed on belong to the output, not to another micro-batch or to something computed from it.
#[test]
fn gradients_of_another_tensor_are_refused() {
    assert_refused(&["is given the gradients of another tensor"], |rank, built, spot| {
        let [one, other] = [first(rank, built, 0), first(rank, built, 1)];
        let (y, mut last) = ForwardPass::record(rank, &other.0, |x| built.model.last(x));
        last.add_loss(&y, |y| Loss::mean_of(y));
        let mut gradients = Gradients::of_passes(rank);
        let no_unit = WeightGradients::Now { complete: &[] };
        let (dx, _) = last.backward(&mut gradients, None, no_unit);
        spot.next(line!());
        one.1.backward(&mut gradients, Some(dx), no_unit);
    });
    assert_refused(&["is given the gradients of another tensor"], |rank, built, spot| {
        let (x, pass) = first(rank, built, 0);
        let (y, mut last) = ForwardPass::record(rank, &(&x * 2.0), |x| built.model.last(x));
        last.add_loss(&y, |y| Loss::mean_of(y));
        let mut gradients = Gradients::of_passes(rank);
        let no_unit = WeightGradients::Now { complete: &[] };
        let (dx, _) = last.backward(&mut gradients, None, no_unit);
        spot.next(line!());
        pass.backward(&mut gradients, Some(dx), no_unit);
    });
}

/// Gradients that were discarded take no deferred weight gradients.
#[test]
fn discarded_step_is_refused() {
    assert_refused(&["were discarded"], |rank, built, spot| {
        let (x, mut pass) = first(rank, built, 0);
        pass.add_loss(&x, |x| Loss::mean_of(x));
        let mut gradients = Gradients::of_passes(rank);
        let (_, deferred) = pass.backward(&mut gradients, None, WeightGradients::Deferred);
        gradients.discard();
        spot.next(line!());
        deferred.expect("deferred above").compute_gradients(&built.units);
    });
}
