//! Mixtures of experts: against a dense computation in f64, with uneven and empty groups of rows, and wrong programs.

mod dense;
mod misuse;
mod nested;
mod oracle;
mod pairs;
mod stages;
mod uneven;
