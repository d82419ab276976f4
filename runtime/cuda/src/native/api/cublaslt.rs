//! Functions of the matmul library, `libcublasLt`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::cublaslt::sys;
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulAlgoConfigAttributes_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
    cublasStatus_t, cudaDataType_t, cudaStream_t,
};

use super::{Status, functions};
use crate::DriverError;
use crate::native::libraries::{Api, Loaded, load_once};
use crate::native::vendor_library::{VendorLibrary, Version};

/// Returns the matmul library, loaded once.
pub fn cublaslt() -> Result<&'static Loaded<CublasLtApi>, DriverError> {
    static CUBLASLT: OnceLock<Result<Loaded<CublasLtApi>, DriverError>> = OnceLock::new();
    load_once(&CUBLASLT)
}

/// `cublasLtMatmulHeuristicResult_t`, with a status that may have any number.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Heuristic {
    /// The algorithm.
    pub algorithm: cublasLtMatmulAlgo_t,
    /// Required workspace, in bytes.
    pub workspace: usize,
    /// Success if the entry is valid.
    pub state: Status<cublasStatus_t>,
    /// Number of waves: how often the matmul fills the device.
    pub waves: f32,
    reserved: [c_int; 4],
}

impl Heuristic {
    /// Returns an empty entry, which the library overwrites.
    pub fn none() -> Heuristic {
        Heuristic {
            algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace: 0,
            state: cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED.into(),
            waves: 0.0,
            reserved: [0; 4],
        }
    }
}

const _: () = {
    use cublasLtMatmulHeuristicResult_t as Theirs;
    use std::mem::offset_of;
    assert!(size_of::<Heuristic>() == size_of::<Theirs>());
    assert!(offset_of!(Heuristic, workspace) == offset_of!(Theirs, workspaceSize));
    assert!(offset_of!(Heuristic, state) == offset_of!(Theirs, state));
    assert!(offset_of!(Heuristic, waves) == offset_of!(Theirs, wavesCount));
};

functions! {
    /// Functions of the matmul library.
    pub struct CublasLtApi in sys {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtGetStatusString(cublasStatus_t as Status<cublasStatus_t>) -> *const c_char;
        fn cublasLtCreate(*mut cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtDestroy(cublasLtHandle_t) -> cublasStatus_t;

        fn cublasLtMatmulDescCreate(
            *mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType_t,
        ) -> cublasStatus_t;
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) -> cublasStatus_t;
        fn cublasLtMatmulDescSetAttribute(
            cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize,
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutCreate(
            *mut cublasLtMatrixLayout_t, cudaDataType_t, u64, u64, i64,
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutSetAttribute(
            cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, *const c_void, usize,
        ) -> cublasStatus_t;
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        ) -> cublasStatus_t;

        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t as *mut Heuristic, *mut c_int,
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoCheck(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t,
            *mut cublasLtMatmulHeuristicResult_t as *mut Heuristic,
        ) -> cublasStatus_t;
        fn cublasLtMatmulAlgoConfigGetAttribute(
            *const cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t, *mut c_void, usize,
            *mut usize,
        ) -> cublasStatus_t;
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void,
            cublasLtMatrixLayout_t, *const c_void, cublasLtMatrixLayout_t, *const c_void,
            *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t,
            *const cublasLtMatmulAlgo_t, *mut c_void, usize, cudaStream_t,
        ) -> cublasStatus_t;
    }
}

impl Api for CublasLtApi {
    const LIBRARY: VendorLibrary = VendorLibrary::CublasLt;

    fn load(library: &libloading::Library) -> Result<Self, &'static str> {
        CublasLtApi::find(library)
    }

    fn version(&self) -> Result<Version, String> {
        // SAFETY: returns an integer.
        Ok(Version::of_decimals(unsafe { (self.cublasLtGetVersion)() } as u64))
    }
}
