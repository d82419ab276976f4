//! Reading the weights of a Hugging Face folder, one file or many.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::derived::{DerivedTensor, are_equal};
use super::file_names::CONFIG;
use super::model_type::with_article;
use super::stacked::{StackedPart, StackedWeights};
use super::stored_names::{common_prefix, names_in_model};
use super::weight_files::open_weights;
use super::{ConfigFile, HfConfig, TensorRole, other_content};
use crate::checkpoint::load::compare_tensors;
use crate::checkpoint::tensors::TensorFile;
use crate::checkpoint::{CheckpointError, StoredDtype, TensorBox, TensorSource};

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
    /// The configuration that was read from them, as an export would write it.
    config: Value,
    /// Beginnings of names of tensors that may be missing.
    new_tensors: &'static [&'static str],
    warnings: Vec<String>,
}

/// A tensor in a file.
#[derive(Debug)]
struct StoredTensor {
    /// Index of the file.
    file: usize,
    /// Name in the file.
    stored: String,
    /// The part of the stored tensor, if it holds several of the model.
    part: Option<StackedPart>,
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
            return Err(CheckpointError::settings(folder, other_content::describe_path(folder)));
        }
        if !folder.join(CONFIG).exists()
            && let Some(reason) = other_content::describe_folder(folder)
        {
            return Err(CheckpointError::settings(folder, reason));
        }
        let ConfigFile { mut config, keys, warnings } = C::read(folder, accepted)?;
        let (files, stored) = open_weights(folder)?;
        let (key, layers) = config.layers();
        if layers > stored.len() {
            let held = stored.len();
            let reason = format!("{key} is {layers}, but the weights hold {held} tensors in all");
            return Err(CheckpointError::settings(&folder.join(CONFIG), reason));
        }
        let warnings = warnings.into_iter().map(|warning| format!("config.json: {warning}"));
        let mut opened = HfFolder {
            folder: folder.to_owned(),
            files,
            places: HashMap::new(),
            keys,
            config: config.to_json(),
            new_tensors: config.new_tensors(),
            warnings: warnings.collect(),
        };
        let names = names_in_model(stored.keys(), |name| config.is_tensor_name(name));
        let (mut derived, mut unused) = (Vec::new(), Vec::new());
        for (name, (stored, file)) in names.into_iter().zip(stored) {
            let place = StoredTensor { file, stored, part: None };
            match config.tensor_role(&name) {
                TensorRole::Model(name) => opened.add(name.into_owned(), place)?,
                TensorRole::StackOfWeights(weights) => opened.add_stacked(&weights, &place)?,
                TensorRole::Derived(kind) => derived.push((kind, name, place)),
                TensorRole::Unused => unused.push(name),
                TensorRole::Refused(reason) => {
                    let path = &opened.files[place.file].0;
                    return Err(CheckpointError::tensor_error(path, &place.stored, reason));
                }
            }
        }
        for (kind, name, place) in derived {
            match kind {
                DerivedTensor::TiedTo(source) => {
                    opened.add_tied(source, (name, place), &mut config)?;
                }
                DerivedTensor::CopyOf(source) => {
                    opened.add_copy(source, place, config.model_type())?;
                }
                kind => opened.check_derived(&kind, &place)?,
            }
        }
        unused.sort();
        if let [first, ..] = &unused[..] {
            opened.warnings.push(format!(
                "the model does not use {} of the tensors, such as `{first}`: they are neither trained nor exported",
                unused.len()
            ));
        }
        Ok((config, opened))
    }

    /// Returns what is noticeable about the folder, for its user to know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the dtype of most elements of the weights; f32 if there are none.
    pub fn dtype(&self) -> StoredDtype {
        let mut elements =
            [StoredDtype::F32, StoredDtype::F16, StoredDtype::Bf16].map(|dtype| (dtype, 0));
        for place in self.places.values() {
            let (_, file) = &self.files[place.file];
            let dtype = file.dtype(&place.stored);
            let of_dtype = elements.iter_mut().find(|(own, _)| Some(*own) == dtype);
            if let Some((_, elements)) = of_dtype {
                *elements += self.shape_of(place).iter().product::<usize>();
            }
        }
        elements
            .into_iter()
            .rev()
            .max_by_key(|(_, elements)| *elements)
            .map_or(StoredDtype::F32, |(dtype, _)| dtype)
    }

    /// Returns the number of tensors of the model that the folder holds.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if the folder holds no tensor of the model.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn keys(&self) -> &Map<String, Value> {
        &self.keys
    }

    pub(super) fn config(&self) -> &Value {
        &self.config
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

    /// Adds the tensors of the model in one stored tensor.
    fn add_stacked(
        &mut self,
        weights: &StackedWeights,
        place: &StoredTensor,
    ) -> Result<(), CheckpointError> {
        let StoredTensor { file, stored, .. } = place;
        let (path, content) = &self.files[*file];
        let parts = weights.parts(content.shape(stored).unwrap_or_default());
        let parts = parts.map_err(|reason| CheckpointError::tensor_error(path, stored, reason))?;
        for (name, part) in parts {
            let place = StoredTensor { file: *file, stored: stored.clone(), part: Some(part) };
            self.add(name, place)?;
        }
        Ok(())
    }

    /// Returns the shape of a tensor of the model.
    fn shape_of(&self, place: &StoredTensor) -> Vec<usize> {
        match &place.part {
            Some(part) => part.shape().to_vec(),
            None => self.files[place.file].1.shape(&place.stored).unwrap_or_default().to_vec(),
        }
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
                "differs from `{}`, which {} takes for its head; remove the one that is not used from the folder",
                embedding.stored,
                with_article(config.model_type())
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

    /// Adds a copy of the tensor `source`: nothing if both are equal.
    fn add_copy(
        &mut self,
        source: &'static str,
        place: StoredTensor,
        model_type: &str,
    ) -> Result<(), CheckpointError> {
        let Some(original) = self.places.get(source) else {
            // One weight, stored under its other name.
            return self.add(source.to_owned(), place);
        };
        let [(path, file), (_, other)] = [&place, original].map(|place| &self.files[place.file]);
        if are_equal((file, &place.stored), (other, &original.stored))? {
            return Ok(());
        }
        let reason = format!(
            "differs from `{}`, which {} has in its place; remove the one that is not used from the folder",
            original.stored,
            with_article(model_type)
        );
        Err(CheckpointError::tensor_error(path, &place.stored, reason))
    }

    fn check_derived(
        &self,
        kind: &DerivedTensor,
        place: &StoredTensor,
    ) -> Result<(), CheckpointError> {
        let StoredTensor { file, stored, .. } = place;
        let (path, file) = &self.files[*file];
        let checked = kind.check(file.shape(stored).unwrap_or_default(), &file.numbers(stored)?);
        checked.map_err(|reason| CheckpointError::tensor_error(path, stored, reason))
    }

    /// Compares the shapes of tensors that the folder holds with those that a model expects; others may be missing.
    ///
    /// # Errors
    /// [`CheckpointError::OtherModel`] lists every tensor of another shape.
    pub fn check_shapes(&self, expected: &[(String, Vec<usize>)]) -> Result<(), CheckpointError> {
        let held = expected.iter().filter_map(|tensor| Some((tensor, self.places.get(&tensor.0)?)));
        let (expected, shapes): (Vec<_>, Vec<_>) =
            held.map(|(tensor, place)| (tensor.clone(), self.shape_of(place))).unzip();
        let found =
            expected.iter().zip(&shapes).map(|((name, _), shape)| (name.as_str(), &shape[..]));
        compare_tensors(&self.folder, expected.iter().cloned(), found)
    }

    /// Returns true if the folder lacks a tensor of the model that may begin with new values.
    pub fn is_new(&self, name: &str) -> bool {
        let may_be_new = self.new_tensors.iter().any(|start| name.starts_with(start));
        may_be_new && !self.places.contains_key(name)
    }

    /// Returns the warning about the `expected` tensors that begin with new values, if there are any.
    pub fn warning_of_new(&self, expected: &[(String, Vec<usize>)]) -> Option<String> {
        let names = expected.iter().map(|(name, _)| name).filter(|name| self.is_new(name));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| {
            format!("the folder does not have {}: they begin with new values", names.join(", "))
        })
    }

    /// Compares the tensors with the names and shapes that a model expects, except for those that are
    /// [new](Self::is_new).
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
        let shapes: Vec<_> =
            self.places.iter().map(|(name, place)| (name, self.shape_of(place))).collect();
        let found = shapes.iter().map(|(name, shape)| (name.as_str(), &shape[..]));
        let stored = || expected.iter().filter(|(name, _)| !self.is_new(name));
        compare_tensors(&self.folder, stored().cloned(), found)?;
        for (name, shape) in stored() {
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
        match &place.part {
            None => file.copy_common(&place.stored, &TensorBox::whole(shape), out, tensor_box),
            Some(part) => {
                let held = TensorBox::whole(&part.stored);
                file.copy_common(&place.stored, &held, out, &part.in_stored(tensor_box))
            }
        }
    }
}
