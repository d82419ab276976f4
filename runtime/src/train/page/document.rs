//! The frame of a page: its head, its sections, and the document that it shows.

use std::fmt::Write;
use std::io::Read;

use serde_json::Value;

/// The first bytes of a page.
const START: &str = "<!doctype html>\n<!-- a report of Meshwright -->\n";
/// Nothing is loaded, and no script runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A page in the making.
pub struct PageDocument {
    title: String,
    body: String,
}

impl PageDocument {
    /// Begins a page with a heading, and lines about its subject.
    pub fn new(title: &str, about: &str) -> PageDocument {
        let lines = about.lines().map(|line| format!("<p class=\"about\">{}</p>\n", escaped(line)));
        let body = format!("<h1>{}</h1>\n{}", escaped(title), lines.collect::<String>());
        PageDocument { title: escaped(title), body }
    }

    /// Adds HTML without a heading.
    pub fn add(&mut self, html: &str) {
        self.body += html;
    }

    /// Adds a section of HTML.
    pub fn section(&mut self, heading: &str, html: &str) {
        let heading = escaped(heading);
        let _ = writeln!(self.body, "<section>\n<h2>{heading}</h2>\n{html}\n</section>");
    }

    /// Returns the page, with the document that it shows.
    pub fn finish(self, data: &Value) -> String {
        let PageDocument { title, body } = self;
        let (style, version) = (include_str!("style.css"), env!("CARGO_PKG_VERSION"));
        // Inside of a script, no text is escaped but the end of the script.
        let data = data.to_string().replace('<', "\\u003c");
        format!(
            "{START}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{title}</title>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
             <link rel=\"icon\" href=\"data:,\"/>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\
             <footer>Meshwright {version}. The numbers of this page are in its element <code>data</code>, as JSON.\
             </footer>\n</main>\n<script type=\"application/json\" id=\"data\">{data}</script>\n</body>\n</html>\n"
        )
    }
}

/// Returns true for the content of a page, or of one whose writing was cut off.
pub fn is_page(content: &mut dyn Read) -> bool {
    let mut start = Vec::new();
    content.take(START.len() as u64).read_to_end(&mut start).is_ok() && START.as_bytes() == start
}

/// Returns text as it is written in elements and attributes.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Returns a paragraph of a text.
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escaped(text))
}

/// Returns a table of texts, whose columns from `numbers` on are aligned to the right.
pub fn table<const N: usize>(
    head: [&str; N],
    numbers: usize,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let cells = |tag: &str, texts: &[&str]| -> String {
        let cell = |(column, text): (usize, &&str)| {
            let class = if column < numbers { "" } else { " class=\"n\"" };
            format!("<{tag}{class}>{}</{tag}>", escaped(text))
        };
        format!("<tr>{}</tr>\n", texts.iter().enumerate().map(cell).collect::<String>())
    };
    let rows = rows.into_iter().map(|row| cells("td", &row.each_ref().map(String::as_str)));
    let (head, rows) = (cells("th", &head), rows.collect::<String>());
    format!(
        "<div class=\"wide\"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// Returns a legend of classes of colors and their names.
pub fn legend<S: AsRef<str>>(entries: impl IntoIterator<Item = (&'static str, S)>) -> String {
    let entry = |(class, name): (&str, S)| {
        let name = escaped(name.as_ref());
        format!("<li><span class=\"swatch {class}\"></span>{name}</li>")
    };
    format!("<ul class=\"legend\">{}</ul>\n", entries.into_iter().map(entry).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Names are no markup, and cannot end the script.
    #[test]
    fn names_are_escaped() {
        let name = "</script><b a=\"1\">&";
        let mut page = PageDocument::new(name, name);
        page.section(name, &table([name], 0, [[name.to_owned()]]));
        let page = page.finish(&json!({ "name": name }));
        assert!(!page.contains("<b a"), "{page}");
        assert_eq!(page.matches("</script>").count(), 1);
        let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        assert_eq!(serde_json::from_str::<Value>(data).unwrap()["name"], name);
        assert!(is_page(&mut page.as_bytes()) && !is_page(&mut &b"<!doctype html>\n<p>"[..]));
    }
}
