//! Debug text of layers: `Linear 768 x 3072, Split<Ffn, tp>, here 768 x 1536`.

use std::fmt::{Formatter, Result};

use crate::tensor::ParamRef;

/// Implements `Debug` for layers of this crate, in whose files it is invoked: `debug_layers! { Linear<I, O>: weight;
/// }`. The parameters are described in this order.
macro_rules! debug_layers {
    ($($layer:ident $(<$($param:ident),+>)?: $($field:ident),*;)+) => {$(
        impl $(<$($param),+>)? std::fmt::Debug for $layer $(<$($param),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::nn::debug::write_layer(f, stringify!($layer), &[$(&self.$field),*])
            }
        }
    )+};
}

pub(in crate::nn) use debug_layers;

/// Writes the name of a layer and its parameters: the name of each but the first, the global sizes, the split dims, the
/// sizes on this rank if others have a part, and whether it is frozen.
pub(in crate::nn) fn write_layer(
    f: &mut Formatter<'_>,
    layer: &str,
    params: &[&ParamRef],
) -> Result {
    f.write_str(layer)?;
    for (index, param) in params.iter().enumerate() {
        if index > 0 {
            write!(f, ", {}", param.path().rsplit('.').next().unwrap_or_default())?;
        }
        let global = param.sizes();
        let local: Vec<usize> = param.local_extents().iter().map(|extent| extent.local).collect();
        write!(f, " {}", product(&global))?;
        for dim in param.dims().iter().filter(|dim| !dim.split.is_empty()) {
            write!(f, ", {dim}")?;
        }
        if local != global {
            write!(f, ", here {}", product(&local))?;
        }
        if param.is_frozen() {
            f.write_str(", frozen")?;
        }
    }
    Ok(())
}

/// Formats sizes: `768 x 3072`.
fn product(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    if sizes.is_empty() { "scalar".to_owned() } else { sizes.join(" x ") }
}
