//! Attention of every kind against PyTorch and transformers, by the fixture that `reference/attention_cases.py` writes: outputs,
//! and gradients of queries, keys, values, sinks and biases.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use meshwright::layout::Shape;
use meshwright::nn::{AttentionOptions, Build, Built, build};
use meshwright::prelude::*;
use meshwright_tests::compare::{Report, distance};
use meshwright_tests::run::on_mesh;
use safetensors::SafeTensors;

// Relative to f64. Seen: up to 2e-7 of queries, keys and values, and 4e-7 of the table of a bias.
const OUTPUT: f64 = 1e-6;
const GRADIENT: f64 = 3e-6;

const MESHES: [&str; 3] = ["1", "tp=2", "dp=2,tp=2"];
const BATCH: usize = 2;
const SEQ: usize = 13;
const MEMORY: usize = 7;

dims! {
    Batch @ data,
    Seq,
    /// Sequence that cross attention reads.
    Memory,
    /// All positions of all samples.
    Rows,
    Heads,
    KvHeads,
    HeadDim,
    ValueDim,
    Buckets,
}

type Selected<S> = Tensor<(Batch, S, Rows)>;
type Output = Tensor<(Batch, Seq, Split<Heads, Tp>, ValueDim)>;

/// Creates a model whose weights are queries, keys and values: the input of their projections selects the row of each position.
/// Gradients of the weights are those of queries, keys and values.
macro_rules! attention {
    (
        $name:ident, $mask:ident, keys along $keys:ident,
        $({ $(#[$style:meta])* $field:ident: $layer:ty },)?
        |$model:ident, $rank:ident| ($($extra:expr)?)
    ) => {
        #[model]
        struct $name {
            #[sharded(tp = "col")]
            q: Linear<Rows, (Heads, HeadDim)>,
            #[sharded(tp = "col")]
            k: Linear<Rows, (KvHeads, HeadDim)>,
            #[sharded(tp = "col")]
            v: Linear<Rows, (KvHeads, ValueDim)>,
            core: Attention<Heads, KvHeads, HeadDim, $mask, ValueDim>,
            $($(#[$style])* $field: $layer,)?
        }

        impl Attends for $name {
            fn attend(&self, $rank: &Rank) -> Output {
                let $model = self;
                let queries: Selected<Seq> = select($rank, SEQ);
                let keys: Selected<$keys> = select($rank, if stringify!($keys) == "Seq" { SEQ } else { MEMORY });
                let (q, k, v) =
                    (self.q.forward(&queries), self.k.forward(&keys), self.v.forward(&keys));
                self.core.forward(&(q, k, v, $($extra)?))
            }
        }
    };
}

trait Attends: Build {
    fn attend(&self, rank: &Rank) -> Output;
}

attention!(CausalOnly, Causal, keys along Seq, |_model, rank| ());
attention!(BidirectionalOnly, Bidirectional, keys along Seq, |_model, rank| ());
attention!(WithPadding, Bidirectional, keys along Memory, |_model, rank| (padding(rank)));
attention!(WithDocuments, Causal, keys along Seq, |_model, rank| (documents(rank)));
attention!(WithAlibi, Causal, keys along Seq, { alibi: Alibi<Heads> }, |model, rank| (&model.alibi));
attention!(
    WithSinks, Causal, keys along Seq,
    { #[sharded(tp = "col")] sinks: AttentionSinks<Heads> },
    |model, rank| (&model.sinks)
);
attention!(
    Encoder, Bidirectional, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, rank| (&model.table)
);
attention!(
    Decoder, Causal, keys along Seq,
    { #[sharded(tp = "col")] table: RelativeBias<Buckets, Heads> },
    |model, rank| (&model.table)
);

/// Selects row `sample * positions + position` at each position.
fn select<S: Shape>(rank: &Rank, positions: usize) -> Tensor<S> {
    let rows = BATCH * positions;
    Tensor::from_fn(rank, &[BATCH, positions, BATCH * SEQ], |at| {
        assert!(at[0] * positions + at[1] < rows);
        if at[2] == at[0] * positions + at[1] { 1.0 } else { 0.0 }
    })
}

/// The valid positions of the case `padded`.
fn padding(rank: &Rank) -> Padding<(Batch, Memory)> {
    let all = [0..5, 2..7];
    let own: Tensor<(Batch,)> = Tensor::from_fn(rank, &[BATCH], |_| 0.0);
    let own = own.local_extents()[0];
    Padding::from_block(rank, BATCH, &all[own.offset..own.offset + own.local])
}

/// The documents of the case `packed`.
fn documents(rank: &Rank) -> Documents<(Batch, Seq)> {
    let lengths: [&[usize]; 2] = [&[5, 1, 7], &[10, 3]];
    let own: Tensor<(Batch,)> = Tensor::from_fn(rank, &[BATCH], |_| 0.0);
    let own = own.local_extents()[0];
    let mut starts = Vec::new();
    for lengths in &lengths[own.offset..own.offset + own.local] {
        let mut start = 0;
        for length in *lengths {
            starts.extend(std::iter::repeat_n(start, *length));
            start += *length as u32;
        }
    }
    let tokens = Tokens::<(Batch, Seq)>::from_block(rank, &[BATCH, SEQ], &vec![0; starts.len()]);
    tokens.with_documents(&starts).documents()
}

/// Sizes of a case beside those that all have.
struct Case {
    name: &'static str,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    options: AttentionOptions,
}

fn case(name: &'static str) -> Case {
    let options = AttentionOptions { max_distance: 9, ..AttentionOptions::default() };
    Case { name, heads: 4, kv_heads: 2, head_dim: 8, options }
}

impl Case {
    fn windowed(mut self, window: usize) -> Case {
        self.options.windows = vec![Some(window)];
        self
    }

    /// Compares on every mesh.
    fn check<M: Attends>(self) {
        let fixture = read_fixture(self.name);
        let mut report = Report::default();
        let mut sizes = Sizes::new()
            .with(Rows, BATCH * SEQ)
            .with(Heads, self.heads)
            .with(KvHeads, self.kv_heads)
            .with(HeadDim, self.head_dim)
            .with(ValueDim, 8)
            .with(Buckets, 8);
        sizes.attention = self.options.clone();
        for mesh in MESHES {
            let results = on_mesh(mesh, 1, |rank| {
                let built = build::<M>(rank, &sizes).unwrap_or_else(|error| panic!("{error}"));
                results(&built, rank, &fixture)
            });
            for (name, got) in &results[0] {
                let tolerance = if name == "out" { OUTPUT } else { GRADIENT };
                let place = format!("{} of {} on {mesh}", name, self.name);
                report.note("result", place, distance(got, &fixture[name]), tolerance);
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
    rank: &Rank,
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
    let out = built.model.attend(rank);
    let sizes = out.sizes();
    let dout = &fixture["dout"];
    let dout: Output = Tensor::from_fn(rank, &sizes, |at| {
        dout[((at[0] * sizes[1] + at[1]) * sizes[2] + at[2]) * sizes[3] + at[3]]
    });
    let count = sizes.iter().product::<usize>() as f32;
    let gradients = Loss::mean_of(&(&out * dout.scale(count))).backward().reduce();
    let mut results = BTreeMap::from([("out".to_owned(), out.gather_to_vec())]);
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

#[test]
fn causal_and_full_attention_of_pytorch() {
    case("causal").check::<CausalOnly>();
    case("full").check::<BidirectionalOnly>();
}

#[test]
fn windows_of_pytorch() {
    case("window").windowed(4).check::<CausalOnly>();
    case("near").windowed(4).check::<BidirectionalOnly>();
}

#[test]
fn soft_caps_and_windows_of_gemma2() {
    let mut case = case("gemma2").windowed(5);
    case.options.soft_cap = Some(2.5);
    case.options.scale = Some(0.6);
    case.check::<CausalOnly>();
}

#[test]
fn linear_biases_of_bloom() {
    case("alibi").check::<WithAlibi>();
}

#[test]
fn head_widths_of_deepseek() {
    Case { kv_heads: 4, head_dim: 12, ..case("latent") }.check::<CausalOnly>();
}

#[test]
fn sinks_of_gpt_oss() {
    case("sinks").check::<WithSinks>();
    case("sinks_window").windowed(4).check::<WithSinks>();
}

#[test]
fn relative_biases_of_t5() {
    for (name, decodes) in [("t5_encoder", false), ("t5_decoder", true)] {
        let mut case = Case { kv_heads: 4, ..case(name) };
        case.options.scale = Some(1.0);
        if decodes { case.check::<Decoder>() } else { case.check::<Encoder>() }
    }
}

#[test]
fn padding_of_pytorch() {
    case("padded").check::<WithPadding>();
}

#[test]
fn documents_of_pytorch() {
    case("packed").check::<WithDocuments>();
}
