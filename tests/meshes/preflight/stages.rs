//! State beside the data flow of a pipeline, in a model that the trainer trains.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;
use meshwright::train::Config;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab, Case }

type Ids = Tokens<(Batch, Seq)>;
type Stream = Tensor<(Batch, Seq, Hidden)>;

/// The state of layers beside the data flow, by the size of the dim `Case`.
const NOTHING: usize = 1;
/// Each layer multiplies by the number of layers that have run on its thread.
const COUNTER: usize = 2;
/// The last layer adds the input of the first one.
const TENSOR: usize = 3;
/// The last layer divides by the sizes of all streams that layers of the thread have seen.
const MEMORY: usize = 4;
/// Each layer multiplies by the number of layers that were declared before it on its thread: the same on every mesh,
/// since each declares a model equally often.
const DECLARED: usize = 5;
/// Each layer multiplies by the number of layers that were declared before it in the process.
const DECLARED_BY_ALL: usize = 6;

static DECLARED_LAYERS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static RUNS: Cell<u32> = const { Cell::new(0) };
    static BUILT: Cell<u32> = const { Cell::new(0) };
    static SIZES: Cell<f32> = const { Cell::new(0.0) };
    static FIRST: RefCell<Option<Stream>> = const { RefCell::new(None) };
}

struct Beside {
    case: usize,
    layer: usize,
    built: u32,
}

impl Build for Beside {
    fn build(builder: &mut Builder<'_>) -> Self {
        let case = builder.size::<Case>();
        let built = match case {
            DECLARED_BY_ALL => DECLARED_LAYERS.fetch_add(1, Ordering::Relaxed),
            _ => BUILT.replace(BUILT.get() + 1),
        };
        let site = builder.site();
        let layer = site.field().split('.').find_map(|part| part.parse().ok());
        Beside { case, layer: layer.unwrap_or_default(), built }
    }
}

/// The number of layers.
const LAYERS: usize = 4;

impl Beside {
    fn change(&self, x: Stream) -> Stream {
        let (is_first, is_last) = (self.layer == 0, self.layer == LAYERS - 1);
        match self.case {
            COUNTER => x * (1.0 + 0.05 * RUNS.replace(RUNS.get() + 1) as f32),
            DECLARED | DECLARED_BY_ALL => x * (1.0 + 0.05 * self.built as f32),
            MEMORY => {
                let size = x.gather_to_vec().into_iter().map(f32::abs).sum::<f32>();
                let sizes = SIZES.replace(SIZES.get() + size) + size;
                if is_last { x * (size / sizes) } else { x }
            }
            TENSOR if is_first => {
                FIRST.set(Some(x.clone()));
                x
            }
            TENSOR if is_last => match FIRST.take() {
                Some(first) => x + first,
                None => x,
            },
            _ => x,
        }
    }
}

#[model]
struct Layer {
    norm: RmsNorm<Hidden>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
    beside: Beside,
}

#[forward]
impl Layer {
    fn forward(&self, x: &Stream) -> Stream {
        let y = self.down.forward(&self.up.forward(&self.norm.forward(x)).silu());
        self.beside.change(x + y)
    }
}

#[model]
struct Lm {
    #[pipeline_stage]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    layers: Stack<Layer>,
    #[pipeline_stage(last)]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Lm {
    fn forward(&self, tokens: &Ids) -> Stream;
}

impl LanguageModel for Lm {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &LlamaConfig) -> Sizes {
        let sizes = Sizes::new().with(Hidden, config.hidden).with(Ffn, 2 * config.hidden);
        let mut sizes = sizes.with(Vocab, config.vocab).with(Layers, config.layers);
        sizes.init_std = 0.3;
        sizes.with(Case, config.ffn)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

fn preflight(flags: &str) -> meshwright::Result<String> {
    let words = format!(
        "train --hidden 8 --heads 1 --layers {LAYERS} --seq 8 --batch 4 --threads 1 --preflight {flags}"
    );
    Trainer::<Lm>::new(Config::parse(words.split(' '))?)?.preflight()
}

#[test]
fn stages_without_other_state_pass() {
    for flags in ["--mesh pp=2", "--mesh pp=2,dp=2 --micro-batches 2 --schedule zb-v"] {
        let line = preflight(&format!("2 {flags} --ffn {NOTHING}")).unwrap();
        assert!(line.contains("equals one rank in 2 steps: losses"), "{line}");
    }
}

#[test]
fn state_beside_the_flow_differs_along_pp() {
    for case in [COUNTER, TENSOR, MEMORY] {
        for (mesh, along) in [("pp=2", "along pp:"), ("pp=2,dp=2", "along pp (dp alone agrees):")] {
            let error = preflight(&format!("2 --ffn {case} --mesh {mesh}")).unwrap_err();
            let text = error.to_string();
            println!("{text}\n");
            // Other checks may refuse it in a step.
            if text.contains("differs from one rank") {
                assert_eq!(error.exit_code(), 4, "it would fail again");
                let along = if case == TENSOR && mesh == "pp=2,dp=2" { "along pp" } else { along };
                assert!(text.contains("in step 1, "), "case {case} on {mesh}: {text}");
                assert!(text.contains(along), "case {case} on {mesh}: {text}");
                assert!(text.contains("loss: differs"), "case {case} on {mesh}: {text}");
            }
        }
    }
}

#[test]
fn declarations_that_count() {
    preflight(&format!("2 --ffn {DECLARED} --mesh pp=2")).unwrap();
    let error = preflight(&format!("2 --ffn {DECLARED_BY_ALL} --mesh pp=2")).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("two runs on one rank differ in step 1, first in: loss; "), "{text}");
}
