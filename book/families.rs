//! Checks of the page on model families: the table of families, and that of their keys.

use std::{env, fs};

use meshwright::models::Families;
use meshwright::tasks::Tasks;
use meshwright::train::{
    Family, FamilyList, FamilyModel, LanguageModel, Task, TaskList, WithFamily, WithTask,
};

use super::{read, root};

/// The keys of a family, with their flags.
type Keys = Vec<(String, Option<&'static str>)>;

struct KeysOf(&'static str);

impl WithFamily for KeysOf {
    type Out = Keys;

    fn with<M: LanguageModel>(self) -> Keys {
        <M as LanguageModel>::Config::known_keys(self.0)
    }
}

impl WithTask for KeysOf {
    type Out = Keys;

    fn with<T: Task>(self) -> Keys {
        <T::Model as FamilyModel>::Config::known_keys(self.0)
    }
}

#[test]
fn every_family_is_in_the_tables() {
    let page = read(&root().join("src/families.md"));
    let of_tasks = Tasks::entries().into_iter().flat_map(|(_, families)| families).copied();
    for family in Families::names().into_iter().chain(of_tasks) {
        assert!(page.contains(&format!("\n| `{family}` | ")), "{family}");
    }
}

/// `BLESS=1` writes the tables.
#[test]
fn the_tables_of_keys_are_those_of_the_families() {
    let names = Families::names().into_iter();
    let keys = names.map(|family| (family, Families::with(family, KeysOf(family)).unwrap()));
    check_table("families_table.md", &keys.collect::<Vec<_>>());
    let mut keys: Vec<(&str, Keys)> = Vec::new();
    for (task, families) in Tasks::entries() {
        for family in families {
            let of_task = Tasks::with(task, family, KeysOf(family)).unwrap();
            match keys.iter_mut().find(|(name, _)| name == family) {
                Some((_, known)) => known.extend(of_task),
                None => keys.push((family, of_task)),
            }
        }
    }
    check_table("task_families_table.md", &keys);
}

/// Compares the table of the keys of families, which may repeat, with the one in the book.
fn check_table(file: &str, keys: &[(&'static str, Keys)]) {
    let mut rows: Vec<(String, Option<&str>, Vec<&str>)> = Vec::new();
    for (family, keys) in keys {
        for (key, flag) in keys {
            match rows.iter_mut().find(|row| row.0 == *key && row.1 == *flag) {
                Some((.., families)) if families.contains(family) => {}
                Some((.., families)) => families.push(family),
                None => rows.push((key.clone(), *flag, vec![family])),
            }
        }
    }
    rows.sort();
    let mut table = "| key | flag of a new model | families |\n|---|---|---|\n".to_owned();
    for (key, flag, families) in rows {
        let flag = flag.map_or(String::new(), |flag| format!("`{flag}`"));
        let names = keys.iter().map(|(name, _)| *name);
        let others: Vec<&str> = names.filter(|name| !families.contains(name)).collect();
        let families = match others.len() {
            0 => "all".to_owned(),
            1..=3 if others.len() < families.len() => format!("all but {}", others.join(", ")),
            _ => families.join(", "),
        };
        table += &format!("| `{key}` | {flag} | {families} |\n");
    }
    let path = root().join("src").join(file);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert_eq!(read(&path), table, "BLESS=1 brings the table up to date");
}
