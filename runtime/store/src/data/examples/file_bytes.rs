//! The file of an image, or of sound, in a field of an example.

use std::borrow::Cow;
use std::path::Path;

use crate::data::{Example, Field};

/// Most bytes of a file.
const MAX_BYTES: u64 = 256 << 20;

/// Returns the bytes of the file in the field `name`, and its name in messages. The field holds the bytes, the path of
/// a file, or an object with one of these as `bytes` or `path`, as the library `datasets` stores images and sound.
///
/// # Errors
/// A field that is missing or holds something else, and a file that cannot be read.
pub fn file_bytes<'a>(example: &'a Example, name: &str) -> Result<(Cow<'a, [u8]>, String), String> {
    let unnamed = || format!("`{name}`");
    let in_object = match example.field(name)? {
        Field::Bytes(bytes) => return Ok((bytes.into(), unnamed())),
        Field::Text(path) => return read_file(&example.resolved(path)),
        Field::Object(object) => object,
        other => {
            return Err(format!(
                "`{name}` is {}, but has to be the bytes or the path of a file",
                other.kind()
            ));
        }
    };
    let path = in_object.text("path").ok();
    match (in_object.get("bytes"), path) {
        (Some(Field::Bytes(bytes)), path) => {
            Ok((bytes.into(), path.map_or_else(unnamed, str::to_owned)))
        }
        (None, Some(path)) => read_file(&example.resolved(path)),
        _ => Err(format!("`{name}` has neither `bytes` nor a `path`")),
    }
}

fn read_file(path: &Path) -> Result<(Cow<'static, [u8]>, String), String> {
    let name = path.display().to_string();
    let unreadable = |reason: &dyn std::fmt::Display| format!("cannot read {name}: {reason}");
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err(unreadable(&"it is no file"));
    }
    if metadata.len() > MAX_BYTES {
        return Err(unreadable(&format_args!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(&error))?;
    Ok((bytes.into(), name))
}
