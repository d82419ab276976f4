//! The comparison of an attention with a case of the fixture.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use meshwright::layout::{AxisSet, Shape};
use meshwright::nn::{AttentionOptions, Build, Built, ContextStyle, build};
use meshwright::prelude::*;
use meshwright_tests::compare::{Report, distance};
use meshwright_tests::run::on_mesh;
use safetensors::SafeTensors;

use super::{Buckets, HeadDim, Heads, KvHeads, Rows, ValueDim};

// Relative to f64. Seen: up to 2e-7 of queries, keys and values, and 4e-7 of the table of a bias.
const TOLERANCE: f64 = 1e-6;

const MESHES: [&str; 3] = ["1", "tp=2", "dp=2,tp=2"];
pub const BATCH: usize = 2;
const MEMORY: usize = 7;

/// A model of one attention.
pub trait Attends: Build {
    /// The shape of the output.
    type Out: Shape;

    /// Returns the output at the given positions.
    fn attend(&self, at: Positions<'_>) -> Tensor<Self::Out>;
}

/// The positions of a sequence on a rank: the fixture's, and others after them that no output of these depends on.
#[derive(Clone, Copy)]
pub struct Positions<'a> {
    pub rank: &'a Rank,
    pub of_fixture: usize,
    all: usize,
    /// Rows of the projections.
    rows: usize,
}

impl Positions<'_> {
    /// Returns the positions of the memory of cross attention.
    pub fn of_memory(self) -> Self {
        Positions { of_fixture: MEMORY, all: MEMORY, ..self }
    }

    /// Selects row `sample * positions + position` at each position of the fixture, and none at others.
    pub fn select<S: Shape>(self) -> Tensor<S> {
        Tensor::from_fn(self.rank, &[BATCH, self.all, self.rows], |at| {
            let is_row = at[1] < self.of_fixture && at[2] == at[0] * self.of_fixture + at[1];
            if is_row { 1.0 } else { 0.0 }
        })
    }

    /// Returns the elements of all samples that belong to this rank.
    pub fn of_samples<T: Clone>(self, all: &[T; BATCH]) -> Vec<T> {
        let count = BATCH / self.rank.degree_of(AxisSet::DATA);
        let first = self.rank.position(AxisSet::DATA) * count;
        all[first..first + count].to_vec()
    }

    /// Returns the documents of the case `packed`, and in each sample one of the positions after them.
    pub fn documents<S: Shape>(self) -> Documents<S> {
        let mut starts = Vec::new();
        for lengths in self.of_samples(&[&[5, 1, 7][..], &[10, 3]]) {
            let mut start = 0;
            for length in lengths.iter().chain(&[self.all - self.of_fixture]) {
                starts.extend(std::iter::repeat_n(start, *length));
                start += *length as u32;
            }
        }
        let (sizes, ids) = ([BATCH, self.all], vec![0; starts.len()]);
        Tokens::<S>::from_whole_rows(self.rank, &sizes, 0, &ids).with_documents(&starts).documents()
    }
}

/// A case of the fixture, and how a model computes it.
pub struct Case {
    pub name: &'static str,
    /// Positions of a sequence.
    pub seq: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub value_dim: usize,
    pub options: AttentionOptions,
}

impl Case {
    /// Creates the case of this name with the sizes that most have.
    pub fn new(name: &'static str) -> Case {
        let options = AttentionOptions { max_distance: 9, ..AttentionOptions::default() };
        Case { name, seq: 13, heads: 4, kv_heads: 2, head_dim: 8, value_dim: 8, options }
    }

    pub fn windowed(mut self, window: usize) -> Case {
        self.options.windows = vec![Some(window)];
        self
    }

    pub fn capped(mut self, cap: f32) -> Case {
        self.options.soft_cap = Some(cap);
        self
    }

    pub fn scaled(mut self, scale: f32) -> Case {
        self.options.scale = Some(scale);
        self
    }

    /// Compares on every mesh.
    pub fn check<M: Attends>(&self) {
        self.check_on::<M>(&MESHES.map(|mesh| (mesh, None)), self.seq);
    }

    /// Compares on meshes of data-parallel ranks, among which one head need not be split.
    pub fn check_on_data_ranks<M: Attends>(&self) {
        self.check_on::<M>(&[("1", None), ("dp=2", None)], self.seq);
    }

    /// Compares on meshes, by styles of context parallelism, with sequences of so many positions.
    pub fn check_on<M: Attends>(&self, runs: &[(&str, Option<ContextStyle>)], positions: usize) {
        let fixture = read_fixture(self.name);
        let mut report = Report::default();
        let rows = BATCH * self.seq;
        for (mesh, style) in runs {
            let mut sizes = Sizes::new()
                .with(Rows, rows)
                .with(Heads, self.heads)
                .with(KvHeads, self.kv_heads)
                .with(HeadDim, self.head_dim)
                .with(ValueDim, self.value_dim)
                .with(Buckets, 8);
            sizes.attention = self.options.clone();
            sizes.context = *style;
            let results = on_mesh(mesh, 1, |rank| {
                let built = build::<M>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
                let at = Positions { rank, of_fixture: self.seq, all: positions, rows };
                results(&built, at, &fixture)
            });
            for (name, got) in &results[0] {
                let label = format!("{name} of {} on {mesh}, {style:?}", self.name);
                report.note("result", label, distance(got, &fixture[name]), TOLERANCE);
            }
            let compared: Vec<_> = results[0].keys().collect();
            let expected = fixture
                .keys()
                .filter(|name| *name != "dout" && (name.starts_with('d') || *name == "out"));
            assert_eq!(compared, expected.collect::<Vec<_>>(), "{}", self.name);
        }
        report.print();
    }
}

/// Returns the output and the gradients, named as in the fixture.
fn results<M: Attends>(
    built: &Built<M>,
    at: Positions<'_>,
    fixture: &BTreeMap<String, Vec<f32>>,
) -> BTreeMap<String, Vec<f32>> {
    let params = built.params();
    let name = |path: &str| path.trim_end_matches(".weight").to_owned();
    for param in &params {
        let mut values = fixture[&name(param.path())].clone();
        // A memory has fewer rows.
        values.resize(param.global_len(), 0.0);
        param.write_global(&values);
    }
    let out = built.model.attend(at);
    let sizes = out.sizes();
    let row = sizes[2] * sizes[3];
    let dout = &fixture["dout"];
    let dout: Tensor<M::Out> = Tensor::from_fn(at.rank, &sizes, |index| {
        let start = (index[0] * at.of_fixture + index[1]) * row;
        if index[1] < at.of_fixture { dout[start + index[2] * sizes[3] + index[3]] } else { 0.0 }
    });
    let count = sizes.iter().product::<usize>() as f32;
    let gradients = Loss::mean_of(&(&out * dout.scale(count))).backward().reduce();
    let samples = out.gather_to_vec();
    let of_fixture = samples.chunks(at.all * row).flat_map(|sample| &sample[..at.of_fixture * row]);
    let mut results = BTreeMap::from([("out".to_owned(), of_fixture.copied().collect())]);
    for param in &params {
        let name = format!("d{}", name(param.path()));
        let mut gradient = gradients.gather(param);
        gradient.truncate(fixture[&name].len());
        results.insert(name, gradient);
    }
    results
}

/// Reads the tensors of a case, by their names in it.
fn read_fixture(case: &str) -> BTreeMap<String, Vec<f32>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("reference/fixtures/attention/attention.safetensors");
    let bytes = fs::read(path).expect("the fixture is readable");
    let tensors = SafeTensors::deserialize(&bytes).expect("the fixture is a safetensors file");
    let of_case = tensors.iter().filter_map(|(name, tensor)| {
        let (of, name) = name.split_once('.').expect("a case and a tensor");
        let words = tensor.data().chunks_exact(4).map(|word| word.try_into().expect("four bytes"));
        (of == case).then(|| (name.to_owned(), words.map(f32::from_le_bytes).collect()))
    });
    of_case.collect()
}
