//! User-defined functions: gradients on every mesh, and functions that are refused.

mod along;
mod dry_runs;
mod elementwise;
mod halves;
mod layer;
mod made_up;
mod refusals;
mod whole_beside_split;

use meshwright::prelude::Rank;
use meshwright_tests::run::on_mesh;

/// Returns the message of the refusal of `body` on `mesh`.
#[track_caller]
fn refusal(mesh: &str, body: impl Fn(&Rank) + Sync) -> String {
    let run = || on_mesh(mesh, 1, |rank| body(rank));
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).err();
    let payload = payload.unwrap_or_else(|| panic!("{mesh}: nothing was refused"));
    payload.downcast::<String>().map(|text| *text).expect("a panic has a message")
}
