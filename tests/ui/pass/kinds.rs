//! Kinds of layers, tuples of fields, frozen and shared fields, and initial values.

use std::fmt::Debug;

use meshwright::nn::{Model, Module};
use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
#[derive(Debug)]
struct Dense {
    #[frozen]
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    #[init(normal(0.01), bias = constant(-1.0))]
    up: (Linear<Hidden, Ffn>, Bias<Ffn>),
    #[sharded(tp = "row", scatter = Seq)]
    #[init(scaled)]
    down: Linear<Ffn, Hidden>,
    gains: (Param<(Hidden,)>, Option<Param<(Hidden,)>>, Dropout),
}

#[forward]
impl Dense {
    fn forward(&self, x: &Stream) -> Stream {
        let (up, bias) = &self.up;
        let inside = bias.forward(&up.forward(&self.norm.forward(x))).gelu();
        let y = self.gains.2.forward(&self.down.forward(&inside)) * &self.gains.0;
        match &self.gains.1 {
            Some(gain) => x + y * gain,
            None => x + y,
        }
    }
}

#[model]
#[derive(Debug)]
struct Mixed {
    #[shared]
    gain: Param<(Hidden,)>,
}

#[forward]
impl Mixed {
    fn forward(&self, x: &Stream) -> Stream {
        x * &self.gain
    }
}

/// A layer.
#[model]
#[derive(Debug)]
enum Block {
    Dense(Dense),
    Mixed(Mixed),
}

#[model]
#[derive(Debug)]
struct Net {
    #[recompute]
    blocks: Stack<Block>,
    #[frozen]
    norm: RmsNorm<Hidden>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Stream) -> Stream {
        self.norm.forward(&self.blocks.forward(x))
    }
}

fn is_shown<M: Debug + Model + Module>() {}

#[test]
fn kinds_are_modules() {
    is_shown::<Block>();
    is_shown::<Net>();
    let names: Vec<&str> = Block::describe().fields.iter().map(|field| field.name).collect();
    assert_eq!(names, ["Dense", "Mixed"]);
    let up = Dense::describe().fields[1];
    assert_eq!(up.init, Some("normal(0.01), bias = constant(-1.0)"));
    assert!(Net::describe().fields[1].frozen && Mixed::describe().fields[0].shared);
}
