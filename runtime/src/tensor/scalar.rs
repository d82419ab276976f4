//! Numbers beside tensors and partial sums: `0.5 * x`, `x / 2.0`, `-x`.

use std::ops::{Div, Mul, Neg};

use crate::layout::{Home, Shape};

use super::{Partial, Tensor};

macro_rules! scaled_tensors {
    ($($tensor:ty),*) => {$(
        impl<S: Shape> Mul<$tensor> for f32 {
            type Output = Tensor<S>;

            fn mul(self, tensor: $tensor) -> Tensor<S> {
                tensor.scale(self)
            }
        }

        impl<S: Shape> Div<f32> for $tensor {
            type Output = Tensor<S>;

            fn div(self, divisor: f32) -> Tensor<S> {
                self.scale(1.0 / divisor)
            }
        }

        impl<S: Shape> Neg for $tensor {
            type Output = Tensor<S>;

            fn neg(self) -> Tensor<S> {
                self.scale(-1.0)
            }
        }
    )*};
}

scaled_tensors! { Tensor<S>, &Tensor<S> }

impl<S: Shape, A: Home> Mul<Partial<S, A>> for f32 {
    type Output = Partial<S, A>;

    fn mul(self, partial: Partial<S, A>) -> Partial<S, A> {
        partial * self
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::{AxisId, AxisSet, Dim, Here, Tp, Whole};

    use super::*;

    struct Wide;

    impl Dim for Wide {
        const NAME: &'static str = "Wide";
        const VARIES: AxisSet = AxisSet::NONE;
    }

    impl Whole for Wide {
        type Home = Here;
    }

    #[test]
    fn a_number_scales_from_either_side() {
        let results = crate::run_on("tp=2", 0, |rank| {
            assert_eq!(rank.degree(AxisId::Tp), 2);
            let x: Tensor<(Wide,)> = Tensor::from_fn(rank, &[4], |at| at[0] as f32);
            let sum = 0.5 * x.slice(Wide, Tp).sum(Wide);
            Ok((
                (0.5 * &x).to_vec(),
                (&x / 2.0).to_vec(),
                (-&x).to_vec(),
                sum.all_reduce().to_vec(),
            ))
        })
        .unwrap();
        for (left, quotient, negative, sum) in results {
            assert_eq!(left, [0.0, 0.5, 1.0, 1.5]);
            assert_eq!(quotient, left);
            assert_eq!(negative, [0.0, -1.0, -2.0, -3.0]);
            assert_eq!(sum, [3.0]);
        }
    }
}
