//! Memory and communication as counted, against closed formulas.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;

use meshwright::train::LanguageModel;
use meshwright_examples::llama::Llama;
use meshwright_tests::models::plain_llama;
use meshwright_tests::run::{on_mesh, train_with_words};
use serde_json::Value;

/// Sizes of a Llama, with a sequence and a vocabulary that do not divide evenly.
const HIDDEN: usize = 32;
const FFN: usize = 48;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 4;
const VOCAB: usize = 61;
const BATCH: usize = 8;
const SEQ: usize = 13;

/// Bytes of an `f32`.
const F32: usize = 4;

const MESHES: [(usize, usize); 6] = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2)];

#[test]
fn a_sequence_parallel_llama_takes_and_sends_what_the_formulas_say() {
    for (dp, tp) in MESHES {
        for tied in [false, true] {
            check::<Llama>(Counted { dp, tp, tied, splits_stream: true });
        }
    }
}

#[test]
fn a_plain_llama_takes_and_sends_what_the_formulas_say() {
    for (dp, tp) in MESHES {
        check::<plain_llama::Llama>(Counted { dp, tp, tied: false, splits_stream: false });
    }
}

#[test]
fn counts_of_tokens_stay_exact() {
    // Not representable in an f32, nor is their sum.
    let count = (1u64 << 24) + 1;
    let means = on_mesh("dp=4", 1, |rank| {
        let own = count + rank.index() as u64;
        meshwright::tensor::Metric::<(meshwright_examples::llama::Batch,)>::new(rank, 0.5, own)
            .reduce()
    });
    for mean in means {
        assert_eq!(mean.count(), 4 * count + 6);
        assert_eq!(mean.value(), 2.0 / (4 * count + 6) as f64);
    }
}

/// A Llama on a mesh.
#[derive(Debug, Clone, Copy)]
struct Counted {
    dp: usize,
    tp: usize,
    tied: bool,
    splits_stream: bool,
}

fn check<M: LanguageModel>(counted: Counted) {
    let Counted { dp, tp, tied, .. } = counted;
    let dir = tempfile::tempdir().unwrap();
    let [data, metrics] = ["tokens.bin", "metrics.jsonl"].map(|name| dir.path().join(name));
    let tokens = 0..2 * BATCH * SEQ + 1;
    let bytes: Vec<u8> =
        tokens.flat_map(|index| ((index * index % VOCAB) as u16).to_le_bytes()).collect();
    fs::write(&data, bytes).unwrap();
    let words = format!(
        "--mesh dp={dp},tp={tp} --steps 2 --batch {BATCH} --seq {SEQ} --hidden {HIDDEN} \
         --ffn {FFN} --layers {LAYERS} --heads {HEADS} --kv-heads {KV_HEADS} --vocab {VOCAB}"
    );
    let words = words.split_whitespace().chain(tied.then_some("--tied")).map(OsStr::new);
    let paths = ["--data".as_ref(), data.as_os_str(), "--metrics".as_ref(), metrics.as_os_str()];
    train_with_words::<M>(words.chain(paths)).unwrap();

    let text = fs::read_to_string(&metrics).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let parameters = counted.units().iter().sum::<usize>() * F32;
        let peak = &line["peak_bytes"];
        assert_eq!(peak["parameters"], parameters, "{counted:?}: parameters");
        assert_eq!(peak["gradients"], parameters, "{counted:?}: gradients");
        assert_eq!(peak["optimizer"], 2 * parameters, "{counted:?}: optimizer");
        let expected: BTreeMap<&str, usize> =
            [("dp", counted.dp_bytes()), ("tp", counted.tp_bytes())]
                .into_iter()
                .filter(|(_, bytes)| *bytes > 0)
                .collect();
        assert_eq!(line["comm_bytes"], serde_json::json!(expected), "{counted:?}: communication");
    }
}

impl Counted {
    /// Elements of each unit's buffers on the rank that has most: parameters begin on cache lines of 16 elements.
    fn units(self) -> Vec<usize> {
        let aligned = |len: usize| len.next_multiple_of(16);
        let vocab = aligned(VOCAB.div_ceil(self.tp) * HIDDEN);
        let kv = HIDDEN * KV_HEADS * (HIDDEN / HEADS);
        let matrices =
            [HIDDEN * HIDDEN, kv, kv, HIDDEN * HIDDEN, HIDDEN * FFN, HIDDEN * FFN, FFN * HIDDEN];
        let block =
            matrices.iter().map(|len| aligned(len / self.tp)).sum::<usize>() + 2 * aligned(HIDDEN);
        let mut units = vec![vocab];
        units.extend([block; LAYERS]);
        units.push(aligned(HIDDEN));
        if !self.tied {
            units.push(vocab);
        }
        units
    }

    /// What rank 0 sends to data ranks in a step: each unit's gradient all-reduced; sum and count of the loss, and the
    /// count of the gradient, gathered as `f64`.
    fn dp_bytes(self) -> usize {
        let rows = |rank: usize| (rank + 1) * VOCAB / self.tp - rank * VOCAB / self.tp;
        let missing = (VOCAB.div_ceil(self.tp) - rows(0)) * HIDDEN;
        let units = self.units();
        let mut bytes = 0;
        for (index, len) in units.iter().enumerate() {
            // Rank 0 may hold fewer rows of a vocabulary than others.
            let is_vocab = index == 0 || index == LAYERS + 2;
            bytes += all_reduce(len - if is_vocab { missing } else { 0 }, self.dp);
        }
        bytes + gather_f64(2, self.dp) + gather_f64(1, self.dp)
    }

    /// What rank 0 sends to tensor-parallel ranks in a step.
    fn tp_bytes(self) -> usize {
        let tp = self.tp;
        let tokens = BATCH / self.dp * SEQ;
        let stream = tokens * HIDDEN;
        // Ends of regions: the embedding, and two in each block. Beginnings: two in each block, and the head.
        let (ends, begins) = (1 + 2 * LAYERS, 2 * LAYERS + 1);
        let regions = if self.splits_stream {
            // Each end is a reduce-scatter forward and an all-gather backward, each beginning the reverse; and what was
            // gathered is gathered again in backward for the gradients of the weights, but for the head's.
            let norms = LAYERS * all_reduce(2 * HIDDEN, tp) + all_reduce(HIDDEN, tp);
            (2 * ends + 2 * begins + 2 * LAYERS) * all_gather(stream, tp) + norms
        } else {
            // An all-reduce forward at each end, and backward at each beginning.
            (ends + begins) * all_reduce(stream, tp)
        };
        // Of each token: the maximum, the sum of exponentials, the target's logit.
        regions + 3 * all_reduce(tokens, tp) + gather_f64(1, tp)
    }
}

/// Bytes that one of `ranks` sends in an all-reduce of `len` elements, by the convention of `CommStats`.
fn all_reduce(len: usize, ranks: usize) -> usize {
    2 * len * F32 * (ranks - 1) / ranks
}

/// The same for an all-gather or reduce-scatter of `len` elements in all.
fn all_gather(len: usize, ranks: usize) -> usize {
    len * F32 * (ranks - 1) / ranks
}

/// The same for `count` numbers in double precision, which every rank gathers from all.
fn gather_f64(count: usize, ranks: usize) -> usize {
    all_gather(2 * count * ranks, ranks)
}
