//! Nested units with ties between them: each parameter is in the unit that declares it, and no two
//! units need parameters of each other.
#![expect(dead_code, reason = "the models are built, not run")]

use meshwright::prelude::*;

dims! { Hidden, Ffn, Vocab }

/// Every value is a unit with a nested unit.
#[model]
#[sharded(fsdp)]
struct Mlp {
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", fsdp)]
    down: Linear<Ffn, Hidden>,
    #[sharded(tp = "col")]
    #[sharded(fsdp)]
    bias: Bias<Hidden>,
}

#[model]
struct Block {
    before: RmsNorm<Hidden>,
    mlp: Mlp,
    after: RmsNorm<Hidden>,
    #[sharded(fsdp)]
    again: Stack<RmsNorm<Hidden>>,
}

#[model]
struct Tied {
    first: Param<(Vocab, Hidden)>,
    #[sharded(fsdp)]
    inner: Inner,
    #[tied(inner.second)]
    third: Param<(Vocab, Hidden)>,
    #[sharded(fsdp)]
    #[tied(first, when = "tie")]
    fourth: Param<(Vocab, Hidden)>,
    #[tied(inner.second)]
    fifth: Param<(Vocab, Hidden)>,
}

#[model]
struct Inner {
    second: Param<(Vocab, Hidden)>,
    #[tied(second)]
    same: Param<(Vocab, Hidden)>,
    own: Param<(Hidden,)>,
}

#[model]
#[sharded(fsdp)]
struct Net {
    block: Block,
    tied: Tied,
}

/// Returns the units with their parameters.
fn units_of(tie: bool) -> Vec<(String, Vec<String>)> {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6).with(Vocab, 8).with(Layers, 1);
    let found = std::sync::Mutex::new(Vec::new());
    super::on_mesh::<Net>("1", &sizes.with_flag("tie", tie), |_, built| {
        let paths = |unit: &meshwright::tensor::Unit| {
            unit.params().iter().map(|param| param.path().to_owned()).collect::<Vec<_>>()
        };
        let units = built.units.iter().map(|unit| (unit.name().to_owned(), paths(unit)));
        *found.lock().expect("no rank has panicked") = units.collect();
        let declared: Vec<String> =
            built.params().iter().map(|param| param.path().to_owned()).collect();
        assert_eq!(
            declared[..4],
            [
                "block.before.weight",
                "block.mlp.up.weight",
                "block.mlp.down.weight",
                "block.mlp.bias.bias"
            ]
        );
    });
    found.into_inner().expect("no rank has panicked")
}

fn expected(fourth: bool) -> Vec<(String, Vec<String>)> {
    let mut units = vec![
        ("block", vec!["block.before.weight", "block.after.weight"]),
        ("block.mlp", vec!["block.mlp.up.weight"]),
        ("block.mlp.down", vec!["block.mlp.down.weight"]),
        ("block.mlp.bias", vec!["block.mlp.bias.bias"]),
        ("block.again.0", vec!["block.again.0.weight"]),
        ("tied", vec!["tied.first"]),
        ("tied.inner", vec!["tied.inner.second", "tied.inner.own"]),
    ];
    if fourth {
        units.push(("tied.fourth", vec!["tied.fourth"]));
    }
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
    units.into_iter().map(|(name, params)| (name.to_owned(), owned(params))).collect()
}

#[test]
fn own_what_is_declared_in_them_first() {
    assert_eq!(units_of(true), expected(false));
    assert_eq!(units_of(false), expected(true));
}

#[test]
fn are_described() {
    let [up, down, bias] = Mlp::describe().fields else { panic!("three fields") };
    let said = [up, down, bias].map(|field| field.sharded);
    assert_eq!(said, [None, Some("tp = \"row\", fsdp"), Some("tp = \"col\", fsdp")]);
}
