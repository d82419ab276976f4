//! A user-defined layer over a data axis, with the bounds of parameter dims.

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
