use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshwright_backend::__internal::ObservedBackend;
use meshwright_backend::{Kernel, KernelObserver};
use meshwright_comm::{CommError, launch};
use meshwright_cpu::CpuBackend;

use super::*;
use crate::layout::name::{H0, H1, H2, H3};
use crate::layout::{Here, Local, Named, Split, Tp, Whole};
use crate::tensor::Mask;

/// Counts kernels.
#[derive(Default)]
struct Kernels(AtomicUsize);

impl KernelObserver for Kernels {
    fn kernel_launched(&self, _: &Kernel) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `body` on the ranks of a mesh, with the number of kernels launched so far.
fn run_on<T: Send>(mesh: &str, body: impl Fn(&Rank, &dyn Fn() -> usize) -> T + Sync) -> Vec<T> {
    let results = launch(&mesh.parse().unwrap(), |comms| {
        let kernels = Arc::new(Kernels::default());
        let backend = Box::new(CpuBackend::new(1).unwrap());
        let observer: Arc<dyn KernelObserver> = Arc::<Kernels>::clone(&kernels);
        let backend = Box::new(ObservedBackend::new(backend, observer));
        let count = || kernels.0.load(Ordering::Relaxed);
        Ok::<_, CommError>(body(&Rank::new(comms, backend, 0), &count))
    });
    results.unwrap_or_else(|error| panic!("{error}"))
}

macro_rules! dims {
    ($($name:ident $digit:ident;)*) => {$(
        struct $name;

        impl Whole for $name {
            const DECLARED_NAME: &'static str = stringify!($name);
            type Home = Here;
        }

        impl Local for $name {}

        impl Named for $name {
            type Name = ($digit, ());
        }
    )*};
}

dims! {
    Row H0;
    Column H1;
    Channel H2;
    Other H3;
}

/// A number that follows from the index.
fn number(at: &[usize]) -> f32 {
    at.iter().fold(0.3, |sum, i| (sum * 1.7 + *i as f32 * 0.37).sin())
}

#[test]
fn chains_with_repeated_operands_are_one_kernel() {
    run_on("1", |rank, kernels| {
        let x: Tensor<(Row, Column, Channel)> = Tensor::from_fn(rank, &[3, 4, 5], number);
        let scale: Tensor<(Row, Channel)> = Tensor::from_fn(rank, &[3, 5], number);
        let shift: Tensor<(Channel, Row)> = Tensor::from_fn(rank, &[5, 3], number);
        let gate: Tensor<(Row, Column)> = Tensor::from_fn(rank, &[3, 4], number);
        let one: Tensor<()> = Tensor::from_fn(rank, &[], number);
        let before = kernels();
        let y = (&x * (1.0 + &scale) + &shift) * gate.sigmoid() - &one;
        let y = y.masked(&Mask::causal(Row, Column), 7.0).to_local_vec();
        assert_eq!(kernels() - before, 1);
        for (i, y) in y.into_iter().enumerate() {
            let [r, c, h] = [i / 20, i / 5 % 4, i % 5];
            let sigmoid = 1.0 / (1.0 + (-number(&[r, c])).exp());
            let scaled = number(&[r, c, h]) * (1.0 + number(&[r, h])) + number(&[h, r]);
            let expected = if c <= r { scaled * sigmoid - number(&[]) } else { 7.0 };
            assert!((y - expected).abs() < 1e-6, "element {r}, {c}, {h}: {y}, not {expected}");
        }
    });
}

/// Also more operands than one kernel takes.
#[test]
fn operands_of_any_dims() {
    run_on("tp=2", |rank, _| {
        type Large = Tensor<(Row, Split<Column, Tp>, Channel, Other)>;
        let x: Large = Tensor::from_fn(rank, &[2, 4, 3, 5], number);
        let a: Tensor<(Row,)> = Tensor::from_fn(rank, &[2], number);
        let b: Tensor<(Split<Column, Tp>,)> = Tensor::from_fn(rank, &[4], number);
        let c: Tensor<(Channel,)> = Tensor::from_fn(rank, &[3], number);
        let d: Tensor<(Other,)> = Tensor::from_fn(rank, &[5], number);
        let e: Tensor<(Other, Split<Column, Tp>, Row)> = Tensor::from_fn(rank, &[5, 4, 2], number);
        let f: Tensor<(Channel, Row)> = Tensor::from_fn(rank, &[3, 2], number);
        let y = &a * (&b * (&c * (&d * (&x - &e)))).mul_along(&f) + &e;
        let expected: Large = Tensor::from_fn(rank, &[2, 4, 3, 5], |at| {
            let [r, c, h, o] = *at else { unreachable!("four dims") };
            let inner = number(&[o]) * (number(at) - number(&[o, c, r]));
            let product = number(&[c]) * (number(&[h]) * inner) * number(&[h, r]);
            number(&[r]) * product + number(&[o, c, r])
        });
        for (y, expected) in y.to_local_vec().iter().zip(expected.to_local_vec()) {
            assert!((y - expected).abs() < 1e-6, "{y}, not {expected}");
        }
    });
}

#[test]
fn constants_of_the_shape_of_a_tensor() {
    run_on("tp=2", |rank, _| {
        let x: Tensor<(Row, Split<Column, Tp>)> = Tensor::from_fn(rank, &[2, 4], number);
        assert_eq!((&x - x.like(number)).gather_to_vec(), [0.0; 8]);
    });
}

#[test]
#[should_panic(expected = "Column = 3, but the right side has Row = 2, Column = 4")]
fn two_sizes_of_one_dim() {
    run_on("1", |rank, _| {
        let x: Tensor<(Row, Column, Channel)> = Tensor::from_fn(rank, &[2, 3, 2], number);
        let gate: Tensor<(Row, Column)> = Tensor::from_fn(rank, &[2, 4], number);
        (x * gate).to_local_vec()
    });
}
