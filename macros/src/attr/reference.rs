//! Generator of the book's attribute reference from the table.

use std::path::Path;

use super::table::{ATTRIBUTES, AXES, AttributeRow, KeyRow, Value};
use crate::snapshots::check_or_bless;

#[test]
fn the_book_shows_this_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/attributes_table.md");
    check_or_bless(&page, &reference());
}

fn reference() -> String {
    let mut text = String::from(
        "<!-- Written from macros/src/attr/table.rs; do not edit. `BLESS=1 cargo test -p meshwright-macros` rewrites \
         it. -->\n",
    );
    text += "\n| attribute | on | meaning |\n|---|---|---|\n";
    for row in ATTRIBUTES {
        let AttributeRow { name, on, meaning, .. } = row;
        text += &format!("| `#[{name}]` | {on} | {meaning} |\n");
        for key in row.keys {
            text += &key_rows(name, key);
        }
    }
    text += "\nAxes after `@` in `dims!`:\n\n| axis | meaning |\n|---|---|\n";
    for axis in AXES {
        text += &format!("| `{}` | {} |\n", axis.name, axis.meaning);
    }
    text
}

fn key_rows(attribute: &str, KeyRow { name, value, meaning }: &KeyRow) -> String {
    let row = |args: &str, meaning: &str| format!("| `#[{attribute}({args})]` | | {meaning} |\n");
    match value {
        Value::Style { styles, .. } => styles
            .iter()
            .map(|style| {
                row(
                    &format!("{name} = \"{}\"", style.name),
                    &format!("{meaning}: {}", style.meaning),
                )
            })
            .collect(),
        Value::Dim => row(&format!(".., {name} = Dim"), meaning),
        Value::FieldPath => row(name, meaning),
        Value::ConfigKey => row(&format!(".., {name} = \"key\""), meaning),
        Value::Layers { words } => {
            let named = words.iter().map(|word| {
                row(&format!("{name} = \"{}\"", word.name), &format!("the same; {}", word.meaning))
            });
            row(&format!("{name} = N"), meaning) + &named.collect::<String>()
        }
        Value::FieldPaths => row(&format!("{name} = [field, field.path]"), meaning),
        Value::Meshes => row(&format!("{name} = [\"dp=2\", \"tp=2\"]"), meaning),
        Value::Initial { number: Some(_), .. } => row(&format!("{name}(N)"), meaning),
        Value::Initial { .. } | Value::OfParameter => row(name, meaning),
        Value::Cost => row(&format!("{name} = N"), meaning),
        Value::Flag => row(name, meaning),
        Value::Crate => row(&format!("{name} = some::path"), meaning),
        Value::Axes => row(&format!("ep = \"experts\", {name} = [cp, tp]"), meaning),
        Value::Elsewhere(_) => String::new(),
    }
}
