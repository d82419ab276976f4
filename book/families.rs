//! Checks of the page on model families: the table of families, and that of their keys.

use std::{env, fs};

use meshwright::models::Families;
use meshwright::train::{Family, FamilyList, LanguageModel, WithFamily};

use super::{read, root};

/// The keys of a family, with their flags.
type Keys = Vec<(String, Option<&'static str>)>;

struct KeysOf(&'static str);

impl WithFamily for KeysOf {
    type Out = Keys;

    fn with<M: LanguageModel>(self) -> Keys {
        M::Config::known_keys(self.0)
    }
}

#[test]
fn every_family_is_in_the_table() {
    let page = read(&root().join("src/families.md"));
    for family in Families::names() {
        assert!(page.contains(&format!("\n| `{family}` | ")), "{family}");
    }
}

/// `BLESS=1` writes the table.
#[test]
fn the_table_of_keys_is_that_of_the_families() {
    let names = Families::names();
    let mut rows: Vec<(String, Option<&str>, Vec<&str>)> = Vec::new();
    for family in &names {
        for (key, flag) in Families::with(family, KeysOf(family)).unwrap() {
            match rows.iter_mut().find(|row| row.0 == key && row.1 == flag) {
                Some((.., families)) => families.push(family),
                None => rows.push((key, flag, vec![family])),
            }
        }
    }
    rows.sort();
    let mut table = "| key | flag of a new model | families |\n|---|---|---|\n".to_owned();
    for (key, flag, families) in rows {
        let flag = flag.map_or(String::new(), |flag| format!("`{flag}`"));
        let others: Vec<&str> =
            names.iter().filter(|name| !families.contains(name)).copied().collect();
        let families = match others.len() {
            0 => "all".to_owned(),
            1..=3 => format!("all but {}", others.join(", ")),
            _ => families.join(", "),
        };
        table += &format!("| `{key}` | {flag} | {families} |\n");
    }
    let path = root().join("src/families_table.md");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert_eq!(read(&path), table, "BLESS=1 brings the table up to date");
}
