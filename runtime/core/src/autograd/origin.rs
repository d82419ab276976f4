//! The origin of results without a gradient that were computed from values with one: masks, indices, and tensors of
//! them.
//!
//! Nothing on the tape leads to such a result, so it carries its origin itself. A cell or a thread-local could take it
//! to another run of a recomputed segment, whose forward pass has had another one, or to another pipeline stage, which
//! may run on another rank or for another micro-batch.

use std::rc::Rc;

use crate::context::{Rank, RunningStage, StageReaders, StagedForwardId};

use super::activation_checkpointing::SegmentRun;

/// A result with an origin, in messages.
const RESULT: &str = "a mask, index or tensor without a gradient";

/// The place in a step at which a result was computed. Only code of the same place reads it.
pub(crate) struct Origin {
    segment: Option<SegmentRun>,
    stage: StageReaders,
    forward: Option<StagedForwardId>,
}

impl Origin {
    /// Returns the origin of a result that is computed now.
    pub(crate) fn here(rank: &Rank) -> Rc<Origin> {
        Rc::new(Origin {
            segment: rank.segments().innermost(),
            stage: StageReaders::of_running(),
            forward: RunningStage::current_forward(),
        })
    }

    /// Checks that the code that is running may read the result: an evaluation may read all of them.
    ///
    /// # Panics
    /// If it was computed in another run of a recomputed segment, in another pipeline stage, or by a stage for another
    /// micro-batch.
    #[track_caller]
    pub(crate) fn check_read(&self, rank: &Rank) {
        if !rank.is_recording() {
            return;
        }
        let reader = rank.segments().innermost();
        assert!(
            self.segment == reader,
            "{RESULT} that was computed {} is used {}: backward computes a recomputed layer again, when a cell may \
             hold that of another layer or micro-batch; compute it where it is used, from what layers return and get \
             as input, such as `mask.as_weights()`",
            place(self.segment.as_ref()),
            match (&self.segment, &reader) {
                (Some(own), Some(reader)) if own.path() == reader.path() => {
                    "in another run of it".to_owned()
                }
                (_, reader) => place(reader.as_ref()),
            }
        );
        self.stage.check_read(RESULT);
        assert!(
            self.forward == RunningStage::current_forward(),
            "{RESULT} that a pipeline stage has computed for one micro-batch is used for another one: stages compute \
             micro-batches in an order of their own; compute it again for each"
        );
    }
}

fn place(run: Option<&SegmentRun>) -> String {
    match run {
        Some(run) => format!("in the recomputed `{}`", run.path()),
        None => "outside of recomputed layers".to_owned(),
    }
}
