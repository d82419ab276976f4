//! Descriptions by name: built-in ones, and files of users.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use meshwright_os::read_text;

use super::file::{read_cluster, read_gpu};
use super::spelling::hint;
use super::{Cluster, ClusterError, Gpu};

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../clusters/", $name)))),+]
    };
}

/// The files that are built in.
const BUILT_IN: &[(&str, &str)] = files![
    "a100-40gb.toml",
    "a100-dgx.toml",
    "b200.toml",
    "gb200-nvl72.toml",
    "h100-dgx.toml",
    "h200.toml",
    "k40-box.toml",
    "llama3.toml",
    "mi300x.toml",
    "mi325x.toml",
    "tpu-v5p.toml",
    "trn2.toml",
    "v100-dgx1.toml",
];

/// Short names of clusters.
const ALIASES: &[(&str, &str)] = &[
    ("a100", "a100-dgx"),
    ("dgx-a100", "a100-dgx"),
    ("dgx-h100", "h100-dgx"),
    ("gb200", "gb200-nvl72"),
    ("h100", "h100-dgx"),
    ("h200-dgx", "h200"),
    ("k40", "k40-box"),
    ("mi300", "mi300x"),
    ("mi325", "mi325x"),
    ("trainium2", "trn2"),
    ("v100", "v100-dgx1"),
    ("v5p", "tpu-v5p"),
];

/// Clusters of GPUs by the name that their driver reports.
const DRIVER_NAMES: &[(&str, &str)] = &[
    ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
    ("NVIDIA A100-SXM4-80GB", "a100-dgx"),
    ("NVIDIA B200", "b200"),
    ("NVIDIA GB200", "gb200-nvl72"),
    ("NVIDIA H100 80GB HBM3", "h100-dgx"),
    ("NVIDIA H200", "h200"),
    ("Tesla V100-SXM2-32GB", "v100-dgx1"),
];

/// Descriptions of clusters and GPUs by name.
#[derive(Debug, Clone)]
pub struct Catalog {
    gpus: Vec<Entry<Gpu>>,
    clusters: Vec<Entry<Cluster>>,
}

#[derive(Debug, Clone)]
struct Entry<V> {
    value: Arc<V>,
    /// The user's file; `None` if it is built in.
    path: Option<PathBuf>,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog::new()
    }
}

impl Catalog {
    /// Creates the catalog of the descriptions that are built in.
    pub fn new() -> Catalog {
        let mut catalog = Catalog { gpus: Vec::new(), clusters: Vec::new() };
        let files = BUILT_IN.iter().map(|(name, text)| File {
            path: None,
            name: (*name).into(),
            text: (*text).into(),
        });
        catalog.add(files.collect()).expect("the files that are built in are correct");
        catalog
    }

    /// Adds the descriptions of a TOML file, or of all `.toml` files of a folder. They replace built-in descriptions of
    /// the same names; built-in clusters take a replaced GPU.
    ///
    /// # Errors
    /// Files that cannot be read, faulty descriptions, and a name that two files describe.
    pub fn add_path(&mut self, path: &Path) -> Result<(), ClusterError> {
        let unreadable = |error| ClusterError::Unreadable { path: path.into(), error };
        if !path.is_dir() {
            self.add_file(path)?;
            return Ok(());
        }
        let entries: Result<Vec<_>, _> =
            fs::read_dir(path).and_then(Iterator::collect).map_err(unreadable);
        let paths = entries?.into_iter().map(|entry| entry.path());
        let mut paths: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        if paths.is_empty() {
            return Err(unreadable(std::io::Error::other("the folder has no .toml file")));
        }
        paths.sort();
        let files: Result<_, _> = paths.iter().map(|path| File::read(path)).collect();
        self.add(files?).map(|_| ())
    }

    /// Adds the descriptions of a TOML file, as [`add_path`](Self::add_path) does, and returns its cluster; `None` if
    /// it describes only a GPU.
    ///
    /// # Errors
    /// A file that cannot be read, faulty descriptions, and a name that another added file describes.
    pub fn add_file(&mut self, path: &Path) -> Result<Option<Arc<Cluster>>, ClusterError> {
        self.add(vec![File::read(path)?])
    }

    /// Returns all clusters, the built-in ones first.
    pub fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.clusters.iter().map(|entry| &entry.value)
    }

    /// Returns the cluster of a name, of a short name such as `h100`, or of a file: a path that ends in `.toml` or
    /// has a `/`. Names have no case.
    ///
    /// # Errors
    /// An unknown name, and a file as for [`add_file`](Self::add_file) or without a cluster.
    pub fn cluster(&self, name: &str) -> Result<Arc<Cluster>, ClusterError> {
        if name.ends_with(".toml") || name.contains('/') {
            let cluster = self.clone().add_file(name.as_ref())?;
            return cluster.ok_or_else(|| ClusterError::Faulty {
                file: name.into(),
                line: 1,
                message: "describes a GPU, and no cluster: add a table [cluster]".into(),
            });
        }
        let names = self.clusters().map(|cluster| cluster.name.as_str());
        let find =
            |name: &str| self.clusters().find(|cluster| cluster.name.eq_ignore_ascii_case(name));
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        let found = find(name).or_else(|| find(alias?.1));
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = names.chain(ALIASES.iter().map(|(alias, _)| *alias)).collect();
            ClusterError::Unknown { kind: "cluster", name: name.into(), hint: hint(name, &names) }
        })
    }

    /// Returns the cluster of the GPUs whose driver reports `name`; `None` if no cluster is known to have them.
    pub fn cluster_of_driver_name(&self, name: &str) -> Option<Arc<Cluster>> {
        let (_, cluster) = DRIVER_NAMES.iter().find(|(known, _)| *known == name)?;
        self.cluster(cluster).ok()
    }

    /// Returns the GPU of a name.
    ///
    /// # Errors
    /// [`ClusterError::Unknown`].
    pub fn gpu(&self, name: &str) -> Result<Arc<Gpu>, ClusterError> {
        let gpus = || self.gpus.iter().map(|entry| &entry.value);
        gpus().find(|gpu| gpu.name.eq_ignore_ascii_case(name)).cloned().ok_or_else(|| {
            let names: Vec<&str> = gpus().map(|gpu| gpu.name.as_str()).collect();
            ClusterError::Unknown { kind: "GPU", name: name.into(), hint: hint(name, &names) }
        })
    }

    /// Adds files; clusters of each may name GPUs of any. Returns the cluster of the last file.
    fn add(&mut self, files: Vec<File>) -> Result<Option<Arc<Cluster>>, ClusterError> {
        let mut own_gpus = Vec::with_capacity(files.len());
        for File { path, name, text } in &files {
            let gpu = read_gpu(name, text)?.map(Arc::new);
            if let Some(gpu) = &gpu {
                replace(&mut self.gpus, "GPU", gpu.clone(), path, |gpu| &gpu.name)?;
                let built_in = self.clusters.iter_mut().filter(|entry| entry.path.is_none());
                for entry in built_in.filter(|entry| entry.value.gpu.name == gpu.name) {
                    Arc::make_mut(&mut entry.value).gpu = gpu.clone();
                }
            }
            own_gpus.push(gpu);
        }
        let mut last = None;
        for (File { path, name, text }, own_gpu) in files.iter().zip(own_gpus) {
            let cluster = read_cluster(name, text, own_gpu, &|name| self.gpu(name))?;
            last = cluster.map(Arc::new);
            if let Some(cluster) = &last {
                replace(&mut self.clusters, "cluster", cluster.clone(), path, |cluster| {
                    &cluster.name
                })?;
            }
        }
        Ok(last)
    }
}

/// A file to be added.
struct File {
    /// `None` if it is built in.
    path: Option<PathBuf>,
    name: String,
    text: String,
}

impl File {
    fn read(path: &Path) -> Result<File, ClusterError> {
        let text = read_text(path)
            .map_err(|error| ClusterError::Unreadable { path: path.into(), error })?;
        let same_file = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        Ok(File { path: Some(same_file), name: path.display().to_string(), text })
    }
}

/// Adds a description, in place of a built-in one of its name.
fn replace<V>(
    entries: &mut Vec<Entry<V>>,
    kind: &'static str,
    value: Arc<V>,
    path: &Option<PathBuf>,
    name: fn(&V) -> &String,
) -> Result<(), ClusterError> {
    let entry = Entry { value, path: path.clone() };
    let same = entries
        .iter_mut()
        .find(|other| name(&other.value).eq_ignore_ascii_case(name(&entry.value)));
    match (same, path) {
        (None, _) => entries.push(entry),
        (Some(Entry { path: Some(first), .. }), Some(second)) if first != second => {
            let paths = [first.clone(), second.clone()];
            return Err(ClusterError::Duplicate { kind, name: name(&entry.value).clone(), paths });
        }
        (Some(same), _) => *same = entry,
    }
    Ok(())
}
