//! Models that do not use the documents of their tokens.

use std::path::Path;

use meshwright::checkpoint::hf::Gpt2Config;
use meshwright::prelude::*;
use meshwright::train::Config;

use super::bags::{Bags, Batch, Ffn, Hidden, Seq, Stream, Vocab};
use super::run::Run;

/// A model that does not ask for the documents of its tokens.
#[model]
struct Unaware {
    #[pipeline_stage]
    #[sharded(tp = "vocab", scatter = Seq)]
    embed: Embedding<Vocab, Hidden>,
    #[pipeline_stage]
    blocks: Stack<UnawareBlock>,
    #[pipeline_stage(last)]
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[model]
struct UnawareBlock {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scatter = Seq)]
    down: Linear<Ffn, Hidden>,
}

#[forward]
impl UnawareBlock {
    fn forward(&self, x: &Stream) -> Stream {
        x + self.down.forward(&self.up.forward(x).gelu())
    }
}

#[forward]
impl Unaware {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream;
}

impl LanguageModel for Unaware {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config)
    }

    fn loss_of_output(&self, x: &Stream, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Stream) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x).gather(Vocab)
    }
}

/// Whole rows.
type WholeRows = Tensor<(Batch, Seq, Hidden)>;

/// A model whose attention loses the documents: its queries, keys and values are along a dim of their own.
#[model]
struct Losing {
    embed: Embedding<Vocab, Hidden>,
    q: Linear<Hidden, (Heads, HeadDim)>,
    core: Attention<Heads, Heads, HeadDim>,
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Losing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> WholeRows {
        let x = self.norm.forward(&self.embed.forward(tokens));
        let copied: Tensor<(Batch, Other, Hidden)> =
            Tensor::from_block(x.rank(), &x.sizes(), &x.to_local_vec());
        let q = self.q.forward(&copied);
        let _ = self.core.forward(&(q.clone(), q.clone(), q));
        x
    }
}

impl LanguageModel for Losing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config).with(Heads, 2).with(HeadDim, 4)
    }

    fn loss_of_output(&self, x: &WholeRows, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &WholeRows) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

/// A model that does not use documents, and does not run on zeros either.
#[model]
struct Probing {
    embed: Embedding<Vocab, Hidden>,
    norm: RmsNorm<Hidden>,
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Probing {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        let x = self.embed.forward(tokens);
        assert!(x.to_local_vec().iter().any(|x| *x != 0.0), "the embeddings are zeros");
        self.norm.forward(&x)
    }
}

impl LanguageModel for Probing {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = Gpt2Config;

    const HF_NAMES: &'static [HfName] = &[];

    fn sizes(config: &Gpt2Config) -> Sizes {
        Bags::sizes(config)
    }

    fn loss_of_output(&self, x: &Self::Out, targets: &Targets<(Batch, Seq)>) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Self::Out) -> Tensor<(Batch, Seq, Vocab)> {
        self.head.logits(x)
    }
}

dims! { Other, Heads, HeadDim }

const UNUSED: &str = "--documents: the model does not use documents, so attention";

/// The plan refuses them, so nothing is allocated or written.
#[test]
fn models_that_do_not_use_documents_are_refused() {
    let run = Run::new();
    let save = run.path("never");
    for mesh in ["1", "dp=2", "tp=2", "pp=2", "pp=2,tp=2"] {
        let words = format!("--documents 10 --steps 2 --mesh {mesh} --save {save}");
        let refused = plan_of::<Unaware>(&run, &words).unwrap();
        assert!(refused.starts_with(UNUSED), "{mesh}: {refused}");
        assert!(refused.contains("tokens.documents()"), "{refused}");
        assert_eq!(plan_of::<Bags>(&run, &words), None, "{mesh}");
        assert_eq!(plan_of::<Unaware>(&run, &words.replace("--documents 10", "")), None, "{mesh}");
        let _ = std::fs::remove_dir_all(&save);
    }
    let words = format!("--documents 10 --steps 2 --mesh dp=2 --save {save}");
    assert!(plan_of::<Losing>(&run, &words).unwrap().starts_with(UNUSED));
    assert!(!Path::new(&save).exists());
}

/// Returns the error of the plan of a run, if it has one.
fn plan_of<M: LanguageModel>(run: &Run, words: &str) -> Option<String> {
    let line = format!("train --threads 1 {}", run.line(words));
    let config = Config::parse(line.split_whitespace()).unwrap();
    Trainer::<M>::new(config).err().map(|error| error.to_string())
}

/// The plan of a model without a dry run cannot tell, so the first step does.
#[test]
fn unused_documents_are_refused_after_the_first_step() {
    let run = Run::new();
    let save = run.path("never");
    let words = format!("--documents 10 --steps 2 --mesh dp=2 --save {save}");
    assert_eq!(plan_of::<Probing>(&run, &words), None);
    let text = run.train::<Probing>(&words.replace("--documents 10", "")).unwrap_err().to_string();
    assert!(text.starts_with(UNUSED), "{text}");
    assert!(!Path::new(&save).join("latest").exists());
}
