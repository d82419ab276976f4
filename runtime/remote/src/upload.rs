//! Uploads of files, in parts.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::{Error, PutOptions, PutPayload};
use tokio::task::JoinSet;

use crate::bucket::{runtime, wait_unless};
use crate::folder::{Condition, ObjectFolder};

/// Least bytes of a part. A shorter file is written by one request.
const PART_BYTES: u64 = 8 << 20;

/// Most parts of an object, below the limits of all services.
const MAX_PARTS: u64 = 9_000;

/// Parts that are sent together.
const PARALLEL: usize = 4;

/// End of the name of an object that holds the identifier of an unfinished upload.
const RECORD: &str = ".upload";

impl ObjectFolder {
    /// Uploads the first `length` bytes of a file as an object, and returns true; false once `is_cancelled` returns
    /// true, or if the upload has been [ended](Self::end_upload) by another process.
    ///
    /// While an upload of several parts is unfinished, there is an object that names it, from which
    /// [`end_upload`](Self::end_upload) ends it after a crash.
    ///
    /// # Errors
    /// A request that fails, and a file that cannot be read.
    pub fn upload(
        &self,
        name: &str,
        file: &File,
        length: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let (store, key) = (&self.bucket.store, self.key(name));
        if length <= PART_BYTES {
            let mut content = vec![0; length as usize];
            file.read_exact_at(&mut content, 0)?;
            let payload = PutPayload::from_bytes(Bytes::from(content));
            let put = store.put_opts(&key, payload, PutOptions::default());
            return match wait_unless(put, is_cancelled) {
                Some(put) => put.map(|_| true).map_err(|error| self.io(error)),
                None => Ok(false),
            };
        }
        let record = format!("{name}{RECORD}");
        let id = runtime().block_on(store.create_multipart(&key)).map_err(|e| self.io(e))?;
        let upload = || -> Result<bool> {
            self.put(&record, id.as_bytes(), Condition::Always)?;
            let Some(parts) = self.send_parts((name, &id), file, length, is_cancelled)? else {
                return Ok(false);
            };
            match runtime().block_on(store.complete_multipart(&key, &id, parts)) {
                Ok(_) => Ok(true),
                // It was completed by a request whose answer was lost.
                Err(_) if self.has_length(name, length) => Ok(true),
                Err(error) => Err(self.io(error)),
            }
        };
        let uploaded = upload();
        let ended = match &uploaded {
            Ok(true) => Ok(()),
            _ => runtime().block_on(store.abort_multipart(&key, &id)),
        };
        // What cannot be ended now is by the next run.
        if ended.is_ok() {
            let removed = self.remove([record]);
            return uploaded.and_then(|is_there| removed.map(|()| is_there));
        }
        uploaded
    }

    fn has_length(&self, name: &str, length: u64) -> bool {
        self.head(name).is_ok_and(|found| found.is_some_and(|(own, _)| own == length))
    }

    /// Sends the parts of a file; `None` once `is_cancelled` returns true.
    fn send_parts(
        &self,
        (name, id): (&str, &String),
        file: &File,
        length: u64,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<PartId>>> {
        let (store, key) = (&self.bucket.store, self.key(name));
        let part_bytes = PART_BYTES.max(length.div_ceil(MAX_PARTS));
        let n_parts = length.div_ceil(part_bytes) as usize;
        let send = async {
            let mut sent: Vec<Option<PartId>> = (0..n_parts).map(|_| None).collect();
            let mut running = JoinSet::new();
            let mut next = 0..n_parts;
            loop {
                while running.len() < PARALLEL
                    && let Some(part) = next.next()
                {
                    let start = part as u64 * part_bytes;
                    let mut content = vec![0; part_bytes.min(length - start) as usize];
                    file.read_exact_at(&mut content, start)?;
                    let (store, key, id) = (Arc::clone(store), key.clone(), id.clone());
                    running.spawn(async move {
                        let payload = PutPayload::from_bytes(Bytes::from(content));
                        Ok::<_, Error>((part, store.put_part(&key, &id, part, payload).await?))
                    });
                }
                let Some(done) = running.join_next().await else {
                    return Ok(sent.into_iter().collect());
                };
                let (part, id) = done.expect("an upload does not panic").map_err(|e| self.io(e))?;
                sent[part] = Some(id);
            }
        };
        wait_unless(send, is_cancelled).unwrap_or(Ok(None))
    }

    /// Returns the name of the object whose unfinished upload the object `name` names.
    pub fn uploaded_name(name: &str) -> Option<&str> {
        name.strip_suffix(RECORD)
    }

    /// Ends an unfinished upload of the object `name`, by the object that names it.
    ///
    /// # Errors
    /// A request that fails.
    pub fn end_upload(&self, name: &str) -> Result<()> {
        const MAX_ID: u64 = 64 << 10;
        let record = format!("{name}{RECORD}");
        let Some(found) = self.get(&record, MAX_ID)? else { return Ok(()) };
        let id = String::from_utf8_lossy(&found.bytes).into_owned();
        match runtime().block_on(self.bucket.store.abort_multipart(&self.key(name), &id)) {
            Ok(()) | Err(Error::NotFound { .. }) => self.remove([record]),
            Err(error) => match self.io(error) {
                error if error.kind() == ErrorKind::NotFound => self.remove([record]),
                error => Err(error),
            },
        }
    }
}
