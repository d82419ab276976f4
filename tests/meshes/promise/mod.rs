//! Every program that compiles has the results of one rank on every mesh, or is refused at the line of the mistake.

mod accumulation;
mod attention;
mod auxiliary;
mod auxiliary_stages;
mod boundaries;
mod checks;
mod context;
mod declared_handles;
mod deferral;
mod global_numbers;
mod harness;
mod kept;
mod last_updates;
mod micro;
mod net;
mod objectives;
mod passes;
mod programs;
mod recomputation;
mod scenarios;
mod stages;
mod ties;
mod tokens;
mod trainer;
mod update_options;
mod updates;
