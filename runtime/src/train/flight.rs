//! The flight recorder of a run: the last calls of its ranks, for `meshwright flight`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::comm::FlightFolder;
use crate::data::is_remote;
use crate::os::{explain_report_signal, watch_report_signal};

use super::console::print_line;
use super::plan::Plan;

/// Returns the folder of `--flight`, or that in the folder of `--save`, in which the ranks write their last calls after
/// a failure, and when SIGUSR2 asks for it.
pub fn flight_folder(plan: &Plan) -> Option<Arc<FlightFolder>> {
    // The calls of one rank explain nothing, unless they are asked for; a failure may be that of object storage.
    let has_several = plan.config.mesh.world_size() > 1;
    let is_usable = |dir: &PathBuf| has_several && !is_remote(dir);
    let saved = || {
        let dir = plan.config.save.as_ref().map(|save| &save.dir);
        Some(dir.filter(|dir| is_usable(dir))?.join("flight"))
    };
    let Some(path) = plan.config.flight.clone().or_else(saved) else {
        explain_report_signal();
        return None;
    };
    watch_report_signal();
    let run = plan.machine.store().map(|store| store.run_id().to_owned());
    Some(Arc::new(FlightFolder::new(path, run)))
}

/// Names the folder after a failure.
pub fn announce_flight(plan: &Plan, folder: &FlightFolder) {
    if let Some(problem) = folder.problem() {
        print_line(&format!(
            "warning: the last calls of the ranks could not be written: {problem}"
        ));
    }
    let prints = plan.machine.own_rank().is_none_or(|rank| rank == 0);
    if prints && folder.has_files() {
        let path = folder.path().display();
        print_line(&format!(
            "the last calls of each rank are in {path}; `meshwright flight {path}` compares them"
        ));
    }
}
