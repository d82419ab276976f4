//! Things that take long to build, built once for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What was built for a key, or why it could not be.
pub(super) type Built<V> = Result<Arc<V>, String>;

/// A cache for several threads. Those that ask for one key wait for the first of them; other keys do not wait.
pub(super) struct Cache<K, V> {
    slots: Mutex<HashMap<K, Arc<OnceLock<Built<V>>>>>,
}

impl<K: Eq + Hash, V> Cache<K, V> {
    pub fn new() -> Cache<K, V> {
        Cache { slots: Mutex::default() }
    }

    /// What `build` gave for `key` when it was first asked for.
    pub fn get(&self, key: K, build: impl FnOnce() -> Result<V, String>) -> Built<V> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = Arc::clone(slots.entry(key).or_default());
        drop(slots);
        slot.get_or_init(|| build().map(Arc::new)).clone()
    }

    /// What was built, for all keys.
    pub fn all(&self) -> Vec<(K, Built<V>)>
    where
        K: Clone,
    {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let built = slots.iter().filter_map(|(key, slot)| Some((key.clone(), slot.get()?.clone())));
        built.collect()
    }

    /// What was built for `key`, if it was.
    pub fn known(&self, key: &K) -> Option<Built<V>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(key)?.get().cloned()
    }
}
