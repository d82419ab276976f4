//! Cuts of random chains: complete, in order, optimal, deterministic.

use xxhash_rust::xxh3::xxh3_64;

use crate::cut::ChainCosts;
use crate::partition::{Objective, optimal_counts};
use crate::plan::StagePlan;
use crate::{ChainOutline, FieldOutline, StageCut};
use meshwright_core::nn::LayerCount;

/// A sequence of random numbers below a limit.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 += 1;
        (xxh3_64(&self.0.to_le_bytes()) % limit as u64) as usize
    }
}

/// Returns a chain of fields and stacks with a random number of layers.
fn random_chain(numbers: &mut Numbers) -> ChainOutline {
    let stacks = numbers.below(3);
    let mut fields = Vec::new();
    for stack in 0..=stacks {
        for index in 0..numbers.below(3) {
            fields.push(field(&format!("field_{stack}_{index}"), None));
        }
        if stack < stacks {
            fields.push(field(&format!("stack_{stack}"), Some(1 + numbers.below(5))));
        }
    }
    if fields.is_empty() {
        fields.push(field("only", None));
    }
    let last = (0..numbers.below(2)).map(|index| field(&format!("last_{index}"), None)).collect();
    ChainOutline { model: "Random".to_owned(), fields, last }
}

pub fn field(name: &str, layers: Option<usize>) -> FieldOutline {
    let layers = layers.map(|count| LayerCount { dim: "Layers", count });
    FieldOutline { name: name.to_owned(), layers, cost: None }
}

/// Returns all partitions of `count` elements into non-empty stages, lexicographically ascending.
fn partitions(count: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![count]];
    }
    let first = 1..=count - (stages - 1);
    let with_first = |first: usize| {
        let rest = partitions(count - first, stages - 1).into_iter();
        rest.map(move |rest| [vec![first], rest].concat())
    };
    first.flat_map(with_first).collect()
}

fn stage_costs(costs: &[f64], counts: &[usize]) -> Vec<f64> {
    let mut rest = costs;
    let sum = |count: &usize| {
        let (stage, after) = rest.split_at(*count);
        rest = after;
        stage.iter().fold(0.0, |sum, cost| sum + cost)
    };
    counts.iter().map(sum).collect()
}

#[test]
fn cuts_are_optimal() {
    let mut numbers = Numbers(1);
    for case in 0..400 {
        let costs: Vec<f64> = (0..1 + numbers.below(9))
            .map(|_| {
                if case % 2 == 0 {
                    numbers.below(4) as f64
                } else {
                    numbers.below(1000) as f64 / 7.0
                }
            })
            .collect();
        for stages in 1..=costs.len().min(5) {
            let largest =
                |counts: &Vec<usize>| stage_costs(&costs, counts).into_iter().fold(0.0, f64::max);
            let all = partitions(costs.len(), stages);
            let best = all.iter().map(largest).fold(f64::INFINITY, f64::min);
            let expected = all.iter().find(|counts| largest(counts) == best).unwrap();
            let (found, cost) = optimal_counts(&costs, stages, Objective::LargestStage);
            assert_eq!(&found, expected, "{costs:?} in {stages}");
            assert_eq!(cost, best, "{costs:?} in {stages}");
        }
    }
}

#[test]
fn even_cuts_differ_by_one_layer() {
    for layers in 1..=20 {
        for stages in 1..=layers {
            for (front, back) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
                let mut costs = vec![1.0; layers];
                costs[0] += front;
                costs[layers - 1] += back;
                let (counts, _) = optimal_counts(&costs, stages, Objective::SquaredStages);
                let loads = stage_costs(&costs, &counts);
                let largest = loads.iter().copied().fold(0.0, f64::max);
                let smallest = loads.iter().copied().fold(f64::INFINITY, f64::min);
                assert!(largest - smallest <= 1.0, "{costs:?}: {counts:?}");
            }
        }
    }
}

#[test]
fn even_cuts_put_few_layers_first() {
    for (layers, stages, expected) in
        [(8, 4, vec![1, 2, 3, 2]), (11, 4, vec![2, 3, 3, 3]), (6, 2, vec![3, 3])]
            .into_iter()
            .chain(EVEN_WITH_ENDS.map(|(layers, counts)| (layers, counts.len(), counts.to_vec())))
    {
        let chain = chain_of(layers);
        let costs = ChainCosts::new(&chain, &|_| 0.0);
        assert_eq!(StageCut::Even.counts(&chain, stages, &costs), Ok(expected));
    }
}

/// Layers, and their even cut into more stages than would have one each with the fields at the ends of the chain. An
/// end is a stage of its own only if that is better.
const EVEN_WITH_ENDS: [(usize, &[usize]); 4] =
    [(2, &[0, 1, 1, 0]), (3, &[1, 1, 1, 0]), (4, &[1, 1, 1, 1]), (6, &[0, 1, 1, 1, 1, 1, 1, 0])];

fn chain_of(layers: usize) -> ChainOutline {
    ChainOutline {
        model: "Tiny".to_owned(),
        fields: vec![field("embed", None), field("blocks", Some(layers)), field("norm", None)],
        last: vec![field("head", None)],
    }
}

/// A head that costs more than a layer is a stage of its own if another stage can take its layer.
#[test]
fn expensive_ends_are_stages() {
    let counts = |layers, stages, head: f64| {
        let chain = chain_of(layers);
        let flops = |path: &str| match path {
            "head" => head,
            _ => f64::from(u8::from(path.starts_with("blocks."))),
        };
        StageCut::Auto.counts(&chain, stages, &ChainCosts::new(&chain, &flops)).unwrap()
    };
    assert_eq!(counts(4, 4, 0.5), [1, 1, 1, 1]);
    assert_eq!(counts(4, 4, 1.5), [1, 1, 2, 0]);
    assert_eq!(counts(126, 8, 20.0), [18, 18, 18, 18, 18, 18, 18, 0]);
    assert_eq!(counts(6, 7, 0.0), [1, 1, 1, 1, 1, 1, 0]);
    let chain = chain_of(126);
    let llama = counts(126, 128, 3.0);
    assert_eq!((llama[0], llama[127], llama.iter().sum::<usize>()), (0, 0, chain.point_count()));
}

/// Every layer and every field is in exactly one stage, and stages are in the order of the chain. Only stages at its
/// ends are without layers, and they have the fields before and after the stacks.
#[test]
fn every_cut_is_complete_and_in_order() {
    let mut numbers = Numbers(2);
    for case in 0..500 {
        let chain = random_chain(&mut numbers);
        let points = chain.point_count();
        assert_eq!(points, chain.cut_points().len());
        let stages = 1 + numbers.below(chain.most_stages());
        let costs = ChainCosts::new(&chain, &|path| (path.len() * 31 % 7) as f64);
        let cut = [StageCut::Auto, StageCut::Even][case % 2].clone();
        let counts = cut.counts(&chain, stages, &costs).unwrap();
        assert_eq!(counts.len(), stages, "{chain:?}");
        assert_eq!(counts.iter().sum::<usize>(), points, "{chain:?}");
        let given = StageCut::Counts(counts.clone());
        assert_eq!(given.counts(&chain, stages, &costs), Ok(counts.clone()));
        let plan = StagePlan::of_counts(
            &chain,
            &(0..stages).collect::<Vec<_>>(),
            counts,
            vec![1.0; stages],
        );
        let mut passed: Vec<(usize, usize)> = Vec::new();
        for stage in 0..stages {
            assert!(!plan.fields_of_stage(stage).is_empty(), "{chain:?}: {:?}", plan.counts());
            for part in plan.fields_of_stage(stage) {
                let outline = &chain.fields[part.field];
                for layer in part.layers {
                    passed.push((part.field, layer));
                    let path = match &outline.layers {
                        Some(_) => format!("{}.{layer}.norm.gain", outline.name),
                        None => format!("{}.weight", outline.name),
                    };
                    assert_eq!(plan.stage_of_path(&path), Some(stage), "{chain:?}: {path}");
                }
            }
        }
        let layers = |field: &FieldOutline| field.layers.as_ref().map_or(1, |layers| layers.count);
        let all = chain.fields.iter().enumerate();
        let all: Vec<_> = all
            .flat_map(|(index, field)| (0..layers(field)).map(move |layer| (index, layer)))
            .collect();
        assert_eq!(passed, all, "{chain:?}");
        for last in &chain.last {
            assert_eq!(plan.stage_of_path(&format!("{}.weight", last.name)), Some(stages - 1));
        }
        assert_eq!(plan.stage_of_path("unknown.weight"), None);
    }
}

#[test]
fn cuts_parse_and_print() {
    for (text, cut) in [
        ("auto", StageCut::Auto),
        (" even ", StageCut::Even),
        ("7, 8,8,7", StageCut::Counts(vec![7, 8, 8, 7])),
        ("12", StageCut::Counts(vec![12])),
        ("out/times.json", StageCut::Measured("out/times.json".into())),
    ] {
        let parsed: StageCut = text.parse().unwrap();
        assert_eq!(parsed, cut);
        assert_eq!(parsed.to_string().parse::<StageCut>().unwrap(), cut);
    }
    for text in ["", "automatic", "7,,8", "7,-8", "1.5,2", "times.csv", "99999999999999999999999"] {
        let error = text.parse::<StageCut>().unwrap_err().to_string();
        let expected = format!("`{text}` is not a cut into stages: use `auto`, `even`, ");
        assert!(error.starts_with(&expected), "{error}");
    }
}
