//! Comparison of a program on meshes with the same program on one rank.
//!
//! A program [observes](Observed) its losses, gradients and parameters. It runs on one rank twice, which must give the
//! same bits, then with rounding noise ([`reference`]), and on each mesh, both in processes of their own if the program
//! can be started again ([`fresh_process`]). If a mesh differs by more than rounding explains, it runs on fewer axes of
//! the mesh, to find those along which it differs ([`axes`]).

mod axes;
mod difference;
mod fresh_process;
mod observed;
mod reference;
mod run;

use std::collections::BTreeMap;
use std::fmt;

use crate::mesh::MeshShape;

use axes::describe_axes;
use fresh_process::ComparedRun;
use observed::Kind;
use reference::{Comparison, Largest, Reference};
use run::Run;

pub(crate) use fresh_process::{Part, observed_mesh};
pub use observed::Observed;

/// Keys of the noise of the runs that show how far the numbers depend on rounding.
const NOISE_KEYS: [u32; 2] = [0x5eed_0001, 0x5eed_0002];

/// Most differences that a message lists.
const MAX_LISTED: usize = 8;

/// Reason why a program does not give the numbers of one rank.
pub(crate) enum Failure<E> {
    /// The program failed on a mesh.
    Run {
        /// The mesh.
        mesh: MeshShape,
        /// The error of the program.
        error: E,
    },
    /// Other numbers, described in several lines.
    Numbers(String),
}

/// A program with what it computes on one rank.
pub(crate) struct Parity<R> {
    compared: ComparedRun,
    run: R,
    reference: Reference,
}

impl<E, R> Parity<R>
where
    R: FnMut(&MeshShape, Option<u32>) -> Result<Vec<Observed>, E>,
{
    /// Runs the program on one rank. `run` runs it on a mesh, with the key of the
    /// [rounding noise](crate::tensor::Rank::add_rounding_noise) if there is to be some, and returns what each rank has
    /// observed.
    ///
    /// # Errors
    /// Of the program; numbers that are not finite, and two runs with different bits.
    pub(crate) fn new(compared: ComparedRun, mut run: R) -> Result<Self, Failure<E>> {
        let mesh = MeshShape::SINGLE;
        let [first, second] = NOISE_KEYS.map(Some);
        let noise = [None, None, first, second];
        let mut observed = compared.observe(&mesh, &noise).unwrap_or_default().into_iter();
        let mut on_one_rank = |noise| {
            let observed = match observed.next() {
                Some(observed) => observed,
                None => run(&mesh, noise).map_err(|error| Failure::Run { mesh, error })?,
            };
            Run::of_ranks(observed).map_err(|difference| Failure::Numbers(difference.to_string()))
        };
        let one = on_one_rank(None)?;
        if one.fields.is_empty() {
            let reason = "nothing was observed: record a loss, gradients, parameters or values";
            return Err(Failure::Numbers(reason.to_owned()));
        }
        if let Some(field) = one.first_other_bits(&on_one_rank(None)?) {
            return Err(Failure::Numbers(format!(
                "two runs on one rank differ in step {}, first in: {field}; a number outlives the run (a `static`, a \
                 file) or comes from outside (the time, the address or order of something)",
                field.step
            )));
        }
        let noisy = [on_one_rank(first)?, on_one_rank(second)?];
        let reference = Reference::new(one, &noisy)
            .map_err(|found| Failure::Numbers(format!("step {}: {found}", found.field.step)))?;
        if let Some(first @ 0..=1) = reference.chaotic_step {
            return Err(Failure::Numbers(format!(
                "rounding alone changes the numbers of step {first} on one rank by several percent, so meshes cannot \
                 be compared with it: use a smaller learning rate or initialization, or observe gradients if the \
                 loss is zero on average"
            )));
        }
        Ok(Parity { compared, run, reference })
    }

    /// Runs the program on a mesh, and compares it with one rank.
    ///
    /// # Errors
    /// Of the program; numbers that differ by more than rounding explains.
    pub(crate) fn check(&mut self, mesh: &MeshShape) -> Result<Agreement, Failure<E>> {
        let Comparison { differences, largest } =
            self.compare(mesh).map_err(|error| Failure::Run { mesh: *mesh, error })?;
        let Some(first) = differences.first() else {
            return Ok(Agreement {
                mesh: *mesh,
                steps: self.reference.compared_steps(),
                chaotic_step: self.reference.chaotic_step,
                largest,
            });
        };
        let axes = describe_axes(mesh, |part| {
            self.compare(part).ok().map(|comparison| !comparison.differences.is_empty())
        });
        let step = match first.field.step {
            0 => "before the first step".to_owned(),
            step => format!("in step {step}"),
        };
        let mut lines = vec![format!("{mesh} differs from one rank {step}, {axes}:")];
        let of_step = differences.iter().filter(|one| one.field.step == first.field.step);
        let count = of_step.clone().count();
        lines.extend(of_step.take(MAX_LISTED).map(|one| format!("  {one}")));
        if let Some(more @ 1..) = count.checked_sub(MAX_LISTED) {
            lines.push(format!("  and {more} more in this step"));
        }
        let later = if differences.len() > count { " (later steps differ too)" } else { "" };
        lines.push(format!("{}{later}", first.hint()));
        Err(Failure::Numbers(lines.join("\n")))
    }

    fn compare(&mut self, mesh: &MeshShape) -> Result<Comparison, E> {
        let observed = match self.compared.observe(mesh, &[None]).and_then(|mut all| all.pop()) {
            Some(observed) => observed,
            None => (self.run)(mesh, None)?,
        };
        Ok(match Run::of_ranks(observed) {
            Ok(run) => self.reference.compare(&run),
            Err(difference) => Comparison::of_ranks(difference),
        })
    }
}

/// A mesh that agrees with one rank.
#[derive(Debug)]
pub(crate) struct Agreement {
    mesh: MeshShape,
    /// Compared steps.
    steps: u64,
    /// The first step that was not compared, since rounding decides it.
    chaotic_step: Option<u64>,
    largest: BTreeMap<Kind, Largest>,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Agreement { mesh, steps, chaotic_step, largest } = self;
        let plural = if *steps == 1 { "" } else { "s" };
        write!(f, "{mesh} equals one rank in {steps} step{plural}")?;
        for (index, (kind, largest)) in largest.iter().enumerate() {
            let name = match kind {
                Kind::Loss => "losses",
                Kind::Value => "values",
                Kind::Gradient => "gradients",
                Kind::Parameter => "parameters",
            };
            let Largest { relative, of_allowed } = largest;
            let start = if index == 0 { ": " } else { ", " };
            let percent = 100.0 * of_allowed;
            write!(
                f,
                "{start}{name} within {relative:.1e} ({percent:.0} % of what rounding explains)"
            )?;
        }
        match chaotic_step {
            Some(step) => {
                write!(
                    f,
                    "; from step {step} on rounding alone changes them by several percent, so these were not compared"
                )
            }
            None => Ok(()),
        }
    }
}
