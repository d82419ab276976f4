//! Calls that the memory and the streams of a rank make to the driver.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;

use meshwright::backend::{Backend, CachingAllocator, Category, DType, StreamKind};
use meshwright_cuda::{CallKind, CudaBackend};
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

/// An empty block has no address, so a driver may refuse it.
#[test]
fn empty_transfers_are_not_submitted() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let memory = cuda.device().expect("a GPU has memory of its own");
    let allocator = CachingAllocator::on(Some(Arc::clone(&memory)), usize::MAX);
    device.clear_log();
    let empty = allocator.zeros(DType::F32, 0, Category::Gradients);
    assert!(empty.view().to_vec::<f32>().is_empty());
    let place = NonNull::<u8>::dangling().as_ptr();
    // SAFETY: nothing is read or written.
    unsafe {
        memory.zero(StreamKind::Compute, place, 0);
        memory.copy(StreamKind::Compute, place, place, 0);
        memory.upload(place, &[]);
        memory.download(place, &mut []);
        memory.copy_in(place, place, 0);
        memory.copy_out(place, place, 0);
    }
    let transfers = [CallKind::Zero, CallKind::Copy, CallKind::Upload, CallKind::Download];
    let log = device.log();
    assert!(log.iter().all(|entry| !transfers.contains(&entry.kind)), "{log:?}");
}

/// A stream keeps the workspaces of vendor libraries until it is freed.
#[test]
fn streams_are_freed_with_their_context() {
    if not_checked_on_gpu() {
        return;
    }
    let device = SimDevice::new(1);
    let cuda = CudaBackend::new(Arc::new(device.driver()));
    let stream_kinds = [
        StreamKind::Compute,
        StreamKind::Communication(0),
        StreamKind::Communication(3),
        StreamKind::Transfer,
    ];
    for stream_kind in stream_kinds {
        cuda.gpu().stream(stream_kind);
    }
    drop(cuda);
    let [mut created, mut freed] = [BTreeSet::new(), BTreeSet::new()];
    for entry in device.log() {
        match (entry.kind, entry.stream) {
            (CallKind::NewStream, Some(stream)) => assert!(created.insert(stream.0)),
            (CallKind::FreeStream, Some(stream)) => assert!(freed.insert(stream.0), "{stream:?}"),
            _ => (),
        }
    }
    assert_eq!(created.len(), stream_kinds.len());
    assert_eq!(created, freed);
}
