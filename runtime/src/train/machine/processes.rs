//! Agreement of the processes of a run, through their store.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::Hasher;
use std::io::Read;

use serde_json::{Map, Value};

use crate::launch::{RankAssignment, Store, StoreError};
#[cfg(any(feature = "cuda", feature = "mpi"))]
use crate::mesh::MeshShape;
use crate::train::config::{Config, kept_flags};
#[cfg(any(feature = "cuda", feature = "mpi"))]
use crate::train::console::counted;
use crate::train::{Error, Result};
use meshwright_cpu::__internal::fuses_products;

/// The entries of the program itself and of its kernels among the settings of a process.
const PROGRAM: &str = "program";
const FUSES_PRODUCTS: &str = "fuses products";

/// Settings that may differ between hosts.
const OF_HOST: [&str; 1] = ["threads"];

/// Checks that there are as many processes as ranks.
#[cfg(any(feature = "cuda", feature = "mpi"))]
pub fn require_ranks(mesh: &MeshShape, assignment: &RankAssignment) -> Result<()> {
    let (ranks, world) = (mesh.world_size(), assignment.world);
    if ranks == world {
        Ok(())
    } else {
        Err(Error::Input(format!(
            "--mesh {mesh} has {}, but {world} processes were started; start {ranks}",
            counted(ranks, "rank")
        )))
    }
}

/// Returns the values that all processes publish under `name`, by rank.
///
/// # Errors
/// A connection that breaks, and a process that does not publish its value in time.
pub fn share(store: &Store, name: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let RankAssignment { rank, world, .. } = *store.assignment();
    let key = |rank: usize| format!("{name} of rank {rank}");
    store.set(&key(rank), own)?;
    (0..world).map(|rank| store.get(&key(rank))).collect()
}

/// Checks that all processes run the same program with the same settings. Every process calls it.
///
/// # Errors
/// The ranks and settings that differ, on every process.
pub fn require_same_settings(store: &Store, config: &Config) -> Result<()> {
    let unconnected = |reason: StoreError| Error::Rendezvous(reason.to_string());
    let own = serde_json::to_vec(&settings_of_process(config)).unwrap_or_default();
    let all = share(store, "settings", &own).map_err(unconnected)?;
    let settings: Vec<Map<String, Value>> =
        all.iter().map(|text| serde_json::from_slice(text).unwrap_or_default()).collect();
    let differences: Vec<String> = (1..settings.len())
        .filter_map(|rank| describe_difference(&settings[0], &settings[rank], rank))
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    // Rank 0 serves the store, so it ends after the others have read all of them.
    let _ = store.barrier("other settings");
    Err(Error::Input(format!(
        "the processes of this run differ: {}; start all of them by one command, with the same program and flags",
        differences.join("; ")
    )))
}

/// Waits until the process of rank 0 has ended, which prints why the run has stopped: a launcher ends all processes
/// when the first one exits with another code than 0.
pub fn await_first(store: &Store) {
    // No rank sets it, so the wait ends with the connection.
    let _ = store.get("end of rank 0");
}

/// Returns the settings of this process, and the hash of its program.
fn settings_of_process(config: &Config) -> Value {
    let mut settings = serde_json::to_value(config).unwrap_or_default();
    if let Value::Object(settings) = &mut settings {
        OF_HOST.iter().for_each(|name| drop(settings.remove(*name)));
        settings.insert(PROGRAM.into(), program_hash().into());
        settings.insert(FUSES_PRODUCTS.into(), fuses_products().into());
        // Flags have short values.
        let flags = kept_flags(config).into_iter();
        settings.extend(flags.map(|(name, value)| (format!("--{name}"), value.into())));
    }
    settings
}

/// Describes the first setting that `rank` has otherwise than rank 0.
fn describe_difference(
    first: &Map<String, Value>,
    other: &Map<String, Value>,
    rank: usize,
) -> Option<String> {
    let names = first.keys().chain(other.keys());
    let differs = |name: &&String| first.get(*name) != other.get(*name);
    // Flags begin with a dash, which is before letters.
    let name = names.filter(differs).min_by_key(|name| (*name == PROGRAM, *name))?;
    if name == PROGRAM {
        return Some(format!("rank {rank} runs another program than rank 0, or another build"));
    }
    if name == FUSES_PRODUCTS {
        return Some(format!(
            "the CPU of rank {rank} or of rank 0 has no fused multiply-add, so copies of a parameter would have other \
             bits (MESHWRIGHT_MAX_CPU_ISA=portable does without it in all processes)"
        ));
    }
    let text = |settings: &Map<String, Value>| match settings.get(name) {
        None | Some(Value::Null) => "absent".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let (first, other) = (text(first), text(other));
    Some(format!("`{name}` is {other} on rank {rank}, but {first} on rank 0"))
}

/// Returns a hash of the running program; 0 if it cannot be read.
fn program_hash() -> u64 {
    let read = || {
        let mut file = File::open(std::env::current_exe()?)?;
        let (mut hasher, mut block) = (DefaultHasher::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut block)? {
                0 => return Ok::<_, std::io::Error>(hasher.finish()),
                len => hasher.write(&block[..len]),
            }
        }
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_rank_and_setting() {
        let settings = |line: &str| {
            let words = ["train"].into_iter().chain(line.split_whitespace());
            let Value::Object(map) = settings_of_process(&Config::parse(words).unwrap()) else {
                panic!("settings are an object");
            };
            map
        };
        let first = settings("--seed 1 --mesh dp=2");
        assert_eq!(
            describe_difference(&first, &settings("--mesh dp=2 --threads 3 --seed 1"), 1),
            None
        );
        for (line, expected) in [
            ("--seed 2 --mesh dp=2", "`--seed` is 2 on rank 3, but 1 on rank 0"),
            ("--seed 1 --mesh tp=2", "`--mesh` is tp=2 on rank 3, but dp=2 on rank 0"),
            ("--seed 1 --mesh dp=2 --lr 0.5", "`--lr` is 0.5 on rank 3, but 0.001 on rank 0"),
            ("--seed 1 --mesh dp=2 --save x", "on rank 3, but absent on rank 0"),
        ] {
            let found = describe_difference(&first, &settings(line), 3).unwrap();
            assert!(found.contains(expected), "{found}");
        }
        let mut other = first.clone();
        other.insert(PROGRAM.into(), 1.into());
        let found = describe_difference(&first, &other, 2).unwrap();
        assert_eq!(found, "rank 2 runs another program than rank 0, or another build");
        let mut other = first.clone();
        other.insert(FUSES_PRODUCTS.into(), (!fuses_products()).into());
        let found = describe_difference(&first, &other, 2).unwrap();
        assert!(found.starts_with("the CPU of rank 2 or of rank 0 has no fused"), "{found}");
    }
}
