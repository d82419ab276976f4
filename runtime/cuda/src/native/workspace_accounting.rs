//! Accounting of the workspaces of libraries.

use std::sync::Mutex;

use crate::Stream;
use crate::gpu::lock_unpoisoned;

/// Accounting of library workspaces by stream: ranks that share a device each count their own.
#[derive(Default)]
pub struct WorkspaceAccounting(Mutex<Vec<(Stream, usize)>>);

impl WorkspaceAccounting {
    /// Returns the total size of the workspaces of a stream, in bytes.
    pub fn bytes(&self, stream: Stream) -> usize {
        let account = lock_unpoisoned(&self.0);
        account.iter().filter(|(owner, _)| *owner == stream).map(|(_, bytes)| bytes).sum()
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
