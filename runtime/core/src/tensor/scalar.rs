//! Numbers on the left of tensors and partial sums, and negation: `0.5 * x`, `1.0 / x`, `1.0 - x`, `-x`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::layout::{AxisGroup, Dims};

use super::{Partial, Tensor};

/// Never implemented: a number on the left that is not an `f32`.
#[diagnostic::on_unimplemented(
    message = "numbers in operations with tensors are `f32`, not `{Number}`",
    label = "the number on the left is not an `f32`",
    note = "write `2.0 * x`, or `(n as f32) * x`"
)]
pub trait OtherNumber<Number> {
    #[doc(hidden)]
    fn never_implemented() -> !;
}

macro_rules! never_on_the_left {
    ($($number:ident { $($operator:ident $method:ident $tensor:ty;)* })*) => {$($(
        /// Never applies; the message of its bound explains the fix.
        impl<S: Dims> $operator<$tensor> for $number
        where
            S: OtherNumber<$number>,
        {
            type Output = Tensor<S>;

            fn $method(self, _: $tensor) -> Tensor<S> {
                S::never_implemented()
            }
        }
    )*)*};
}

never_on_the_left! {
    f64 {
        Mul mul Tensor<S>;
        Mul mul &Tensor<S>;
        Add add Tensor<S>;
        Add add &Tensor<S>;
        Sub sub Tensor<S>;
        Sub sub &Tensor<S>;
        Div div Tensor<S>;
        Div div &Tensor<S>;
    }
    i32 {
        Mul mul Tensor<S>;
        Mul mul &Tensor<S>;
        Add add Tensor<S>;
        Add add &Tensor<S>;
        Sub sub Tensor<S>;
        Sub sub &Tensor<S>;
        Div div Tensor<S>;
        Div div &Tensor<S>;
    }
}

macro_rules! scaled_tensors {
    ($($tensor:ty),*) => {$(
        impl<S: Dims> Mul<$tensor> for f32 {
            type Output = Tensor<S>;

            #[track_caller]
            fn mul(self, tensor: $tensor) -> Tensor<S> {
                tensor.scale(self)
            }
        }

        impl<S: Dims> Add<$tensor> for f32 {
            type Output = Tensor<S>;

            #[track_caller]
            fn add(self, tensor: $tensor) -> Tensor<S> {
                tensor.offset(self)
            }
        }

        impl<S: Dims> Sub<$tensor> for f32 {
            type Output = Tensor<S>;

            #[track_caller]
            fn sub(self, tensor: $tensor) -> Tensor<S> {
                tensor.scale(-1.0).offset(self)
            }
        }

        impl<S: Dims> Div<$tensor> for f32 {
            type Output = Tensor<S>;

            #[track_caller]
            fn div(self, tensor: $tensor) -> Tensor<S> {
                tensor.divide_into(self)
            }
        }

        impl<S: Dims> Neg for $tensor {
            type Output = Tensor<S>;

            #[track_caller]
            fn neg(self) -> Tensor<S> {
                self.scale(-1.0)
            }
        }
    )*};
}

scaled_tensors! { Tensor<S>, &Tensor<S> }

impl<S: Dims, A: AxisGroup> Mul<Partial<S, A>> for f32 {
    type Output = Partial<S, A>;

    #[track_caller]
    fn mul(self, partial: Partial<S, A>) -> Partial<S, A> {
        partial * self
    }
}

#[cfg(test)]
mod tests {
    use meshwright_comm::{CommError, launch};
    use meshwright_cpu::CpuBackend;

    use crate::context::Rank;
    use crate::layout::{AxisId, Here, Tp, Whole};

    use super::*;

    /// Runs `body` on the ranks of a mesh.
    fn run_on<T: Send>(mesh: &str, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
        let results = launch(&mesh.parse().unwrap(), |comms| {
            let backend = Box::new(CpuBackend::new(1).unwrap());
            Ok::<_, CommError>(body(&Rank::new(comms, backend, 0)))
        });
        results.unwrap_or_else(|error| panic!("{error}"))
    }

    struct Wide;

    impl Whole for Wide {
        const DECLARED_NAME: &'static str = "Wide";
        type Home = Here;
    }

    #[test]
    fn a_number_scales_from_either_side() {
        let results = run_on("tp=2", |rank| {
            assert_eq!(rank.degree(AxisId::Tp), 2);
            let x: Tensor<(Wide,)> = Tensor::from_fn(rank, &[4], |at| at[0] as f32);
            let sum = 0.5 * x.slice(Wide, Tp).sum(Wide) * 4.0 / 4.0;
            (
                (0.5 * &x).to_local_vec(),
                (&x / 2.0).to_local_vec(),
                (-&x).to_local_vec(),
                sum.all_reduce().to_local_vec(),
                [(1.0 + &x).to_local_vec(), (&x - 1.0).to_local_vec(), (1.0 - &x).to_local_vec()],
                (3.0 / (&x + 1.0)).to_local_vec(),
            )
        });
        for (left, quotient, negative, sum, moved, inverse) in results {
            assert_eq!(left, [0.0, 0.5, 1.0, 1.5]);
            assert_eq!(quotient, left);
            assert_eq!(negative, [0.0, -1.0, -2.0, -3.0]);
            assert_eq!(sum, [3.0]);
            assert_eq!(inverse, [3.0, 1.5, 1.0, 0.75]);
            let [sum, difference, mirrored] = moved;
            assert_eq!(sum, [1.0, 2.0, 3.0, 4.0]);
            assert_eq!(difference, [-1.0, 0.0, 1.0, 2.0]);
            assert_eq!(mirrored, [1.0, 0.0, -1.0, -2.0]);
        }
    }

    /// Also if the reciprocal of the divisor is subnormal or infinite.
    #[test]
    fn quotients_are_rounded_once() {
        const NUMBERS: [f32; 8] = [0.0, -0.0, 1e-39, -3e-39, 2e38, 1e38, 0.3, f32::INFINITY];
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        for mesh in ["tp=1", "tp=2"] {
            run_on(mesh, |rank| {
                let x: Tensor<(Wide,)> = Tensor::from_fn(rank, &[8], |at| NUMBERS[at[0]]);
                for divisor in [1e-40, -1e-40, 1e-45, 2e-39, 1e38, -3e38, f32::MAX] {
                    let shard = x.slice(Wide, Tp);
                    let expected: Vec<f32> = NUMBERS.iter().map(|x| x / divisor).collect();
                    let quotients = (&shard / divisor).gather(Wide).to_local_vec();
                    assert_eq!(bits(quotients), bits(expected), "x / {divisor}");
                    let sum = shard.clamp(2e-39, 2e-39).sum(Wide) / divisor;
                    let degree = rank.degree(AxisId::Tp);
                    let part = (0..8 / degree).map(|_| 2e-39).sum::<f32>() / divisor;
                    let expected = (0..degree).map(|_| part).sum::<f32>();
                    assert_eq!(sum.all_reduce().to_local_vec(), [expected], "sum / {divisor}");
                }
                for number in [1e-39, -1e-45, 1.0, 3.0, f32::MAX] {
                    let expected: Vec<f32> = NUMBERS.iter().map(|x| number / x).collect();
                    let quotients = (number / x.slice(Wide, Tp)).gather(Wide).to_local_vec();
                    assert_eq!(bits(quotients), bits(expected), "{number} / x");
                }
            });
        }
    }
}
