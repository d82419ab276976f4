//! Tables of comma-separated values.

use std::fs;
use std::path::Path;

/// A table whose first line names its columns.
pub struct Table {
    file: String,
    columns: Vec<String>,
    rows: Vec<Line>,
}

struct Line {
    /// Number of the line in the file, from 1.
    number: usize,
    fields: Vec<String>,
}

/// A row of a table.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    table: &'a Table,
    line: &'a Line,
}

impl Table {
    /// Reads a file that has `required` columns, among others.
    ///
    /// # Errors
    /// A file that cannot be read, rows with another number of fields than the first line, and missing columns; with
    /// file and line.
    pub fn read(path: &Path, required: &[&str]) -> Result<Table, String> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
        let mut lines =
            parse(&text).map_err(|(line, message)| format!("{file}:{line}: {message}"))?;
        if lines.is_empty() {
            return Err(format!("{file}:1: is empty: the first line names the columns"));
        }
        let columns = lines.remove(0).fields;
        if let Some(missing) =
            required.iter().find(|name| !columns.iter().any(|have| have == *name))
        {
            return Err(format!("{file}:1: column `{missing}` is missing"));
        }
        for Line { number, fields } in &lines {
            if fields.len() != columns.len() {
                let [found, expected] = [fields.len(), columns.len()];
                return Err(format!(
                    "{file}:{number}: has {found} fields, but the first line names {expected}"
                ));
            }
        }
        Ok(Table { file, columns, rows: lines })
    }

    /// Returns the rows.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.rows.iter().map(|line| Record { table: self, line })
    }
}

impl<'a> Record<'a> {
    /// Returns the text of a column without surrounding spaces; empty if the table has no such column.
    pub fn text(&self, column: &str) -> &'a str {
        let index = self.table.columns.iter().position(|name| name == column);
        index.map_or("", |index| self.line.fields[index].trim())
    }

    /// Returns the number of a column; `None` if the field is empty.
    ///
    /// # Errors
    /// Text that is no positive number, with file, line and column.
    pub fn number(&self, column: &str) -> Result<Option<f64>, String> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(self.fault(column, &format!("`{text}` is no number of at least 0"))),
        }
    }

    /// Returns the count of a column; `None` if the field is empty.
    ///
    /// # Errors
    /// Text that is no whole number, with file, line and column.
    pub fn count(&self, column: &str) -> Result<Option<usize>, String> {
        match self.number(column)? {
            Some(number) if number.fract() != 0.0 || number > 1e12 => {
                Err(self.fault(column, &format!("`{number}` is no whole number up to 1e12")))
            }
            number => Ok(number.map(|number| number as usize)),
        }
    }

    fn fault(&self, column: &str, message: &str) -> String {
        format!("{}:{}: column `{column}`: {message}", self.table.file, self.line.number)
    }
}

/// Returns a field as it is written: in quotes if it has a comma, a quote or a line break.
pub fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Splits a text into lines of fields. Quoted fields may contain commas, line breaks and doubled quotes.
fn parse(text: &str) -> Result<Vec<Line>, (usize, &'static str)> {
    let mut lines = Vec::new();
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut number, mut first) = (1, 1);
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        number += usize::from(character == '\n');
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if field.is_empty() => is_quoted = true,
            '"' => return Err((number, "a quote in a field without quotes")),
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                fields.push(std::mem::take(&mut field));
                let fields = std::mem::take(&mut fields);
                if fields.len() > 1 || !fields[0].is_empty() {
                    lines.push(Line { number: first, fields });
                }
                first = number;
            }
            _ => field.push(character),
        }
    }
    if is_quoted {
        return Err((first, "a quoted field does not end"));
    }
    if !field.is_empty() || !fields.is_empty() {
        fields.push(field);
        lines.push(Line { number: first, fields });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<Vec<String>> {
        parse(text).unwrap().into_iter().map(|line| line.fields).collect()
    }

    #[test]
    fn quotes_protect_commas_and_lines() {
        let text = "a,b\n\"1,\n2\",\"say \"\"x\"\"\"\n\n,\n";
        assert_eq!(fields(text), [["a", "b"], ["1,\n2", "say \"x\""], ["", ""]]);
        assert_eq!(parse(text).unwrap()[2].number, 5);
        assert!(parse("a\n\"b").is_err_and(|(line, _)| line == 2));
        assert!(parse("a\nb\"c").is_err_and(|(line, _)| line == 2));
        for field in ["plain", "a,b", "say \"x\"", "two\nlines"] {
            assert_eq!(fields(&quoted(field)), [[field]]);
        }
    }
}
