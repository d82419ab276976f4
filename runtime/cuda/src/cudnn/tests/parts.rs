//! Tests of limits, engine preference and scratch memory.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use super::sizes;
use crate::cudnn::limits::check_limits;
use crate::cudnn::options::CudnnHost;
use crate::cudnn::plan::preferred_engine;
use crate::cudnn::workspace::{ScratchLayout, StreamScratch};
use crate::cudnn::{AttentionPass, BandMask, CudnnAttentionSizes};
use crate::native::Version;
use crate::{DriverError, FusedShape, Stream};
use meshwright_backend::{Band, SequenceLayout};

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
    refused(CudnnAttentionSizes { batch: 0, ..fine }, EXACT, (9, 0), "without elements");
    refused(CudnnAttentionSizes { queries: 0, ..fine }, EXACT, (9, 0), "without elements");
    refused(CudnnAttentionSizes { keys: 0, ..fine }, EXACT, (9, 0), "without elements");
    let one = CudnnAttentionSizes { queries: 1, keys: 1, ..fine };
    assert_eq!(check_limits(&one, AttentionPass::Forward, (9, 0)), Ok(()));
    refused(one, EXACT, (9, 0), "of one query and one key");
    refused(
        CudnnAttentionSizes { head_dim: 60, ..fine },
        EXACT,
        (9, 0),
        "multiples of 8 up to 256",
    );
    refused(
        CudnnAttentionSizes { value_dim: 60, ..fine },
        EXACT,
        (9, 0),
        "value_dim in multiples of 8",
    );
    assert_eq!(
        check_limits(&CudnnAttentionSizes { value_dim: 128, ..fine }, EXACT, (8, 0)),
        Ok(())
    );
    let latent = CudnnAttentionSizes { head_dim: 192, value_dim: 128, ..fine };
    assert_eq!(check_limits(&latent, EXACT, (9, 0)), Ok(()));
    assert_eq!(check_limits(&latent, EXACT, (10, 0)), Ok(()));
    refused(latent, EXACT, (8, 0), "head_dim in multiples of 8 up to 128");
    let wide = CudnnAttentionSizes { head_dim: 192, value_dim: 192, ..fine };
    assert_eq!(check_limits(&wide, EXACT, (9, 0)), Ok(()));
    assert_eq!(check_limits(&wide, AttentionPass::Forward, (8, 0)), Ok(()));
    refused(wide, ATOMIC, (8, 0), "up to 128");
    refused(wide, EXACT, (10, 0), "up to 128");
}

/// Masks that might hide all keys from a query are refused.
#[test]
fn limits_of_masks() {
    let check = |queries, keys, right, left| {
        let mask = BandMask { right, left };
        let sizes = CudnnAttentionSizes { queries, keys, mask, ..sizes(1, 64, 2, 2, 64, true) };
        check_limits(&sizes, EXACT, (9, 0)).err()
    };
    for (queries, keys, right, left) in [
        (64, 64, Some(0), Some(8)),
        (64, 100, Some(36), Some(8)),
        (100, 64, None, None),
        (100, 64, Some(0), None),
        (64, 64, None, Some(1)),
    ] {
        assert_eq!(check(queries, keys, right, left), None);
        // No query without a key.
        for query in 0..queries {
            let sees = |key: i64| {
                right.is_none_or(|right| key <= query + right)
                    && left.is_none_or(|left| key > query - left)
            };
            assert!((0..keys).any(sees), "query {query} of {queries} x {keys}");
        }
    }
    let refused = |queries, keys, right, left, why: &str| {
        let error = check(queries, keys, right, left).expect(why);
        assert!(error.contains(why), "{error}");
    };
    refused(64, 64, Some(-1), None, "with the index of the query");
    refused(64, 64, None, Some(0), "with the index of the query");
    refused(100, 64, Some(0), Some(8), "at most as many queries as keys");
    refused(1 << 24, 1 << 24, Some(0), None, "less than 16777216 positions");
}

#[test]
fn masks_are_those_of_bands() {
    let mask = |band, queries, keys| {
        let shape = FusedShape {
            batch: 1,
            queries,
            keys: SequenceLayout::dense(keys),
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            value_dim: 8,
            scale: 1.0,
            band,
        };
        CudnnAttentionSizes::from(&shape).mask
    };
    assert_eq!(mask(Band::ALL, 9, 5), BandMask::ALL);
    assert_eq!(mask(Band::CAUSAL, 9, 5), BandMask::CAUSAL);
    for offset in -9..9 {
        for (before, after) in (0..12).flat_map(|n| (0..12).map(move |m| (n, m))) {
            let band = Band { offset, before: Some(before), after: Some(after) };
            let BandMask { right, left } = mask(band, 9, 7);
            for query in 0..9 {
                let sees = |key: &i64| {
                    right.is_none_or(|right| *key <= query + right)
                        && left.is_none_or(|left| *key > query - left)
                };
                let keys: Vec<i64> = (0..7).filter(sees).collect();
                let visible = band.visible(query as usize, 7);
                assert_eq!(keys, visible.map(|key| key as i64).collect::<Vec<_>>(), "{band:?}");
            }
        }
    }
    // Limits that hide nothing are none.
    let wide = Band { offset: 0, before: Some(8), after: Some(usize::MAX) };
    assert_eq!(mask(wide, 9, 9), BandMask::ALL);
    assert_eq!(mask(Band { after: Some(0), ..wide }, 9, 9), BandMask::CAUSAL);
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
