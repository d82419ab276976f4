//! The Llama of the examples, with a sequence-parallel and a whole stream.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::models::llama::{Llama, Vocab};
use meshwright::nn::{ContextStyle, build};
use meshwright::rotary::RopeParameters;
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Tensors;
use meshwright_tests::data::TokenData;
use meshwright_tests::models::plain_llama;
use meshwright_tests::run::{Outcome, Setup, on_mesh, train};

use super::table::{MESHES, NARROW_MESHES, check};

/// A model and its data.
#[derive(Clone, Copy)]
pub struct Case {
    pub heads: usize,
    pub kv_heads: usize,
    pub tied: bool,
    pub batch: usize,
    pub seq: usize,
    pub vocab: usize,
    pub masked: bool,
    pub layers: usize,
}

/// Sizes that divide evenly; tests override some of them.
pub const EVEN: Case = Case {
    heads: 4,
    kv_heads: 4,
    tied: false,
    batch: 4,
    seq: 16,
    vocab: 64,
    masked: false,
    layers: 2,
};

#[test]
fn even_sizes() {
    EVEN.check("even", &MESHES);
}

#[test]
fn tied_embeddings() {
    Case { tied: true, ..EVEN }.check("tied", &MESHES);
}

#[test]
fn uneven_sequence_and_vocabulary_masked() {
    let case = Case { seq: 13, vocab: 61, masked: true, ..EVEN };
    case.check("uneven, masked", &MESHES);
    Case { tied: true, ..case }.check("uneven, masked, tied", &MESHES);
}

#[test]
fn as_many_kv_heads_as_tensor_parallel_ranks() {
    Case { heads: 8, ..EVEN }.check("grouped queries, tp up to the KV heads", &MESHES);
    let case = Case { heads: 4, kv_heads: 2, tied: true, masked: true, seq: 7, ..EVEN };
    case.check("grouped queries, narrow", &NARROW_MESHES);
}

#[test]
fn more_data_ranks_than_counted_sequences() {
    Case { batch: 8, masked: true, ..EVEN }.check("two sequences per rank, masked", &MESHES);
}

#[test]
fn sequences_shorter_than_the_axis() {
    Case { seq: 3, ..EVEN }.check("three positions", &MESHES);
}

/// Look-ups of the padding give its row no gradient, on whichever rank the row is; a tied head gives it one.
#[test]
fn a_padding_row() {
    let meshes = ["tp=2", "tp=4", "dp=2", "fsdp=2", "fsdp=2,tp=2", "cp=2,tp=2", "dp=2,fsdp=2"];
    for tied in [false, true] {
        let case = Case { tied, vocab: 19, masked: true, ..EVEN };
        let plain = case.setup::<Llama>();
        for row in [0, 18] {
            let sizes = plain.sizes.clone().with_padding(Vocab, row);
            let setup = Setup { sizes, ..plain.clone() };
            let label = format!("padding row {row}, tied {tied}");
            case.check_setup::<Llama>(&label, &meshes, &setup);
            let data = case.data();
            let train_on = |setup: &Setup| {
                train::<Llama, _>("1", setup, |model, rank, turn| {
                    let (tokens, targets) = data.block(rank, turn);
                    model.loss(&tokens, &targets)
                })
            };
            let first = |outcome: &Outcome| {
                let of_row = |tensors: &Tensors| tensors["embed.weight"][row * 32..][..32].to_vec();
                (of_row(&outcome.initial), of_row(&outcome.gradients))
            };
            let (initial, gradient) = first(&train_on(&setup));
            assert_eq!(initial, [0.0; 32], "{label}");
            assert_eq!(gradient == [0.0; 32], !tied, "{label}");
            let (other_initial, other_gradient) = first(&train_on(&plain));
            assert!(other_initial != initial && other_gradient != gradient, "{label}");
        }
    }
}

/// Sequences that the ranks of `cp` share: rings alone, with every kind of other axis, and with every style.
#[test]
fn sequences_over_context_parallel_ranks() {
    let meshes = ["cp=2", "cp=4", "dp=2,cp=2", "cp=2,tp=2", "fsdp=2,cp=2", "fsdp=2,cp=2,tp=2"];
    for case in [EVEN, Case { kv_heads: 2, tied: true, masked: true, ..EVEN }] {
        case.check_model::<Llama>("context-parallel", &meshes);
    }
    let grouped = Case { kv_heads: 2, ..EVEN };
    for style in [ContextStyle::Gather, ContextStyle::Ulysses, ContextStyle::Hybrid(None)] {
        let mut setup = grouped.setup::<Llama>();
        setup.sizes.context = Some(style);
        let what = format!("context-parallel by {style}");
        grouped.check_setup::<Llama>(&what, &["cp=4", "cp=2,tp=2"], &setup);
    }
}

/// The head computes the tokens in chunks, whose number depends on the mesh.
#[test]
fn a_vocabulary_too_large_for_one_chunk() {
    let case = Case { seq: 40, vocab: 70_001, ..EVEN };
    let setup = Setup { steps: 2, ..case.setup::<Llama>() };
    case.check_setup::<Llama>("large vocabulary", &["tp=2", "dp=2"], &setup);
}

#[test]
fn indivisible_sizes_are_refused_with_their_fields() {
    let case = Case { heads: 6, kv_heads: 2, ..EVEN };
    let sizes = case.setup::<Llama>().sizes;
    for error in on_mesh("tp=4", 1, |rank| build::<Llama>(rank, &sizes).err()) {
        let text = error.expect("6 heads do not divide by 4").to_string();
        for part in [
            "`blocks.*.attn.q`: Heads = 6 is not divisible by tp = 4",
            "`blocks.*.attn.k`: KvHeads = 2 is not divisible by tp = 4",
            "`blocks.*.attn.v`: KvHeads = 2 is not divisible by tp = 4",
            "`blocks.*.attn.o`: Heads = 6 is not divisible by tp = 4",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(!text.contains("mlp") && !text.contains("embed"), "{text}");
    }
}

impl Case {
    /// Compares with a sequence-parallel stream, and with a whole one.
    #[track_caller]
    fn check(self, what: &str, meshes: &[&str]) {
        self.check_model::<Llama>(&format!("{what}, sequence-parallel"), meshes);
        self.check_model::<plain_llama::Llama>(&format!("{what}, plain stream"), meshes);
    }

    #[track_caller]
    fn check_model<M: LanguageModel<Config = LlamaConfig>>(self, what: &str, meshes: &[&str]) {
        self.check_setup::<M>(what, meshes, &self.setup::<M>());
    }

    #[track_caller]
    fn check_setup<M: LanguageModel<Config = LlamaConfig>>(
        self,
        what: &str,
        meshes: &[&str],
        setup: &Setup,
    ) {
        let data = self.data();
        check(what, meshes, setup, |model: &M, rank, turn| {
            let (tokens, targets) = data.block(rank, turn);
            model.loss(&tokens, &targets)
        });
    }

    pub fn data(self) -> TokenData {
        let Case { batch, seq, vocab, masked, .. } = self;
        TokenData { batch, seq, vocab, masked }
    }

    pub fn setup<M: LanguageModel<Config = LlamaConfig>>(self) -> Setup {
        let mut sizes = M::sizes(&self.config());
        // Makes attention, norms and gradients nontrivial.
        sizes.init_std = 0.2;
        Setup::new(sizes)
    }

    fn config(self) -> LlamaConfig {
        LlamaConfig {
            hidden: 32,
            ffn: 48,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: 8,
            vocab: self.vocab,
            norm_eps: 1e-5,
            rope: RopeParameters::default(),
            tied: self.tied,
            max_positions: self.seq,
            ..LlamaConfig::default()
        }
    }
}
