//! cuBLASLt descriptors of a matmul.

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard};

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayout_t, cublasStatus_t, cudaDataType_t,
};

use super::layout::{Layout, Product};
use crate::backend::DType;
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::native::api::{CublasLtApi, Status};
use crate::backend::cuda::{DriverError, Ending, MatMul};

/// Calls a library function and adds its name to an error.
macro_rules! call {
    ($api:expr, $function:ident($($arg:expr),* $(,)?)) => {
        $api.check(stringify!($function), ($api.$function)($($arg),*))
    };
}
pub(super) use call;

impl CublasLtApi {
    /// Converts the status of a call: `Refused` if the library does not support the operation or its arguments.
    pub fn check(
        &self,
        call: &'static str,
        status: Status<cublasStatus_t>,
    ) -> Result<(), DriverError> {
        use cublasStatus_t::*;
        if status == CUBLAS_STATUS_SUCCESS {
            return Ok(());
        }
        // SAFETY: returns a static string for any status.
        let reason = unsafe { CStr::from_ptr((self.cublasLtGetStatusString)(status)) };
        let reason = format!("{} ({status})", reason.to_string_lossy());
        let refusals =
            [CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH];
        match refusals.iter().any(|refusal| status == *refusal) {
            true => Err(DriverError::Refused { call, reason }),
            false => Err(DriverError::Call { call, reason }),
        }
    }
}

/// Descriptors of a matmul. Only the addresses of epilogue operands change after creation.
pub struct Descriptors {
    pub(super) api: &'static CublasLtApi,
    pub operation: cublasLtMatmulDesc_t,
    pub left: cublasLtMatrixLayout_t,
    pub right: cublasLtMatrixLayout_t,
    pub result: cublasLtMatrixLayout_t,
    ending: Ending,
    /// True if the result's dtype is narrower than the f32 accumulator.
    pub(super) narrow: bool,
    /// Locked while a matmul relies on the current addresses.
    pointed: Mutex<()>,
}

/// Guard that keeps the addresses of epilogue operands unchanged.
pub type Pointed<'a> = Option<MutexGuard<'a, ()>>;

// SAFETY: after creation, descriptors are only read, except for the addresses behind a lock.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    /// Creates the descriptors of a matmul with exact products and f32 accumulation: f32 inputs are not rounded to
    /// TF32.
    pub fn new(api: &'static CublasLtApi, shape: &MatMul) -> Result<Descriptors, DriverError> {
        let product = Product::of(shape);
        let mut made = Descriptors {
            api,
            operation: std::ptr::null_mut(),
            left: std::ptr::null_mut(),
            right: std::ptr::null_mut(),
            result: std::ptr::null_mut(),
            ending: shape.ending,
            narrow: shape.result != DType::F32,
            pointed: Mutex::default(),
        };
        let (compute, scale) =
            (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F);
        // SAFETY: each call sets the given pointer; `made` destroys them, also if one of the calls fails.
        unsafe {
            call!(api, cublasLtMatmulDescCreate(&mut made.operation, compute, scale))?;
            for (layout, to) in [
                (&product.left, &mut made.left),
                (&product.right, &mut made.right),
                (&product.result, &mut made.result),
            ] {
                let Layout { rows, cols, ld, .. } = *layout;
                call!(
                    api,
                    cublasLtMatrixLayoutCreate(to, data_type(layout.dtype), rows, cols, ld)
                )?;
            }
        }
        use cublasLtMatmulDescAttributes_t::*;
        made.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_left))?;
        made.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_right))?;
        if let Some(epilogue) = epilogue(shape.ending) {
            made.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as i32)?;
        }
        if let Ending::BiasGelu { keeps: true } = shape.ending {
            made.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.result.ld)?;
        }
        Ok(made)
    }

    /// Sets the addresses of the epilogue operands. The library reads them when a matmul is submitted, so the returned
    /// guard must be held until then.
    pub fn point_to(&self, vector: u64, inside: u64) -> Result<Pointed<'_>, DriverError> {
        use cublasLtMatmulDescAttributes_t::*;
        if self.ending == Ending::Plain {
            return Ok(None);
        }
        let pointed = lock(&self.pointed);
        self.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector)?;
        if let Ending::BiasGelu { keeps: true } = self.ending {
            self.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, inside)?;
        }
        Ok(Some(pointed))
    }

    fn set<T: bytemuck::NoUninit>(
        &self,
        attribute: cublasLtMatmulDescAttributes_t,
        value: T,
    ) -> Result<(), DriverError> {
        let (from, bytes) = ((&raw const value).cast(), size_of_val(&value));
        let api = self.api;
        // SAFETY: the library compares the number of bytes with its own, and copies the value.
        unsafe {
            call!(api, cublasLtMatmulDescSetAttribute(self.operation, attribute, from, bytes))
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: not used any more. Errors cannot be handled here.
        unsafe {
            for layout in [self.left, self.right, self.result] {
                if !layout.is_null() {
                    (self.api.cublasLtMatrixLayoutDestroy)(layout);
                }
            }
            if !self.operation.is_null() {
                (self.api.cublasLtMatmulDescDestroy)(self.operation);
            }
        }
    }
}

/// Returns the library's epilogue. Its result is the transpose of ours: its rows are our columns, so it adds one bias
/// element to each row, and reduces the rows of its left input, which is our right one.
fn epilogue(ending: Ending) -> Option<cublasLtEpilogue_t> {
    use cublasLtEpilogue_t::*;
    match ending {
        Ending::Plain => None,
        Ending::Bias => Some(CUBLASLT_EPILOGUE_BIAS),
        Ending::BiasGelu { keeps: false } => Some(CUBLASLT_EPILOGUE_GELU_BIAS),
        Ending::BiasGelu { keeps: true } => Some(CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
        Ending::Sums => Some(CUBLASLT_EPILOGUE_BGRADA),
    }
}

/// Returns `CUBLAS_OP_T` or `CUBLAS_OP_N`, which the bindings lack.
fn operation(transpose: bool) -> i32 {
    if transpose { 1 } else { 0 }
}

/// Returns the library's dtype; the caller has checked that it is not `u32`.
fn data_type(dtype: DType) -> cudaDataType_t {
    match dtype {
        DType::F32 => cudaDataType_t::CUDA_R_32F,
        DType::Bf16 => cudaDataType_t::CUDA_R_16BF,
        DType::U32 => cudaDataType_t::CUDA_R_32U,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Gemm;
    use crate::backend::cuda::native::api::cublaslt;

    /// Needs the library but no device; without the library, checks the error message.
    #[test]
    fn every_form_of_a_product_can_be_described() {
        let api = match cublaslt() {
            Ok(api) => api,
            Err(error) => return assert!(error.to_string().starts_with("cuBLASLt "), "{error}"),
        };
        for (factors, result) in
            [(DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32), (DType::F32, DType::F32)]
        {
            for form in 0..4 {
                let (trans_a, trans_b) = (form & 1 == 1, form & 2 == 2);
                let gemm = Gemm { m: 3, n: 8, k: 1 << 33, trans_a, trans_b, accumulate: true };
                for ending in [
                    Ending::Plain,
                    Ending::Bias,
                    Ending::BiasGelu { keeps: false },
                    Ending::BiasGelu { keeps: true },
                    Ending::Sums,
                ] {
                    let shape = MatMul { gemm, factors, result, ending };
                    let descriptors = Descriptors::new(api, &shape).unwrap();
                    let pointed = descriptors.point_to(256, 512).unwrap();
                    assert_eq!(pointed.is_some(), ending != Ending::Plain);
                }
            }
        }
    }
}
