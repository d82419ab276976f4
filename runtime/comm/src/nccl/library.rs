//! NCCL itself.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use cudarc::nccl::sys::{
    ncclComm, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};

use crate::ReduceOp;
use meshwright_backend::DType;
use meshwright_cuda::DriverError;
use meshwright_cuda::native::{Loaded, NcclApi, Status, Version, nccl};

use super::api::{
    Comm, CommState, CommStream, Id, Library, LibraryError, Registration, SplitResources, Transfer,
};
use super::config::config;

/// NCCL as installed on this machine.
pub struct RealLibrary {
    api: &'static Loaded<NcclApi>,
}

/// Polls for the end of finalization, and the time between them.
const FINALIZE_POLLS: usize = 5000;
const FINALIZE_PERIOD: Duration = Duration::from_millis(1);
/// A color of ranks that take no part in a split.
const NO_COLOR: c_int = -1;

impl RealLibrary {
    /// Loads the library at the first call.
    ///
    /// # Errors
    /// If it is missing or too old.
    pub fn new() -> Result<RealLibrary, DriverError> {
        Ok(RealLibrary { api: nccl()? })
    }

    /// The version of the library.
    pub fn version(&self) -> Version {
        self.api.version
    }

    /// Returns an error unless the call was successful or is in progress.
    fn check_result(
        &self,
        function: &'static str,
        comm: ncclComm_t,
        result: Status<ncclResult_t>,
    ) -> Result<(), LibraryError> {
        if result == ncclResult_t::ncclSuccess || result == ncclResult_t::ncclInProgress {
            return Ok(());
        }
        // SAFETY: the library returns strings that live as long as the process.
        let text = unsafe { CStr::from_ptr((self.api.ncclGetErrorString)(result)) };
        // SAFETY: the last error of this thread and this communicator, which may be null.
        let last = unsafe { (self.api.ncclGetLastError)(comm) };
        let mut reason = text.to_string_lossy().into_owned();
        if !last.is_null() {
            // SAFETY: a string of the library.
            let last = unsafe { CStr::from_ptr(last) }.to_string_lossy();
            if !last.is_empty() {
                reason += &format!(" ({last})");
            }
        }
        Err(LibraryError { function, reason })
    }
}

impl fmt::Debug for RealLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {}", self.api.version)
    }
}

fn pointer(comm: Comm) -> ncclComm_t {
    comm.0 as ncclComm_t
}

fn nccl_dtype(dtype: DType) -> ncclDataType_t {
    match dtype {
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::Bf16 => ncclDataType_t::ncclBfloat16,
        DType::U32 => ncclDataType_t::ncclUint32,
        DType::F64 => ncclDataType_t::ncclFloat64,
    }
}

fn reduction(op: ReduceOp) -> ncclRedOp_t {
    match op {
        ReduceOp::Sum => ncclRedOp_t::ncclSum,
        ReduceOp::Max => ncclRedOp_t::ncclMax,
    }
}

impl Library for RealLibrary {
    fn new_id(&self) -> Result<Id, LibraryError> {
        // SAFETY: an identifier is bytes.
        let mut id: ncclUniqueId = unsafe { std::mem::zeroed() };
        // SAFETY: it writes the identifier.
        let result = unsafe { (self.api.ncclGetUniqueId)(&mut id) };
        self.check_result("ncclGetUniqueId", ptr::null_mut(), result)?;
        Ok(id.internal.map(|byte| byte as u8))
    }

    fn init_comm(
        &self,
        id: &Id,
        ranks: usize,
        rank: usize,
        splits: SplitResources,
    ) -> Result<Comm, LibraryError> {
        let id = ncclUniqueId { internal: id.map(|byte| byte as _) };
        let (mut comm, mut config) = (ptr::null_mut(), config(splits));
        // SAFETY: the library copies the configuration, and sets the communicator before it returns.
        let result = unsafe {
            (self.api.ncclCommInitRankConfig)(
                &mut comm,
                ranks as c_int,
                id,
                rank as c_int,
                &mut config,
            )
        };
        self.check_result("ncclCommInitRankConfig", comm, result)?;
        Ok(Comm(comm as u64))
    }

    fn split_comm(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        splits: SplitResources,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError> {
        const FUNCTION: &str = "ncclCommSplit";
        let number = color.map_or(NO_COLOR, |color| color as c_int);
        // Written by a thread of the library before the parent is ready again. It is leaked, as the library may still
        // write to it after a timeout.
        let handle: &'static AtomicPtr<ncclComm> =
            Box::leak(Box::new(AtomicPtr::new(ptr::null_mut())));
        let mut config = config(splits);
        // SAFETY: the handle is leaked, and the library copies the configuration.
        let result = unsafe {
            (self.api.ncclCommSplit)(
                pointer(comm),
                number,
                key as c_int,
                handle.as_ptr(),
                &mut config,
            )
        };
        self.check_result(FUNCTION, pointer(comm), result)?;
        while self.comm_state(comm)? == CommState::Busy {
            if !keep_waiting() {
                let reason = "the rendezvous with the other ranks timed out".to_string();
                return Err(LibraryError { function: FUNCTION, reason });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let made = handle.load(Ordering::Acquire);
        Ok((!made.is_null()).then_some(Comm(made as u64)))
    }

    fn comm_state(&self, comm: Comm) -> Result<CommState, LibraryError> {
        const FUNCTION: &str = "ncclCommGetAsyncError";
        let mut state = Status::from(ncclResult_t::ncclSuccess);
        // SAFETY: the communicator is live, as the engine drops the handles of those that it aborts or finalizes.
        let result = unsafe { (self.api.ncclCommGetAsyncError)(pointer(comm), &mut state) };
        self.check_result(FUNCTION, pointer(comm), result)?;
        self.check_result(FUNCTION, pointer(comm), state)?;
        Ok(if state == ncclResult_t::ncclInProgress { CommState::Busy } else { CommState::Ready })
    }

    fn abort_comm(&self, comm: Comm) {
        // SAFETY: as in `comm_state`. A communicator that cannot be aborted is leaked.
        let _ = unsafe { (self.api.ncclCommAbort)(pointer(comm)) };
    }

    fn finalize_comm(&self, comm: Comm) {
        // SAFETY: as in `comm_state`.
        let result = unsafe { (self.api.ncclCommFinalize)(pointer(comm)) };
        let mut finalized = self.check_result("ncclCommFinalize", pointer(comm), result);
        // Finalization needs the other ranks, and does not complete if one has failed.
        for _ in 0..FINALIZE_POLLS {
            match finalized.and_then(|()| self.comm_state(comm)) {
                Ok(CommState::Busy) => std::thread::sleep(FINALIZE_PERIOD),
                Ok(CommState::Ready) => {
                    // SAFETY: as in `comm_state`.
                    let _ = unsafe { (self.api.ncclCommDestroy)(pointer(comm)) };
                    return;
                }
                Err(_) => break,
            }
            finalized = Ok(());
        }
        self.abort_comm(comm);
    }

    unsafe fn register_memory(
        &self,
        comm: Comm,
        address: u64,
        bytes: usize,
    ) -> Result<Option<Registration>, LibraryError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the communicator is live, as in `comm_state`, and the memory lives as the caller guarantees.
        let result = unsafe {
            (self.api.ncclCommRegister)(pointer(comm), address as *mut c_void, bytes, &mut handle)
        };
        self.check_result("ncclCommRegister", pointer(comm), result)?;
        // It returns null if it does not need the registration.
        Ok((!handle.is_null()).then_some(Registration(handle as u64)))
    }

    fn deregister_memory(
        &self,
        comm: Comm,
        registration: Registration,
    ) -> Result<(), LibraryError> {
        let handle = registration.0 as *mut c_void;
        // SAFETY: as above; the handle is one of this communicator, and is deregistered once.
        let result = unsafe { (self.api.ncclCommDeregister)(pointer(comm), handle) };
        self.check_result("ncclCommDeregister", pointer(comm), result)
    }

    fn begin_group(&self) -> Result<(), LibraryError> {
        // SAFETY: it takes no arguments.
        let result = unsafe { (self.api.ncclGroupStart)() };
        self.check_result("ncclGroupStart", ptr::null_mut(), result)
    }

    fn end_group(&self) -> Result<(), LibraryError> {
        // SAFETY: it takes no arguments.
        let result = unsafe { (self.api.ncclGroupEnd)() };
        self.check_result("ncclGroupEnd", ptr::null_mut(), result)
    }

    unsafe fn submit(
        &self,
        stream: CommStream,
        dtype: DType,
        transfer: &Transfer,
    ) -> Result<(), LibraryError> {
        let (api, kind, comm) = (self.api, nccl_dtype(dtype), pointer(stream.comm));
        let stream = stream.stream as _;
        let source = |address: u64| address as *const c_void;
        let target = |address: u64| address as *mut c_void;
        // SAFETY: as the caller guarantees.
        let (function, result) = unsafe {
            match *transfer {
                Transfer::AllReduce { data, count, op } => (
                    "ncclAllReduce",
                    (api.ncclAllReduce)(
                        source(data),
                        target(data),
                        count,
                        kind,
                        reduction(op),
                        comm,
                        stream,
                    ),
                ),
                Transfer::Reduce { src, dst, count, op, root } => (
                    "ncclReduce",
                    (api.ncclReduce)(
                        source(src),
                        target(dst),
                        count,
                        kind,
                        reduction(op),
                        root as c_int,
                        comm,
                        stream,
                    ),
                ),
                Transfer::ReduceScatter { src, dst, count } => (
                    "ncclReduceScatter",
                    (api.ncclReduceScatter)(
                        source(src),
                        target(dst),
                        count,
                        kind,
                        ncclRedOp_t::ncclSum,
                        comm,
                        stream,
                    ),
                ),
                Transfer::AllGather { src, dst, count } => (
                    "ncclAllGather",
                    (api.ncclAllGather)(source(src), target(dst), count, kind, comm, stream),
                ),
                Transfer::Broadcast { src, dst, count, root } => (
                    "ncclBroadcast",
                    (api.ncclBroadcast)(
                        source(src),
                        target(dst),
                        count,
                        kind,
                        root as c_int,
                        comm,
                        stream,
                    ),
                ),
                Transfer::Send { src, count, to } => (
                    "ncclSend",
                    (api.ncclSend)(source(src), count, kind, to as c_int, comm, stream),
                ),
                Transfer::Recv { dst, count, from } => (
                    "ncclRecv",
                    (api.ncclRecv)(target(dst), count, kind, from as c_int, comm, stream),
                ),
            }
        };
        self.check_result(function, comm, result)
    }
}
