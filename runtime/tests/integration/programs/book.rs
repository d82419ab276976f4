//! The commands of the program `meshwright` in the book's part "Training at scale, step by step".

#[path = "../../../../tests/console_blocks.rs"]
mod console_blocks;

use std::path::Path;

/// Drawings that the commands write are those of the book; `BLESS=1` writes them there.
#[test]
fn commands_print_and_draw_what_the_book_shows() {
    let dir = tempfile::tempdir().unwrap();
    let commands = console_blocks::commands_in("scale", true);
    for command in &commands {
        command.run(env!("CARGO_BIN_EXE_meshwright"), dir.path());
    }
    assert!(commands.len() > 3, "the commands were found");
    let drawings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/drawings");
    for name in ["gpipe", "zb_v"] {
        let drawn = std::fs::read_to_string(dir.path().join(format!("{name}.svg"))).unwrap();
        let shown = drawings.join(format!("scale_{name}.svg"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&shown, &drawn).unwrap();
        }
        let known = std::fs::read_to_string(&shown).unwrap_or_default();
        assert!(known == drawn, "BLESS=1 draws {} as it is now", shown.display());
    }
}
