//! Every rank updates by a rule with the same options, and with the same parameter groups.

use std::sync::Arc;

use meshwright::optim::{
    AdamWOptions, FlatSlice, Group, MuonOptions, Optimizer, ParamGroups, Select, SgdOptions,
    UpdateRule, Updated,
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
