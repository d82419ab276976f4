//! The files of a run that is not computed: `--report` and `--trace`. They are checked before the work, and written as
//! a whole after it.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::os::{ClaimedFile, move_aside};
use crate::trace::{Tracer, is_trace};
use crate::train::console::print_line;
use crate::train::plan::{claim, unwritable};
use crate::train::{Error, Result};

use super::document::is_page;

/// The files of a run that is not computed.
#[derive(Default)]
pub struct DryRunFiles {
    report: Option<WholeFile>,
    trace: Option<WholeFile>,
}

struct WholeFile {
    flag: &'static str,
    path: PathBuf,
    is_own: fn(&mut dyn Read) -> bool,
}

impl DryRunFiles {
    /// Checks that the files can be written, and changes nothing.
    ///
    /// # Errors
    /// A missing folder, a folder instead of a file, a file of another program, a folder that takes no files, and one
    /// file for both.
    pub fn check(report: Option<&Path>, trace: Option<&Path>) -> Result<DryRunFiles> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if report.is_some() && report.map(absolute) == trace.map(absolute) {
            let message = "--report: is also the file of --trace; name another file";
            return Err(Error::Input(message.to_owned()));
        }
        let of = |flag, path: Option<&Path>, is_own| {
            let file = path.map(|path| WholeFile { flag, path: path.to_owned(), is_own });
            file.map(WholeFile::checked).transpose()
        };
        Ok(DryRunFiles {
            report: of("--report", report, is_page)?,
            trace: of("--trace", trace, is_trace)?,
        })
    }

    /// Writes the file of `--report`, if it is given.
    ///
    /// # Errors
    /// A file that cannot be written. An earlier report is kept then.
    pub fn write_report(&self, page: impl FnOnce() -> String) -> Result<()> {
        self.report.as_ref().map_or(Ok(()), |file| file.write(page().as_bytes()))
    }

    /// Writes the file of `--trace`, if it is given.
    ///
    /// # Errors
    /// As [`write_report`](Self::write_report).
    pub fn write_trace(&self, tracer: impl FnOnce() -> Arc<Tracer>) -> Result<()> {
        let Some(file) = &self.trace else { return Ok(()) };
        let mut content = Vec::new();
        tracer().write_to(&mut content).map_err(unwritable(file.flag, &file.path))?;
        file.write(&content)
    }
}

impl WholeFile {
    fn checked(self) -> Result<WholeFile> {
        drop(claim(self.flag, self.path.clone(), self.is_own)?);
        if !self.is_special() {
            let partial = self.partial();
            let probed = fs::write(&partial, "").and_then(|()| fs::remove_file(&partial));
            probed.map_err(unwritable(self.flag, &self.path))?;
        }
        Ok(self)
    }

    /// Writes the file under a temporary name first. An earlier one is moved aside.
    fn write(&self, content: &[u8]) -> Result<()> {
        let (claimed, path) = claim(self.flag, self.path.clone(), self.is_own)?;
        self.replace(claimed, content).map_err(unwritable(self.flag, &path))
    }

    fn replace(&self, claimed: ClaimedFile, content: &[u8]) -> std::io::Result<()> {
        if self.is_special() {
            return claimed.keep()?.write_all(content);
        }
        let partial = self.partial();
        let written = fs::write(&partial, content).and_then(|()| {
            if let Some(aside) = move_aside(&self.path)? {
                let (flag, aside) = (self.flag, aside.display());
                print_line(&format!("{flag}: the file of an earlier run is now {aside}"));
            }
            fs::rename(&partial, &self.path)
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&partial);
        })
    }

    /// Returns true for a device or a pipe.
    fn is_special(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|data| !data.is_file())
    }

    /// Returns a name beside the file.
    fn partial(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(format!(".{}.partial", std::process::id()));
        self.path.with_file_name(name)
    }
}
