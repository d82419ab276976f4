//! The subcommand `ckpt`: reports checkpoints.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright::checkpoint::{Checkpoint, Manifest, TrainState};
use meshwright::counted;
use meshwright::data::DataPosition;

use super::failure::Failure;

pub fn command() -> Command {
    let inspect = Command::new("inspect")
        .about("Compare the files of a checkpoint with their hashes, and print what it holds")
        .arg(
            Arg::new("path")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("A checkpoint DIR/step-N, or DIR or DIR/latest for the newest one"),
        )
        .arg(
            Arg::new("tensors")
                .long("tensors")
                .action(ArgAction::SetTrue)
                .help("Also list the tensors with their shapes"),
        );
    Command::new("ckpt")
        .about("Report checkpoints")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(inspect)
}

/// Runs the subcommand. Returns the text to print, and false if newer checkpoints than the reported one are damaged.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let (_, matches) = matches.subcommand().expect("a subcommand is required");
    let path: &PathBuf = matches.get_one("path").expect("the argument is required");
    let checkpoint =
        Checkpoint::open(path).map_err(|error| Failure::new(error.to_string(), &error))?;
    let mut text = String::new();
    for skipped in checkpoint.skipped() {
        let _ = writeln!(text, "skipped: {skipped}");
    }
    let manifest = checkpoint.manifest();
    text += &describe(checkpoint.folder(), manifest);
    if matches.get_flag("tensors") {
        for (name, tensor) in &manifest.tensors {
            let _ = writeln!(text, "  {name} {:?}", tensor.shape);
        }
    }
    Ok((text, checkpoint.skipped().is_empty()))
}

fn describe(folder: &Path, manifest: &Manifest) -> String {
    let TrainState { step, seed, mesh, mesh_order, data, history, own_loop, .. } = &manifest.state;
    let order = mesh_order.as_ref().map(|order| format!(" in the order {order}"));
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mut text = format!(
        "{}: all files match their hashes\n  step {step} of seed {seed}, saved on the mesh {mesh}{}\n",
        folder.display(),
        order.unwrap_or_default(),
    );
    if let Some(DataPosition { samples, file, .. }) = data {
        let were = if *samples == 1 { "was" } else { "were" };
        let samples = counted(*samples as usize, "sample");
        let _ = writeln!(text, "  {samples} of {file} {were} trained on");
    }
    if let Some(own) = own_loop {
        let _ = writeln!(
            text,
            "  by a training loop of a program, with the optimizer {}",
            own.optimizer
        );
    }
    if !history.run.is_empty() {
        let _ = writeln!(text, "  run {}", history.run);
    }
    for resumed in history.resumed.iter().rev() {
        let _ = writeln!(text, "  resumed from step {} of run {}", resumed.step, resumed.run);
    }
    let _ = writeln!(
        text,
        "  {} of {}",
        counted(manifest.files.len(), "file"),
        counted(bytes as usize, "byte")
    );
    // Tensors and elements, by kind: parameters, each state of the optimizer, and the moving average.
    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (name, tensor) in &manifest.tensors {
        let (tensors, elements) = kinds.entry(Manifest::kind_of(name)).or_default();
        *tensors += 1;
        *elements += tensor.shape.iter().product::<usize>();
    }
    for (kind, (tensors, elements)) in kinds {
        let _ = writeln!(text, "  {kind:<12}{tensors:>8} tensors{elements:>16} elements");
    }
    text
}
