//! Backends under test, and operands in their memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use half::bf16;
use meshwright_backend::{
    Backend, Buffer, CachingAllocator, Category, DType, Element, View, ViewMut,
};

use crate::compare::{assert_rounded, assert_same};
use crate::values::round;

/// Guard values before and after every operand, which must not change.
const GUARD: u8 = 0xa5;

/// A backend under test with its own memory.
pub struct Target {
    backend: Arc<dyn Backend>,
    allocator: Arc<CachingAllocator>,
    /// Elements before every operand: unless a multiple of 16 bytes, operands are not aligned.
    skew: usize,
    /// Factor of all tolerances.
    tolerance: f64,
    /// Tolerance of log-sum-exps of bf16 attention.
    log_tolerance: f64,
    has_large_cases: bool,
    compares_digest_alone: bool,
    digest: Rc<Cell<u64>>,
}

impl Target {
    /// Creates a target whose operands are aligned, with the tolerances of a CPU.
    pub fn new(backend: Arc<dyn Backend>) -> Target {
        let allocator = CachingAllocator::on(backend.device(), usize::MAX);
        let digest = Rc::new(Cell::new(0));
        Target {
            backend,
            allocator,
            skew: 0,
            tolerance: 1.0,
            log_tolerance: 0.0,
            has_large_cases: false,
            compares_digest_alone: false,
            digest,
        }
    }

    /// Puts `skew` elements before every operand.
    pub fn with_skew(self, skew: usize) -> Target {
        Target { skew, ..self }
    }

    /// Multiplies all tolerances, for devices whose functions are less accurate.
    pub fn with_tolerance(self, tolerance: f64) -> Target {
        Target { tolerance, ..self }
    }

    /// Allows log-sum-exps of bf16 attention this relative error: cuDNN's logarithms are less accurate.
    pub fn with_log_tolerance(self, log_tolerance: f64) -> Target {
        Target { log_tolerance, ..self }
    }

    pub(crate) fn log_tolerance(&self) -> f64 {
        self.log_tolerance
    }

    /// Adds large cases, for several threads, which take too long on a simulated device.
    pub fn with_large_cases(self) -> Target {
        Target { has_large_cases: true, ..self }
    }

    /// Leaves out the formulas that take longest. The caller compares the digest with a target that has compared them.
    pub fn with_digest_alone(self) -> Target {
        Target { compares_digest_alone: true, ..self }
    }

    pub(crate) fn compares_digest_alone(&self) -> bool {
        self.compares_digest_alone
    }

    /// Returns the backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns the usual cases, and the large ones if the target has them.
    pub(crate) fn cases<T: Clone>(&self, usual: &[T], large: &[T]) -> Vec<T> {
        [usual, if self.has_large_cases { large } else { &[] }].concat()
    }

    /// Returns a digest of the results that were read so far; NaN has one digest, and so have both zeros.
    pub fn digest(&self) -> u64 {
        self.digest.get()
    }

    /// Adds a result that is no operand to the digest.
    pub(crate) fn note(&self, result: f64) {
        add_to_digest(&self.digest, result.to_bits());
    }

    /// Returns an operand with these values.
    pub fn put<T: Element>(&self, values: &[T]) -> Operand {
        let guard: T = bytemuck::pod_read_unaligned(&[GUARD; 4][..size_of::<T>()]);
        let all = [&vec![guard; self.skew], values, &[guard; 3]].concat();
        let mut buffer = self.allocator.alloc(T::DTYPE, all.len(), Category::Workspace);
        buffer.view_mut().write(&all);
        Operand { buffer, start: self.skew, digest: Rc::clone(&self.digest) }
    }

    /// Returns numbers rounded to `dtype`.
    pub fn floats(&self, dtype: DType, values: &[f32]) -> Operand {
        match dtype {
            DType::F32 => self.put(values),
            DType::Bf16 => {
                self.put(&values.iter().copied().map(bf16::from_f32).collect::<Vec<_>>())
            }
            DType::U32 | DType::F64 => panic!("not a type of kernels"),
        }
    }

    /// Returns an operand to be written, filled with NaN.
    pub fn blank(&self, dtype: DType, len: usize) -> Operand {
        self.floats(dtype, &vec![f32::NAN; len])
    }

    /// Checks a result that was computed in f32, within `tolerance` times its largest number, and rounded once.
    #[track_caller]
    pub(crate) fn check(&self, what: &str, got: &Operand, expected: &[f64], tolerance: f64) {
        let (dtype, tolerance) = (got.dtype(), tolerance * self.tolerance);
        assert_rounded(&format!("{what}, {dtype}"), dtype, &got.numbers(), expected, tolerance);
    }

    /// Checks a result whose bits follow from its definition, before it is rounded.
    #[track_caller]
    pub(crate) fn check_exactly(&self, what: &str, got: &Operand, expected: &[f32]) {
        let dtype = got.dtype();
        let expected: Vec<f32> = expected.iter().map(|x| round(dtype, *x)).collect();
        assert_same(&format!("{what}, {dtype}"), &got.numbers(), &expected);
    }
}

/// A range of memory between guard values.
pub struct Operand {
    buffer: Buffer,
    start: usize,
    /// Digest of the target.
    digest: Rc<Cell<u64>>,
}

impl Operand {
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.start - 3
    }

    pub(crate) fn dtype(&self) -> DType {
        self.buffer.dtype()
    }

    /// Returns the memory for reading.
    pub fn view(&self) -> View<'_> {
        self.buffer.view().slice(self.start..self.start + self.len())
    }

    /// Returns the memory for writing.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        let range = self.start..self.start + self.len();
        self.buffer.view_mut().into_slice(range)
    }

    /// Returns the values; checks the guard values.
    #[track_caller]
    pub fn get<T: Element>(&self) -> Vec<T> {
        let all: Vec<T> = self.buffer.view().to_vec();
        let (before, rest) = all.split_at(self.start);
        let (values, after) = rest.split_at(self.len());
        for guards in [before, after] {
            let bytes: &[u8] = bytemuck::cast_slice(guards);
            assert!(bytes.iter().all(|byte| *byte == GUARD), "memory next to the operand changed");
        }
        if T::DTYPE == DType::U32 {
            let numbers: &[u32] = bytemuck::cast_slice(values);
            numbers.iter().for_each(|number| add_to_digest(&self.digest, (*number).into()));
        }
        values.to_vec()
    }

    /// Returns the values of either float dtype in f32.
    #[track_caller]
    pub fn numbers(&self) -> Vec<f32> {
        let numbers = match self.dtype() {
            DType::Bf16 => self.get::<bf16>().into_iter().map(f32::from).collect(),
            _ => self.get(),
        };
        for number in &numbers {
            let number = if number.is_nan() { f32::NAN } else { number + 0.0 };
            add_to_digest(&self.digest, number.to_bits().into());
        }
        numbers
    }

    /// Returns the values of either float dtype in f64.
    #[track_caller]
    pub(crate) fn wide(&self) -> Vec<f64> {
        crate::values::wide(&self.numbers())
    }
}

fn add_to_digest(digest: &Cell<u64>, bits: u64) {
    let mixed = digest.get().rotate_left(5) ^ bits;
    digest.set(mixed.wrapping_mul(0x517c_c1b7_2722_0a95));
}
