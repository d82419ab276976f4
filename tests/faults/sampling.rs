//! A continuation that cannot be sampled, after a run that is otherwise complete.

use meshwright::checkpoint::hf::LlamaConfig;
use meshwright::prelude::*;
use meshwright::train::{Config, HfName};

use super::in_time;

dims! { Batch @ data, Seq, Hidden, Vocab }

/// A model whose logits cannot be computed on the first rank.
#[model]
struct WithoutLogits {
    #[sharded(tp = "vocab")]
    embed: Embedding<Vocab, Hidden>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl WithoutLogits {
    fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Tensor<(Batch, Seq, Hidden)> {
        self.embed.forward(tokens)
    }
}

impl LanguageModel for WithoutLogits {
    type Batch = Batch;
    type Seq = Seq;
    type Vocab = Vocab;
    type Config = LlamaConfig;

    const HF_NAMES: &'static [HfName] =
        &[HfName::same("embed.weight", "embed.weight"), HfName::same("head.weight", "head.weight")];

    fn sizes(config: &LlamaConfig) -> Sizes {
        Sizes::new().with(Hidden, config.hidden).with(Vocab, config.vocab)
    }

    fn loss_of_output(
        &self,
        x: &Tensor<(Batch, Seq, Hidden)>,
        targets: &Targets<(Batch, Seq)>,
    ) -> Loss<(Batch, Seq)> {
        self.head.loss(x, targets)
    }

    fn logits_of_output(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Vocab)> {
        assert!(x.rank().index() > 0, "there are no logits");
        self.head.logits(x).gather(Vocab)
    }
}

/// The results of the run are saved, and the message says where.
#[test]
fn a_failed_continuation_leaves_a_complete_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("text.txt"), "some text to train on ".repeat(20)).unwrap();
    let [save, export] = ["out", "hf"].map(|name| path(name).display().to_string());
    for mesh in ["dp=2", "tp=2"] {
        let line = format!(
            "t --hidden 16 --seq 8 --batch 4 --threads 1 --steps 2 --mesh {mesh} --data {} --save {save} --export-hf \
             {export}",
            path("text.txt").display()
        );
        let train = |line: String| {
            in_time(move || {
                let config = Config::parse(line.split_whitespace())?;
                Trainer::<WithoutLogits>::new(config)?.train()
            })
        };
        let text = train(format!("{line} --sample-tokens 3")).unwrap_err().to_string();
        let start = "--sample-tokens: the run is complete, but its continuation could not be sampled (--sample-tokens \
                     0 leaves it out): rank 0 failed: panic: there are no logits";
        let end = format!(
            "\nsaved {save}/latest; to continue: --resume {save}/latest --steps 4 --save {save} --threads 1\nexported \
             {export}"
        );
        assert!(text.starts_with(start) && text.ends_with(&end), "{text}");
        assert!(path("out/step-00000002/manifest.json").is_file());
        assert!(path("hf/model.safetensors").is_file());
        std::fs::remove_dir_all(path("out")).unwrap();
        std::fs::remove_dir_all(path("hf")).unwrap();
        train(format!("{line} --sample-tokens 0")).unwrap();
        std::fs::remove_dir_all(path("out")).unwrap();
        std::fs::remove_dir_all(path("hf")).unwrap();
    }
}
