//! Programs that train several families, and pick that of a folder, a checkpoint or a flag.

use std::path::Path;

use crate::checkpoint::hf::read_model_type;
use crate::os::exit_code::exit_on_panic;
use meshwright_store::__internal::{none_of, with_article};

use super::config::RunSettings;
use super::hub::fetch_model;
use super::plan::{open_if_any, saved_family};
use super::trainer::{Trainer, begin_program};
use super::{Error, FamilyList, LanguageModel, Optimizers, Result, WithFamily};

/// Trains a model of a family of `F` with the settings of the command line: the family of the folder of `--init-from`,
/// of the file of `--architecture`, or of the checkpoint of `--resume`; else that of `--family`, or the first one.
///
/// ```no_run
/// use meshwright::models::Families;
///
/// fn main() -> meshwright::Result<()> {
///     meshwright::train::train_family_of::<Families>(&Default::default())
/// }
/// ```
///
/// A failure ends the process with one message on stderr and the [exit code](Error::exit_code) of the error.
///
/// # Errors
/// None at present; the type is reserved.
pub fn train_family_of<F: FamilyList>(optimizers: &Optimizers) -> Result<()> {
    begin_program();
    exit_on_panic(|| {
        let read = RunSettings::read_and::<()>(std::env::args_os(), optimizers);
        let picked = read.map_err(Error::Config).and_then(|(mut settings, ())| {
            let family = pick(&mut settings, &F::names())?;
            F::with(&family, Train(settings)).ok_or_else(|| unknown_family(&family, &F::names()))?
        });
        picked.unwrap_or_else(|error| error.exit());
        Ok(())
    })
}

/// Trains a language model with these settings.
pub(super) struct Train(pub RunSettings);

/// The error of a family that the program does not have.
pub(super) fn unknown_family(family: &str, known: &[&str]) -> Error {
    Error::Input(format!("--family: \"{family}\" is {}", none_of(known)))
}

impl WithFamily for Train {
    type Out = Result<()>;

    fn with<M: LanguageModel>(self) -> Result<()> {
        Trainer::<M>::with_settings(self.0)?.run()
    }
}

/// Returns the family that the settings name, one of `known`, or the first one.
pub(super) fn pick(settings: &mut RunSettings, known: &[&'static str]) -> Result<String> {
    if let Some((path, is_auto)) = settings.resume_path() {
        let auto = is_auto.then_some("--resume auto");
        let checkpoint = open_if_any(path, "--resume", auto)?;
        if let Some(family) = checkpoint.as_ref().and_then(saved_family) {
            if !known.contains(&family) {
                return Err(Error::Input(format!(
                    "--resume: {} is of {}, which is {}",
                    path.display(),
                    with_article(family),
                    none_of(known)
                )));
            }
            return Ok(family.to_owned());
        }
    }
    let read = |path: &Path| read_model_type(path, known);
    if let Some(path) = &mut settings.init_from {
        fetch_model(path, &|folder| read(folder).map(drop))?;
    }
    // A folder that is none has another message, from the trainer of any family.
    let files = [("--init-from", &settings.init_from), ("--architecture", &settings.architecture)];
    for (flag, path) in files {
        let Some(path) = path.as_deref() else { continue };
        if flag == "--init-from" && !path.join("config.json").exists() {
            continue;
        }
        return read(path).map(str::to_owned).map_err(Error::of_flag(flag));
    }
    Ok(settings.family.clone().unwrap_or_else(|| known[0].to_owned()))
}
