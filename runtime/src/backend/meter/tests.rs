use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// The error of an allocation that must fail.
fn refused(meter: &Arc<MemoryMeter>, len: usize, category: Category) -> OutOfMemory {
    let outcome = catch_unwind(AssertUnwindSafe(|| meter.alloc(DType::F32, len, category)));
    *outcome.unwrap_err().downcast().unwrap()
}

fn live(meter: &MemoryMeter) -> usize {
    meter.live().map(|(_, bytes)| bytes).sum()
}

#[test]
fn peaks_count_live_bytes_per_category_and_blocks_are_reused() {
    let meter = MemoryMeter::new();
    let first = meter.zeros(DType::F32, 1000, Category::Activations);
    let address = first.typed::<f32>().as_ptr();
    drop(first);
    let second = meter.alloc(DType::F32, 1000, Category::Gradients);
    assert_eq!(second.typed::<f32>().as_ptr(), address);
    let peak: HashMap<_, _> = meter.peak().collect();
    assert_eq!(peak[&Category::Activations], 4032);
    assert_eq!(peak[&Category::Gradients], 4032);
    assert_eq!(meter.total_peak(), 4032);
}

#[test]
fn an_empty_buffer_is_usable() {
    let meter = MemoryMeter::with_limit(0);
    assert!(meter.zeros(DType::U32, 0, Category::Workspace).typed::<u32>().is_empty());
}

#[test]
fn the_limit_is_on_what_is_in_use() {
    let meter = MemoryMeter::with_limit(4096);
    let held = meter.alloc(DType::F32, 512, Category::Parameters);
    let error = refused(&meter, 513, Category::Gradients);
    assert_eq!((error.category, error.requested), (Category::Gradients, 513 * 4 + 60));
    assert_eq!(error.limit, Some(4096));
    assert_eq!(error.live().next(), Some((Category::Parameters, 2048)));
    // Nothing of it was counted, and exactly the limit fits.
    assert_eq!((live(&meter), meter.total_peak()), (2048, 2048));
    let rest = meter.alloc(DType::F32, 512, Category::Gradients);
    assert_eq!(refused(&meter, 1, Category::Workspace).requested, 64);
    drop((held, rest));
    assert_eq!(meter.alloc(DType::F32, 1024, Category::Activations).len(), 1024);
    assert_eq!(meter.total_peak(), 4096);
}

#[test]
fn kept_blocks_make_room_largest_first() {
    let meter = MemoryMeter::with_limit(1024);
    let sizes = [16, 32, 64, 112];
    drop(sizes.map(|len| meter.alloc(DType::F32, len, Category::Activations)));
    assert_eq!(meter.lock().free.bytes(), 896);
    // 128 bytes are left; 192 more take the largest of what is kept.
    let held = meter.alloc(DType::F32, 48, Category::Activations);
    let kept = |meter: &MemoryMeter| meter.lock().free.sizes();
    assert_eq!(kept(&meter), [64, 128, 256]);
    drop(held);
    assert_eq!(meter.alloc(DType::F32, 256, Category::Activations).len(), 256);
    assert_eq!(kept(&meter), [1024]);
}

#[test]
fn what_the_system_refuses_is_an_error_too() {
    let meter = MemoryMeter::new();
    for len in [1 << 58, usize::MAX / 4, usize::MAX] {
        let error = refused(&meter, len, Category::Activations);
        assert_eq!(error.limit, None);
    }
    assert_eq!(live(&meter), 0);
}

fn address(buffer: &Buffer) -> usize {
    buffer.view().address() as usize
}

#[test]
fn what_a_recording_may_use_is_used_by_recordings_alone() {
    let meter = MemoryMeter::new();
    let make = || meter.alloc(DType::F32, 100, Category::Activations);
    let (before, pooled) = (make(), address(&make()));
    let reserve = meter.reserve();
    reserve.open();
    // From the pool, then new; what comes back meanwhile is used again.
    let first = make();
    assert_eq!(address(&first), pooled);
    let second = make();
    let inside = address(&second);
    drop(second);
    let second = make();
    assert_eq!(address(&second), inside);
    drop(second);
    reserve.close();

    // Also what was there before, and what ends after it.
    let recorded = [address(&first), inside, address(&before)];
    drop((before, first));
    let others: Vec<Buffer> = (0..4).map(|_| make()).collect();
    assert!(others.iter().all(|other| !recorded.contains(&address(other))));
    drop(others);

    // Another recording gets that, and nothing else before it is used up.
    reserve.open();
    let again: Vec<Buffer> = (0..3).map(|_| make()).collect();
    let mut addresses: Vec<usize> = again.iter().map(address).collect();
    addresses.sort_unstable();
    let mut expected = recorded.to_vec();
    expected.sort_unstable();
    assert_eq!(addresses, expected);
    drop(again);
    reserve.close();
    assert_eq!(meter.lock().reserved.as_ref().unwrap().free.bytes(), 3 * 448);

    // With the recordings all of it goes back to the pool.
    drop(reserve);
    assert_eq!(meter.lock().free.bytes(), 7 * 448);
}

#[test]
fn a_meter_that_has_no_other_memory_takes_back_what_is_reserved() {
    let meter = MemoryMeter::with_limit(1024);
    let reserve = meter.reserve();
    reserve.open();
    drop(meter.alloc(DType::F32, 128, Category::Activations));
    reserve.close();
    // Kept blocks go first.
    drop(meter.alloc(DType::F32, 64, Category::Activations));
    let half = meter.alloc(DType::F32, 80, Category::Activations);
    assert!(reserve.is_whole() && meter.lock().free.bytes() == 0);
    let more = meter.alloc(DType::F32, 160, Category::Activations);
    assert!(!reserve.is_whole());
    assert_eq!(refused(&meter, 32, Category::Activations).limit, Some(1024));
    drop((half, more));
    drop(reserve);
    assert_eq!(meter.lock().free.bytes(), 960);
}
