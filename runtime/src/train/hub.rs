//! Models of the Hugging Face hub in place of paths.

use std::path::{Path, PathBuf};

use crate::checkpoint::CheckpointError;
use crate::checkpoint::hf::HfConfig;
#[cfg(feature = "hub")]
use meshwright_hub::Hub;

use super::{Error, Result};

/// Fetches the models that flags name by `hf://`, and replaces each by its folder, or the file of its tokenizer.
/// `accepted` are the unknown keys of `config.json` that are left out.
///
/// # Errors
/// A name that is none, a model that cannot be fetched, and one of another family than `C`, before its weights are.
pub fn fetch_models<C: HfConfig>(
    init_from: Option<&mut PathBuf>,
    tokenizer: Option<&mut PathBuf>,
    accepted: &[String],
) -> Result<()> {
    if let Some(path) = init_from {
        fetch_model(path, &|folder: &Path| C::read(folder, accepted).map(drop))?;
    }
    if let Some(path) = tokenizer.filter(|path| is_of_hub(path)) {
        *path = fetch("--tokenizer", path, None)?.join("tokenizer.json");
    }
    Ok(())
}

/// Fetches the model that `--init-from` names by `hf://`, if its configuration passes the check, and replaces the name
/// by its folder.
///
/// # Errors
/// As [`fetch_models`].
pub fn fetch_model(path: &mut PathBuf, check: Check<'_>) -> Result<()> {
    if is_of_hub(path) {
        *path = fetch("--init-from", path, Some(check))?;
    }
    Ok(())
}

fn is_of_hub(path: &Path) -> bool {
    path.to_string_lossy().starts_with("hf://")
}

/// A check of a folder that has only the configuration of a model.
type Check<'a> = &'a dyn Fn(&Path) -> std::result::Result<(), CheckpointError>;

/// Fetches a model whose configuration passes the check, or, without one, only its tokenizer; returns the folder.
#[cfg(feature = "hub")]
fn fetch(flag: &'static str, name: &Path, check: Option<Check<'_>>) -> Result<PathBuf> {
    let model = name.to_string_lossy().parse();
    let model = model.map_err(|message| Error::Input(format!("{flag}: {message}")))?;
    let fetch = || -> std::result::Result<PathBuf, CheckpointError> {
        let snapshot = Hub::from_env()?.open(&model)?;
        let Some(check) = check else { return Ok(snapshot.fetch_tokenizer()?.to_owned()) };
        // The cache may not have it.
        let folder = snapshot.fetch_config()?;
        if folder.join("config.json").exists() {
            check(folder)?;
        }
        Ok(snapshot.fetch_model()?.to_owned())
    };
    fetch().map_err(Error::of_flag(flag))
}

#[cfg(not(feature = "hub"))]
fn fetch(flag: &'static str, name: &Path, _: Option<Check<'_>>) -> Result<PathBuf> {
    Err(Error::Input(format!(
        "{flag}: {} is a model of the Hugging Face hub, and this program was built without support for it; build it \
         with `--features hub`, or name a folder that was downloaded",
        name.display()
    )))
}
