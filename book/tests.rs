//! Checks of the book beyond its code blocks: the README's error, links, drawings, and the map of the code.

mod clusters;
mod families;
mod imports;
mod layers_table;
mod library_source;
mod public_types;
mod terms;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use meshwright::train::config::FLAGS;

/// `BLESS=1` writes the error into the README.
#[test]
fn the_readme_shows_the_error_of_its_model() {
    let path = root().join("../README.md");
    let readme = read(&path);
    let error = read(&root().join("../tests/ui/book/column_after_column.stderr"));
    let (before, rest) = readme.split_once("```console\nerror").expect("the README shows an error");
    let (_, after) = rest.split_once("```\n").expect("the block ends");
    let expected = format!("{before}```console\n{error}```\n{after}");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        readme == expected || env::var_os("BLESS").is_some(),
        "BLESS=1 brings the README up to date"
    );
}

/// Without paths and some notes, and with other line breaks.
#[test]
fn the_front_page_of_the_documentation_shows_the_same_error() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let error = read(&root().join("../tests/ui/book/column_after_column.stderr"));
    let error = words(&error.replace("meshwright::", ""));
    let front = read(&root().join("../runtime/src/lib.rs"));
    let (_, block) = front.split_once("//! ```text\n").expect("the front page shows an error");
    let (block, _) = block.split_once("//! ```\n").expect("the block ends");
    let block = words(&block.replace("//!", ""));
    let (message, rest) = block.split_once(" | ").expect("the message ends before the code");
    let (code, note) = rest.split_once(" | = note: ").expect("a note has the fix");
    for part in [message, code, note] {
        assert!(error.contains(part), "`{part}` is not in `{error}`");
    }
}

/// `BLESS=1` writes the table.
#[test]
fn the_table_of_settings_is_that_of_the_flags() {
    let mut table = String::new();
    for group in FLAGS.chunk_by(|one, next| one.group == next.group) {
        table += &format!("### {}\n\n| setting | meaning |\n|---|---|\n", group[0].group);
        for flag in group {
            let words = format!("--{} {}", flag.name, flag.value);
            let default = match flag.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            table += &format!("| `{}` | {}{default} |\n", words.trim(), flag.help);
        }
        table += "\n";
    }
    let path = root().join("src/settings_table.md");
    let table = table.trim_end().to_owned() + "\n";
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert_eq!(read(&path), table, "BLESS=1 brings the table up to date");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let summary = read(&root().join("src/SUMMARY.md"));
    for page in pages() {
        let name = page.strip_prefix(root().join("src")).unwrap().display().to_string();
        // The tables are parts of other pages.
        let parts = [
            "SUMMARY.md",
            "attributes_table.md",
            "families_table.md",
            "layers_table.md",
            "settings_table.md",
            "task_families_table.md",
        ];
        if !parts.contains(&name.as_str()) {
            assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
        }
    }
}

/// mdBook only warns of a file that it does not find.
#[test]
fn what_pages_link_to_and_include_exists() {
    let readme = root().join("../README.md");
    for page in pages().into_iter().chain([readme]) {
        let text = read(&page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let includes =
            text.split("{{#include ").skip(1).filter_map(|rest| rest.split([':', '}']).next());
        for target in links.filter(|link| !link.is_empty() && !link.contains("://")).chain(includes)
        {
            let file = page.parent().unwrap().join(target);
            assert!(file.exists(), "{} refers to {target}, which does not exist", page.display());
        }
    }
}

/// The first table in the page on the architecture lists every crate of the runtime with the ones that it depends on.
#[test]
fn crates_depend_on_what_the_architecture_says() {
    let page = read(&root().join("src/contributing/architecture.md"));
    let rows = table(&page, "| crate | uses |\n|---|---|\n");
    let manifests = files(&root().join("../runtime"), "toml");
    let manifests: Vec<_> = manifests.iter().filter(|path| path.ends_with("Cargo.toml")).collect();
    assert_eq!(rows.len(), manifests.len(), "a crate is not in the table");
    for (index, row) in rows.iter().enumerate() {
        let manifest = read(&crate_folder(row[0]).join("Cargo.toml"));
        let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap();
        let names = dependencies.lines().take_while(|line| !line.starts_with('['));
        let names = names.filter_map(|line| line.strip_prefix("meshwright-"));
        let used: BTreeSet<&str> = names.filter_map(|name| name.split(['.', ' ']).next()).collect();
        let listed = BTreeSet::from_iter(row[1..].iter().copied());
        assert_eq!(used, listed, "dependencies of `{}`", row[0]);
        for used in &row[1..] {
            let is_above = rows[..index].iter().any(|above| above[0] == *used);
            assert!(
                is_above || *used == "macros",
                "`{}` uses `{used}`, which the table does not list above it",
                row[0]
            );
        }
    }
}

/// The second table lists the modules of crates that have several, with the modules that each may use.
#[test]
fn modules_use_only_what_the_architecture_allows() {
    let page = read(&root().join("src/contributing/architecture.md"));
    let rows = module_table(&page);
    for (index, row) in rows.iter().enumerate() {
        let source = crate_folder(row[0]).join("src");
        let siblings = || rows.iter().filter(|other| other[0] == row[0]);
        for module in declared_modules(&read(&source.join("lib.rs"))) {
            let is_listed = siblings().any(|row| row[1] == module);
            let is_exempt = ["prelude", "__private", "__internal"].contains(&module);
            assert!(is_listed || is_exempt, "`{module}` of `{}` is not in the table", row[0]);
        }
        for used in &row[2..] {
            let is_above = rows[..index].iter().any(|above| above[..2] == [row[0], *used]);
            assert!(is_above, "`{}` uses `{used}`, which the table does not list above it", row[1]);
        }
        let (folder, file) = (source.join(row[1]), source.join(format!("{}.rs", row[1])));
        let files = if folder.is_dir() { files(&folder, "rs") } else { vec![file] };
        for file in files {
            let text = read(&file);
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let used = code.flat_map(|line| line.split("crate::").skip(1));
            let used = used
                .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            for used in used.filter(|name| siblings().any(|row| row[1] == *name)) {
                assert!(row[1..].contains(&used), "{} uses `{used}`", file.display());
            }
        }
    }
}

/// A link to a heading that was renamed leads to the top of its page.
#[test]
fn links_lead_to_headings() {
    for page in pages() {
        let text = prose(&page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, heading)) = target.split_once('#') else { continue };
            if file.contains("://") {
                continue;
            }
            let linked = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let found = prose(&linked).lines().any(|line| {
                line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading
            });
            assert!(found, "{} links to {target}, which is not a heading", page.display());
        }
    }
}

#[test]
fn drawings_are_shown_and_adapt_to_dark_themes() {
    let text: String = pages().iter().map(|page| read(page)).collect();
    let drawings = files(&root().join("src/drawings"), "svg");
    assert!(!drawings.is_empty());
    for drawing in drawings {
        let name = drawing.file_name().unwrap().to_string_lossy().into_owned();
        assert!(text.contains(&format!("drawings/{name})")), "no page shows {name}");
        let svg = read(&drawing);
        for part in ["<title>", "prefers-color-scheme: dark"] {
            assert!(svg.contains(part), "{name} has no `{part}`");
        }
    }
}

/// The drawing of the architecture has a box for each crate and module of the tables, no higher than the boxes of those
/// that may use it.
#[test]
fn diagram_agrees_with_the_tables() {
    let svg = read(&root().join("src/drawings/layers.svg"));
    let height = |id: &str| -> f64 {
        let (_, rest) = svg
            .split_once(&format!("id=\"{id}\""))
            .unwrap_or_else(|| panic!("layers.svg has no box with the id `{id}`"));
        let (_, rest) = rest.split_once(" y=\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let page = read(&root().join("src/contributing/architecture.md"));
    for row in table(&page, "| crate | uses |\n|---|---|\n") {
        for used in row.iter().filter(|name| **name != "macros") {
            assert!(height(used) >= height(row[0]), "`{used}` is drawn above `{}`", row[0]);
        }
    }
    for row in module_table(&page) {
        let id = |module: &str| format!("{}::{module}", row[0]);
        for used in &row[1..] {
            let is_below = height(&id(used)) >= height(&id(row[1]));
            assert!(is_below, "`{used}` is drawn above `{}`", row[1]);
        }
    }
}

/// Paths in code spans from the root of the repository on, such as `runtime/comm/src`.
#[test]
fn pages_name_existing_files() {
    let repository = root().join("..");
    let folders = ["bench/", "book/", "examples/", "gpu-sim/", "macros/", "runtime/", "tests/"];
    for page in pages() {
        for path in prose(&page).split('`').skip(1).step_by(2) {
            let is_path = folders.iter().any(|folder| path.starts_with(folder));
            if is_path && !path.contains([' ', '*']) {
                let exists = repository.join(path).exists();
                assert!(exists, "{} names {path}, which does not exist", page.display());
            }
        }
    }
}

#[test]
fn files_of_a_crate_have_no_import_cycle() {
    let repository = root().join("..").canonicalize().unwrap();
    let roots = crate_roots(&repository);
    let is_checked = |source: &&PathBuf| {
        source.strip_prefix(&repository).unwrap().iter().all(|part| part != "tests")
    };
    let checked: Vec<&PathBuf> = roots.iter().filter(is_checked).collect();
    assert!(checked.len() >= 18, "the crates were found");
    for source in checked {
        let imports = imports::Imports::read_crate(source, &roots);
        if let Some(cycle) = imports.cycle() {
            let name = source.strip_prefix(&repository).unwrap().display();
            panic!("files of {name} import from each other: {}", cycle.join(" -> "));
        }
    }
}

/// Search terms of the field, and the file whose first lines must have each.
const SEARCH_TERMS: [(&str, &str); 74] = [
    ("heartbeat", "runtime/comm/src/process_launch/keep_alive.rs"),
    ("failure detection", "runtime/comm/src/peers.rs"),
    ("rendezvous", "runtime/comm/src/process_launch/store.rs"),
    ("watchdog", "runtime/comm/src/nccl/watchdog.rs"),
    ("process group", "runtime/mesh/src/coordinates.rs"),
    ("point-to-point", "runtime/comm/src/local/point_to_point.rs"),
    ("all-gather", "runtime/comm/src/local/collectives.rs"),
    ("reduce-scatter", "runtime/comm/src/local/collectives.rs"),
    ("all-reduce", "runtime/comm/src/local/collectives.rs"),
    ("ring", "runtime/comm/src/local/collectives.rs"),
    ("mixed precision", "runtime/backend/src/dtype.rs"),
    ("loss scaling", "runtime/backend/src/dtype.rs"),
    ("master weights", "runtime/core/src/fsdp/unit/values.rs"),
    ("reshard", "runtime/core/src/fsdp/unit/values.rs"),
    ("bucket", "runtime/core/src/fsdp/unit/mod.rs"),
    ("ZeRO", "runtime/core/src/fsdp/mod.rs"),
    ("prefetch", "runtime/core/src/fsdp/prefetch.rs"),
    ("HSDP", "runtime/core/src/fsdp/unit/data_parallel.rs"),
    ("hybrid sharding", "runtime/core/src/fsdp/unit/data_parallel.rs"),
    ("tensor parallel", "runtime/core/src/autograd/tensor_parallel/mod.rs"),
    ("sequence parallel", "runtime/core/src/autograd/tensor_parallel/mod.rs"),
    ("activation checkpointing", "runtime/core/src/autograd/activation_checkpointing/mod.rs"),
    ("epilogue", "runtime/core/src/autograd/matmul/mod.rs"),
    ("caching allocator", "runtime/backend/src/allocator/mod.rs"),
    ("private pool", "runtime/backend/src/allocator/private_pool.rs"),
    ("CUDA graph", "runtime/backend/src/cuda_graph.rs"),
    ("autotun", "runtime/cuda/src/autotune/mod.rs"),
    ("flash attention", "runtime/cpu/src/attention/mod.rs"),
    ("flash attention", "runtime/cuda/src/ops/attention/mod.rs"),
    ("online softmax", "runtime/cpu/src/attention/forward.rs"),
    ("gradient accumulation", "runtime/src/train/step.rs"),
    ("micro-batch", "runtime/src/train/step.rs"),
    ("gradient clipping", "runtime/core/src/tensor/gradients.rs"),
    ("learning-rate schedule", "runtime/src/train/config/lr_schedule.rs"),
    ("weight decay", "runtime/core/src/optim/groups.rs"),
    ("pipeline bubble", "runtime/pipeline/src/schedule/simulate.rs"),
    ("gradient noise scale", "runtime/src/train/report/noise_scale.rs"),
    ("bus bandwidth", "runtime/src/bench/collective.rs"),
    ("MFU", "runtime/src/train/report/flops.rs"),
    ("HFU", "runtime/src/train/report/flops.rs"),
    ("NaN", "runtime/src/train/run/divergence.rs"),
    ("checkpoint resharding", "runtime/store/src/checkpoint/load.rs"),
    ("state dict", "runtime/store/src/state_dict/mod.rs"),
    ("roofline", "bench/src/bin/kernels/main.rs"),
    ("gradient checkpointing", "runtime/core/src/autograd/activation_checkpointing/mod.rs"),
    ("DDP", "runtime/core/src/fsdp/unit/data_parallel.rs"),
    ("MoE", "runtime/backend/src/ops/routing.rs"),
    ("expert routing", "runtime/backend/src/ops/routing.rs"),
    ("top-k", "runtime/backend/src/ops/routing.rs"),
    ("dropless", "runtime/core/src/nn/moe/mod.rs"),
    ("capacity factor", "runtime/core/src/nn/moe/mod.rs"),
    ("auxiliary loss", "runtime/core/src/nn/moe/auxiliary_loss.rs"),
    ("load-balancing loss", "runtime/core/src/nn/moe/auxiliary_loss.rs"),
    ("z-loss", "runtime/core/src/nn/moe/auxiliary_loss.rs"),
    ("grouped GEMM", "runtime/core/src/nn/moe/grouped_matmul.rs"),
    ("token dispatch", "runtime/core/src/nn/moe/dispatch.rs"),
    ("token permutation", "runtime/core/src/nn/moe/choices.rs"),
    ("mixed precision", "runtime/core/src/optim/mod.rs"),
    ("zero bubble", "runtime/pipeline/src/schedule/generate/zero_bubble.rs"),
    ("straggler", "runtime/pipeline/src/stage_times.rs"),
    ("load imbalance", "runtime/src/train/report/attention_balance.rs"),
    ("data loader", "runtime/store/src/data/prefetch.rs"),
    ("GQA", "runtime/core/src/nn/attention/mod.rs"),
    ("log-sum-exp", "runtime/backend/src/ops/attention.rs"),
    ("ring attention", "runtime/core/src/nn/attention/context/ring.rs"),
    ("Ulysses", "runtime/core/src/nn/attention/context/ulysses.rs"),
    ("rotary", "runtime/core/src/nn/rope/mod.rs"),
    ("1F1B", "runtime/pipeline/src/schedule/generate/simple.rs"),
    ("Philox", "runtime/cpu/src/philox.rs"),
    ("EMA", "runtime/core/src/optim/ema.rs"),
    ("safetensors", "runtime/store/src/checkpoint/tensors.rs"),
    ("tokenizer", "runtime/tokenize/src/tokenizer.rs"),
    ("memory plan", "runtime/src/train/plan/memory/mod.rs"),
    ("context parallel", "runtime/core/src/nn/attention/context/mod.rs"),
];

#[test]
fn search_terms_lead_to_their_files() {
    for (term, file) in SEARCH_TERMS {
        let text = read(&root().join("..").join(file));
        let head: Vec<&str> =
            text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let head = head.join(" ").to_lowercase();
        assert!(head.contains(&term.to_lowercase()), "the first lines of {file} lack `{term}`");
    }
}

/// Tests may be longer: unit tests at the end of a file, and files and folders named `tests`.
#[test]
fn no_source_file_exceeds_400_lines() {
    let repository = root().join("..");
    let crates = ["bench", "book", "examples", "gpu-sim", "macros", "runtime"];
    let sources = ["rs", "cu", "cuh", "hpp"].into_iter().flat_map(|extension| {
        crates.map(|name| files(&repository.join(name), extension)).into_iter().flatten()
    });
    let mut count = 0;
    for file in sources {
        let path = file.strip_prefix(&repository).unwrap();
        let is_test = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
        let is_hidden = |part: &std::ffi::OsStr| part.as_encoded_bytes().starts_with(b".");
        if path.iter().any(|part| is_test(part) || is_hidden(part)) {
            continue;
        }
        let text = read(&file);
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().count();
        assert!(lines <= 400, "{} has {lines} lines: split it by idea", path.display());
        count += 1;
    }
    assert!(count > 100, "the sources were found");
}

/// Returns the folders with the root file of a library or a program.
fn crate_roots(repository: &Path) -> Vec<PathBuf> {
    let crates = ["bench", "book", "examples", "gpu-sim", "macros", "runtime", "tests"];
    let sources = crates.iter().flat_map(|name| files(&repository.join(name), "rs"));
    let roots = sources.filter(|file| file.ends_with("lib.rs") || file.ends_with("main.rs"));
    roots.map(|file| file.parent().unwrap().to_owned()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Returns the folder of a crate of the tables.
fn crate_folder(name: &str) -> PathBuf {
    let runtime = root().join("../runtime");
    if name == "meshwright" { runtime } else { runtime.join(name) }
}

/// Returns the modules that the root file of a crate declares, beside ones that only re-export.
fn declared_modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "))?.strip_suffix(';')
    })
}

/// Rows of the table of modules: crate, module, and the modules of the crate that it may use.
fn module_table(page: &str) -> Vec<Vec<&str>> {
    table(page, "| crate | module | may use |\n|---|---|---|\n")
}

/// Returns the code spans of each row of the table with the given head.
fn table<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let (_, table) = page.split_once(head).expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.map(|line| line.split('`').skip(1).step_by(2).collect()).collect()
}

/// A page without its code blocks.
fn prose(page: &Path) -> String {
    let text = read(page);
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the anchor of a heading in mdBook.
fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    letters.collect::<String>().to_lowercase().replace(' ', "-")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    files(&root().join("src"), "md")
}

/// The files under `folder` whose name ends in `.extension`.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path, extension) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}
