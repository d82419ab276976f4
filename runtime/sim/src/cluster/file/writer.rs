//! A writer of tables.

use std::convert::Infallible;
use std::fmt::Write;

use super::super::{Figure, Origin};
use super::quantity::{COUNT, Quantity};
use super::table_format::TableFormat;

/// A writer of a table.
#[derive(Default)]
pub struct Writer {
    text: String,
    path: String,
    /// Origin of numbers without an own one.
    origin: Option<Origin>,
    /// Keys, numbers and origins that are not written yet, as the most common origin becomes that of the table.
    figures: Vec<(&'static str, f64, Origin)>,
}

impl Writer {
    /// Returns the text.
    pub fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, key: &str, value: &str) {
        writeln!(self.text, "{key} = {value}").expect("a string takes any text");
    }

    /// Writes a table with a header, such as `[gpu]`.
    fn table_with_header<V>(
        &mut self,
        path: String,
        header: &str,
        value: impl FnOnce(&mut Writer) -> Result<V, Infallible>,
    ) -> Result<V, Infallible> {
        self.write_figures();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        writeln!(self.text, "{header}").expect("a string takes any text");
        let text = std::mem::take(&mut self.text);
        let mut table = Writer { text, path, origin: self.origin.clone(), figures: Vec::new() };
        let value = value(&mut table);
        table.write_figures();
        self.text = table.text;
        value
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Writes the figures of the table so far. Those of another origin than the most common one state what differs.
    fn write_figures(&mut self) {
        let figures = std::mem::take(&mut self.figures);
        let count = |origin: &Origin| figures.iter().filter(|(.., other)| other == origin).count();
        let Some((.., common)) = figures.iter().rev().max_by_key(|(.., origin)| count(origin))
        else {
            return;
        };
        self.set_origin(common);
        for (key, number, origin) in &figures {
            let Origin { source, trust } = origin;
            let mut parts = format!("value = {number}");
            if *source != common.source {
                parts += &format!(", source = {}", quoted(source));
            }
            if *trust != common.trust {
                parts += &format!(", trust = {}", quoted(trust.name()));
            }
            let value =
                if origin == common { number.to_string() } else { format!("{{ {parts} }}") };
            self.line(key, &value);
        }
    }

    /// Writes the origin of numbers without an own one, unless it is that of the table around.
    fn set_origin(&mut self, origin: &Origin) {
        if self.origin.as_ref() != Some(origin) {
            self.line("source", &quoted(&origin.source));
            self.line("trust", &quoted(origin.trust.name()));
            self.origin = Some(origin.clone());
        }
    }
}

impl TableFormat for Writer {
    type Error = Infallible;

    fn text(&mut self, key: &'static str, given: Option<&str>) -> Result<String, Infallible> {
        let text = given.expect("a writer is given all values");
        self.line(key, &quoted(text));
        Ok(text.into())
    }

    fn optional_text(
        &mut self,
        key: &'static str,
        given: Option<&str>,
    ) -> Result<Option<String>, Infallible> {
        given.map(|text| self.text(key, Some(text))).transpose()
    }

    fn numbers(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<Vec<f64>>,
    ) -> Result<Vec<f64>, Infallible> {
        let numbers = given.expect("a writer is given all values");
        let items: Vec<_> =
            numbers.iter().map(|value| quantity.in_file(*value).to_string()).collect();
        self.line(key, &format!("[{}]", items.join(", ")));
        Ok(numbers)
    }

    fn count(&mut self, key: &'static str, given: Option<usize>) -> Result<usize, Infallible> {
        let count = given.expect("a writer is given all values");
        self.line(key, &COUNT.in_file(count as f64).to_string());
        Ok(count)
    }

    fn optional_count(
        &mut self,
        key: &'static str,
        given: Option<usize>,
    ) -> Result<Option<usize>, Infallible> {
        given.map(|count| self.count(key, Some(count))).transpose()
    }

    fn figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<&Figure>,
    ) -> Result<Figure, Infallible> {
        let figure = given.expect("a writer is given all values");
        self.figures.push((key, quantity.in_file(figure.value), figure.origin.clone()));
        Ok(figure.clone())
    }

    fn optional_figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<&Figure>,
    ) -> Result<Option<Figure>, Infallible> {
        given.map(|figure| self.figure(key, quantity, Some(figure))).transpose()
    }

    fn origin(&mut self, given: Option<&Origin>) -> Result<Origin, Infallible> {
        let origin = given.expect("a writer is given all values");
        self.set_origin(origin);
        Ok(origin.clone())
    }

    fn table<V>(
        &mut self,
        key: &'static str,
        value: impl FnOnce(&mut Self) -> Result<V, Infallible>,
    ) -> Result<V, Infallible> {
        let path = self.path_of(key);
        let header = format!("[{path}]");
        self.table_with_header(path, &header, value)
    }

    fn tables<V>(
        &mut self,
        key: &'static str,
        given: Option<&[V]>,
        mut value: impl FnMut(&mut Self, Option<&V>) -> Result<V, Infallible>,
    ) -> Result<Vec<V>, Infallible> {
        let path = self.path_of(key);
        let header = format!("[[{path}]]");
        let given = given.expect("a writer is given all values").iter();
        given
            .map(|given| {
                self.table_with_header(path.clone(), &header, |table| value(table, Some(given)))
            })
            .collect()
    }

    fn check(
        &self,
        _: &'static str,
        _: bool,
        _: impl FnOnce() -> String,
    ) -> Result<(), Infallible> {
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
