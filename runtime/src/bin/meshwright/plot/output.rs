//! Files that are written as a whole.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, value_parser};
use meshwright::open_output;

use crate::failure::Failure;

/// Returns the arguments `files`, of metrics, and `output`, with the name of its value and its help.
pub fn file_args(name: &'static str, help: &'static str) -> [Arg; 2] {
    let files = Arg::new("files").value_name("METRICS.jsonl").action(ArgAction::Append);
    let written = Arg::new("output").short('o').long("output").value_name(name);
    let args = [files.help("Files of --metrics, one for each run"), written.help(help)];
    args.map(|arg| arg.required(true).value_parser(value_parser!(PathBuf)))
}

/// Checks that the file of a flag with this ending, which has a `reason`, can be written, and replaces no metrics.
pub fn check_output(
    flag: &str,
    output: &Path,
    (ending, reason): (&str, &str),
    files: &[&PathBuf],
) -> Result<(), Failure> {
    let shown = output.display();
    if output.is_dir() {
        return Err(format!(
            "{flag}: {shown} is a folder; name a file in it, such as loss.{ending}"
        )
        .into());
    }
    if !output.extension().is_some_and(|own| own.eq_ignore_ascii_case(ending)) {
        return Err(format!("{flag}: {shown} does not end in .{ending}, and {reason}").into());
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let folder = folder.display();
        return Err(format!(
            "{flag}: there is no folder {folder}; create it, or name another file"
        )
        .into());
    }
    let real = output.canonicalize().ok();
    let is_same = |path: &&&PathBuf| real.is_some() && path.canonicalize().ok() == real;
    if let Some(same) = files.iter().find(is_same) {
        let same = same.display();
        return Err(
            format!("{flag}: {shown} is also the metrics file {same}; name another file").into()
        );
    }
    Ok(())
}

/// Bytes of the largest file that this program may have written. Others, such as data, are not read.
const LARGEST: u64 = 256 << 20;

/// Checks that a file which a flag would replace is one that this program has written, as `is_own` tells by its text.
pub fn check_replaced(
    flag: &str,
    output: &Path,
    is_own: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    let shown = output.display();
    let len = output.metadata().map_or(0, |data| if data.is_file() { data.len() } else { 0 });
    if len == 0 {
        return Ok(());
    }
    if len <= LARGEST {
        let found = fs::read(output).map_err(|error| {
            Failure::new(format!("{flag}: cannot read {shown}: {error}"), &error)
        })?;
        if is_own(&String::from_utf8_lossy(&found)) {
            return Ok(());
        }
    }
    let message = format!(
        "{flag}: {shown} was written by another program, and would be lost; name another file, or remove this one"
    );
    Err(message.into())
}

/// Returns true for the text of a drawing of this program.
pub fn is_drawing(text: &str) -> bool {
    text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ")
}

/// Returns true for the text of a file of measurements.
pub fn is_measurement(text: &str) -> bool {
    text.starts_with('{') && text.contains("meshwright")
}

/// Writes a file under a temporary name first, so that a full disk leaves an earlier one as it is. A pipe must have a
/// reader.
pub fn write_whole(output: &Path, text: &str) -> io::Result<()> {
    if output.metadata().is_ok_and(|data| !data.is_file()) {
        let mut file = open_output(output, OpenOptions::new().write(true))?;
        return file.write_all(text.as_bytes());
    }
    let mut partial = output.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    fs::write(partial, text).and_then(|()| fs::rename(partial, output)).inspect_err(|_| {
        let _ = fs::remove_file(partial);
    })
}
