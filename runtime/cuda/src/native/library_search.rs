//! Search paths of the vendor's libraries.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use super::vendor_library::VendorLibrary;

/// Search path of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibrarySearch {
    /// Folders from the environment variable.
    named: Option<Vec<PathBuf>>,
    /// True if the loader's own path, and then [`DEFAULT_FOLDERS`], are searched.
    default_path: bool,
}

/// Default installation folders outside the loader's path.
const DEFAULT_FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64"];

/// Subfolders of a named folder: the folder itself, and the layout of Python packages in `site-packages/nvidia`.
const SUBFOLDERS: [&str; 8] =
    ["", "lib", "lib64", "cu13/lib", "cuda_nvrtc/lib", "cublas/lib", "cudnn/lib", "nccl/lib"];

impl LibrarySearch {
    /// Environment variable with the folders to search instead of the default path, separated as in `PATH`. The CUDA
    /// driver belongs to the system, so it is searched in the default path too.
    pub const VARIABLE: &str = "MESHWRIGHT_CUDA_LIBS";

    /// Returns the search path that the environment selects.
    pub fn from_environment(library: VendorLibrary) -> LibrarySearch {
        let named = std::env::var_os(LibrarySearch::VARIABLE).filter(|folders| !folders.is_empty());
        let default_path = named.is_none() || library == VendorLibrary::Driver;
        LibrarySearch {
            named: named.map(|folders| std::env::split_paths(&folders).collect()),
            default_path,
        }
    }

    /// Returns a search path of these folders only.
    pub fn in_folders(folders: &[&Path]) -> LibrarySearch {
        let named = folders.iter().map(|folder| folder.to_path_buf()).collect();
        LibrarySearch { named: Some(named), default_path: false }
    }

    /// Opens the first of `files` that loads; the error is the loader's messages for files that exist.
    pub(super) fn open_first(&self, files: &[&str]) -> Result<libloading::Library, Vec<String>> {
        let mut refused = Vec::new();
        for candidate in self.candidates(files) {
            // SAFETY: loading runs the initialization of a library that the user has installed under the vendor's name.
            match unsafe { libloading::Library::new(&candidate) } {
                Ok(library) => return Ok(library),
                Err(error) => {
                    let error = error.source().map_or(error.to_string(), |words| words.to_string());
                    if !is_absence(&error, &candidate) {
                        refused.push(error);
                    }
                }
            }
        }
        Err(refused)
    }

    /// Returns the candidates in order: existing files, and names without a folder for the loader's path.
    fn candidates(&self, files: &[&str]) -> Vec<PathBuf> {
        let existing = |folder: &Path| -> Vec<PathBuf> {
            files.iter().map(|file| folder.join(file)).filter(|path| path.is_file()).collect()
        };
        let mut candidates = Vec::new();
        for folder in self.named.iter().flatten() {
            candidates.extend(SUBFOLDERS.iter().flat_map(|layout| existing(&folder.join(layout))));
        }
        if self.default_path {
            candidates.extend(files.iter().map(PathBuf::from));
            candidates
                .extend(DEFAULT_FOLDERS.iter().flat_map(|folder| existing(Path::new(folder))));
        }
        candidates
    }
}

/// Returns true if the loader reports that the file itself does not exist, rather than another problem with it.
fn is_absence(error: &str, candidate: &Path) -> bool {
    error
        .contains(&format!("{}: cannot open shared object file: No such file", candidate.display()))
}

impl fmt::Display for LibrarySearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = &self.named {
            let named: Vec<_> = named.iter().map(|folder| folder.display().to_string()).collect();
            write!(f, "the folders of {} ({})", LibrarySearch::VARIABLE, named.join(", "))?;
        }
        match (&self.named, self.default_path) {
            (_, false) => Ok(()),
            (None, true) => {
                write!(f, "the loader's path (LD_LIBRARY_PATH), {}", DEFAULT_FOLDERS.join(", "))
            }
            (Some(_), true) => {
                write!(f, ", the loader's path (LD_LIBRARY_PATH), {}", DEFAULT_FOLDERS.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_folders_are_searched_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let file = |folder: &str, name: &str| {
            let path = dir.path().join(folder).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let nccl = file("first/nccl/lib", "libnccl.so.2");
        let plain = file("second", "libnccl.so");
        let (first, second, empty) = (folder("first"), folder("second"), folder("empty"));
        let search = LibrarySearch::in_folders(&[&empty, &second, &first]);
        assert_eq!(search.candidates(VendorLibrary::Nccl.files()), [plain, nccl]);
        assert_eq!(search.candidates(VendorLibrary::Cudnn.files()), [] as [&Path; 0]);
    }

    #[test]
    fn invalid_library_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("libnccl.so.2"), "no library").unwrap();
        let refused = LibrarySearch::in_folders(&[dir.path()])
            .open_first(VendorLibrary::Nccl.files())
            .unwrap_err();
        assert_eq!(refused.len(), 1);
        assert!(refused[0].contains("libnccl.so.2"), "{}", refused[0]);

        let default_path = LibrarySearch { named: None, default_path: true };
        assert_eq!(
            default_path.open_first(&["libmeshwright_none.so.1"]).unwrap_err(),
            [] as [&str; 0]
        );
    }

    #[test]
    fn search_path_is_described() {
        let named = LibrarySearch::in_folders(&[Path::new("/a"), Path::new("/b")]);
        assert_eq!(named.to_string(), "the folders of MESHWRIGHT_CUDA_LIBS (/a, /b)");
        let default_path = LibrarySearch { named: None, default_path: true };
        assert_eq!(
            default_path.to_string(),
            "the loader's path (LD_LIBRARY_PATH), /usr/local/cuda/lib64, /usr/local/nvidia/lib64"
        );
    }
}
