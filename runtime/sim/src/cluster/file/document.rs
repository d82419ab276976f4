//! A parsed file.

use toml::Spanned;
use toml::de::DeTable;

use super::super::ClusterError;
use super::reader::{Reader, line_of};

/// A parsed file.
pub struct Document<'a> {
    file: &'a str,
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Parses a file, whose tables are `gpu` and `cluster`, one of them at least.
    pub fn parse(file: &'a str, text: &'a str) -> Result<Document<'a>, ClusterError> {
        let root = DeTable::parse(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            let message = format!("not valid TOML: {}", error.message());
            ClusterError::Faulty { file: file.into(), line, message }
        })?;
        let document = Document { file, text, root };
        document.root().read(|root| {
            root.value("gpu");
            root.value("cluster");
            Ok(())
        })?;
        if document.root.get_ref().is_empty() {
            let message = "describes nothing: add a table [gpu], [cluster] or both, as `meshwright clusters show \
                           h100-dgx` prints them";
            return Err(ClusterError::Faulty {
                file: file.into(),
                line: 1,
                message: message.into(),
            });
        }
        Ok(document)
    }

    /// Returns a reader of a table of the file; `None` if the file has no such table.
    pub fn table(&self, key: &'static str) -> Result<Option<Reader<'_>>, ClusterError> {
        let mut root = self.root();
        let Some((line, value)) = root.find(key) else { return Ok(None) };
        root.child(key.into(), line, value).map(Some)
    }

    fn root(&self) -> Reader<'_> {
        Reader::of_root(self.file, self.text, self.root.get_ref())
    }
}
