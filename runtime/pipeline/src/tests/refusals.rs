//! Refusals of cuts, reported together and before memory is allocated.

use crate::{ChainOutline, StageCut, StageRequest, cut_stages};
use meshwright_core::nn::Layers;
use meshwright_core::tensor::ZeroStage;

use super::cut::field;
use super::fixture::{TestModel, TinyLlama, on_ranks, placement, sizes};

/// Returns the problems of a cut of 6 layers on 4 ranks.
fn problems(chain: &ChainOutline, placement: &[usize], cut: &StageCut) -> Vec<String> {
    let mut found = on_ranks("pp=4", ZeroStage::Replicated, |rank| {
        let request = StageRequest { placement, cut, seq: 5 };
        let error = cut_stages::<TinyLlama>(rank, &sizes(6, false), chain, &request).err();
        assert_eq!(rank.allocator().total_peak(), 0, "refused before allocation");
        error.map_or_else(Vec::new, |error| error.problems)
    });
    assert!(found.iter().all(|problems| *problems == found[0]), "the same on all ranks");
    found.swap_remove(0)
}

#[test]
fn too_many_stages_are_refused() {
    let chain = TinyLlama::chain(6);
    let found = problems(&chain, &placement(4, 8, false), &StageCut::Auto);
    assert_eq!(found, [""; 0], "the ends are stages of their own");
    let found = problems(&chain, &placement(4, 12, false), &StageCut::Auto);
    assert_eq!(
        found,
        [
            "--mesh: pp=4 x --virtual-stages 3 makes 12 stages, but `blocks` has Layers = 6, and each stage needs a \
             layer, except the first and the last"
        ]
    );
    let mut two = chain.clone();
    two.fields.push(field("decoder", Some(1)));
    let found = problems(&two, &placement(4, 12, false), &StageCut::Even);
    let expected =
        "but `blocks` and `decoder` have 7 layers, and each stage needs a layer, except the first";
    assert!(found[0].ends_with(expected), "{found:?}");
    let fields = ChainOutline { fields: vec![field("norm", None)], ..chain };
    let found = problems(&fields, &placement(4, 4, false), &StageCut::Even);
    assert!(
        found[0].contains("pp=4 makes 4 stages, but the chain of `Tiny` has length 1"),
        "{found:?}"
    );
}

#[test]
fn models_without_stages_are_refused() {
    let chain = ChainOutline { fields: Vec::new(), ..TinyLlama::chain(6) };
    let found = problems(&chain, &placement(4, 4, false), &StageCut::Auto);
    let expected =
        "--mesh: pp=4 needs a model with stages: put `#[pipeline_stage]` on the fields of `Tiny`";
    assert_eq!(found, [expected]);
}

#[test]
fn placements_fit_the_mesh() {
    for placement in [&[0, 1, 2][..], &[0, 1, 2, 4], &[0, 1, 2, 3, 4], &[]] {
        let found = problems(&TinyLlama::chain(6), placement, &StageCut::Auto);
        assert!(
            found[0].starts_with("--mesh: pp=4 needs a schedule with stages on each"),
            "{found:?}"
        );
    }
}

#[test]
fn counts_fit_mesh_and_model() {
    let chain = TinyLlama::chain(6);
    for (counts, expected) in [
        (
            vec![1, 2, 4],
            vec!["--stages: 1,2,4 are 3 stages of 7 layers; this mesh has 4, and `blocks` has 6"],
        ),
        (
            vec![1, 1, 2, 1],
            vec!["--stages: 1,1,2,1 are 4 stages of 5 layers; this mesh has 4, and `blocks` has 6"],
        ),
        (vec![6], vec!["--stages: 6 are 1 stage of 6 layers; this mesh has 4, and `blocks` has 6"]),
        (
            vec![3, 0, 3, 0],
            vec![
                "--stages: stage 1 of 3,0,3,0 has no layer, and each stage needs one, except the first and the last",
            ],
        ),
        (
            vec![1, 0, usize::MAX],
            vec![
                "--stages: stage 1 of 1,0,18446744073709551615 has no layer, and each stage needs one, except the \
                 first and the last",
                "--stages: 1,0,18446744073709551615 are 3 stages of 18446744073709551615 layers; this mesh has 4, and \
                 `blocks` has 6",
            ],
        ),
        (vec![0, 3, 3, 0], vec![]),
        (vec![1, 2, 2, 1], vec![]),
    ] {
        assert_eq!(problems(&chain, &placement(4, 4, false), &StageCut::Counts(counts)), expected);
    }
}

/// A chain that begins with its stack has no first stage without layers.
#[test]
fn ends_without_fields_are_no_stages() {
    let mut chain = TinyLlama::chain(6);
    chain.fields.remove(0);
    let found = |counts: [usize; 4]| {
        problems(&chain, &placement(4, 4, false), &StageCut::Counts(counts.into())).swap_remove(0)
    };
    let expected =
        "--stages: stage 0 of 0,3,3,0 has no layer, and each stage needs one, except the last";
    assert_eq!(found([0, 3, 3, 0]), expected);
    let chain = ChainOutline { fields: TinyLlama::chain(6).fields[1..2].to_vec(), ..chain };
    let cut = StageCut::Counts(vec![2, 2, 2, 0]);
    let found = problems(&chain, &placement(4, 4, false), &cut);
    let expected = "--stages: stage 3 of 2,2,2,0 has no layer, and each stage needs one";
    assert_eq!(found[0], expected);
}

#[test]
fn measured_times_fit_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.json");
    let found = |text: Option<&str>| {
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => drop(std::fs::remove_file(&path)),
        }
        problems(&TinyLlama::chain(6), &placement(4, 4, false), &StageCut::Measured(path.clone()))
    };
    let times = |time: &str| {
        let times: Vec<String> =
            (0..6).map(|layer| format!("\"blocks.{layer}\": {time}")).collect();
        format!("{{{}}}", times.join(", "))
    };
    assert!(found(None)[0].contains("times.json: No such file"));
    assert!(found(Some("[1, 2]"))[0].contains("it must be an object of milliseconds such as"));
    assert!(found(Some(&times("0")))[0].ends_with("times.json: the times add up to 0 ms"));
    assert!(found(Some(&times("-1")))[0].ends_with("has a negative time of `blocks.0` and 5 more"));
    assert!(found(Some(&times("1e308")))[0].ends_with("the times add up to inf ms"));
    let both = found(Some(r#"{"blocks.0": 1, "blocks.6": 1}"#));
    assert!(both[0].ends_with("has no time of `blocks.1` and 4 more"), "{both:?}");
    assert!(
        both[1].ends_with("has a time of fields that the model does not have: `blocks.6`"),
        "{both:?}"
    );
    assert_eq!(found(Some(&times("2.5"))), Vec::<String>::new());
}

#[test]
fn all_problems_are_reported() {
    let chain = ChainOutline {
        fields: TinyLlama::chain(6).fields,
        last: Vec::new(),
        model: "Tiny".to_owned(),
    };
    let found = problems(&chain, &placement(4, 4, false), &StageCut::Auto);
    assert_eq!(found, ["`head`: does not belong to a pipeline stage of `Tiny`"]);

    let mut chain = TinyLlama::chain(6);
    chain.fields[0].cost = Some(-1.0);
    chain.last[0].cost = Some(f64::NAN);
    let found = on_ranks("pp=4,tp=4", ZeroStage::Replicated, |rank| {
        let request = StageRequest { placement: &[0, 1, 2], cut: &StageCut::Auto, seq: 5 };
        let sizes = sizes(6, false).with(Layers, 6);
        cut_stages::<TinyLlama>(rank, &sizes, &chain, &request).unwrap_err().problems
    });
    let expected = [
        "--mesh: pp=4 needs a schedule with stages on each of 4 ranks, but it has them on the ranks 0, 1, 2",
        "field `embed`: `cost = -1` is not a cost: a number above 0, where a layer of the first `Stack` is 1",
        "field `head`: `cost = NaN` is not a cost: a number above 0, where a layer of the first `Stack` is 1",
        "`blocks.*.down`: Inner = 10 is not divisible by tp = 4",
        "`blocks.*.up`: Inner = 10 is not divisible by tp = 4",
    ];
    assert_eq!(found[0], expected);
}
