//! Models of the Hugging Face hub in place of paths.

use std::path::{Path, PathBuf};

use crate::checkpoint::hf::HfConfig;

use super::Result;

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
    if let Some(path) = init_from.filter(|path| is_of_hub(path)) {
        *path = fetch_model::<C>(path, accepted)?;
    }
    if let Some(path) = tokenizer.filter(|path| is_of_hub(path)) {
        *path = fetch_tokenizer(path)?;
    }
    Ok(())
}

fn is_of_hub(path: &Path) -> bool {
    path.to_string_lossy().starts_with("hf://")
}

#[cfg(feature = "hub")]
use with_hub::{fetch_model, fetch_tokenizer};

#[cfg(feature = "hub")]
mod with_hub {
    use std::path::{Path, PathBuf};

    use crate::checkpoint::CheckpointError;
    use crate::checkpoint::hf::HfConfig;
    use crate::train::{Error, Result};
    use meshwright_hub::{Hub, HubSnapshot};

    pub fn fetch_model<C: HfConfig>(name: &Path, accepted: &[String]) -> Result<PathBuf> {
        fetch("--init-from", name, |snapshot| {
            let folder = snapshot.fetch_config()?;
            if folder.join("config.json").exists() {
                C::read(folder, accepted)?;
            }
            Ok(snapshot.fetch_model()?.to_owned())
        })
    }

    pub fn fetch_tokenizer(name: &Path) -> Result<PathBuf> {
        fetch("--tokenizer", name, |snapshot| {
            Ok(snapshot.fetch_tokenizer()?.join("tokenizer.json"))
        })
    }

    fn fetch(
        flag: &'static str,
        name: &Path,
        fetch: impl FnOnce(&HubSnapshot) -> std::result::Result<PathBuf, CheckpointError>,
    ) -> Result<PathBuf> {
        let model = name.to_string_lossy().parse();
        let model = model.map_err(|message| Error::Input(format!("{flag}: {message}")))?;
        let snapshot = Hub::from_env().and_then(|hub| hub.open(&model));
        snapshot.and_then(|snapshot| fetch(&snapshot)).map_err(Error::of_flag(flag))
    }
}

#[cfg(not(feature = "hub"))]
fn fetch_model<C: HfConfig>(name: &Path, _: &[String]) -> Result<PathBuf> {
    Err(refuse("--init-from", name))
}

#[cfg(not(feature = "hub"))]
fn fetch_tokenizer(name: &Path) -> Result<PathBuf> {
    Err(refuse("--tokenizer", name))
}

#[cfg(not(feature = "hub"))]
fn refuse(flag: &str, name: &Path) -> super::Error {
    super::Error::Input(format!(
        "{flag}: {} is a model of the Hugging Face hub, and this program was built without support for it; build it \
         with `--features hub`, or name a folder that was downloaded",
        name.display()
    ))
}
