//! The commands of the book's part "Training at scale, step by step", and its figures.

mod chart;
#[path = "../../console_blocks.rs"]
mod console_blocks;
mod drawing;
mod figures;
mod overlap;

use crate::Workspace;

/// The ones of the program `meshwright` are tested in its package.
#[test]
fn commands_print_what_the_book_shows() {
    let workspace = Workspace::new();
    let commands = console_blocks::commands_in("scale", false);
    for command in &commands {
        command.run(env!("CARGO_BIN_EXE_train_llama"), &workspace.path(""));
    }
    assert!(commands.len() > 8, "the commands were found");
}
