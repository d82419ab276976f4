//! Functions of the collectives library, `libnccl`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::nccl::sys;
use cudarc::nccl::sys::{
    cudaStream_t, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};

use super::{Status, functions};
use crate::DriverError;
use crate::native::libraries::{Api, Loaded, load_once};
use crate::native::vendor_library::{VendorLibrary, Version};

/// Returns the collectives library, loaded once.
pub fn nccl() -> Result<&'static Loaded<NcclApi>, DriverError> {
    static NCCL: OnceLock<Result<Loaded<NcclApi>, DriverError>> = OnceLock::new();
    load_once(&NCCL)
}

functions! {
    /// Functions of the collectives library that every version since 2.27 has.
    pub struct NcclApi in sys {
        fn ncclGetVersion(*mut c_int) -> ncclResult_t;
        fn ncclGetErrorString(ncclResult_t as Status<ncclResult_t>) -> *const c_char;
        fn ncclGetLastError(ncclComm_t) -> *const c_char;

        fn ncclGetUniqueId(*mut ncclUniqueId) -> ncclResult_t;
        fn ncclCommInitRankConfig(
            *mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t,
        ) -> ncclResult_t;
        fn ncclCommSplit(
            ncclComm_t, c_int, c_int, *mut ncclComm_t, *mut ncclConfig_t,
        ) -> ncclResult_t;
        fn ncclCommGetAsyncError(
            ncclComm_t, *mut ncclResult_t as *mut Status<ncclResult_t>,
        ) -> ncclResult_t;
        fn ncclCommFinalize(ncclComm_t) -> ncclResult_t;
        fn ncclCommDestroy(ncclComm_t) -> ncclResult_t;
        fn ncclCommAbort(ncclComm_t) -> ncclResult_t;
        fn ncclCommRegister(ncclComm_t, *mut c_void, usize, *mut *mut c_void) -> ncclResult_t;
        fn ncclCommDeregister(ncclComm_t, *mut c_void) -> ncclResult_t;
        fn ncclCommCount(ncclComm_t, *mut c_int) -> ncclResult_t;
        fn ncclCommUserRank(ncclComm_t, *mut c_int) -> ncclResult_t;

        fn ncclGroupStart() -> ncclResult_t;
        fn ncclGroupEnd() -> ncclResult_t;
        fn ncclAllReduce(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t,
            cudaStream_t,
        ) -> ncclResult_t;
        fn ncclReduce(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, c_int, ncclComm_t,
            cudaStream_t,
        ) -> ncclResult_t;
        fn ncclReduceScatter(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclRedOp_t, ncclComm_t,
            cudaStream_t,
        ) -> ncclResult_t;
        fn ncclAllGather(
            *const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, cudaStream_t,
        ) -> ncclResult_t;
        fn ncclBroadcast(
            *const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t,
        ) -> ncclResult_t;
        fn ncclSend(
            *const c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t,
        ) -> ncclResult_t;
        fn ncclRecv(
            *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t,
        ) -> ncclResult_t;
    }
}

impl Api for NcclApi {
    const LIBRARY: VendorLibrary = VendorLibrary::Nccl;

    fn load(library: &libloading::Library) -> Result<Self, &'static str> {
        NcclApi::find(library)
    }

    fn version(&self) -> Result<Version, String> {
        let mut version = 0;
        // SAFETY: writes an integer.
        let status = unsafe { (self.ncclGetVersion)(&mut version) };
        if status != ncclResult_t::ncclSuccess {
            return Err(format!("ncclGetVersion gives {status}"));
        }
        Ok(Version::of_decimals(version as u64))
    }
}
