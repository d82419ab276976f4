//! cuBLASLt descriptors of a matmul.

use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard};

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, cublasStatus_t, cudaDataType_t,
};

use super::layout::{ColumnMajorMatMul, MatrixLayout};
use crate::gpu::lock_unpoisoned;
use crate::native::api::{CublasLtApi, Status};
use crate::{DriverError, MatMul, MatMulEpilogue};
use meshwright_backend::DType;

/// Calls a library function and adds its name to an error.
macro_rules! call {
    ($api:expr, $function:ident($($arg:expr),* $(,)?)) => {
        $api.check_status(stringify!($function), ($api.$function)($($arg),*))
    };
}
pub(super) use call;

impl CublasLtApi {
    /// Converts the status of a call: `Refused` if the library does not support the operation or its arguments.
    pub fn check_status(
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
        if refusals.iter().any(|refusal| status == *refusal) {
            Err(DriverError::Refused { call, reason })
        } else {
            Err(DriverError::Call { call, reason })
        }
    }
}

/// Descriptors of a matmul. Only the addresses of epilogue operands change after creation.
pub struct MatMulDescriptors {
    pub(super) api: &'static CublasLtApi,
    pub operation: cublasLtMatmulDesc_t,
    pub left: cublasLtMatrixLayout_t,
    pub right: cublasLtMatrixLayout_t,
    pub result: cublasLtMatrixLayout_t,
    epilogue: MatMulEpilogue,
    /// True if the result's dtype is narrower than the f32 accumulator.
    pub(super) has_narrow_result: bool,
    /// Locked while a matmul relies on the current addresses.
    pointers: Mutex<()>,
}

/// Guard that keeps the addresses of epilogue operands unchanged.
pub type EpilogueGuard<'a> = Option<MutexGuard<'a, ()>>;

// SAFETY: after creation, descriptors are only read, except for the addresses behind a lock.
unsafe impl Send for MatMulDescriptors {}
// SAFETY: as above.
unsafe impl Sync for MatMulDescriptors {}

impl MatMulDescriptors {
    /// Creates the descriptors of a matmul with exact products and f32 accumulation: f32 inputs are not rounded to
    /// TF32.
    pub fn new(
        api: &'static CublasLtApi,
        shape: &MatMul,
    ) -> Result<MatMulDescriptors, DriverError> {
        let matmul = ColumnMajorMatMul::from_shape(shape);
        let mut make_plan = MatMulDescriptors {
            api,
            operation: std::ptr::null_mut(),
            left: std::ptr::null_mut(),
            right: std::ptr::null_mut(),
            result: std::ptr::null_mut(),
            epilogue: shape.epilogue,
            has_narrow_result: shape.result != DType::F32,
            pointers: Mutex::default(),
        };
        let (compute, scale) =
            (cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType_t::CUDA_R_32F);
        use cublasLtMatrixLayoutAttribute_t::*;
        // SAFETY: each call sets the given pointer; `make_plan` destroys them, also if one of the calls fails.
        unsafe {
            call!(api, cublasLtMatmulDescCreate(&mut make_plan.operation, compute, scale))?;
            for (layout, to) in [
                (&matmul.left, &mut make_plan.left),
                (&matmul.right, &mut make_plan.right),
                (&matmul.result, &mut make_plan.result),
            ] {
                let MatrixLayout { rows, cols, ld, stride, .. } = *layout;
                call!(
                    api,
                    cublasLtMatrixLayoutCreate(to, data_type(layout.dtype), rows, cols, ld)
                )?;
                if shape.batch.is_some() {
                    set_layout(api, *to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, matmul.count)?;
                    set_layout(api, *to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride)?;
                }
            }
        }
        use cublasLtMatmulDescAttributes_t::*;
        make_plan.set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_op(matmul.transpose_left))?;
        make_plan.set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_op(matmul.transpose_right))?;
        if let Some(epilogue) = library_epilogue(shape.epilogue) {
            make_plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as i32)?;
        }
        if let MatMulEpilogue::BiasGelu { aux: true } = shape.epilogue {
            make_plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, matmul.result.ld)?;
        }
        Ok(make_plan)
    }

    /// Sets the addresses of the epilogue operands. The library reads them when a matmul is submitted, so the returned
    /// guard must be held until then.
    pub fn set_epilogue_pointers(
        &self,
        bias: u64,
        aux: u64,
    ) -> Result<EpilogueGuard<'_>, DriverError> {
        use cublasLtMatmulDescAttributes_t::*;
        if self.epilogue == MatMulEpilogue::Plain {
            return Ok(None);
        }
        let pointers = lock_unpoisoned(&self.pointers);
        self.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        if let MatMulEpilogue::BiasGelu { aux: true } = self.epilogue {
            self.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux)?;
        }
        Ok(Some(pointers))
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

impl Drop for MatMulDescriptors {
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

/// Sets an attribute of a layout that was created.
fn set_layout<T: bytemuck::NoUninit>(
    api: &'static CublasLtApi,
    layout: cublasLtMatrixLayout_t,
    attribute: cublasLtMatrixLayoutAttribute_t,
    value: T,
) -> Result<(), DriverError> {
    let (from, bytes) = ((&raw const value).cast(), size_of_val(&value));
    // SAFETY: the library compares the number of bytes with its own, and copies the value.
    unsafe { call!(api, cublasLtMatrixLayoutSetAttribute(layout, attribute, from, bytes)) }
}

/// Returns the library's epilogue. Its result is the transpose of ours: its rows are our columns, so it adds one bias
/// element to each row.
fn library_epilogue(epilogue: MatMulEpilogue) -> Option<cublasLtEpilogue_t> {
    use cublasLtEpilogue_t::*;
    match epilogue {
        MatMulEpilogue::Plain => None,
        MatMulEpilogue::Bias => Some(CUBLASLT_EPILOGUE_BIAS),
        MatMulEpilogue::BiasGelu { aux: false } => Some(CUBLASLT_EPILOGUE_GELU_BIAS),
        MatMulEpilogue::BiasGelu { aux: true } => Some(CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
    }
}

/// Returns `CUBLAS_OP_T` or `CUBLAS_OP_N`, which the bindings lack.
fn transpose_op(transpose: bool) -> i32 {
    if transpose { 1 } else { 0 }
}

/// Returns the library's dtype; the caller has checked that it is not `u32`.
fn data_type(dtype: DType) -> cudaDataType_t {
    match dtype {
        DType::F32 => cudaDataType_t::CUDA_R_32F,
        DType::Bf16 => cudaDataType_t::CUDA_R_16BF,
        DType::U32 => cudaDataType_t::CUDA_R_32U,
        DType::F64 => cudaDataType_t::CUDA_R_64F,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::api::cublaslt;
    use meshwright_backend::Gemm;

    /// Needs the library but no device; without the library, checks the error message.
    #[test]
    fn every_matmul_can_be_described() {
        let api = match cublaslt() {
            Ok(api) => api,
            Err(error) => return assert!(error.to_string().starts_with("cuBLASLt "), "{error}"),
        };
        for (inputs, result) in
            [(DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32), (DType::F32, DType::F32)]
        {
            for form in 0..4 {
                let (trans_a, trans_b) = (form & 1 == 1, form & 2 == 2);
                let gemm = Gemm { m: 3, n: 8, k: 1 << 33, trans_a, trans_b, accumulate: true };
                for epilogue in [
                    MatMulEpilogue::Plain,
                    MatMulEpilogue::Bias,
                    MatMulEpilogue::BiasGelu { aux: false },
                    MatMulEpilogue::BiasGelu { aux: true },
                ] {
                    let shape =
                        MatMul { gemm, inputs, result, epilogue, is_grouped: false, batch: None };
                    let descriptors = MatMulDescriptors::new(api, &shape).unwrap();
                    let pointers = descriptors.set_epilogue_pointers(256, 512).unwrap();
                    assert_eq!(pointers.is_some(), epilogue != MatMulEpilogue::Plain);
                }
            }
        }
    }
}
