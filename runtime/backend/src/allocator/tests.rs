use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Returns the error of an allocation that must fail.
fn out_of_memory(allocator: &Arc<CachingAllocator>, len: usize, category: Category) -> OutOfMemory {
    let outcome = catch_unwind(AssertUnwindSafe(|| allocator.alloc(DType::F32, len, category)));
    *outcome.unwrap_err().downcast().unwrap()
}

fn live(allocator: &CachingAllocator) -> usize {
    allocator.live().map(|(_, bytes)| bytes).sum()
}

#[test]
fn peaks_count_live_bytes_and_blocks_are_reused() {
    let allocator = CachingAllocator::new();
    let first = allocator.zeros(DType::F32, 1000, Category::Activations);
    let address = first.typed::<f32>().as_ptr();
    drop(first);
    let second = allocator.alloc(DType::F32, 1000, Category::Gradients);
    assert_eq!(second.typed::<f32>().as_ptr(), address);
    let peak: HashMap<_, _> = allocator.peak().collect();
    assert_eq!(peak[&Category::Activations], 4032);
    assert_eq!(peak[&Category::Gradients], 4032);
    assert_eq!(allocator.total_peak(), 4032);
}

#[test]
fn an_empty_buffer_is_usable() {
    let allocator = CachingAllocator::with_limit(0);
    assert!(allocator.zeros(DType::U32, 0, Category::Workspace).typed::<u32>().is_empty());
}

#[test]
fn the_limit_is_on_live_bytes() {
    let allocator = CachingAllocator::with_limit(4096);
    let held = allocator.alloc(DType::F32, 512, Category::Parameters);
    let error = out_of_memory(&allocator, 513, Category::Gradients);
    assert_eq!((error.category, error.requested), (Category::Gradients, 513 * 4 + 60));
    assert_eq!(error.limit, Some(4096));
    assert_eq!(error.live().next(), Some((Category::Parameters, 2048)));
    // The failed allocation is not counted, and exactly the limit fits.
    assert_eq!((live(&allocator), allocator.total_peak()), (2048, 2048));
    let rest = allocator.alloc(DType::F32, 512, Category::Gradients);
    assert_eq!(out_of_memory(&allocator, 1, Category::Workspace).requested, 64);
    drop((held, rest));
    assert_eq!(allocator.alloc(DType::F32, 1024, Category::Activations).len(), 1024);
    assert_eq!(allocator.total_peak(), 4096);
}

#[test]
fn cached_blocks_are_freed_largest_first() {
    let allocator = CachingAllocator::with_limit(1024);
    let sizes = [16, 32, 64, 112];
    drop(sizes.map(|len| allocator.alloc(DType::F32, len, Category::Activations)));
    assert_eq!(allocator.lock_state().free.bytes(), 896);
    // 128 bytes are left; 192 more free the largest cached block.
    let held = allocator.alloc(DType::F32, 48, Category::Activations);
    let cached = |allocator: &CachingAllocator| allocator.lock_state().free.sizes();
    assert_eq!(cached(&allocator), [64, 128, 256]);
    drop(held);
    assert_eq!(allocator.alloc(DType::F32, 256, Category::Activations).len(), 256);
    assert_eq!(cached(&allocator), [1024]);
}

#[test]
fn blocks_that_no_request_takes_are_freed() {
    let allocator = CachingAllocator::new();
    // As the rows of experts: the number differs each time. Another size is used all the time.
    for step in 0..pool::MAX_UNUSED {
        drop(allocator.alloc(DType::F32, 1024, Category::Activations));
        drop(allocator.alloc(DType::F32, 2048 + 16 * (step as usize % 500), Category::Activations));
    }
    assert_eq!(allocator.lock_state().free.sizes().len(), 501);
    for _ in 0..2 * pool::MAX_UNUSED {
        drop(allocator.alloc(DType::F32, 1024, Category::Activations));
    }
    assert_eq!(allocator.lock_state().free.sizes(), [4096]);
    assert_eq!(allocator.lock_state().free.bytes(), 4096);
}

#[test]
fn a_refusal_of_the_system_is_an_error() {
    let allocator = CachingAllocator::new();
    for len in [1 << 58, usize::MAX / 4, usize::MAX] {
        let error = out_of_memory(&allocator, len, Category::Activations);
        assert_eq!(error.limit, None);
    }
    assert_eq!(live(&allocator), 0);
}

fn address(buffer: &Buffer) -> usize {
    buffer.view().address() as usize
}

#[test]
fn a_private_pool_is_used_by_captures_alone() {
    let allocator = CachingAllocator::new();
    let make = || allocator.alloc(DType::F32, 100, Category::Activations);
    let (before, pooled) = (make(), address(&make()));
    let pool = allocator.private_pool();
    pool.open_pool();
    // From the pool, then new; blocks freed during the capture are reused.
    let first = make();
    assert_eq!(address(&first), pooled);
    let second = make();
    let inside = address(&second);
    drop(second);
    let second = make();
    assert_eq!(address(&second), inside);
    drop(second);
    pool.close();

    // Also buffers that were alive before, and those that are freed after it.
    let captured = [address(&first), inside, address(&before)];
    drop((before, first));
    let others: Vec<Buffer> = (0..4).map(|_| make()).collect();
    assert!(others.iter().all(|other| !captured.contains(&address(other))));
    drop(others);

    // Another capture gets these blocks, and no other until they are used up.
    pool.open_pool();
    let again: Vec<Buffer> = (0..3).map(|_| make()).collect();
    let mut addresses: Vec<usize> = again.iter().map(address).collect();
    addresses.sort_unstable();
    let mut expected = captured.to_vec();
    expected.sort_unstable();
    assert_eq!(addresses, expected);
    drop(again);
    pool.close();
    assert_eq!(allocator.lock_state().private.as_ref().unwrap().free.bytes(), 3 * 448);

    // Without the private pool, all blocks return to the pool.
    drop(pool);
    assert_eq!(allocator.lock_state().free.bytes(), 7 * 448);
}

#[test]
fn a_private_pool_is_dissolved_under_pressure() {
    let allocator = CachingAllocator::with_limit(1024);
    let pool = allocator.private_pool();
    pool.open_pool();
    drop(allocator.alloc(DType::F32, 128, Category::Activations));
    pool.close();
    // Cached blocks are freed first.
    drop(allocator.alloc(DType::F32, 64, Category::Activations));
    let half = allocator.alloc(DType::F32, 80, Category::Activations);
    assert!(pool.is_valid() && allocator.lock_state().free.bytes() == 0);
    let more = allocator.alloc(DType::F32, 160, Category::Activations);
    assert!(!pool.is_valid());
    assert_eq!(out_of_memory(&allocator, 32, Category::Activations).limit, Some(1024));
    drop((half, more));
    drop(pool);
    assert_eq!(allocator.lock_state().free.bytes(), 960);
}
