//! The time of a position by its use.

use meshwright_mesh::AxisSet;

use super::computation::Computation;

/// Seconds of the compute stream of a position along `pp`, by their use. The sum is the time of the step, if its steps
/// are alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PositionTime {
    /// Kernels by [`Computation`], slowed by collectives beside them.
    pub computation: [f64; Computation::ALL.len()],
    /// Waits for collectives over each set of axes: exposed communication.
    pub exposed: Vec<(AxisSet, f64)>,
    /// Waits for other positions: for messages, and for the start of collectives over `pp`. It is the pipeline bubble.
    pub waiting: f64,
    /// Waits for copies between host and device.
    pub transfers: f64,
    /// Waits for launches by the host.
    pub launches: f64,
    /// Time after the last operation of the step.
    pub end_idle: f64,
}

impl PositionTime {
    /// Returns the seconds of kernels of one kind.
    pub fn computation(&self, kind: Computation) -> f64 {
        self.computation[kind as usize]
    }

    /// Returns the seconds of all kernels.
    pub fn computed(&self) -> f64 {
        self.computation.iter().sum()
    }

    /// Returns the exposed communication over all axes, messages excluded, in seconds.
    pub fn communicated(&self) -> f64 {
        self.exposed.iter().map(|(_, seconds)| seconds).sum()
    }

    /// Returns the exposed communication over one set of axes, in seconds.
    pub fn exposed_over(&self, axes: AxisSet) -> f64 {
        self.exposed.iter().find(|(known, _)| *known == axes).map_or(0.0, |(_, seconds)| *seconds)
    }

    /// Returns the sum of all parts, in seconds.
    pub fn total(&self) -> f64 {
        let PositionTime { waiting, transfers, launches, end_idle, .. } = self;
        self.computed() + self.communicated() + waiting + transfers + launches + end_idle
    }

    /// Adds exposed communication over a set of axes, in seconds.
    pub(crate) fn add_exposed(&mut self, axes: AxisSet, seconds: f64) {
        match self.exposed.iter_mut().find(|(known, _)| *known == axes) {
            Some((_, sum)) => *sum += seconds,
            None => self.exposed.push((axes, seconds)),
        }
    }

    /// Adds the parts of another position.
    pub(crate) fn add(&mut self, other: &PositionTime) {
        self.computation
            .iter_mut()
            .zip(other.computation)
            .for_each(|(sum, seconds)| *sum += seconds);
        other.exposed.iter().for_each(|(axes, seconds)| self.add_exposed(*axes, *seconds));
        self.waiting += other.waiting;
        self.transfers += other.transfers;
        self.launches += other.launches;
        self.end_idle += other.end_idle;
    }

    /// Multiplies all parts.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.computation.iter_mut().for_each(|seconds| *seconds *= factor);
        self.exposed.iter_mut().for_each(|(_, seconds)| *seconds *= factor);
        for seconds in
            [&mut self.waiting, &mut self.transfers, &mut self.launches, &mut self.end_idle]
        {
            *seconds *= factor;
        }
    }
}
