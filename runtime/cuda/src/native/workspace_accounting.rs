//! Accounting of the workspaces of libraries.

use std::sync::Mutex;

use crate::Stream;
use crate::gpu::lock_unpoisoned;

/// Accounting of library workspaces by stream: ranks that share a device each count their own.
#[derive(Default)]
pub struct WorkspaceAccounting(Mutex<Vec<(Stream, usize)>>);

impl WorkspaceAccounting {
    /// Returns the total size of the workspaces of these streams, in bytes.
    pub fn total_bytes(&self, streams: &[Stream]) -> usize {
        let account = lock_unpoisoned(&self.0);
        let entries = account.iter().filter(|(stream, _)| streams.contains(stream));
        entries.map(|(_, bytes)| bytes).sum()
    }

    /// Adds a workspace for work on a stream.
    pub fn add_workspace(&self, stream: Stream, bytes: usize) {
        lock_unpoisoned(&self.0).push((stream, bytes));
    }

    /// Removes a workspace that was added with the same arguments.
    pub fn remove(&self, stream: Stream, bytes: usize) {
        let mut account = lock_unpoisoned(&self.0);
        if let Some(index) = account.iter().position(|entry| *entry == (stream, bytes)) {
            account.swap_remove(index);
        }
    }
}
