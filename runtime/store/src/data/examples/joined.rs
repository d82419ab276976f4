//! Sources that follow one another.

use std::io;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::data::{Example, ExampleSource};

/// The examples of several sources, one source after the other.
pub struct Joined {
    name: String,
    parts: Vec<Box<dyn ExampleSource>>,
    /// The number of examples up to the end of each part.
    ends: Vec<u64>,
}

impl Joined {
    /// Joins sources. An index beyond all of their examples is a fault of the calling code.
    pub fn new(parts: Vec<Box<dyn ExampleSource>>) -> Joined {
        let name = match &parts[..] {
            [only] => only.name().to_owned(),
            [first, others @ ..] => format!("{} and {} more", first.name(), others.len()),
            [] => "nothing".to_owned(),
        };
        let mut all = 0;
        let ends = parts.iter().map(|part| {
            all += part.examples();
            all
        });
        Joined { name, ends: ends.collect(), parts }
    }
}

impl Joined {
    /// Returns the source with the name of the folder of its parts.
    #[must_use]
    pub fn named(self, folder: &Path) -> Joined {
        Joined { name: folder.display().to_string(), ..self }
    }
}

impl ExampleSource for Joined {
    fn name(&self) -> &str {
        &self.name
    }

    fn examples(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn fingerprint(&self) -> String {
        let mut hash = Xxh3::new();
        for part in &self.parts {
            hash.update(&part.examples().to_le_bytes());
            hash.update(part.fingerprint().as_bytes());
        }
        format!("{:016x}", hash.digest())
    }

    fn read(&self, index: u64) -> io::Result<Example> {
        let part = self.ends.partition_point(|end| *end <= index);
        let before = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.parts[part].read(index - before)
    }
}
