//! The rules about paths in object storage.

use std::path::PathBuf;

use crate::data::is_remote;

use super::problems::Problems;
use super::settings::RunSettings;

/// Least bytes of `--data-cache`: the rows of some steps are fetched ahead.
const LEAST_CACHE: usize = 100_000_000;

/// Only data in object storage are kept in a cache. Those of a mixture file may be.
pub fn data_are_kept_on_a_disk(settings: &RunSettings, problems: &mut Problems) {
    let may_be_remote = |list: &PathBuf| {
        let text = list.to_string_lossy();
        text.contains("://") || text.ends_with(".toml")
    };
    let mut data = [&settings.data, &settings.eval_data].into_iter().flatten();
    let is_used = data.any(may_be_remote);
    let flags = [
        ("data-cache", settings.data_cache.is_some()),
        ("data-cache-size", settings.data_cache_size.is_some()),
    ];
    for (flag, _) in flags.into_iter().filter(|(_, is_given)| *is_given && !is_used) {
        let message = "is of data in object storage, which neither --data nor --eval-data names \
                       (s3://BUCKET/tokens.bin)";
        problems.add(&[flag], message.to_owned());
    }
    if settings.data_cache_size.is_some_and(|bytes| bytes < LEAST_CACHE) {
        let message = "is too small for the rows that are read ahead; give at least 100MB";
        problems.add(&["data-cache-size"], message.to_owned());
    }
}

/// Checkpoints and data can be in object storage, and no other files and folders.
pub fn only_checkpoints_and_data_are_objects(settings: &RunSettings, problems: &mut Problems) {
    let is_object = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_remote);
    if settings.save_cache.is_some() && !is_object(&settings.save) && !is_object(&settings.resume) {
        let message = "is of checkpoints in object storage, which neither --save nor --resume names (s3://BUCKET/RUN)";
        problems.add(&["save-cache"], message.to_owned());
    }
    let others = [
        ("init-from", &settings.init_from),
        ("architecture", &settings.architecture),
        ("tokenizer", &settings.tokenizer),
        ("save-cache", &settings.save_cache),
        ("data-cache", &settings.data_cache),
        ("export-hf", &settings.export_hf),
        ("metrics", &settings.metrics),
        ("tensorboard", &settings.tensorboard),
        ("prometheus", &settings.prometheus),
        ("flight", &settings.flight),
        ("trace", &settings.trace),
        ("stage-times", &settings.stage_times),
        ("record", &settings.record),
        ("report", &settings.report),
    ];
    let written =
        others.into_iter().chain([("save", &settings.save), ("resume", &settings.resume)]);
    for (flag, path) in written.filter_map(|(flag, path)| Some((flag, path.as_deref()?))) {
        let text = path.to_string_lossy();
        if text.contains("://") && !is_remote(path) {
            let message = format!(
                "{text} is no path and no address that is known; use a path, or for --save, --resume, --data and \
                 --eval-data also s3://, gs:// or az:// (in lower case)"
            );
            problems.add(&[flag], message);
        }
    }
    for (flag, path) in others {
        if let Some(object) = path.as_deref().filter(|path| is_remote(path)) {
            let message = format!(
                "{} is in object storage, where only --save, --resume, --data and --eval-data read and write; copy it \
                 to a disk, or name a path there",
                object.display()
            );
            problems.add(&[flag], message);
        }
    }
}
