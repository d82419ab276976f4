use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Batch @ data, Seq @ cp, Hidden, Vocab, Other }

#[model]
pub struct Embed {
    #[sharded(tp = "vocab")]
    tokens: Embedding<Vocab, Hidden>,
}

#[model]
pub struct Llama {
    embed: Embed,
    #[cfg(all())]
    norm: RmsNorm<Hidden>,
    #[cfg(any())]
    r#type: DoesNotExist,
    #[sharded(tp = "col")]
    #[tied(embed.tokens, when = "tie_word_embeddings")]
    head: Linear<Hidden, Vocab>,
    #[cfg(any())]
    #[tied(embed.nothing)]
    other: DoesNotExist,
}

#[forward]
impl Llama {
    fn forward(
        &self,
        (x, choose): &(Tensor<(Batch, Seq, Hidden)>, Option<bool>),
    ) -> (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize) {
        let length = [1].map(|x| return x + 1).len();
        match choose {
            None => panic!("choose"),
            Some(true) => return (self.head.forward(&self.norm.forward(x)), length),
            Some(false) => {
                let y = self.head.forward(x);
                (y, length)
            }
        }
    }
}
