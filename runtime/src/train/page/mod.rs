//! `--report`: what a dry run, a simulation or a search has found, as one HTML page.
//!
//! A page loads nothing: styles and drawings are part of it, and so is the document of `--out json`. Drawings are SVG
//! with a text alternative, in colors for light and dark screens.

mod document;
mod explanation;
mod files;
mod key_numbers;
mod memory;
mod plan;
mod plot;
mod roofline;
mod scaling;
mod simulation;
mod svg;
mod timeline;
mod trust;

pub use document::{PageDocument, is_page, paragraph as page_paragraph, table as page_table};
pub use explanation::page_of_explanation;
pub use files::DryRunFiles;
pub use plan::page_of_plan;
pub use simulation::page_of_simulation;
