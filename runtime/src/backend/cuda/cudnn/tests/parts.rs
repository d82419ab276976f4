//! Tests of limits, engine preference and scratch memory.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::sizes;
use crate::backend::cuda::cudnn::options::CudnnHost;
use crate::backend::cuda::cudnn::options::check_limits;
use crate::backend::cuda::cudnn::plan::preferred_engine;
use crate::backend::cuda::cudnn::workspace::{ScratchLayout, StreamScratch};
use crate::backend::cuda::cudnn::{AttentionPass, AttentionSizes};
use crate::backend::cuda::native::Version;
use crate::backend::cuda::{DriverError, Stream};

const EXACT: AttentionPass = AttentionPass::Backward { deterministic: true };
const ATOMIC: AttentionPass = AttentionPass::Backward { deterministic: false };

#[test]
fn limits_name_the_unsupported_size() {
    let fine = sizes(8, 1024, 12, 4, 64, true);
    assert_eq!(check_limits(&fine, EXACT, (8, 0)), Ok(()));
    let refused = |sizes, pass, capability, why: &str| {
        let error = check_limits(&sizes, pass, capability).expect_err(why);
        assert!(error.contains(why), "{error}");
    };
    refused(fine, EXACT, (7, 5), "needs compute capability 8.0; the device has 7.5");
    refused(AttentionSizes { batch: 0, ..fine }, EXACT, (9, 0), "nothing to do");
    refused(AttentionSizes { seq: 0, ..fine }, EXACT, (9, 0), "nothing to do");
    refused(AttentionSizes { head_dim: 60, ..fine }, EXACT, (9, 0), "multiples of 8 up to 256");
    let wide = AttentionSizes { head_dim: 192, ..fine };
    assert_eq!(check_limits(&wide, EXACT, (9, 0)), Ok(()));
    assert_eq!(check_limits(&wide, AttentionPass::Forward, (8, 0)), Ok(()));
    refused(wide, ATOMIC, (8, 0), "up to 128");
    refused(wide, EXACT, (10, 0), "up to 128");
}

/// The engine is preferred for known versions and architectures only.
#[test]
fn known_engine_is_preferred() {
    assert!(preferred_engine(EXACT, (10, 0), Version::new(9, 19, 0)).is_some());
    for (pass, capability, (major, minor, patch)) in [
        (ATOMIC, (10, 0), (9, 19, 0)),
        (AttentionPass::Forward, (10, 0), (9, 19, 0)),
        (EXACT, (9, 0), (9, 19, 0)),
        (EXACT, (12, 0), (9, 19, 0)),
        (EXACT, (10, 0), (9, 17, 2)),
        (EXACT, (10, 0), (9, 23, 0)),
    ] {
        assert_eq!(preferred_engine(pass, capability, Version::new(major, minor, patch)), None);
    }
}

#[test]
fn scratch_parts_do_not_overlap() {
    let mut layout = ScratchLayout::default();
    assert_eq!(
        [layout.add_part(1), layout.add_part(0), layout.add_part(256), layout.add_part(257)],
        [0, 256, 256, 512]
    );
    assert_eq!(layout.total, 1024);
}

/// Counts live allocations.
#[derive(Debug, Default)]
struct Ledger(Mutex<Vec<(u64, usize)>>);

impl CudnnHost for Ledger {
    fn make_current(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn raw_stream(&self, _: Stream) -> Result<*mut c_void, DriverError> {
        Ok(std::ptr::null_mut())
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(1 << 30)
    }

    fn alloc(&self, _: Stream, bytes: usize) -> Result<u64, DriverError> {
        if bytes > 1 << 30 {
            return Err(DriverError::OutOfMemory { bytes });
        }
        let mut live = self.0.lock().expect("nothing panics");
        let address = live.last().map_or(4096, |(address, bytes)| address + *bytes as u64);
        live.push((address, bytes));
        Ok(address)
    }

    unsafe fn free(&self, _: Stream, address: u64, bytes: usize) -> Result<(), DriverError> {
        let mut live = self.0.lock().expect("nothing panics");
        let index = live.iter().position(|block| *block == (address, bytes));
        live.remove(index.expect("a live block is freed with its size"));
        Ok(())
    }
}

/// Returned addresses stay valid until the end: a CUDA graph may contain them.
#[test]
fn scratch_grows_and_is_freed_at_the_end() {
    let ledger = Arc::new(Ledger::default());
    let live = || ledger.0.lock().expect("nothing panics").len();
    let mut scratch = StreamScratch::new(Arc::clone(&ledger) as Arc<dyn CudnnHost>, Stream(1));
    let first = scratch.ensure_bytes(100);
    assert_eq!((scratch.ensure_bytes(2 << 20), live()), (first.clone(), 1));
    let second = scratch.ensure_bytes((2 << 20) + 1);
    assert_ne!(first, second);
    assert_eq!((scratch.ensure_bytes(5), live()), (second.clone(), 2));
    let too_much = scratch.ensure_bytes(2 << 30);
    assert_eq!(too_much, Err(DriverError::OutOfMemory { bytes: 2 << 30 }));
    assert_eq!((scratch.ensure_bytes(5), live()), (second, 2));
    drop(scratch);
    assert_eq!(live(), 0);
}
