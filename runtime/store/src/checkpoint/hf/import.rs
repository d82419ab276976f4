//! Reading the weights of a Hugging Face folder, one file or many.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::derived::{DerivedTensor, are_equal};
use super::{ConfigFile, HfConfig, TensorRole};
use crate::checkpoint::load::compare_tensors;
use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, TensorBox, TensorSource, files};

/// An open folder. Its files are memory-mapped, so only tensors that are read take memory.
#[derive(Debug)]
pub struct HfFolder {
    folder: PathBuf,
    /// Path and content of every file of weights.
    files: Vec<(PathBuf, TensorFile)>,
    /// File and stored name of every tensor.
    places: HashMap<String, StoredTensor>,
    /// All keys of `config.json`.
    keys: Map<String, Value>,
    warnings: Vec<String>,
}

/// A tensor in a file.
#[derive(Debug)]
struct StoredTensor {
    /// Index of the file.
    file: usize,
    /// Name in the file.
    stored: String,
}

impl HfFolder {
    /// Opens a folder with `config.json` and `model.safetensors` or `model.safetensors.index.json`, and returns its
    /// configuration too. Keys of `config.json` that nothing reads are left out if `accepted` has them.
    /// [`check_tensors`](Self::check_tensors) compares the tensors with a model's.
    ///
    /// # Errors
    /// A file that is missing or damaged, settings that are not supported ([`HfConfig::read`]), fewer tensors than
    /// layers, a tensor that is stored twice, and one that follows from others but differs from what follows.
    pub fn open<C: HfConfig>(
        folder: &Path,
        accepted: &[String],
    ) -> Result<(C, HfFolder), CheckpointError> {
        if !folder.is_dir() {
            let reason = files::no_folder_reason(folder).to_owned();
            return Err(CheckpointError::Settings { path: folder.to_owned(), reason });
        }
        let ConfigFile { mut config, keys, warning } = C::read(folder, accepted)?;
        let (files, stored) = open_weights(folder)?;
        let (key, layers) = config.layers();
        if layers > stored.len() {
            let held = stored.len();
            let reason = format!("{key} is {layers}, but the weights hold {held} tensors in all");
            return Err(CheckpointError::settings(&folder.join("config.json"), reason));
        }
        let warnings = warning.map(|warning| format!("config.json: {warning}"));
        let mut opened = HfFolder {
            folder: folder.to_owned(),
            files,
            places: HashMap::new(),
            keys,
            warnings: warnings.into_iter().collect(),
        };
        let names = names_in_model(stored.keys(), |name| config.is_tensor_name(name));
        let mut derived = Vec::new();
        for (name, (stored, file)) in names.into_iter().zip(stored) {
            let place = StoredTensor { file, stored };
            match config.tensor_role(&name) {
                TensorRole::Model(name) => opened.add(name.into_owned(), place)?,
                TensorRole::Derived(kind) => derived.push((kind, name, place)),
            }
        }
        for (kind, name, place) in derived {
            match kind {
                DerivedTensor::TiedTo(source) => {
                    opened.add_tied(source, (name, place), &mut config)?;
                }
                kind => opened.check_derived(&kind, &place)?,
            }
        }
        Ok((config, opened))
    }

    /// Returns what is noticeable about the folder, for its user to know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    fn add(&mut self, name: String, place: StoredTensor) -> Result<(), CheckpointError> {
        let path = &self.files[place.file].0;
        if let Some(other) = self.places.get(&name) {
            let reason = format!("is there a second time, as `{}`", other.stored);
            return Err(CheckpointError::tensor_error(path, &name, reason));
        }
        self.places.insert(name, place);
        Ok(())
    }

    /// Adds a stored head that is tied to the tensor `source`: nothing if both are equal. A head that differs is a
    /// weight of its own, as in `transformers`, by its `name` in the model.
    fn add_tied<C: HfConfig>(
        &mut self,
        source: &'static str,
        (name, place): (String, StoredTensor),
        config: &mut C,
    ) -> Result<(), CheckpointError> {
        let Some(embedding) = self.places.get(source) else {
            // One weight, stored under its other name.
            return self.add(source.to_owned(), place);
        };
        let [head_file, embedding_file] = [&place, embedding].map(|place| &self.files[place.file]);
        let head = (&head_file.1, place.stored.as_str());
        if are_equal(head, (&embedding_file.1, &embedding.stored))? {
            return Ok(());
        }
        if !config.untie() {
            let reason = format!(
                "differs from `{}`, which a {} takes for its head; remove the one that is not used from the folder",
                embedding.stored,
                C::MODEL_TYPE
            );
            return Err(CheckpointError::tensor_error(&head_file.0, &place.stored, reason));
        }
        self.warnings.push(format!(
            "config.json ties the head to the embedding, but the stored `{}` differs from `{}`: the head is trained as \
             a weight of its own",
            place.stored, embedding.stored
        ));
        self.add(name, place)
    }

    fn check_derived(
        &self,
        kind: &DerivedTensor,
        place: &StoredTensor,
    ) -> Result<(), CheckpointError> {
        let StoredTensor { file, stored } = place;
        let (path, file) = &self.files[*file];
        let checked = kind.check(file.shape(stored).unwrap_or_default(), &file.numbers(stored)?);
        checked.map_err(|reason| CheckpointError::tensor_error(path, stored, reason))
    }

    /// Compares the tensors with the names and shapes that a model expects.
    ///
    /// # Errors
    /// [`CheckpointError::OtherModel`] lists every missing and every unexpected tensor, and tensors of another shape.
    /// Also refused are names that all have a prefix which no name of the model has, and a tensor of a dtype that
    /// cannot be read.
    pub fn check_tensors(&self, expected: &[(String, Vec<usize>)]) -> Result<(), CheckpointError> {
        let names = self.places.keys().map(String::as_str);
        if let (Some(prefix), Some((first, _))) = (common_prefix(names), expected.first())
            && !expected.iter().any(|(name, _)| name.starts_with(prefix))
        {
            let reason = format!(
                "the names of all tensors begin with `{prefix}`, but the model expects names such as `{first}`; rename \
                 the tensors"
            );
            return Err(CheckpointError::settings(&self.folder, reason));
        }
        let found = self.places.iter().filter_map(|(name, place)| {
            Some((name.as_str(), self.files[place.file].1.shape(&place.stored)?))
        });
        compare_tensors(&self.folder, expected.iter().cloned(), found)?;
        for (name, shape) in expected {
            // Of an empty box only the dtype is checked.
            let empty = TensorBox { offset: vec![0; shape.len()], shape: vec![0; shape.len()] };
            self.read_into(name, shape, &empty, &mut [])?;
        }
        Ok(())
    }
}

impl TensorSource for HfFolder {
    fn path_of(&self, name: &str) -> &Path {
        match self.places.get(name) {
            Some(place) => &self.files[place.file].0,
            None => &self.folder,
        }
    }

    fn copy_box(
        &self,
        name: &str,
        shape: &[usize],
        tensor_box: &TensorBox,
        out: &mut [f32],
    ) -> Result<usize, CheckpointError> {
        let Some(place) = self.places.get(name) else {
            return Err(CheckpointError::tensor_error(&self.folder, name, "is missing"));
        };
        let (_, file) = &self.files[place.file];
        file.copy_common(&place.stored, &TensorBox::whole(shape), out, tensor_box)
    }
}

/// Segments of names that wrappers of a module add, such as one that compiles it: anywhere in a name.
const WRAPPERS: [&str; 3] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// Returns the name in the model of each of the `stored` names: without the segments of modules that wrap it or a part
/// of it, and without a prefix of all of them if each is a name of the model then, by `is_name`.
fn names_in_model<'a>(
    stored: impl Iterator<Item = &'a String>,
    is_name: impl Fn(&str) -> bool,
) -> Vec<String> {
    let unwrapped = |name: &String| {
        let segments: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
        segments.join(".")
    };
    let mut names: Vec<String> = stored.map(unwrapped).collect();
    let cut = |names: &mut Vec<String>, len: usize| {
        names.iter_mut().for_each(|name| drop(name.drain(..len)));
    };
    // Of a module for data parallelism.
    const PARALLEL: &str = "module.";
    while !names.is_empty() && names.iter().all(|name| name.starts_with(PARALLEL)) {
        cut(&mut names, PARALLEL.len());
    }
    let longest = common_prefix(names.iter().map(String::as_str)).map_or(0, str::len);
    let ends = names.first().into_iter().flat_map(|name| name[..longest].match_indices('.'));
    let mut lengths = std::iter::once(0).chain(ends.map(|(dot, _)| dot + 1));
    let fitting = lengths.find(|len| names.iter().all(|name| is_name(&name[*len..])));
    cut(&mut names, fitting.unwrap_or(0));
    names
}

/// Returns the longest prefix of all `names` that ends in a dot; `None` if there is none.
fn common_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let first = names.next()?;
    let common = names.fold(first, |common, name| {
        let len = common.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        &common[..common.floor_char_boundary(len)]
    });
    common.rfind('.').map(|dot| &common[..=dot])
}

/// Files with their paths, and the index of the file of every tensor, sorted by name.
type WeightFiles = (Vec<(PathBuf, TensorFile)>, BTreeMap<String, usize>);

fn open_weights(folder: &Path) -> Result<WeightFiles, CheckpointError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let paths = if single.exists() {
        vec![single]
    } else if index.exists() {
        files_of_index(&index)?.into_iter().map(|name| folder.join(name)).collect()
    } else {
        let reason = "the folder has neither model.safetensors nor model.safetensors.index.json; weights in other \
                      formats must be converted to safetensors first";
        return Err(CheckpointError::settings(folder, reason));
    };
    let mut files = Vec::new();
    let mut file_of = BTreeMap::new();
    for path in paths {
        let file = TensorFile::open(&path)?;
        for name in file.names() {
            if let Some(first) = file_of.insert(name.clone(), files.len()) {
                let (first, _): &(PathBuf, TensorFile) = &files[first];
                let reason = format!("is also in {}", first.display());
                return Err(CheckpointError::tensor_error(&path, &name, reason));
            }
        }
        files.push((path, file));
    }
    Ok((files, file_of))
}

/// Returns the distinct file names of an index.
fn files_of_index(index: &Path) -> Result<Vec<String>, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let parsed: Index = serde_json::from_slice(&files::read_text(index, files::MAX_JSON_BYTES)?)
        .map_err(|error| CheckpointError::settings(index, format!("not an index: {error}")))?;
    let mut names: Vec<String> = parsed.weight_map.into_values().collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(CheckpointError::settings(index, "the weight_map is empty"));
    }
    // A path to another folder is not allowed in an index.
    match names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
        Some(name) => {
            let reason = format!("`{name}` is not the name of a file of this folder");
            Err(CheckpointError::settings(index, reason))
        }
        None => Ok(names),
    }
}
