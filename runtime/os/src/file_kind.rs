//! Kinds of files.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;

/// Returns the kind of a file that is neither a regular file, a folder nor a pipe, for messages; `None` for these.
pub fn kind_of_special_file(file_type: FileType) -> Option<&'static str> {
    if file_type.is_file() || file_type.is_dir() || file_type.is_fifo() {
        None
    } else if file_type.is_socket() {
        Some("a socket")
    } else if file_type.is_char_device() {
        Some("a character device")
    } else if file_type.is_block_device() {
        Some("a block device")
    } else {
        Some("a special file")
    }
}
