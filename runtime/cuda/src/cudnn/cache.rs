//! A cache of values that are expensive to build.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The value of a key, or the reason why it could not be built.
pub(super) type Built<V> = Result<Arc<V>, String>;

/// A thread-safe cache that builds each value once. Concurrent requests for one key wait for the first; other keys do
/// not wait.
pub(super) struct BuildCache<K, V> {
    slots: Mutex<HashMap<K, Arc<OnceLock<Built<V>>>>>,
}

impl<K: Eq + Hash, V> BuildCache<K, V> {
    pub fn new() -> BuildCache<K, V> {
        BuildCache { slots: Mutex::default() }
    }

    /// Returns the value of `key`, built by the first request.
    pub fn get(&self, key: K, build: impl FnOnce() -> Result<V, String>) -> Built<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots.entry(key).or_default());
        drop(slots);
        slot.get_or_init(|| build().map(Arc::new)).clone()
    }

    /// Returns all values built so far, with their keys.
    pub fn all_built(&self) -> Vec<(K, Built<V>)>
    where
        K: Clone,
    {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let built = slots.iter().filter_map(|(key, slot)| Some((key.clone(), slot.get()?.clone())));
        built.collect()
    }

    /// Returns the value of `key` if it is built.
    pub fn built(&self, key: &K) -> Option<Built<V>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(key)?.get().cloned()
    }
}
