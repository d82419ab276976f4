//! A layer of the author's own over parameter dims that it says are any parameter's.

use meshwright::layout::ParamDim;
use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Gain<D: ParamDim> {
    gain: Param<(D,)>,
}

impl<D: ParamDim> Build for Gain<D> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Gain { gain: builder.param("gain", Init::Ones) }
    }
}

#[model]
struct Scaled {
    samples: Gain<Batch>,
    features: Gain<Split<Hidden, Dp>>,
}

fn main() {}
