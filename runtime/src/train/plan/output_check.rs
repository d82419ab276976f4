//! Checks that no output replaces an input of the run, or another output.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::checkpoint::hf::SideFiles;
use crate::checkpoint::is_name_of_checkpoints;
use crate::data::is_remote;
use crate::pipeline::StageCut;
use crate::train::config::{Config, ModelSource, ScheduleSource};
use crate::train::report::is_name_of_events;
use crate::train::{Error, Result};

use super::data_list::DataList;
use super::dataset::own_text;

/// An input and the output that may replace it, as it is read before: the weights of a model that is trained further.
const REPLACEABLE: (&str, &str) = ("--init-from", "--export-hf");

/// Flags of data, which may be folders.
const DATA_FLAGS: [&str; 2] = ["--data", "--eval-data"];

/// Ends of the names of files that runs read from folders.
const FILES_IN_FOLDERS: [&str; 4] = ["/config.json", ".safetensors", ".index.json", ".md"];

/// A file or folder of the command line.
struct NamedPath<'a> {
    flag: &'static str,
    path: &'a Path,
    is_folder: bool,
    /// The path without links, as far as it exists.
    real: PathBuf,
    /// Device and inode, if it exists.
    inode: Option<(u64, u64)>,
}

impl<'a> NamedPath<'a> {
    fn file(flag: &'static str, path: &'a Path) -> NamedPath<'a> {
        let inode = fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
        NamedPath { flag, path, is_folder: false, real: real_path(path), inode }
    }

    fn folder(flag: &'static str, path: &'a Path) -> NamedPath<'a> {
        NamedPath { is_folder: true, ..NamedPath::file(flag, path) }
    }

    fn kind(&self) -> &'static str {
        if self.is_folder { "folder" } else { "file" }
    }

    fn is_same(&self, other: &NamedPath<'_>) -> bool {
        self.real == other.real || self.inode.is_some() && self.inode == other.inode
    }

    /// Returns true if a file of this path would be one of the data that this folder or glob names.
    fn has_data(&self, file: &Path) -> bool {
        let pattern = self.real.to_str().and_then(|text| glob::Pattern::new(text).ok());
        let is_matched = pattern.is_some_and(|pattern| pattern.matches_path(file));
        is_matched && self.real != *file || self.is_folder && file.parent() == Some(&self.real)
    }

    /// Returns true for an existing file of a kind that runs read from folders.
    fn is_read(&self) -> bool {
        let is_of_kind = |suffix: &&str| self.real.to_string_lossy().ends_with(*suffix);
        self.inode.is_some() && !self.is_folder && FILES_IN_FOLDERS.iter().any(is_of_kind)
    }

    /// Returns true for a device or a pipe, to which any number of outputs can be written.
    fn is_special(&self) -> bool {
        fs::metadata(self.path).is_ok_and(|data| !data.is_file() && !data.is_dir())
    }
}

/// Checks the outputs of a run against its inputs, among which is the `checkpoint` to resume from, and each other.
///
/// # Errors
/// An output that is an input or an earlier output, is inside a folder that is an input or a checkpoint, or has a name
/// under which the run itself writes to a folder.
pub fn check_outputs(config: &Config, checkpoint: Option<&Path>) -> Result<()> {
    let own_text = if config.data.is_none() { own_text() } else { Vec::new() };
    let validation = config.validation.as_ref().and_then(|own| own.data.as_deref());
    let read = |flag, list: &Path| {
        DataList::read(flag, list).or_else(|error| DataList::of_folder(list).ok_or(error))
    };
    let of_flag = |flag, list: Option<&Path>| list.map(|list| read(flag, list)).transpose();
    let data = [
        ("--data", of_flag("--data", config.data.as_deref())?),
        ("--eval-data", of_flag("--eval-data", validation)?),
    ];
    let inputs: Vec<_> =
        inputs(config, checkpoint, &own_text).into_iter().chain(data_inputs(&data)).collect();
    let mut earlier: Vec<NamedPath<'_>> = streams().collect();
    for output in outputs(config) {
        // A file where a folder is needed is refused when the folder is created.
        let is_input = |input: &&NamedPath<'_>| {
            input.is_same(&output)
                && (input.is_folder || !output.is_folder)
                && (input.flag, output.flag) != REPLACEABLE
        };
        // Checkpoints, an exported model and event files can be in one folder.
        let is_earlier = |earlier: &&NamedPath<'_>| {
            earlier.is_same(&output) && !(earlier.is_folder && output.is_folder)
        };
        let same = inputs.iter().find(is_input).or_else(|| earlier.iter().find(is_earlier));
        if let Some(other) = same {
            return Err(Error::Input(format!(
                "{}: is also the {} of {}; name another {} to write to",
                output.flag,
                other.kind(),
                other.flag,
                output.kind()
            )));
        }
        let is_inside = |input: &&NamedPath<'_>| {
            // A run on a folder or a glob of data reads each of its files.
            let is_data = DATA_FLAGS.contains(&input.flag) && !output.is_folder;
            is_data && input.has_data(&output.real)
                || input.is_folder && output.is_read() && output.real.starts_with(&input.real)
        };
        let mut folders = inputs.iter();
        if let Some(input) = folders.find(is_inside) {
            return Err(refuse_inside(&output, input.path, &format!("of {}", input.flag)));
        }
        let mut folders = output.real.ancestors().skip(usize::from(!output.is_folder));
        if let Some(folder) = folders.find(|folder| is_checkpoint(folder)) {
            return Err(refuse_inside(&output, folder, "(a checkpoint)"));
        }
        earlier.push(output);
    }
    check_written_names(&inputs, &earlier)
}

/// Checks that no file of the command line has a name under which the run itself writes to a folder.
fn check_written_names(inputs: &[NamedPath<'_>], outputs: &[NamedPath<'_>]) -> Result<()> {
    // An export copies the files of its tokenizer, and a run continues from a checkpoint in its folder.
    let read = inputs.iter().filter(|input| !input.is_folder && input.flag != "--tokenizer");
    for named in read.chain(outputs) {
        let is_written = |folder: &&NamedPath<'_>| {
            let inside = named.real.strip_prefix(&folder.real).ok();
            let name = inside.and_then(|path| path.iter().next()?.to_str());
            name.is_some_and(|name| match folder.flag {
                "--save" => is_name_of_checkpoints(name),
                "--export-hf" => SideFiles::is_name_of_export(name),
                "--tensorboard" => is_name_of_events(name),
                _ => false,
            })
        };
        if let Some(folder) = outputs.iter().find(is_written) {
            return Err(Error::Input(format!(
                "{}: {} would be replaced by what {} writes to {}; name another {}",
                named.flag,
                named.path.display(),
                folder.flag,
                folder.path.display(),
                named.kind()
            )));
        }
    }
    Ok(())
}

fn refuse_inside(output: &NamedPath<'_>, folder: &Path, whose: &str) -> Error {
    Error::Input(format!(
        "{}: {} is in the folder {} {whose}, whose files a run must not change; write to another folder",
        output.flag,
        output.path.display(),
        folder.display()
    ))
}

fn inputs<'a>(
    config: &'a Config,
    checkpoint: Option<&'a Path>,
    own_text: &'a [PathBuf],
) -> Vec<NamedPath<'a>> {
    let pipeline = config.pipeline.as_ref();
    let schedule = pipeline.and_then(|pipeline| match &pipeline.schedule {
        ScheduleSource::File(path) => Some(path.as_path()),
        ScheduleSource::Named(_) => None,
    });
    let stages = pipeline.and_then(|pipeline| match &pipeline.stages {
        StageCut::Measured(path) => Some(path.as_path()),
        StageCut::Auto | StageCut::Even | StageCut::Counts(_) => None,
    });
    let (model, architecture) = match &config.model {
        ModelSource::InitFrom(folder) => (Some(folder.as_path()), None),
        ModelSource::Architecture(path) => (None, Some(path.as_path())),
        ModelSource::New(_) => (None, None),
    };
    let (folder, file) = match architecture {
        Some(path) if path.is_dir() => (Some(path), None),
        path => (None, path),
    };
    let files = [
        ("--config", config.config_file.as_deref()),
        ("--tokenizer", config.tokenizer.as_deref()),
        ("--architecture", file),
        ("--schedule", schedule),
        ("--stages", stages),
    ];
    let own_text = own_text.iter().map(|path| {
        let of_path = if path.is_dir() { NamedPath::folder } else { NamedPath::file };
        of_path("the default --data", path)
    });
    let folders = [("--init-from", model), ("--architecture", folder), ("--resume", checkpoint)];
    named(NamedPath::file, files).chain(named(NamedPath::folder, folders)).chain(own_text).collect()
}

/// Returns the files of data, and the folders and the file of a mixture that name them.
fn data_inputs<'a>(
    lists: &'a [(&'static str, Option<DataList>)],
) -> impl Iterator<Item = NamedPath<'a>> {
    let lists = lists.iter().filter_map(|(flag, list)| Some((*flag, list.as_ref()?)));
    lists.flat_map(|(flag, list)| {
        let of_path = move |path: &'a Path| {
            if path.is_dir() { NamedPath::folder(flag, path) } else { NamedPath::file(flag, path) }
        };
        let paths = list.containers.iter().map(PathBuf::as_path).chain(list.files());
        paths.filter(|path| !is_remote(path)).map(of_path)
    })
}

/// Returns the files to which the streams of the process are redirected. A second file handle would write over their
/// text.
fn streams() -> impl Iterator<Item = NamedPath<'static>> {
    let files = [("stdout", "/dev/stdout"), ("stderr", "/dev/stderr")];
    let streams = files.map(|(name, path)| NamedPath::file(name, Path::new(path)));
    streams.into_iter().filter(|stream| !stream.is_special())
}

/// Returns the outputs, except those that are devices or pipes.
fn outputs(config: &Config) -> impl Iterator<Item = NamedPath<'_>> {
    let files = [
        ("--metrics", config.metrics.as_deref()),
        ("--prometheus", config.prometheus.as_deref()),
        ("--trace", config.trace.as_deref()),
        ("--stage-times", config.stage_times.as_deref()),
        ("--record", config.record.as_deref()),
    ];
    let folders = [
        ("--save", config.save.as_ref().map(|save| save.dir.as_path())),
        ("--export-hf", config.export_hf.as_deref()),
        ("--tensorboard", config.tensorboard.as_deref()),
    ];
    named(NamedPath::file, files)
        .chain(named(NamedPath::folder, folders))
        .filter(|output| !output.is_special() && !is_remote(output.path))
}

/// Returns the paths of the flags that are given.
fn named<'a, const N: usize>(
    of_path: fn(&'static str, &'a Path) -> NamedPath<'a>,
    paths: [(&'static str, Option<&'a Path>); N],
) -> impl Iterator<Item = NamedPath<'a>> {
    paths.into_iter().filter_map(move |(flag, path)| Some(of_path(flag, path?)))
}

/// Returns the absolute path, without links as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|folder| {
        let rest = absolute.strip_prefix(folder).ok()?;
        // Without a slash at the end.
        Some(folder.canonicalize().ok()?.join(rest).components().collect())
    });
    existing.unwrap_or(absolute)
}

fn is_checkpoint(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("step-")) && folder.join("manifest.json").is_file()
}
