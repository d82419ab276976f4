//! The autotuning cache: chosen algorithms in files next to the compiled kernels, from which later processes start.

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;

use super::candidates::OperandAlignment;
use crate::native::Version;
use crate::native::disk_cache::{CacheKey, DiskCache};
use crate::{DeviceProperties, MatMul};

/// Autotuned algorithms of one GPU model and library version.
pub struct AutotuneCache {
    cache: DiskCache,
    /// Everything that all choices depend on.
    common: String,
}

impl AutotuneCache {
    /// Creates the cache; choices with and without `allow_nondeterministic` are separate.
    pub fn new(
        properties: &DeviceProperties,
        version: Version,
        allow_nondeterministic: bool,
        workspace: usize,
    ) -> AutotuneCache {
        let DeviceProperties { name, capability: (major, minor), multiprocessors, .. } = properties;
        let common = format!(
            "{name}, {major}.{minor}, {multiprocessors} multiprocessors; cuBLASLt {version}; nondeterministic: \
             {allow_nondeterministic}; {workspace} bytes of workspace"
        );
        AutotuneCache { cache: DiskCache::from_environment(), common }
    }

    /// Returns the algorithm chosen for matmuls of a shape.
    pub fn get(&self, shape: &MatMul, alignment: OperandAlignment) -> Option<cublasLtMatmulAlgo_t> {
        decode_algorithm(&self.cache.get(&self.cache_key(shape, alignment))?)
    }

    /// Stores a choice unless another process was first; returns the stored one.
    pub fn put_algorithm(
        &self,
        shape: &MatMul,
        alignment: OperandAlignment,
        algorithm: cublasLtMatmulAlgo_t,
    ) -> cublasLtMatmulAlgo_t {
        let bytes = algorithm.data.map(u64::to_le_bytes);
        let cached = self.cache.put_first(&self.cache_key(shape, alignment), bytes.as_flattened());
        decode_algorithm(&cached).unwrap_or(algorithm)
    }

    fn cache_key(&self, shape: &MatMul, alignment: OperandAlignment) -> CacheKey {
        let name = format!("matmul-{}x{}x{}", shape.gemm.m, shape.gemm.n, shape.gemm.k);
        let parts = [self.common.as_str(), &format!("{shape:?}"), &format!("{alignment:?}")];
        CacheKey::of_parts(&name, "algorithm", &parts)
    }
}

/// Decodes an algorithm, which is valid for the library version that created it.
fn decode_algorithm(bytes: &[u8]) -> Option<cublasLtMatmulAlgo_t> {
    let mut data = [0; 8];
    if bytes.len() != size_of_val(&data) {
        return None;
    }
    for (number, bytes) in data.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(cublasLtMatmulAlgo_t { data })
}
