//! The autotuning cache: chosen algorithms in files beside the compiled kernels, from which later processes start.

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;

use super::candidates::Alignment;
use crate::backend::cuda::native::Version;
use crate::backend::cuda::native::cache::{Cache, Key};
use crate::backend::cuda::{MatMul, Properties};

/// Autotuned algorithms of one GPU model and library version.
pub struct Kept {
    cache: Cache,
    /// Everything that all choices depend on.
    common: String,
}

impl Kept {
    /// Creates the cache; choices with and without `allow_nondeterministic` are separate.
    pub fn new(
        properties: &Properties,
        version: Version,
        any_bits: bool,
        workspace: usize,
    ) -> Kept {
        let Properties { name, capability: (major, minor), multiprocessors, .. } = properties;
        let common = format!(
            "{name}, {major}.{minor}, {multiprocessors} multiprocessors; cuBLASLt {version}; any bits: {any_bits}; \
             {workspace} bytes of workspace"
        );
        Kept { cache: Cache::from_environment(), common }
    }

    /// Returns the algorithm chosen for matmuls of a shape.
    pub fn get(&self, shape: &MatMul, alignment: Alignment) -> Option<cublasLtMatmulAlgo_t> {
        decoded(&self.cache.get(&self.key(shape, alignment))?)
    }

    /// Stores a choice unless another process was first; returns the stored one.
    pub fn put(
        &self,
        shape: &MatMul,
        alignment: Alignment,
        algorithm: cublasLtMatmulAlgo_t,
    ) -> cublasLtMatmulAlgo_t {
        let bytes = algorithm.data.map(u64::to_le_bytes);
        let kept = self.cache.put_first(&self.key(shape, alignment), bytes.as_flattened());
        decoded(&kept).unwrap_or(algorithm)
    }

    fn key(&self, shape: &MatMul, alignment: Alignment) -> Key {
        let name = format!("matmul-{}x{}x{}", shape.gemm.m, shape.gemm.n, shape.gemm.k);
        let parts = [self.common.as_str(), &format!("{shape:?}"), &format!("{alignment:?}")];
        Key::of_parts(&name, "algorithm", &parts)
    }
}

/// Decodes an algorithm, which is valid for the library version that created it.
fn decoded(bytes: &[u8]) -> Option<cublasLtMatmulAlgo_t> {
    let mut data = [0; 8];
    if bytes.len() != size_of_val(&data) {
        return None;
    }
    for (number, bytes) in data.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(cublasLtMatmulAlgo_t { data })
}
