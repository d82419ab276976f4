//! Reading the weights of a Hugging Face folder, one file or many.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::HfConfig;
use crate::checkpoint::load::compare_tensors;
use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, Region, files};

/// An open folder, whose tensors are those of its `config.json`, by name and shape.
///
/// Files are mapped, so only what is read takes memory. It can be shared by all ranks of a process.
#[derive(Debug)]
pub struct HfFolder {
    /// Path and content of every file of weights.
    files: Vec<(PathBuf, TensorFile)>,
    /// Where every tensor of the configuration is.
    places: HashMap<String, Place>,
}

/// Where a tensor is: the number of its file, and its name there.
#[derive(Debug)]
struct Place {
    file: usize,
    stored: String,
}

impl HfFolder {
    /// Opens a folder with `config.json` and `model.safetensors` or `model.safetensors.index.json`, and gives its
    /// configuration too.
    ///
    /// # Errors
    /// A file that is missing or damaged, settings that are not supported ([`HfConfig::read`]), and tensors that are
    /// missing, unexpected, or of another shape or dtype than the settings ask for.
    pub fn open<C: HfConfig>(folder: &Path) -> Result<(C, HfFolder), CheckpointError> {
        if !folder.is_dir() {
            let reason = files::no_folder(folder).to_owned();
            return Err(CheckpointError::Settings { path: folder.to_owned(), reason });
        }
        let config = C::read(folder)?;
        let (files, stored) = open_weights(folder)?;
        let (key, layers) = config.layers();
        if layers > stored.len() {
            let held = stored.len();
            let reason = format!("{key} is {layers}, but the weights hold {held} tensors in all");
            return Err(CheckpointError::settings(&folder.join("config.json"), reason));
        }
        let mut places = HashMap::new();
        for (stored, file) in stored {
            let Some(name) = config.tensor_name(&stored).map(Cow::into_owned) else { continue };
            let place = Place { file, stored };
            if let Some(other) = places.insert(name.clone(), place) {
                let reason = format!("is there a second time, as `{}`", other.stored);
                return Err(CheckpointError::tensor(&files[file].0, &name, reason));
            }
        }
        let weights = HfFolder { files, places };
        weights.check_tensors(folder, &config.tensors())?;
        Ok((config, weights))
    }

    /// Reads a box of a tensor whose shape is `shape`, widened to f32.
    ///
    /// # Errors
    /// A tensor that is missing, or of another shape or dtype, with its file.
    pub fn read(
        &self,
        name: &str,
        shape: &[usize],
        region: &Region,
    ) -> Result<Vec<f32>, CheckpointError> {
        let mut out = vec![0.0; region.len()];
        self.read_into(name, shape, region, &mut out)?;
        Ok(out)
    }

    /// As [`HfFolder::read`], into memory that is there already.
    ///
    /// # Errors
    /// As [`HfFolder::read`].
    ///
    /// # Panics
    /// When `out` has not the length of the region: a fault of the calling code.
    pub fn read_into(
        &self,
        name: &str,
        shape: &[usize],
        region: &Region,
        out: &mut [f32],
    ) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), region.len(), "room for `{name}`");
        let place = self.places.get(name);
        let (path, file) = &self.files[place.map_or(0, |place| place.file)];
        let stored = place.map_or(name, |place| &place.stored);
        let copied = file.copy_common(stored, &Region::whole(shape), out, region)?;
        if copied != region.len() {
            let reason = format!("of shape {shape:?} has no part {region}");
            return Err(CheckpointError::tensor(path, name, reason));
        }
        Ok(())
    }

    fn check_tensors(
        &self,
        folder: &Path,
        expected: &[(String, Vec<usize>)],
    ) -> Result<(), CheckpointError> {
        let found = self.places.iter().filter_map(|(name, place)| {
            Some((name.as_str(), self.files[place.file].1.shape(&place.stored)?))
        });
        compare_tensors(folder, expected.iter().cloned(), found)?;
        for (name, shape) in expected {
            // An empty box: judges the dtype, and reads nothing.
            let nothing = Region { offset: vec![0; shape.len()], shape: vec![0; shape.len()] };
            self.read_into(name, shape, &nothing, &mut [])?;
        }
        Ok(())
    }
}

/// The files, and the number of that of every tensor.
type Weights = (Vec<(PathBuf, TensorFile)>, HashMap<String, usize>);

fn open_weights(folder: &Path) -> Result<Weights, CheckpointError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let paths = if single.exists() {
        vec![single]
    } else if index.exists() {
        files_of(&index)?.into_iter().map(|name| folder.join(name)).collect()
    } else {
        let reason = "the folder has neither model.safetensors nor model.safetensors.index.json; weights in other \
                      formats must be converted to safetensors first";
        return Err(CheckpointError::settings(folder, reason));
    };
    let mut files = Vec::new();
    let mut file_of = HashMap::new();
    for path in paths {
        let file = TensorFile::open(&path)?;
        for name in file.names() {
            if let Some(first) = file_of.insert(name.clone(), files.len()) {
                let (first, _): &(PathBuf, TensorFile) = &files[first];
                let reason = format!("is also in {}", first.display());
                return Err(CheckpointError::tensor(&path, &name, reason));
            }
        }
        files.push((path, file));
    }
    Ok((files, file_of))
}

/// The file names of an index, each once.
fn files_of(index: &Path) -> Result<Vec<String>, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = std::fs::read_to_string(index).map_err(CheckpointError::io("read", index))?;
    let parsed: Index = serde_json::from_str(&text)
        .map_err(|error| CheckpointError::settings(index, format!("not an index: {error}")))?;
    let mut names: Vec<String> = parsed.weight_map.into_values().collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(CheckpointError::settings(index, "the weight_map is empty"));
    }
    // A name that leads elsewhere has no place in an index.
    match names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => {
            let reason = format!("`{name}` is not the name of a file of this folder");
            Err(CheckpointError::settings(index, reason))
        }
        None => Ok(names),
    }
}
