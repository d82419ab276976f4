//! Every rank updates by a rule with the same options and parameter groups, the same units in the same steps, and
//! averages parameters alike, in the same training step.

use std::sync::Arc;

use meshwright::nn::Built;
use meshwright::optim::{
    AdamWOptions, Ema, FlatSlice, Group, MuonOptions, Optimizer, ParamGroups, Select, Sgd,
    SgdOptions, UpdateRule, Updated,
};
use meshwright::prelude::*;

use super::harness::{MeshCase, ONE, built, on};
use super::net::*;

#[test]
fn other_options_of_one_rank_are_refused() {
    type Rule = Arc<dyn UpdateRule>;
    let rules: [(Rule, Rule, &str); 7] = [
        (
            Arc::new(AdamWOptions::default()),
            Arc::new(AdamWOptions { betas: (0.9, 0.99), ..AdamWOptions::default() }),
            "by adamw with AdamWOptions { betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1 }",
        ),
        (
            Arc::new(AdamWOptions::default()),
            Arc::new(AdamWOptions { eps: 1e-6, ..AdamWOptions::default() }),
            "eps: 1e-6",
        ),
        (
            Arc::new(AdamWOptions::default()),
            Arc::new(AdamWOptions { weight_decay: 0.0, ..AdamWOptions::default() }),
            "weight_decay: 0.0",
        ),
        (
            Arc::new(SgdOptions::default()),
            Arc::new(SgdOptions { momentum: 0.8, ..SgdOptions::default() }),
            "by sgd with SgdOptions { momentum: 0.8, nesterov: false, weight_decay: 0.0 }",
        ),
        (
            Arc::new(SgdOptions::default()),
            Arc::new(SgdOptions { nesterov: true, ..SgdOptions::default() }),
            "nesterov: true",
        ),
        (
            Arc::new(MuonOptions::default()),
            Arc::new(MuonOptions { momentum: 0.9, ..MuonOptions::default() }),
            "by muon with MuonOptions { momentum: 0.9, ",
        ),
        (Arc::new(Custom(0.5)), Arc::new(Custom(0.25)), "by custom with Custom(0.25)"),
    ];
    let replicas = MeshCase { mesh: "dp=2", ..ONE };
    let run = |rules: [&Rule; 2], groups: [ParamGroups; 2]| {
        on(replicas, |rank| {
            let net = built::<Net>(rank, &sizes());
            let (rule, groups) = (Arc::clone(rules[rank.index()]), &groups[rank.index()]);
            let mut optimizer = Optimizer::with_groups(rank, &net.units, rule, groups).unwrap();
            for step in 0..2 {
                rank.set_step(step);
                let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
                let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
                optimizer.step(0.1, loss.backward().reduce());
            }
        })
        .map(drop)
    };
    for (rule, other, part) in &rules {
        run([rule, rule], Default::default()).unwrap();
        let message = run([rule, other], Default::default()).unwrap_err();
        assert!(message.contains("ranks 0 and 1 have applied different updates"), "{message}");
        assert!(message.contains(part), "{message}");
    }
    let (rule, _, _) = &rules[0];
    let without_decay = ParamGroups::default().decay(Select::Dims(2), false);
    let message = run([rule, rule], [ParamGroups::default(), without_decay]).unwrap_err();
    assert!(message.contains("in ParamGroups { rules: [(Dims(2), Decay(false))] }"), "{message}");
}

/// A rule of a program, with an option that ranks compare.
#[derive(Debug)]
struct Custom(f64);

impl UpdateRule for Custom {
    fn name(&self) -> &str {
        "custom"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let rate = self.0 * slice.lr();
        slice.update_elementwise([], |param, gradient, []| (param - rate * gradient, []))
    }

    fn options(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

/// A change of optimizer or average in the second of three steps, on rank 1 alone.
type Change = fn(&Rank, &Built<Net>, &mut Sgd, &mut Ema);

/// Trains for three steps with an average of the parameters.
fn train_with_average(mesh: &'static str, change: Option<Change>) -> Result<(), String> {
    on(MeshCase { mesh, ..ONE }, |rank| {
        let net = built::<Net>(rank, &sizes());
        let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
        let mut average = Ema::new(rank, &net.units, 0.5);
        for step in 0..3 {
            rank.set_step(step);
            let x = net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
            let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
            let gradients = loss.backward().reduce();
            match change {
                Some(change) if step == 1 && rank.index() == 1 => {
                    change(rank, &net, &mut sgd, &mut average);
                }
                _ => average.update(),
            }
            sgd.step(0.1, &gradients);
        }
        average.with_average(|| ());
    })
    .map(drop)
}

/// Neither the state of an optimizer nor an average is compared itself.
#[test]
fn other_optimizers_and_averages_of_one_rank_are_refused() {
    let changes: [(Change, &str); 6] = [
        (|_, _, _, _| {}, "and 1 of an average, the last with decay 0.5"),
        (|_, _, _, average| average.restart(), "and 2 of an average, the last with decay 0"),
        (
            |rank, net, _, average| {
                *average = Ema::new(rank, &net.units, 0.75);
                average.update();
            },
            "and 2 of an average, the last with decay 0.75",
        ),
        (
            |_, _, sgd, average| {
                average.update();
                sgd.set_steps(5);
            },
            "as its step 6",
        ),
        (
            |rank, net, sgd, average| {
                average.update();
                *sgd = Sgd::new(rank, &net.units, SgdOptions::default());
            },
            "as its step 1",
        ),
        (
            |rank, net, sgd, average| {
                average.update();
                let some = [net.units_of("embed"), net.units_of("norm")].concat();
                *sgd = Sgd::new(rank, &some, SgdOptions::default());
                sgd.set_steps(1);
            },
            " of embed, norm, as its step 2",
        ),
    ];
    for mesh in ["dp=2", "tp=2"] {
        train_with_average(mesh, None).unwrap();
        for (change, part) in changes {
            let message = train_with_average(mesh, Some(change)).unwrap_err();
            for part in ["ranks 0 and 1 have applied different updates so far", part] {
                assert!(message.contains(part), "{mesh}: no `{part}` in {message}");
            }
        }
    }
}

/// Dropout masks follow from the training step.
#[test]
fn another_step_of_one_rank_is_refused() {
    for mesh in ["dp=2", "tp=2"] {
        let run = |own: fn(usize, u64) -> u64| {
            on(MeshCase { mesh, ..ONE }, |rank| {
                let net = built::<Net>(rank, &sizes());
                let mut sgd = Sgd::new(rank, &net.units, SgdOptions::default());
                for step in 0..3 {
                    rank.set_step(own(rank.index(), step));
                    let x =
                        net.model.embed.forward(&micro_batch(rank, (8, 6), (0, 1), true).tokens);
                    let loss = Loss::mean_of(&(net.model.plain.forward(&x) * &net.model.gain));
                    sgd.step(0.1, loss.backward().reduce());
                }
            })
            .map(drop)
        };
        run(|_, step| step).unwrap();
        let message = run(|rank, step| if rank == 1 { 0 } else { step }).unwrap_err();
        for part in ["rank 0 trains in step 1, and rank 1 in step 0", "calls `set_step`"] {
            assert!(message.contains(part), "{mesh}: {message}");
        }
    }
}
