//! A folder of objects: all whose keys begin with its path.

use std::io::{Error as IoError, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{
    Error, ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use tokio::task::JoinSet;

use crate::SCHEMES;
use crate::bucket::{Bucket, REPETITIONS, is_cut, repeat_if_cut, runtime, wait_for_repetition};
use crate::error::{is_conflict, to_io};
use crate::ranges::read_ranges;

/// Requests that are in progress together.
const PARALLEL: usize = 8;

/// A version of an object, which changes with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion(UpdateVersion);

/// The condition on which an object is written.
#[derive(Debug, Clone, Copy)]
pub enum Condition<'a> {
    /// None.
    Always,
    /// There is no object of the name.
    IsNew,
    /// The object is of this version.
    Is(&'a ObjectVersion),
}

/// An object that was read, and its version.
#[derive(Debug, Clone)]
pub struct ObjectContent {
    /// The bytes.
    pub bytes: Bytes,
    /// The version.
    pub version: ObjectVersion,
}

/// A folder of objects. Names are relative to it, and may have slashes.
#[derive(Debug, Clone)]
pub struct ObjectFolder {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) name: String,
    path: String,
}

impl ObjectFolder {
    /// Opens the folder of a URL, such as `s3://bucket/path`. Makes no request.
    ///
    /// # Errors
    /// A URL that is none of a folder, and settings of the environment that are wrong or missing.
    pub fn open(url: &str) -> Result<ObjectFolder> {
        let invalid = |reason: &str| {
            IoError::new(ErrorKind::InvalidInput, format!("{reason}; write SCHEME://BUCKET/PATH"))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it is no URL"))?;
        if !SCHEMES.contains(&scheme) {
            return Err(invalid(&format!("the scheme is none of {}", SCHEMES.join(", "))));
        }
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(is_known) {
            return Err(invalid("it names no bucket"));
        }
        let path =
            Key::parse(path.trim_matches('/')).map_err(|error| invalid(&error.to_string()))?;
        let bucket = Bucket::open(scheme, name)?;
        Ok(ObjectFolder { bucket, name: name.to_owned(), path: path.to_string() })
    }

    /// Opens the folder of the URL of an object, and returns the name of the object in it, too. Makes no request.
    ///
    /// # Errors
    /// As [`open`](Self::open), and a URL that names no object.
    pub fn of_object(url: &str) -> Result<(ObjectFolder, String)> {
        match url.rsplit_once('/') {
            Some((folder, name)) if !(name.is_empty() || folder.ends_with('/')) => {
                Ok((ObjectFolder::open(folder)?, name.to_owned()))
            }
            _ => {
                let reason = "it names no object; write SCHEME://BUCKET/PATH/NAME";
                Err(IoError::new(ErrorKind::InvalidInput, reason))
            }
        }
    }

    /// Reads a whole object of at most `limit` bytes; `None` if there is none.
    ///
    /// # Errors
    /// A request that fails, and a longer object.
    pub fn get(&self, name: &str, limit: u64) -> Result<Option<ObjectContent>> {
        let key = self.key(name);
        let get = repeat_if_cut(|| async {
            let found = self.bucket.store.get(&key).await?;
            let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
            let length = found.meta.size;
            let bytes = if length > limit { None } else { Some(found.bytes().await?) };
            Ok((bytes, length, ObjectVersion(UpdateVersion { e_tag, version })))
        });
        match runtime().block_on(get) {
            Ok((Some(bytes), _, version)) => Ok(Some(ObjectContent { bytes, version })),
            Ok((None, length, _)) => {
                let reason = format!("it has {length} bytes, at most {limit} are read");
                Err(IoError::new(ErrorKind::InvalidData, reason))
            }
            Err(error) => self.unless_missing(error),
        }
    }

    /// Returns the length and the version of an object; `None` if there is none.
    ///
    /// # Errors
    /// A request that fails.
    pub fn head(&self, name: &str) -> Result<Option<(u64, ObjectVersion)>> {
        let key = self.key(name);
        match runtime().block_on(repeat_if_cut(|| self.bucket.store.head(&key))) {
            Ok(ObjectMeta { size, e_tag, version, .. }) => {
                Ok(Some((size, ObjectVersion(UpdateVersion { e_tag, version }))))
            }
            Err(error) => self.unless_missing(error),
        }
    }

    /// Reads ranges of an object, several of them at the same time.
    ///
    /// # Errors
    /// A request that fails, and a range beyond the object.
    pub fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>> {
        runtime().block_on(read_ranges((&self.bucket, &self.name), &self.key(name), ranges, None))
    }

    /// Writes a small object if the `condition` is met, and returns its version; `None` if it is not met.
    ///
    /// No two writes with a condition may have the same content: one whose answer was lost is known by it.
    ///
    /// # Errors
    /// A request that fails.
    pub fn put(
        &self,
        name: &str,
        content: &[u8],
        condition: Condition<'_>,
    ) -> Result<Option<ObjectVersion>> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::IsNew => PutMode::Create,
            Condition::Is(version) => PutMode::Update(version.0.clone()),
        };
        let (key, options) = (self.key(name), PutOptions::from(mode));
        let payload = PutPayload::from_bytes(Bytes::copy_from_slice(content));
        // A write whose answer was cut may have been done, and its condition is not met any more.
        let put = repeat_if_cut(|| async {
            let error =
                match self.bucket.store.put_opts(&key, payload.clone(), options.clone()).await {
                    Ok(written) => return Ok(Some(ObjectVersion(written.into()))),
                    Err(error) => error,
                };
            if !matches!(condition, Condition::Always)
                && let Ok(found) = self.bucket.store.get(&key).await
                && let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone())
                && found.meta.size == content.len() as u64
                && found.bytes().await.is_ok_and(|bytes| bytes == content)
            {
                return Ok(Some(ObjectVersion(UpdateVersion { e_tag, version })));
            }
            if is_conflict(&error) { Ok(None) } else { Err(error) }
        });
        runtime().block_on(put).map_err(|error| self.io(error))
    }

    /// Lists the names of all objects in the folder and their lengths, in no order.
    ///
    /// # Errors
    /// A request that fails.
    pub fn list(&self) -> Result<Vec<(String, u64)>> {
        let prefix = self.key("");
        let store = &self.bucket.store;
        let list = async {
            let mut found: Vec<ObjectMeta> = Vec::new();
            let (mut tries, mut before) = (0, 0);
            loop {
                // After a cut, it goes on with the next one.
                let mut rest = match found.last() {
                    Some(last) => store.list_with_offset(Some(&prefix), &last.location),
                    None => store.list(Some(&prefix)),
                };
                let ended = loop {
                    match rest.try_next().await {
                        Ok(Some(meta)) => found.push(meta),
                        Ok(None) => return Ok(found),
                        Err(error) => break error,
                    }
                };
                tries = if found.len() > before { 0 } else { tries + 1 };
                if !is_cut(&ended) || tries > REPETITIONS {
                    return Err(ended);
                }
                before = found.len();
                wait_for_repetition(tries).await;
            }
        };
        let found = runtime().block_on(list).map_err(|error| self.io(error))?;
        let own = |meta: &ObjectMeta| Some((self.relative(&meta.location)?, meta.size));
        Ok(found.iter().filter_map(own).collect())
    }

    /// Lists the names of the objects in the folder without those of folders in it, in no order; and returns true if
    /// there are such folders.
    ///
    /// # Errors
    /// A request that fails.
    pub fn list_direct(&self) -> Result<(Vec<String>, bool)> {
        let prefix = self.key("");
        let list = repeat_if_cut(|| self.bucket.store.list_with_delimiter(Some(&prefix)));
        let found = runtime().block_on(list).map_err(|error| self.io(error))?;
        let names = found.objects.iter().filter_map(|meta| self.relative(&meta.location));
        Ok((names.collect(), !found.common_prefixes.is_empty()))
    }

    /// Removes objects that may be missing.
    ///
    /// # Errors
    /// A request that fails.
    pub fn remove(&self, names: impl IntoIterator<Item = String>) -> Result<()> {
        let mut keys = names.into_iter().map(|name| self.key(&name));
        let remove = async {
            let mut running = JoinSet::new();
            loop {
                while running.len() < PARALLEL
                    && let Some(key) = keys.next()
                {
                    let store = Arc::clone(&self.bucket.store);
                    running.spawn(async move {
                        {
                            let remove = || {
                                let (store, key) = (Arc::clone(&store), key.clone());
                                async move { store.delete(&key).await }
                            };
                            repeat_if_cut(remove).await
                        }
                    });
                }
                match running.join_next().await.map(|done| done.expect("a removal does not panic"))
                {
                    None => return Ok(()),
                    Some(Ok(()) | Err(Error::NotFound { .. })) => {}
                    Some(Err(error)) => return Err(self.io(error)),
                }
            }
        };
        runtime().block_on(remove)
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        let joined = [self.path.as_str(), name]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>();
        Key::from(joined.join("/"))
    }

    /// Returns a key relative to the folder.
    fn relative(&self, key: &Key) -> Option<String> {
        let rest = key.as_ref().strip_prefix(self.path.as_str())?;
        Some(rest.trim_start_matches('/').to_owned())
    }

    pub(crate) fn io(&self, error: Error) -> IoError {
        to_io(error, &self.name)
    }

    /// Returns `None` for an object that is missing in a bucket that exists.
    fn unless_missing<T>(&self, error: Error) -> Result<Option<T>> {
        let error = self.io(error);
        if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) }
    }
}
