use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cudnn::cache::BuildCache;

#[test]
fn concurrent_requests_build_once() {
    let (cache, built) = (BuildCache::new(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (cache, built) = (&cache, &built);
            scope.spawn(move || {
                for key in 0..4 {
                    let value = cache.get((key + thread) % 4, || {
                        built.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(5));
                        Ok(10 * ((key + thread) % 4))
                    });
                    assert_eq!(value.as_deref(), Ok(&(10 * ((key + thread) % 4))));
                }
            });
        }
    });
    assert_eq!(built.into_inner(), 4);
}

#[test]
fn failures_are_cached_with_their_reason() {
    let cache: BuildCache<u8, u8> = BuildCache::new();
    assert_eq!(cache.get(1, || Err("no plan".into())).unwrap_err(), "no plan");
    assert_eq!(cache.get(1, || Ok(5)).unwrap_err(), "no plan");
    assert_eq!(cache.get(2, || Ok(5)).as_deref(), Ok(&5));
}
