//! The calls of the MPI library. No other file calls it.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

use mpi_sys as ffi;

/// The initialized library.
pub struct MpiLibrary {
    /// The largest tag of a message.
    pub largest_tag: c_int,
    /// Threads do not share it.
    not_shared: PhantomData<*const ()>,
}

// SAFETY: the library is initialized for calls by any thread, one at a time. All calls need a reference to this value,
// which is not `Sync`.
unsafe impl Send for MpiLibrary {}

/// A communicator.
#[derive(Clone, Copy)]
pub struct MpiComm(ffi::MPI_Comm);

// SAFETY: a handle, which only calls of the library use.
unsafe impl Send for MpiComm {}

/// A message in progress, or none any more.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct MpiRequest(ffi::MPI_Request);

// SAFETY: a handle, which only calls of the library use.
unsafe impl Send for MpiRequest {}

/// A message that has arrived and is taken out of the order of arrival, but not received yet.
pub struct ArrivedMessage(ffi::MPI_Message);

/// Tag and length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageArrival {
    pub tag: c_int,
    pub bytes: usize,
}

/// A completed request.
pub struct CompletedRequest {
    /// Index among the tested requests.
    pub index: usize,
    pub outcome: Result<(), String>,
}

/// A text of the library for an error.
pub type MpiResult<T> = Result<T, String>;

impl MpiLibrary {
    /// Initializes the library for calls by any thread, one at a time.
    pub fn initialize() -> MpiResult<MpiLibrary> {
        let (mut is_initialized, mut provided) = (0, 0);
        // SAFETY: may be called at any time, by any thread.
        unsafe { ffi::MPI_Initialized(&raw mut is_initialized) };
        if is_initialized != 0 {
            return Err("another library of this process, or an earlier run of it, has initialized MPI; train one run \
                        in a process, without libraries that use MPI"
                .into());
        }
        // SAFETY: it is not initialized; the arguments of the program are optional.
        let code = unsafe {
            ffi::MPI_Init_thread(
                ptr::null_mut(),
                ptr::null_mut(),
                ffi::RSMPI_THREAD_SERIALIZED,
                &raw mut provided,
            )
        };
        check(code)?;
        // SAFETY: a constant.
        if provided < unsafe { ffi::RSMPI_THREAD_SERIALIZED } {
            return Err("the MPI library does not allow calls by several threads of a process, one at a time \
                        (MPI_THREAD_SERIALIZED); use one that is built with support for threads"
                .into());
        }
        let mut library = MpiLibrary { largest_tag: 0, not_shared: PhantomData };
        library.return_errors(library.world())?;
        library.largest_tag = library.read_largest_tag()?;
        Ok(library)
    }

    /// Ends the use of the library, after all ranks have finished their messages.
    pub fn finalize(self) {
        // SAFETY: on the thread that has initialized it; no request is left.
        unsafe { ffi::MPI_Finalize() };
    }

    /// The communicator of all processes that the launcher of MPI has started.
    pub fn world(&self) -> MpiComm {
        // SAFETY: a constant.
        MpiComm(unsafe { ffi::RSMPI_COMM_WORLD })
    }

    /// Number of members.
    pub fn size(&self, comm: MpiComm) -> MpiResult<usize> {
        let mut size = 0;
        // SAFETY: the communicator exists.
        check(unsafe { ffi::MPI_Comm_size(comm.0, &raw mut size) })?;
        Ok(size as usize)
    }

    /// Index of this process among the members.
    pub fn rank(&self, comm: MpiComm) -> MpiResult<usize> {
        let mut rank = 0;
        // SAFETY: the communicator exists.
        check(unsafe { ffi::MPI_Comm_rank(comm.0, &raw mut rank) })?;
        Ok(rank as usize)
    }

    /// Splits `comm` into communicators of the members with the same `color`, in the order of their `key`. All members
    /// call it.
    pub fn split(&self, comm: MpiComm, color: usize, key: usize) -> MpiResult<MpiComm> {
        let mut part = comm.0;
        // SAFETY: the communicator exists.
        check(unsafe { ffi::MPI_Comm_split(comm.0, color as c_int, key as c_int, &raw mut part) })?;
        self.return_errors(MpiComm(part))
    }

    /// Creates another communicator of the same members. All of them call it.
    pub fn duplicate(&self, comm: MpiComm) -> MpiResult<MpiComm> {
        let mut copy = comm.0;
        // SAFETY: the communicator exists.
        check(unsafe { ffi::MPI_Comm_dup(comm.0, &raw mut copy) })?;
        self.return_errors(MpiComm(copy))
    }

    /// Makes the calls on `comm` return errors. By default they end all processes.
    fn return_errors(&self, comm: MpiComm) -> MpiResult<MpiComm> {
        // SAFETY: the communicator exists, and the handler is a constant.
        check(unsafe { ffi::MPI_Comm_set_errhandler(comm.0, ffi::RSMPI_ERRORS_RETURN) })?;
        Ok(comm)
    }

    fn read_largest_tag(&self) -> MpiResult<c_int> {
        let (mut largest, mut is_set) = (ptr::null::<c_int>(), 0);
        let out = (&raw mut largest).cast::<c_void>();
        // SAFETY: the attribute is a pointer to an integer, which lives as long as the communicator.
        let code = unsafe {
            ffi::MPI_Comm_get_attr(self.world().0, ffi::MPI_TAG_UB as c_int, out, &raw mut is_set)
        };
        check(code)?;
        if is_set == 0 || largest.is_null() {
            // The least that every library has.
            return Ok(32_767);
        }
        // SAFETY: as above.
        Ok(unsafe { *largest })
    }

    /// Starts to send `bytes` bytes at `data`.
    ///
    /// # Safety
    /// The memory must live, and not change, until the request is complete.
    pub unsafe fn send(
        &self,
        (comm, to, tag): (MpiComm, usize, c_int),
        data: *const u8,
        bytes: usize,
    ) -> MpiResult<MpiRequest> {
        let mut request = MpiRequest::none();
        // SAFETY: as the caller guarantees.
        check(unsafe {
            ffi::MPI_Isend(
                address_of(data, bytes).cast(),
                bytes as c_int,
                ffi::RSMPI_UINT8_T,
                to as c_int,
                tag,
                comm.0,
                &raw mut request.0,
            )
        })?;
        Ok(request)
    }

    /// Takes the next message of a member, if it has arrived.
    pub fn probe(
        &self,
        comm: MpiComm,
        from: usize,
    ) -> MpiResult<Option<(ArrivedMessage, MessageArrival)>> {
        // SAFETY: a status is plain data.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        let mut has_arrived = 0;
        // SAFETY: constants, and places for the results.
        let (code, message) = unsafe {
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let code = ffi::MPI_Improbe(
                from as c_int,
                ffi::RSMPI_ANY_TAG,
                comm.0,
                &raw mut has_arrived,
                &raw mut message,
                &raw mut status,
            );
            (code, message)
        };
        check(code)?;
        Ok((has_arrived != 0).then(|| (ArrivedMessage(message), arrival(&status))))
    }

    /// Starts to receive a message that has arrived, of `bytes` bytes, into `data`.
    ///
    /// # Safety
    /// The memory must live, and not be used otherwise, until the request is complete. It must have the length of the
    /// message: a library may write all of a message that is longer than `bytes`.
    pub unsafe fn receive_arrived(
        &self,
        mut message: ArrivedMessage,
        data: *mut u8,
        bytes: usize,
    ) -> MpiResult<MpiRequest> {
        let mut request = MpiRequest::none();
        // SAFETY: as the caller guarantees.
        check(unsafe {
            ffi::MPI_Imrecv(
                address_of(data, bytes).cast_mut().cast(),
                bytes as c_int,
                ffi::RSMPI_UINT8_T,
                &raw mut message.0,
                &raw mut request.0,
            )
        })?;
        Ok(request)
    }

    /// Starts a barrier.
    pub fn barrier(&self, comm: MpiComm) -> MpiResult<MpiRequest> {
        let mut request = MpiRequest::none();
        // SAFETY: the communicator exists.
        check(unsafe { ffi::MPI_Ibarrier(comm.0, &raw mut request.0) })?;
        Ok(request)
    }

    /// Returns the requests that are complete now, and sets them to [none](MpiRequest::none).
    pub fn test(&self, requests: &mut [MpiRequest]) -> MpiResult<Vec<CompletedRequest>> {
        let mut indices = vec![0; requests.len()];
        // SAFETY: a status is plain data.
        let mut statuses: Vec<ffi::MPI_Status> =
            vec![unsafe { std::mem::zeroed() }; requests.len()];
        let mut count = 0;
        // SAFETY: the arrays have the given length, and a `MpiRequest` has the layout of that of the library.
        let code = unsafe {
            ffi::MPI_Testsome(
                requests.len() as c_int,
                requests.as_mut_ptr().cast(),
                &raw mut count,
                indices.as_mut_ptr(),
                statuses.as_mut_ptr(),
            )
        };
        let has_failures = code == ffi::MPI_ERR_IN_STATUS as c_int;
        if !has_failures {
            check(code)?;
        }
        // SAFETY: a constant.
        let count = if count == unsafe { ffi::RSMPI_UNDEFINED } { 0 } else { count as usize };
        let completed = indices.iter().zip(&statuses).take(count).map(|(index, status)| {
            let error = if has_failures { status.MPI_ERROR } else { ffi::MPI_SUCCESS as c_int };
            CompletedRequest { index: *index as usize, outcome: check(error) }
        });
        Ok(completed.collect())
    }
}

impl MpiRequest {
    /// No message.
    pub fn none() -> MpiRequest {
        // SAFETY: a constant.
        MpiRequest(unsafe { ffi::RSMPI_REQUEST_NULL })
    }
}

fn arrival(status: &ffi::MPI_Status) -> MessageArrival {
    let mut bytes = 0;
    // SAFETY: the status is one of a completed or an arrived message.
    unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &raw mut bytes) };
    MessageArrival { tag: status.MPI_TAG, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
}

/// Returns the address of `bytes` bytes. Empty memory may have one that the library takes for a constant, such as
/// `MPI_IN_PLACE`, so it gets another one.
fn address_of(data: *const u8, bytes: usize) -> *const u8 {
    static EMPTY: [u64; 1] = [0];
    if bytes == 0 { EMPTY.as_ptr().cast() } else { data }
}

/// Turns the code of an error into its text.
fn check(code: c_int) -> MpiResult<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0 as c_char; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the text has the largest length that the library writes.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &raw mut len) };
    let bytes: Vec<u8> = text.iter().take(len.max(0) as usize).map(|byte| *byte as u8).collect();
    Err(format!("MPI reports: {}", String::from_utf8_lossy(&bytes).trim()))
}
