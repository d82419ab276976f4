use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};

dims! { Hidden }

#[model]
struct Net {
    layer: Linear<Hidden, Hidden>,
}

#[forward]
impl Net {
    fn forward(&self, x: &Tensor<(u8, u8, Hidden)>) -> Tensor<(u8, u8, Hidden)> {
        #[cfg(any())]
        {
            self.layer.unreduced(x)
        }
        #[cfg(all())]
        {
            self.layer.forward(x)
        }
    }
}
