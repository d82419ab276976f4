//! Autotuning of matmuls on a simulated device.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use half::bf16;
use meshwright::backend::{DType, Gemm};
use meshwright_cuda::autotune::autotune_matmul;
use meshwright_cuda::{DriverCalls, DriverError, MatMul, MatMulEpilogue, MatMulOperands, Stream};
use meshwright_gpu_sim::{SimDriver, not_checked_on_gpu};

/// Candidate algorithms of a matmul with different summation orders.
struct Candidates {
    driver: SimDriver,
    stream: Stream,
    shape: MatMul,
    /// Largest distance of results from 0, and the initial accumulator values, of every run.
    observed: RefCell<Vec<(f32, Vec<f32>)>>,
    /// Algorithm and address of the result of every run.
    runs: RefCell<Vec<(usize, u64)>>,
    /// An artificially slow algorithm.
    slow: Option<usize>,
}

impl Candidates {
    fn new(inputs: DType, result: DType, gemm: Gemm) -> Candidates {
        let driver = SimDriver::new(5);
        let stream = driver.new_stream(false).unwrap();
        Candidates {
            driver,
            stream,
            shape: MatMul {
                gemm,
                inputs,
                result,
                epilogue: MatMulEpilogue::Plain,
                is_grouped: false,
                batch: None,
            },
            observed: RefCell::default(),
            runs: RefCell::default(),
            slow: None,
        }
    }

    /// Returns the chosen algorithm, if algorithm `i` sums in the order `orders[i]` and is refused without an order.
    fn chosen(&self, orders: &[Option<Order>], allow_nondeterministic: bool) -> Option<usize> {
        let run = |algorithm: usize, operands: &MatMulOperands| match orders[algorithm] {
            Some(order) => {
                self.multiply(order, operands);
                self.runs.borrow_mut().push((algorithm, operands.c));
                if self.slow == Some(algorithm) {
                    std::thread::sleep(Duration::from_millis(3));
                }
                Ok(())
            }
            None => Err(DriverError::Call { call: "cublasLtMatmul", reason: "refused".to_owned() }),
        };
        let (driver, stream) = (&self.driver, self.stream);
        autotune_matmul(driver, stream, &self.shape, orders.len(), allow_nondeterministic, run)
            .unwrap()
            .chosen
    }

    fn read(&self, dtype: DType, from: u64, len: usize) -> Vec<f32> {
        match dtype {
            DType::Bf16 => self.get::<bf16>(from, len).into_iter().map(f32::from).collect(),
            _ => self.get(from, len),
        }
    }

    fn get<T: bytemuck::Pod>(&self, from: u64, len: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); len];
        let to = values.as_mut_ptr().cast();
        // SAFETY: the operand has `len` elements.
        unsafe { self.driver.download(self.stream, to, from, len * size_of::<T>()) }.unwrap();
        self.driver.synchronize(self.stream).unwrap();
        values
    }

    fn put<T: bytemuck::NoUninit>(&self, to: u64, values: &[T]) {
        let from = values.as_ptr().cast();
        // SAFETY: the memory is large enough, and the values live until they are copied.
        unsafe { self.driver.upload(self.stream, to, from, size_of_val(values)) }.unwrap();
        self.driver.synchronize(self.stream).unwrap();
    }

    /// Computes the matmul on the host in a given summation order.
    fn multiply(&self, order: Order, operands: &MatMulOperands) {
        let MatMul { gemm, inputs, result, .. } = self.shape;
        let MatMulOperands { a, b, c, .. } = *operands;
        let Gemm { m, n, k, trans_a, trans_b, accumulate } = gemm;
        let (a, b) = (self.read(inputs, a, m * k), self.read(inputs, b, k * n));
        let before = self.read(result, c, m * n);
        let mut largest = 0f32;
        let product: Vec<f32> = (0..m * n)
            .map(|at| {
                let (row, col) = (at / n, at % n);
                let term = |i: usize| {
                    let a = a[if trans_a { i * m + row } else { row * k + i }];
                    a * b[if trans_b { col * k + i } else { i * n + col }]
                };
                let sum = order.sum(k, term);
                largest = largest.max(sum.abs());
                if accumulate { sum + before[at] } else { sum }
            })
            .collect();
        match result {
            DType::Bf16 => {
                self.put(c, &product.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>())
            }
            _ => self.put(c, &product),
        }
        self.observed.borrow_mut().push((largest, before));
    }
}

/// Summation order of a matmul.
#[derive(Clone, Copy)]
enum Order {
    /// Sequential.
    Forward,
    /// Groups of four, as in tensor cores.
    Fours,
    /// Both halves separately.
    Halves,
}

impl Order {
    fn sum(self, k: usize, term: impl Fn(usize) -> f32) -> f32 {
        let run = |range: std::ops::Range<usize>| range.map(&term).sum::<f32>();
        match self {
            Order::Forward => run(0..k),
            Order::Fours => (0..k).step_by(4).map(|i| run(i..(i + 4).min(k))).sum(),
            Order::Halves => run(0..k / 2) + run(k / 2..k),
        }
    }
}

/// Returns a matmul of every transposition and accumulation.
fn forms() -> impl Iterator<Item = Gemm> {
    (0..8).map(|form| {
        let [trans_a, trans_b, accumulate] = [1, 2, 4].map(|bit| form & bit != 0);
        Gemm { m: 6, n: 10, k: 33, trans_a, trans_b, accumulate }
    })
}

#[test]
fn other_summation_orders_are_detected() {
    if not_checked_on_gpu() {
        return;
    }
    use Order::*;
    for (inputs, result) in
        [(DType::F32, DType::F32), (DType::Bf16, DType::F32), (DType::Bf16, DType::Bf16)]
    {
        for gemm in forms() {
            for other in [Fours, Halves] {
                let candidates = Candidates::new(inputs, result, gemm);
                // The other algorithms are not bitwise equal, or are refused; only the last one equals the first.
                let chosen = candidates.chosen(&[Some(Forward), Some(other), None], false);
                assert_eq!(chosen, Some(0), "{gemm:?} {inputs} {result}");
                let observed = candidates.observed.borrow();
                // Terms are as large as 2^14; their sums are rounding errors.
                assert!(
                    observed.iter().all(|(largest, _)| (1e-6..0.5).contains(largest)),
                    "{observed:?}"
                );
            }
        }
    }
}

#[test]
fn bitwise_equal_algorithms_run_on_equal_operands() {
    if not_checked_on_gpu() {
        return;
    }
    use Order::*;
    let gemm = Gemm { m: 6, n: 10, k: 33, trans_a: false, trans_b: true, accumulate: true };
    let candidates = Candidates::new(DType::Bf16, DType::F32, gemm);
    let chosen = candidates.chosen(&[None, Some(Forward), Some(Halves), Some(Forward)], false);
    assert!(matches!(chosen, Some(1 | 3)), "{chosen:?}");
    // Each algorithm runs once on the same values before the two permitted ones are timed.
    let (observed, runs) = (candidates.observed.borrow(), candidates.runs.borrow());
    assert!(observed[0].1.iter().all(|x| *x != 0.0 && x.abs() < 0.125));
    assert_eq!(observed[0].1, observed[1].1);
    assert_eq!(observed[0].1, observed[2].1);
    assert_eq!(runs[..3].iter().map(|(algorithm, _)| *algorithm).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(runs[3..].iter().all(|(algorithm, _)| *algorithm != 2));
    // Small operand sets are rotated.
    let addresses: HashSet<_> = runs[3..].iter().map(|(_, address)| address).collect();
    assert_eq!(addresses.len(), 3);
    drop((observed, runs));
    // All memory is freed.
    assert_eq!(candidates.driver.device().live(), (0, 0));
}

/// Rounds of the algorithms alternate, and an algorithm far behind has no second round.
#[test]
fn slower_algorithm_is_not_chosen() {
    if not_checked_on_gpu() {
        return;
    }
    let gemm = Gemm { m: 6, n: 10, k: 33, trans_a: false, trans_b: false, accumulate: false };
    for slow in [0, 1] {
        let candidates =
            Candidates { slow: Some(slow), ..Candidates::new(DType::F32, DType::F32, gemm) };
        let both = [Some(Order::Forward); 2];
        assert_eq!(candidates.chosen(&both, false), Some(1 - slow));
        let runs = candidates.runs.borrow();
        let of_slow = runs.iter().filter(|(algorithm, _)| *algorithm == slow).count();
        // One run for comparison, one to determine the launches per round, and one round: a run takes 3 ms. The first
        // algorithm is timed before it is known to be behind, the second at most one time more.
        assert_eq!(of_slow, 3, "{runs:?}");
        let of_other: Vec<_> = (0..runs.len()).filter(|index| runs[*index].0 != slow).collect();
        let turns = of_other.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert!(turns >= 1, "{runs:?}");
    }
}

#[test]
fn every_algorithm_may_be_refused() {
    if not_checked_on_gpu() {
        return;
    }
    let gemm = Gemm { m: 6, n: 10, k: 33, trans_a: false, trans_b: false, accumulate: false };
    let candidates = Candidates::new(DType::F32, DType::F32, gemm);
    assert_eq!(candidates.chosen(&[None, None], true), None);
}
