//! Compiler diagnostics for models with mismatched shardings, and models that must compile.
//!
//! Each file of a folder here, except `pass/`, must fail to compile with exactly the messages in its `.stderr` file.
//! To update messages, run `TRYBUILD=overwrite cargo test --release -p meshwright-ui-tests`, and review the
//! difference. To run one case: `.. -p meshwright-ui-tests -- compile_errors trybuild=partial/silu`.

/// Models that must compile, with checks that need no training.
mod pass;

#[test]
fn compile_errors() {
    let cases = trybuild::TestCases::new();
    for topic in [
        "asserted",
        "attention",
        "attributes",
        "auxiliary",
        "book",
        "counts",
        "data_axes",
        "experts",
        "fields",
        "forward",
        "functions",
        "gradients",
        "homes",
        "in_flight",
        "inputs",
        "known_bugs",
        "layers",
        "loss",
        "neighbors",
        "one_axis_twice",
        "operators",
        "optimizers",
        "partial",
        "products",
        "recompute",
        "reductions",
        "shapes",
        "sharing",
        "slips",
        "softmax",
        "splits",
        "stages",
        "streams",
        "structs",
        "styles",
        "ties",
        "units",
    ] {
        cases.compile_fail(format!("{topic}/*.rs"));
    }
}

/// Every mistake of a model is reported once, without follow-up errors.
#[test]
fn five_mistakes_give_five_errors() {
    for case in ["five_mistakes", "five_misfits"] {
        let path = format!("{}/counts/{case}.stderr", env!("CARGO_MANIFEST_DIR"));
        let messages = std::fs::read_to_string(&path).expect("the messages of the case are kept");
        let errors = messages.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, 5, "{path}");
    }
}

/// Each case has a `.stderr` file, and each folder is a topic of the test.
#[test]
fn every_case_is_run() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = include_str!("main.rs");
    let entries = |folder: &std::path::Path| {
        let read = std::fs::read_dir(folder).expect("the folder of cases is readable");
        read.map(|entry| entry.expect("the folder of cases is readable").path()).collect::<Vec<_>>()
    };
    for folder in entries(root).into_iter().filter(|path| path.is_dir()) {
        let topic = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        if topic == "pass" {
            continue;
        }
        assert!(source.contains(&format!("\"{topic}\"")), "`{topic}` is not among the topics");
        for case in entries(&folder) {
            let messages = case.with_extension("stderr");
            assert!(messages.exists(), "{} has no messages", case.display());
        }
    }
}
