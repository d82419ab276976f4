//! A reader of tables, whose errors state file, line, key and what is allowed.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::spelling::nearest;
use super::super::{ClusterError, Figure, Origin, Trust};
use super::quantity::{COUNT, Quantity};
use super::table_format::TableFormat;

/// A reader of a table.
pub struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    /// Path of the table, such as `gpu.matmul`.
    path: String,
    /// Line of the table's header.
    line: usize,
    table: &'a DeTable<'a>,
    /// Origin of numbers without an own one, of this table or of those around it.
    source: Option<Arc<str>>,
    trust: Option<Trust>,
    /// Keys that were read.
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Creates a reader of the tables of a file.
    pub fn of_root(file: &'a str, text: &'a str, table: &'a DeTable<'a>) -> Reader<'a> {
        Reader {
            file,
            text,
            path: String::new(),
            line: 1,
            table,
            source: None,
            trust: None,
            known: Vec::new(),
        }
    }

    /// Reads the table by `value`, and refuses keys that it did not read.
    pub fn read<V>(
        mut self,
        value: impl FnOnce(&mut Self) -> Result<V, ClusterError>,
    ) -> Result<V, ClusterError> {
        let value = value(&mut self)?;
        self.finish()?;
        Ok(value)
    }

    /// Creates an error of a key, at its line, or at the table's if the table has no such key.
    pub fn fault(&self, key: &str, message: &str) -> ClusterError {
        let line = self.find(key).map_or(self.line, |(line, _)| line);
        self.fault_at(line, format!("`{}` {message}", self.path_of(key)))
    }

    fn fault_at(&self, line: usize, message: String) -> ClusterError {
        ClusterError::Faulty { file: self.file.into(), line, message }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Returns line and value of a key.
    pub fn find(&self, key: &str) -> Option<(usize, &'a Spanned<DeValue<'a>>)> {
        let (name, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((line_of(self.text, name.span().start), value))
    }

    /// Returns the value of a key, which is known from now on.
    pub fn value(&mut self, key: &'static str) -> Option<&'a DeValue<'a>> {
        self.known.push(key);
        self.find(key).map(|(_, value)| value.get_ref())
    }

    /// Returns the value of a key that must be there. A key that is nearly the same is named as its misspelling.
    fn required(
        &mut self,
        key: &'static str,
        allowed: &str,
    ) -> Result<&'a DeValue<'a>, ClusterError> {
        self.value(key).ok_or_else(|| {
            let missing = || self.fault(key, &format!("is missing: it must be {allowed}"));
            self.misspelling_of(key).unwrap_or_else(missing)
        })
    }

    /// Returns the error of a key that is nearly a missing one, if there is one.
    fn misspelling_of(&self, key: &str) -> Option<ClusterError> {
        let others = self.table.keys().map(|name| name.get_ref().as_ref());
        let others: Vec<&str> = others.filter(|name| !self.known.contains(name)).collect();
        nearest(key, &others).map(|other| self.unknown(other, &[key]))
    }

    fn unknown(&self, key: &str, known: &[&str]) -> ClusterError {
        let hint = match nearest(key, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", known.join(", ")),
        };
        self.fault(key, &format!("is unknown; {hint}"))
    }

    /// Refuses keys that were not read.
    fn finish(&self) -> Result<(), ClusterError> {
        let mut keys: Vec<_> = self.table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        let unread = keys.into_iter().find(|key| !self.known.contains(&key.get_ref().as_ref()));
        unread.map_or(Ok(()), |key| Err(self.unknown(key.get_ref(), &self.known)))
    }

    /// Returns a reader of a table inside, and reads the origin of its numbers.
    pub fn child(
        &mut self,
        key: String,
        line: usize,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<Reader<'a>, ClusterError> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(self.fault_at(line, format!("`{}` must be a table", self.path_of(&key))));
        };
        let mut child = Reader {
            path: self.path_of(&key),
            line,
            table,
            source: self.source.clone(),
            trust: self.trust,
            known: Vec::new(),
            ..*self
        };
        if let Some(source) = child.optional_text("source", None)? {
            child.check("source", !source.trim().is_empty(), || "must name a document".into())?;
            child.source = Some(source.into());
        }
        if let Some(name) = child.optional_text("trust", None)? {
            let trust = Trust::ALL.into_iter().find(|trust| trust.name() == name);
            child.trust = Some(trust.ok_or_else(|| {
                let names = Trust::ALL.map(|trust| format!("\"{trust}\"")).join(", ");
                child.fault("trust", &format!("is `{name}`; it must be one of {names}"))
            })?);
        }
        Ok(child)
    }

    fn number(
        &self,
        key: &str,
        quantity: Quantity,
        value: &DeValue<'_>,
    ) -> Result<f64, ClusterError> {
        let (text, number) = match value {
            DeValue::Integer(number) => {
                let value = i128::from_str_radix(number.as_str(), number.radix()).ok();
                (number.to_string(), value.map(|value| value as f64))
            }
            DeValue::Float(number) => (number.to_string(), number.as_str().parse().ok()),
            other => (format!("a value of type {}", other.type_str()), None),
        };
        let value = number.and_then(|number| quantity.parse(number));
        value.ok_or_else(|| self.fault(key, &format!("is {text}; it must be {}", quantity.allowed)))
    }

    fn text_of(&self, key: &str, value: &DeValue<'_>) -> Result<String, ClusterError> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| self.fault(key, "must be text in quotes"))
    }
}

impl TableFormat for Reader<'_> {
    type Error = ClusterError;

    fn text(&mut self, key: &'static str, _: Option<&str>) -> Result<String, ClusterError> {
        let value = self.required(key, "text in quotes")?;
        self.text_of(key, value)
    }

    fn optional_text(
        &mut self,
        key: &'static str,
        _: Option<&str>,
    ) -> Result<Option<String>, ClusterError> {
        let value = self.value(key);
        value.map(|value| self.text_of(key, value)).transpose()
    }

    fn numbers(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        _: Option<Vec<f64>>,
    ) -> Result<Vec<f64>, ClusterError> {
        let value = self.required(key, "a list of numbers")?;
        let items = value.as_array().ok_or_else(|| self.fault(key, "must be a list of numbers"))?;
        items.iter().map(|item| self.number(key, quantity, item.get_ref())).collect()
    }

    fn count(&mut self, key: &'static str, _: Option<usize>) -> Result<usize, ClusterError> {
        let value = self.required(key, COUNT.allowed)?;
        self.number(key, COUNT, value).map(|count| count as usize)
    }

    fn optional_count(
        &mut self,
        key: &'static str,
        _: Option<usize>,
    ) -> Result<Option<usize>, ClusterError> {
        let value = self.value(key);
        value.map(|value| self.number(key, COUNT, value).map(|count| count as usize)).transpose()
    }

    fn figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        _: Option<&Figure>,
    ) -> Result<Figure, ClusterError> {
        let value = self.required(key, quantity.allowed)?;
        if !value.is_table() {
            let value = self.number(key, quantity, value)?;
            let origin = self.origin(None)?;
            return Ok(Figure { value, origin });
        }
        self.table(key, |table| {
            let value = table.required("value", quantity.allowed)?;
            let value = table.number("value", quantity, value)?;
            Ok(Figure { value, origin: table.origin(None)? })
        })
    }

    fn optional_figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        _: Option<&Figure>,
    ) -> Result<Option<Figure>, ClusterError> {
        let is_there = self.value(key).is_some();
        is_there.then(|| self.figure(key, quantity, None)).transpose()
    }

    fn origin(&mut self, _: Option<&Origin>) -> Result<Origin, ClusterError> {
        let missing = |key: &str, example: &str| {
            let message = format!(
                "is missing: every number has one; write {key} = \"{example}\" in this table or \
                                   around it"
            );
            self.fault(key, &message)
        };
        let source =
            self.source.clone().ok_or_else(|| missing("source", "data sheet of the vendor"))?;
        let trust = self.trust.ok_or_else(|| missing("trust", "data sheet"))?;
        Ok(Origin { source, trust })
    }

    fn table<V>(
        &mut self,
        key: &'static str,
        value: impl FnOnce(&mut Self) -> Result<V, ClusterError>,
    ) -> Result<V, ClusterError> {
        self.required(key, "a table")?;
        let (line, table) = self.find(key).expect("it was found");
        self.child(key.into(), line, table)?.read(value)
    }

    fn tables<V>(
        &mut self,
        key: &'static str,
        _: Option<&[V]>,
        mut value: impl FnMut(&mut Self, Option<&V>) -> Result<V, ClusterError>,
    ) -> Result<Vec<V>, ClusterError> {
        let Some(array) = self.value(key) else {
            return self.misspelling_of(key).map_or(Ok(Vec::new()), Err);
        };
        let message = format!("must be an array of tables: write [[{}]]", self.path_of(key));
        let tables = array.as_array().ok_or_else(|| self.fault(key, &message))?;
        let read = tables.iter().enumerate().map(|(index, table)| {
            let line = line_of(self.text, table.span().start);
            self.child(format!("{key}[{index}]"), line, table)?.read(|table| value(table, None))
        });
        read.collect()
    }

    fn check(
        &self,
        key: &'static str,
        good: bool,
        fault: impl FnOnce() -> String,
    ) -> Result<(), ClusterError> {
        if good { Ok(()) } else { Err(self.fault(key, &fault())) }
    }
}

/// Returns the line of a byte of the text, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
