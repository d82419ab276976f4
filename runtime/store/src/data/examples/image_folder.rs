//! Images in a folder for each class.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::data::{DataError, Example, ExampleSource, Field, FileProblem};

/// Endings of images that are read.
const READ: [&str; 3] = ["jpg", "jpeg", "png"];

/// Endings of other images.
const OTHERS: [&str; 8] = ["avif", "bmp", "gif", "heic", "jxl", "tif", "tiff", "webp"];

/// Most files whose lengths are part of the fingerprint.
const MEASURED: usize = 256;

/// Images of `FOLDER/CLASS/*.{jpg,jpeg,png}`: examples with the fields `image` (bytes), `label` (the number of the
/// class among the sorted names of all classes), `class` (its name) and `path`.
#[derive(Debug)]
pub struct ImageFolder {
    name: String,
    folder: PathBuf,
    classes: Vec<Class>,
    fingerprint: String,
}

#[derive(Debug)]
struct Class {
    name: String,
    /// Names of the files, in order.
    files: Vec<String>,
    /// Number of images before those of the class.
    first: u64,
}

impl ImageFolder {
    /// Lists the images of a folder. Hidden files, and files with endings of other kinds than images, are left out.
    ///
    /// # Errors
    /// A folder that cannot be read, one without classes, a class without images, images beside the classes, a folder
    /// within a class, and images of other formats, with the next step.
    pub fn open(folder: &Path) -> Result<ImageFolder, DataError> {
        let listed = Listed::of(folder)?;
        if let Some(image) = listed.images.first() {
            return Err(refuse(
                &folder.join(image),
                "the image is in no folder of a class; move it to FOLDER/CLASS, or name images and labels in a JSONL \
                 file: {\"image\": \"PATH\", \"label\": 0}",
            ));
        }
        let (mut classes, mut first) = (Vec::new(), 0);
        for name in listed.folders {
            let path = folder.join(&name);
            let class = Listed::of(&path)?;
            if let Some(inner) = class.folders.first() {
                return Err(refuse(
                    &path.join(inner),
                    "there is a folder in the folder of a class; name the folder that holds those of the classes, \
                     such as FOLDER/train",
                ));
            }
            if class.images.is_empty() {
                return Err(refuse(
                    &path,
                    "the class has no images (.jpg, .jpeg or .png); add some, or remove the folder",
                ));
            }
            let count = class.images.len() as u64;
            classes.push(Class { name, files: class.images, first });
            first += count;
        }
        let name = folder.display().to_string();
        let mut listed =
            ImageFolder { name, folder: folder.to_owned(), classes, fingerprint: String::new() };
        let hashed =
            listed.hash().map_err(|source| DataError::Io { path: folder.to_owned(), source });
        listed.fingerprint = format!("{:016x}", hashed?);
        Ok(listed)
    }

    /// Hashes all names, and the lengths of some files at equal distances.
    fn hash(&self) -> io::Result<u64> {
        let mut hash = Xxh3::new();
        for class in &self.classes {
            for name in std::iter::once(&class.name).chain(&class.files) {
                hash.update(name.as_bytes());
                hash.update(b"/");
            }
        }
        let count = self.examples();
        for index in (0..count).step_by((count as usize).div_ceil(MEASURED)) {
            hash.update(&fs::metadata(self.path(index).1)?.len().to_le_bytes());
        }
        Ok(hash.digest())
    }

    /// Returns the class of an image, and its path.
    fn path(&self, index: u64) -> (usize, PathBuf) {
        let class = self.classes.partition_point(|class| class.first <= index) - 1;
        let Class { name, files, first } = &self.classes[class];
        (class, self.folder.join(name).join(&files[(index - first) as usize]))
    }
}

impl ExampleSource for ImageFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn examples(&self) -> u64 {
        self.classes.last().map_or(0, |class| class.first + class.files.len() as u64)
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        let (class, path) = self.path(index);
        let name = path.display().to_string();
        let image = fs::read(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot read {name}: {error}"))
        })?;
        let fields = [
            ("image", Field::Bytes(image)),
            ("label", Field::Integer(class as i64)),
            ("class", Field::Text(self.classes[class].name.clone())),
            ("path", Field::Text(name)),
        ];
        Ok(Example::new(fields.map(|(name, field)| (name.to_owned(), field))))
    }
}

/// The content of a folder, sorted by name.
pub(super) struct Listed {
    pub folders: Vec<String>,
    pub images: Vec<String>,
    /// Files that are no images.
    pub others: Vec<String>,
}

impl Listed {
    /// Lists a folder, without hidden entries.
    pub fn of(folder: &Path) -> Result<Listed, DataError> {
        let io = |source| DataError::Io { path: folder.to_owned(), source };
        let mut listed = Listed { folders: Vec::new(), images: Vec::new(), others: Vec::new() };
        for entry in fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(refuse(&path, "its name is not UTF-8; rename it"));
            };
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            let ending = ending.to_ascii_lowercase();
            if name.starts_with('.') {
                continue;
            } else if path.is_dir() {
                listed.folders.push(name.to_owned());
            } else if READ.contains(&&*ending) {
                listed.images.push(name.to_owned());
            } else if OTHERS.contains(&&*ending) {
                let problem =
                    "the image is neither a JPEG nor a PNG file; convert it, or move it away";
                return Err(refuse(&path, problem));
            } else {
                listed.others.push(name.to_owned());
            }
        }
        for names in [&mut listed.folders, &mut listed.images, &mut listed.others] {
            names.sort();
        }
        Ok(listed)
    }
}

fn refuse(path: &Path, problem: &str) -> DataError {
    let (name, problem) = (path.display().to_string(), problem.to_owned());
    DataError::File(FileProblem { name, problem })
}
