//! The library itself.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use cudarc::nccl::sys::{
    ncclComm, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};

use crate::backend::DType;
use crate::backend::cuda::DriverError;
use crate::backend::cuda::native::{Loaded, NcclApi, Status, Version, nccl};
use crate::comm::ReduceOp;

use super::api::{Comm, Id, Library, LibraryError, On, Registration, State, Transfer};
use super::config::config;

/// NCCL, as it was found on this machine.
pub struct RealLibrary {
    api: &'static Loaded<NcclApi>,
}

/// How often, and after what time each, it is looked whether a communicator is finalized.
const FINALIZE_LOOKS: usize = 5000;
const FINALIZE_LOOK: Duration = Duration::from_millis(1);
/// A color of ranks that take no part in a split.
const NO_COLOR: c_int = -1;

impl RealLibrary {
    /// The library, opened when it is first asked for.
    ///
    /// # Errors
    /// Where there is none, or it is too old.
    pub fn new() -> Result<RealLibrary, DriverError> {
        Ok(RealLibrary { api: nccl()? })
    }

    /// What it says it is.
    pub fn version(&self) -> Version {
        self.api.version
    }

    /// An error unless the call was successful, or is under way.
    fn accepted(
        &self,
        function: &'static str,
        comm: ncclComm_t,
        result: Status<ncclResult_t>,
    ) -> Result<(), LibraryError> {
        if result == ncclResult_t::ncclSuccess || result == ncclResult_t::ncclInProgress {
            return Ok(());
        }
        // SAFETY: the library gives strings that live as long as the process.
        let text = unsafe { CStr::from_ptr((self.api.ncclGetErrorString)(result)) };
        // SAFETY: it is asked for the last error of this thread and this communicator, which may be none.
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

fn kind(dtype: DType) -> ncclDataType_t {
    match dtype {
        DType::F32 => ncclDataType_t::ncclFloat32,
        DType::Bf16 => ncclDataType_t::ncclBfloat16,
        DType::U32 => ncclDataType_t::ncclUint32,
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
        self.accepted("ncclGetUniqueId", ptr::null_mut(), result)?;
        Ok(id.internal.map(|byte| byte as u8))
    }

    fn begin(&self, id: &Id, ranks: usize, rank: usize) -> Result<Comm, LibraryError> {
        let id = ncclUniqueId { internal: id.map(|byte| byte as _) };
        let (mut comm, mut config) = (ptr::null_mut(), config());
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
        self.accepted("ncclCommInitRankConfig", comm, result)?;
        Ok(Comm(comm as u64))
    }

    fn split(
        &self,
        comm: Comm,
        color: Option<usize>,
        key: usize,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Comm>, LibraryError> {
        const FUNCTION: &str = "ncclCommSplit";
        let number = color.map_or(NO_COLOR, |color| color as c_int);
        // Written by a thread of the library, at the latest when the parent is ready again. Where that does not come about
        // in time, the place is left to it.
        let place: &'static AtomicPtr<ncclComm> =
            Box::leak(Box::new(AtomicPtr::new(ptr::null_mut())));
        let mut config = config();
        // SAFETY: the place lives on, and the library copies the configuration.
        let result = unsafe {
            (self.api.ncclCommSplit)(
                pointer(comm),
                number,
                key as c_int,
                place.as_ptr(),
                &mut config,
            )
        };
        self.accepted(FUNCTION, pointer(comm), result)?;
        while self.state(comm)? == State::Busy {
            if !keep_waiting() {
                let reason = "the other ranks did not come in time".to_string();
                return Err(LibraryError { function: FUNCTION, reason });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let made = place.load(Ordering::Acquire);
        Ok((!made.is_null()).then_some(Comm(made as u64)))
    }

    fn state(&self, comm: Comm) -> Result<State, LibraryError> {
        const FUNCTION: &str = "ncclCommGetAsyncError";
        let mut state = Status::from(ncclResult_t::ncclSuccess);
        // SAFETY: the communicator was not ended, as the engine forgets those that it ends.
        let result = unsafe { (self.api.ncclCommGetAsyncError)(pointer(comm), &mut state) };
        self.accepted(FUNCTION, pointer(comm), result)?;
        self.accepted(FUNCTION, pointer(comm), state)?;
        Ok(if state == ncclResult_t::ncclInProgress { State::Busy } else { State::Ready })
    }

    fn abort(&self, comm: Comm) {
        // SAFETY: as in `state`. A communicator that cannot be ended is left alone.
        let _ = unsafe { (self.api.ncclCommAbort)(pointer(comm)) };
    }

    fn finish(&self, comm: Comm) {
        // SAFETY: as in `state`.
        let result = unsafe { (self.api.ncclCommFinalize)(pointer(comm)) };
        let mut finalized = self.accepted("ncclCommFinalize", pointer(comm), result);
        // The other ranks finalize it too. One that has failed never does.
        for _ in 0..FINALIZE_LOOKS {
            match finalized.and_then(|()| self.state(comm)) {
                Ok(State::Busy) => std::thread::sleep(FINALIZE_LOOK),
                Ok(State::Ready) => {
                    // SAFETY: as in `state`.
                    let _ = unsafe { (self.api.ncclCommDestroy)(pointer(comm)) };
                    return;
                }
                Err(_) => break,
            }
            finalized = Ok(());
        }
        self.abort(comm);
    }

    unsafe fn register(
        &self,
        comm: Comm,
        address: u64,
        bytes: usize,
    ) -> Result<Option<Registration>, LibraryError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the communicator was not ended, as in `state`, and the memory lives as the caller promises.
        let result = unsafe {
            (self.api.ncclCommRegister)(pointer(comm), address as *mut c_void, bytes, &mut handle)
        };
        self.accepted("ncclCommRegister", pointer(comm), result)?;
        // It gives none where it has no use for one.
        Ok((!handle.is_null()).then_some(Registration(handle as u64)))
    }

    fn deregister(&self, comm: Comm, registration: Registration) -> Result<(), LibraryError> {
        let handle = registration.0 as *mut c_void;
        // SAFETY: as above; the handle came from there, and is given up once.
        let result = unsafe { (self.api.ncclCommDeregister)(pointer(comm), handle) };
        self.accepted("ncclCommDeregister", pointer(comm), result)
    }

    fn begin_group(&self) -> Result<(), LibraryError> {
        // SAFETY: it takes nothing.
        let result = unsafe { (self.api.ncclGroupStart)() };
        self.accepted("ncclGroupStart", ptr::null_mut(), result)
    }

    fn end_group(&self) -> Result<(), LibraryError> {
        // SAFETY: it takes nothing.
        let result = unsafe { (self.api.ncclGroupEnd)() };
        self.accepted("ncclGroupEnd", ptr::null_mut(), result)
    }

    unsafe fn queue(&self, on: On, dtype: DType, transfer: &Transfer) -> Result<(), LibraryError> {
        let (api, kind, comm) = (self.api, kind(dtype), pointer(on.comm));
        let stream = on.stream as _;
        let source = |address: u64| address as *const c_void;
        let target = |address: u64| address as *mut c_void;
        // SAFETY: as the caller promises.
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
        self.accepted(function, comm, result)
    }
}
