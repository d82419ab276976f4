//! Functions of the deep-learning library, `libcudnn`.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudaStream_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
    cudnnBackendDescriptor_t, cudnnBackendDescriptorType_t, cudnnHandle_t, cudnnStatus_t,
};

use super::{Status, functions};
use crate::DriverError;
use crate::native::libraries::{Api, Loaded, load_once};
use crate::native::vendor_library::{VendorLibrary, Version};

/// Returns the deep-learning library, loaded once.
pub fn cudnn() -> Result<&'static Loaded<CudnnApi>, DriverError> {
    static CUDNN: OnceLock<Result<Loaded<CudnnApi>, DriverError>> = OnceLock::new();
    load_once(&CUDNN)
}

functions! {
    /// Functions of the deep-learning library.
    pub struct CudnnApi in sys {
        fn cudnnGetVersion() -> usize;
        fn cudnnGetErrorString(cudnnStatus_t as Status<cudnnStatus_t>) -> *const c_char;
        fn cudnnGetLastErrorString(*mut c_char, usize);
        fn cudnnCreate(*mut cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnDestroy(cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnSetStream(cudnnHandle_t, cudaStream_t) -> cudnnStatus_t;

        fn cudnnBackendCreateDescriptor(
            cudnnBackendDescriptorType_t, *mut cudnnBackendDescriptor_t,
        ) -> cudnnStatus_t;
        fn cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendSetAttribute(
            cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
            i64, *const c_void,
        ) -> cudnnStatus_t;
        fn cudnnBackendGetAttribute(
            cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t,
            i64, *mut i64, *mut c_void,
        ) -> cudnnStatus_t;
        fn cudnnBackendFinalize(cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendExecute(
            cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t,
        ) -> cudnnStatus_t;
    }
}

impl Api for CudnnApi {
    const LIBRARY: VendorLibrary = VendorLibrary::Cudnn;

    fn load(library: &libloading::Library) -> Result<Self, &'static str> {
        CudnnApi::find(library)
    }

    fn version(&self) -> Result<Version, String> {
        // SAFETY: returns an integer.
        Ok(Version::of_decimals(unsafe { (self.cudnnGetVersion)() } as u64))
    }
}
