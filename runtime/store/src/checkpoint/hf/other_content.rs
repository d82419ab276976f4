//! Folders and files that are no models which can be read: what each is, and the next step.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file_names::{CONFIG, INDEX, WEIGHTS};
use crate::checkpoint::{CheckpointError, files};

/// Most bytes of a file that is read for a message.
const MAX_BYTES: u64 = 1 << 20;

/// Loading and saving a folder with the Python library `transformers`, with a place for the argument of the first.
fn resaved(load: &str, folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "python3 -c 'from transformers import AutoModelForCausalLM as M; M.from_pretrained(\"{folder}\"{load}, \
         dtype=\"auto\").save_pretrained(\"{folder}\")'"
    )
}

/// Describes a folder without files of weights that can be read, if it is of a known kind.
pub fn describe_folder(folder: &Path) -> Option<String> {
    if let Some(snapshot) = snapshot_in(folder) {
        return Some(format!(
            "it is a folder of the hub's cache; name the snapshot in it, {}",
            snapshot.display()
        ));
    }
    let names = sorted_names(folder);
    let find = |is_kind: &dyn Fn(&str) -> bool| names.iter().find(|name| is_kind(name));
    if let Some(name) = unfinished_download(folder, &names) {
        return Some(format!(
            "its download is not complete ({name}); start the download again, which continues it"
        ));
    }
    let is_lost = |name: &&String| folder.join(name).is_symlink() && !folder.join(name).exists();
    if let Some(name) = names.iter().find(is_lost) {
        return Some(format!("{name} is a link to a file that is not there; download it again"));
    }
    if find(&|name| name == "latest" || name.starts_with("step-") || name == "manifest.json")
        .is_some()
    {
        let folder = folder.display();
        return Some(format!(
            "it holds checkpoints of a run; --resume {folder} continues the run, and --resume {folder} --export-hf DIR \
             writes its model as a folder for --init-from"
        ));
    }
    if find(&|name| name == "adapter_config.json").is_some() {
        return Some(describe_adapter(folder));
    }
    if let Some(name) = find(&|name| name.ends_with(".gguf")) {
        let convert = resaved(&format!(", gguf_file=\"{name}\""), folder);
        return Some(format!(
            "{name} is a GGUF file, whose weights are mostly quantized; use the folder that it was made from, or \
             convert it: {convert}"
        ));
    }
    if let Some(name) = find(&|name| name.starts_with("pytorch_model") && name.contains(".bin")) {
        return Some(format!(
            "its weights are in pickle files ({name}); convert them to safetensors: {}",
            resaved("", folder)
        ));
    }
    if let Some(name) = find(&|name| name.starts_with("consolidated.") || name == "params.json") {
        return Some(format!(
            "{name} is of the format in which Meta or Mistral publish weights; use the folder of the same model for \
             transformers, or convert it by the script convert_llama_weights_to_hf.py of transformers"
        ));
    }
    let is_of_other_library = |name: &str| {
        name.starts_with("tf_model")
            || name.starts_with("flax_model")
            || name.starts_with("model.ckpt")
    };
    if let Some(name) = find(&is_of_other_library) {
        return Some(format!(
            "{name} holds weights of TensorFlow or Flax; convert them by from_pretrained with from_tf=True or \
             from_flax=True, and save_pretrained, of transformers 4"
        ));
    }
    if find(&|name| name.starts_with("model-") && name.contains("-of-")).is_some() {
        return Some(format!("it has several files of weights, but no {INDEX}; download it too"));
    }
    if let Some(name) = find(&|name| name.ends_with(".safetensors") && name != WEIGHTS) {
        return Some(format!(
            "its only file of weights is {name}; rename it to {WEIGHTS} if it is the whole model"
        ));
    }
    let is_model = |name: &&String| folder.join(name).join(CONFIG).is_file();
    let inner = names.iter().find(is_model)?;
    Some(format!("the folder inside of it has a model; name {}", folder.join(inner).display()))
}

/// Returns the `config.json` at `path`, which is the file or a folder with it.
///
/// # Errors
/// A path that is neither, in words.
pub fn find_config(path: &Path) -> Result<PathBuf, CheckpointError> {
    let file = if path.is_dir() { path.join(CONFIG) } else { path.to_owned() };
    let is_weights = |end: &&str| path.to_string_lossy().ends_with(*end);
    let reason = if path.is_dir() && !file.exists() {
        "the folder has no config.json, which states the sizes of a model"
    } else if !file.exists() {
        "no such file or folder; name a config.json, or a folder with one"
    } else if !path.is_dir() && [".safetensors", ".gguf", ".bin", ".pth"].iter().any(is_weights) {
        "it holds weights; name the config.json of the model, or its folder"
    } else {
        return Ok(file);
    };
    Err(CheckpointError::settings(path, reason))
}

/// Describes a path that is no folder.
pub fn describe_path(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.exists() {
        let next = if name.ends_with(".gguf") {
            "it is a GGUF file; use the folder of safetensors that it was made from"
        } else if name.ends_with(".safetensors") || name.ends_with(".json") {
            "it is a file, not a folder; name the folder that it is in, with its config.json"
        } else {
            files::no_folder_reason(path)
        };
        return next.to_owned();
    }
    let mut reason = files::no_folder_reason(path).to_owned();
    let text = path.to_string_lossy();
    let model = match text.split_once("huggingface.co/") {
        Some((_, model)) => model,
        None => &text,
    };
    let parts: Vec<&str> = model.split('/').filter(|part| !part.is_empty()).collect();
    let is_name = |part: &str| !part.starts_with(['.', '~']);
    if let [owner, name] | [owner, name, "tree" | "blob", ..] = parts[..]
        && !model.starts_with('/')
        && is_name(owner)
        && is_name(name)
    {
        reason += &format!("; a model of the Hugging Face hub is named hf://{owner}/{name}");
    }
    reason
}

/// Describes an adapter without its base model.
fn describe_adapter(folder: &Path) -> String {
    let keys = files::read(&folder.join("adapter_config.json"), MAX_BYTES);
    let keys: Option<Value> = keys.ok().and_then(|text| serde_json::from_slice(&text).ok());
    let base = keys.as_ref().and_then(|keys| keys["base_model_name_or_path"].as_str());
    let of_base = base.map_or(String::new(), |base| format!(" of {base}"));
    format!(
        "it is an adapter{of_base} (adapter_config.json), not a whole model; merge it into its base model: python3 -c \
         'from peft import AutoPeftModelForCausalLM as M; \
         M.from_pretrained(\"{}\").merge_and_unload().save_pretrained(\"merged\")'",
        folder.display()
    )
}

/// Returns the snapshot in a folder of the hub's cache: `models--owner--name`, its folder `snapshots`, or the cache.
fn snapshot_in(folder: &Path) -> Option<PathBuf> {
    let is_model = |folder: &Path| folder.join("snapshots").is_dir();
    let snapshots = match folder.file_name()?.to_str()? {
        "snapshots" => folder.to_owned(),
        _ if is_model(folder) => folder.join("snapshots"),
        _ => {
            let mut models = sorted_names(folder).into_iter().map(|name| folder.join(name));
            models.find(|model| is_model(model))?.join("snapshots")
        }
    };
    let main = files::read(&snapshots.with_file_name("refs").join("main"), MAX_BYTES).ok();
    let main = main.and_then(|text| Some(String::from_utf8(text).ok()?.trim().to_owned()));
    let revision = main.filter(|revision| snapshots.join(revision).is_dir());
    Some(snapshots.join(revision.or_else(|| sorted_names(&snapshots).pop())?))
}

/// Returns the name of a file that is being downloaded, or was not downloaded to its end.
fn unfinished_download(folder: &Path, names: &[String]) -> Option<String> {
    let is_unfinished = |name: &&String| {
        [".incomplete", ".part", ".crdownload", ".aria2"].iter().any(|end| name.ends_with(end))
    };
    // Of a download to a folder, and to the hub's cache, whose snapshots are links.
    let [own, shared] = [".cache/huggingface/download", "../../blobs"]
        .map(|place| sorted_names(&folder.join(place)));
    let is_snapshot = folder.parent().is_some_and(|parent| parent.ends_with("snapshots"));
    let shared = shared.iter().filter(|_| is_snapshot);
    names.iter().chain(&own).chain(shared).find(is_unfinished).cloned()
}

/// Lists the names in a folder; none if it cannot be read.
fn sorted_names(folder: &Path) -> Vec<String> {
    let mut names = files::file_names(folder).unwrap_or_default();
    names.sort();
    names
}
