//! Runs of the trainer on a text of many lines, each a document.

use std::ffi::OsStr;

use meshwright::train::{LanguageModel, Summary};
use meshwright_tests::run::train_with_words;
use tempfile::TempDir;

/// Flags of the models of the examples whose heads can be exchanged among four ranks.
pub const EXAMPLE: &str = "--heads 4 --lr 0.01";

/// Text of lines of many lengths, one of them longer than a row.
pub fn text() -> Vec<u8> {
    let mut text = Vec::new();
    for line in 0..150usize {
        let len = if line == 40 { 60 } else { line * line % 23 };
        text.extend((0..len).map(|index| b'a' + ((line + index * index) % 26) as u8));
        text.push(b'\n');
    }
    text
}

pub struct Run {
    dir: TempDir,
}

impl Run {
    pub fn new() -> Run {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("text.txt"), text()).unwrap();
        Run { dir }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub fn train<M: LanguageModel>(&self, words: &str) -> meshwright::Result<Summary> {
        self.train_without_documents::<M>(&format!("--documents 10 {words}"))
    }

    pub fn train_without_documents<M: LanguageModel>(
        &self,
        words: &str,
    ) -> meshwright::Result<Summary> {
        train_with_words::<M>(self.line(words).split_whitespace().map(OsStr::new))
    }

    /// Returns the flags of a small model on the text.
    pub fn line(&self, words: &str) -> String {
        let data = self.path("text.txt");
        let heads = if words.contains("--heads") { "" } else { "--heads 2" };
        format!("--data {data} --hidden 16 --ffn 24 {heads} --layers 2 --seq 24 --batch 8 {words}")
    }

    /// Returns a metric of each step.
    pub fn metric(&self, path: &str, name: &str) -> Vec<Option<f64>> {
        let lines = std::fs::read_to_string(path).unwrap();
        let of_line =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[name].as_f64();
        lines.lines().map(of_line).collect()
    }
}
