//! Standard output of a program.

use std::io::{self, ErrorKind, Write};

/// Writes a text to standard output. A closed pipe is no error: its reader needs no more, as in `--help | head`.
///
/// # Errors
/// A text that cannot be written, such as to a full disk.
pub fn print_text(text: &str) -> io::Result<()> {
    finish_stdout(io::stdout().write_all(text.as_bytes()))
}

/// Flushes standard output, to which `written` is the result of writing. A closed pipe is no error.
///
/// # Errors
/// A text that cannot be written, such as to a full disk.
pub fn finish_stdout(written: io::Result<()>) -> io::Result<()> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
