//! Calls on the CPU backend and on simulated devices, and comparison of their results.

use std::sync::Arc;

use half::bf16;
use meshwright::backend::cpu::CpuBackend;
use meshwright::backend::{
    Backend, Buffer, CachingAllocator, Category, DType, Element, View, ViewMut,
};
use meshwright_cuda::{CudaBackend, Driver};
use meshwright_gpu_sim::drivers;

/// Both float dtypes.
pub const FLOATS: [DType; 2] = [DType::F32, DType::Bf16];

/// Guard values before and after every operand, which must not change.
const GUARD: u8 = 0xa5;

/// A backend with its own memory.
pub struct Side {
    backend: Arc<dyn Backend>,
    allocator: Arc<CachingAllocator>,
    /// Elements before every operand: unless a multiple of 16 bytes, operands are not aligned.
    skew: usize,
}

/// Returns the CPU backend.
pub fn host() -> Side {
    let backend = Arc::new(CpuBackend::new(1).expect("one thread starts nothing"));
    Side { backend, allocator: CachingAllocator::new(), skew: 0 }
}

/// Returns devices with different thread orders if simulated, with aligned and unaligned operands.
pub fn devices() -> Vec<Side> {
    [(1, 0), (2, 1), (3, 3)].into_iter().map(|(seed, skew)| device(seed, skew)).collect()
}

/// Returns a simulated device, or the host's GPU if [`drivers`] selects it, with `skew` elements before every operand.
pub fn device(seed: u64, skew: usize) -> Side {
    device_with(drivers(seed, 1).swap_remove(0), skew)
}

/// Returns the device of a driver, with `skew` elements before every operand.
pub fn device_with(driver: Arc<dyn Driver>, skew: usize) -> Side {
    let backend = Arc::new(CudaBackend::new(driver));
    let allocator = CachingAllocator::on(backend.device(), usize::MAX);
    Side { backend, allocator, skew }
}

impl Side {
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns an operand with these values.
    pub fn put<T: Element>(&self, values: &[T]) -> Operand {
        let guard: T = bytemuck::pod_read_unaligned(&[GUARD; 4][..size_of::<T>()]);
        let all = [&vec![guard; self.skew], values, &[guard; 3]].concat();
        let mut buffer = self.allocator.alloc(T::DTYPE, all.len(), Category::Workspace);
        buffer.view_mut().write(&all);
        Operand { buffer, start: self.skew }
    }

    /// Returns numbers rounded to `dtype`.
    pub fn floats(&self, dtype: DType, values: &[f32]) -> Operand {
        match dtype {
            DType::F32 => self.put(values),
            DType::Bf16 => {
                self.put(&values.iter().copied().map(bf16::from_f32).collect::<Vec<_>>())
            }
            DType::U32 => panic!("not a type of numbers"),
        }
    }

    /// Returns an operand to be written, filled with NaN.
    pub fn blank(&self, dtype: DType, len: usize) -> Operand {
        self.floats(dtype, &vec![f32::NAN; len])
    }
}

/// A range of memory between guard values.
pub struct Operand {
    buffer: Buffer,
    start: usize,
}

impl Operand {
    fn len(&self) -> usize {
        self.buffer.len() - self.start - 3
    }

    pub fn view(&self) -> View<'_> {
        self.buffer.view().slice(self.start..self.start + self.len())
    }

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
        values.to_vec()
    }

    /// Returns the values of either float dtype in f32.
    #[track_caller]
    pub fn numbers(&self) -> Vec<f32> {
        match self.buffer.dtype() {
            DType::Bf16 => self.get::<bf16>().into_iter().map(f32::from).collect(),
            _ => self.get(),
        }
    }
}

/// Returns values in [-1, 1), different for every seed.
pub fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns integers below `end`.
pub fn numbers_below(end: u32, len: usize, seed: u64) -> Vec<u32> {
    values(len, seed).into_iter().map(|x| ((x + 1.0) / 2.0 * end as f32) as u32 % end).collect()
}

/// Returns the relative rounding unit of a dtype.
pub fn epsilon(dtype: DType) -> f32 {
    match dtype {
        DType::Bf16 => 1.0 / 128.0,
        _ => f32::EPSILON,
    }
}

/// Runs on the CPU and on every device, and passes the results to `compare`.
pub fn on_both<R>(run: impl Fn(&Side) -> R, compare: impl Fn(&R, &R)) {
    let expected = run(&host());
    for device in devices() {
        compare(&run(&device), &expected);
    }
}

/// Checks that numbers are equal; NaN equals NaN, and both zeros are equal.
#[track_caller]
pub fn assert_same(what: &str, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(same, "{what}[{i}]: {got:?} instead of {expected:?}");
    }
}

/// Checks numbers within `tolerance` times the expected value and `floor`; NaN and infinities must match.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32, floor: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected || got.is_nan() && expected.is_nan();
        // Written so that NaN fails.
        let close = (got - expected).abs() <= tolerance * expected.abs() + floor;
        assert!(same || close, "{what}[{i}]: {got:?} instead of {expected:?}");
    }
}
