//! All forms of recomputation: the gradients equal the same model's without attributes.

use meshwright::nn::{Recompute, Recomputed};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn, Vocab, Inner }

type Stream = Tensor<(Batch, Seq, Hidden)>;

/// A user-defined layer with a recomputed activation.
struct Squared {
    gain: Param<(Hidden,)>,
}

impl Build for Squared {
    fn build(builder: &mut Builder<'_>) -> Self {
        Squared { gain: builder.param("gain", Init::Ones) }
    }
}

impl Layer<Stream> for Squared {
    type Out = Stream;

    fn forward(&self, x: &Stream) -> Stream {
        let relu = x.relu();
        &relu * &relu * &self.gain
    }
}

impl Recompute for Squared {
    type Recomputed = Recomputed<Self>;
    type Layer = Self;
}

#[model]
struct Mlp<F: Whole> {
    #[sharded(tp = "col")]
    up: Linear<Hidden, F>,
    #[sharded(tp = "row")]
    down: Linear<F, Hidden>,
}

#[forward]
impl<F: Whole> Mlp<F> {
    fn forward(&self, x: &Stream) -> Stream {
        self.down.forward(&self.up.forward(x).gelu())
    }
}

/// A model with several inputs and outputs.
#[model]
struct Ends {
    #[sharded(tp = "vocab")]
    tokens: Embedding<Vocab, Hidden>,
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Ends {
    fn forward(&self, (tokens, x): &(Tokens<(Batch, Seq)>, Stream)) -> (Stream, Stream) {
        let embedded = self.tokens.forward(tokens);
        (self.norm.forward(&(x + &embedded)), embedded)
    }
}

/// The same model twice: with the attributes, and without.
macro_rules! net {
    ($name:ident, $residual:ident, $inner:ty, ($($bound:tt)*), $($attribute:meta),*) => {
        #[model]
        struct $residual<L $($bound)*> {
            norm: RmsNorm<Hidden>,
            $(#[$attribute])*
            inner: L,
        }

        #[forward]
        impl<L $($bound)*> $residual<L>
        where
            $inner: Layer<Stream, Out = Stream>,
        {
            fn forward(&self, x: &Stream) -> Stream {
                x + self.inner.forward(&self.norm.forward(x))
            }
        }

        #[model]
        struct $name {
            $(#[$attribute])*
            ends: Ends,
            $(#[$attribute])*
            first: Stack<$residual<Mlp<Ffn>>>,
            $(#[$attribute])*
            own: Squared,
            #[sharded(tp = "vocab")]
            #[tied(ends.tokens)]
            head: Embedding<Vocab, Hidden>,
        }

        #[forward]
        impl $name {
            fn forward(&self, tokens: &Tokens<(Batch, Seq)>) -> Stream {
                let again = self.head.forward(tokens);
                let (x, embedded) = self.ends.forward(&(tokens.clone(), again));
                self.own.forward(&self.first.forward(&x)) + embedded
            }
        }
    };
}

net!(Kept, KeptResidual, L, (),);
net!(Again, Residual, <L as Recompute>::Recomputed, (: Recompute), recompute);

/// Other arguments of `#[recompute]`, and nested stacks.
#[model]
struct Nested {
    #[recompute(every = 2, save = [rows, last.inner.down], offload)]
    pairs: Stack<Pair>,
}

#[model]
struct Pair {
    #[recompute(every = "sqrt", save = [up])]
    rows: Stack<Mlp<Ffn>, Inner>,
    #[recompute(save = [inner.up, norm])]
    last: Residual<Mlp<Ffn>>,
}

#[forward]
impl Pair {
    fn forward(&self, x: &Stream) -> Stream {
        self.last.forward(&self.rows.forward(x))
    }
}

#[forward]
impl Nested {
    fn forward(&self, x: &Stream) -> Stream {
        self.pairs.forward(x)
    }
}

fn sizes() -> Sizes {
    let mut sizes =
        Sizes::new().with(Hidden, 4).with(Ffn, 6).with(Vocab, 8).with(Layers, 3).with(Inner, 2);
    sizes.init_std = 0.5;
    sizes
}

/// Returns each parameter's gradient for a batch of tokens.
fn gradients<M>(mesh: &str) -> Vec<(String, Vec<f32>)>
where
    M: Build + Module<In = Tokens<(Batch, Seq)>, Out = Stream>,
{
    let found = std::sync::Mutex::new(Vec::new());
    super::on_mesh::<M>(mesh, &sizes(), |rank, built| {
        let tokens = Tokens::from_block(rank, &[1, 3], &[1, 5, 2]);
        let loss = Loss::mean_of(&built.model.forward(&tokens));
        let gradients = loss.backward().reduce();
        let all: Vec<(String, Vec<f32>)> = built
            .params()
            .iter()
            .map(|param| (param.path().to_owned(), gradients.gather(param)))
            .collect();
        if rank.index() == 0 {
            *found.lock().expect("no rank has panicked") = all;
        }
    });
    found.into_inner().expect("no rank has panicked")
}

#[test]
fn changes_no_gradient() {
    for mesh in ["tp=1", "tp=2"] {
        let (kept, again) = (gradients::<Kept>(mesh), gradients::<Again>(mesh));
        assert_eq!(kept, again, "{mesh}");
        let moved = kept.iter().filter(|(_, gradient)| gradient.iter().any(|value| *value != 0.0));
        assert_eq!((kept.len(), moved.count()), (12, 12), "{mesh}: {kept:?}");
    }
}

#[test]
fn is_described() {
    let fields = Nested::describe().fields;
    let said = Some("every = 2, save = [rows, last.inner.down], offload");
    assert_eq!(fields[0].recompute, said);
    let [_, _, own, head] = Again::describe().fields else { panic!("four fields") };
    assert_eq!((own.recompute, head.recompute), (Some(""), None));
}

#[test]
fn nested_regions_run() {
    super::on_mesh::<Nested>("tp=2", &sizes(), |rank, built| {
        let x = Tensor::from_block(rank, &[1, 2, 4], &[0.5; 8]);
        let y = built.model.forward(&x);
        assert_eq!(y.sizes(), [1, 2, 4]);
        assert!(
            Loss::mean_of(&y)
                .backward()
                .reduce()
                .local_block_of("pairs.2.rows.1.up.weight")
                .is_some()
        );
    });
}
