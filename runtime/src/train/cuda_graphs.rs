//! The passes of a step over its micro-batches: asked of the device one operation after the other, or, once they have been
//! recorded, submitted at once.

use crate::backend::DeviceFailure;
use crate::data::MicroBatch;
use crate::layout::Shape;
use crate::tensor::{
    Accumulating, Gradients, Loss, Metric, Pass, Passes, Pending, Rank, RecordedPass, Tokens,
    Varies,
};

use super::console::say;

/// Steps that are not recorded at first: in the first one, kernels are compiled and the order of parameters is learnt; the
/// second one is as all others, and shows whether they can be recorded.
const WARM_UP: usize = 2;

/// How often recording begins anew after parameters were found elsewhere, as they are not in a run as usual.
const ATTEMPTS: usize = 3;

/// One rank's share of a step.
pub struct Turn<'a> {
    /// The step, for messages.
    pub step: u64,
    /// Sizes of the global batch.
    pub sizes: [usize; 2],
    /// This rank's micro-batches, one at least.
    pub parts: &'a [MicroBatch<'a>],
}

/// The recorded passes of a rank, as far as there are any.
pub struct Graphs<S> {
    state: State<S>,
    attempts: usize,
    /// Says on stderr why nothing is recorded.
    speaks: bool,
}

enum State<S> {
    Off,
    /// So many steps are to come before one is recorded.
    WarmUp(usize),
    On(Recorded<S>),
}

/// In the order in which they were recorded.
struct Recorded<S> {
    known: Vec<(Kind, RecordedPass<S>)>,
    /// Whether all ranks have found that their memory suffices, with what comes after the passes of a step.
    is_confirmed: bool,
    // Given back last.
    passes: Passes,
}

/// What makes passes of one run different from each other: the first one writes gradients to which others add, and the last
/// one sums them over the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    is_first: bool,
    is_last: bool,
}

/// Losses by micro-batch, and the gradient of all.
type Done<S> = (Vec<Metric<S>>, Gradients<Pending>);

/// Why a step was not done by recordings.
enum Refusal {
    /// As others will not be.
    ForGood(String),
    /// Because of what happened before it.
    Once,
}

/// The gradients of the micro-batches so far.
enum SoFar {
    None,
    Some(Gradients<Accumulating>),
    All(Gradients<Pending>),
}

impl<S: Shape> Graphs<S> {
    /// Of a rank on which passes are recorded if `wanted`, where they can be and nothing hinders.
    pub fn new(rank: &Rank, wanted: bool, hindrance: Option<&str>) -> Graphs<S> {
        let state = if wanted { State::WarmUp(WARM_UP) } else { State::Off };
        let mut graphs = Graphs { state, attempts: ATTEMPTS, speaks: rank.index() == 0 };
        if let (true, Some(why)) = (wanted, hindrance) {
            graphs.give_up(why);
        }
        graphs
    }

    /// Gives back everything that was recorded; nothing is recorded from now on.
    pub fn close(&mut self) {
        self.state = State::Off;
    }

    /// Losses and gradients of a step; `loss` is that of tokens and targets.
    pub fn differentiate(
        &mut self,
        rank: &Rank,
        turn: &Turn<'_>,
        loss: impl Fn(&Tokens<S>, &Tokens<S>) -> Loss<S>,
    ) -> Done<S> {
        if matches!(self.state, State::WarmUp(0)) {
            self.state = match Passes::new(rank) {
                Some(passes) => {
                    State::On(Recorded { known: Vec::new(), is_confirmed: false, passes })
                }
                None => State::Off,
            };
        }
        if let State::On(recorded) = &mut self.state {
            match recorded.differentiate(turn, &loss) {
                Ok(done) => return done,
                Err(Refusal::ForGood(why)) => {
                    rank.discard_gradients();
                    self.give_up(&why);
                }
                Err(Refusal::Once) => {
                    rank.discard_gradients();
                    self.attempts -= 1;
                    self.state = match self.attempts {
                        0 => State::Off,
                        _ => State::WarmUp(WARM_UP),
                    };
                }
            }
        }
        let before = Varies::now(rank);
        let done = asked_for(rank, turn, loss);
        if let State::WarmUp(left) = &mut self.state {
            *left -= 1;
            if let (0, Some(why)) = (*left, Varies::now(rank).since(before)) {
                self.give_up(&format!("of the model, {why}"));
            }
        }
        done
    }

    fn give_up(&mut self, why: &str) {
        self.close();
        if self.speaks {
            say(&format!(
                "steps are not recorded on the GPU, but asked for operation by operation: {why}"
            ));
        }
    }
}

impl<S: Shape> Recorded<S> {
    /// Whether what was recorded can be done again. Ranks ask each other once, after the first step that was recorded; one
    /// that finds itself short of memory later cannot go on without the others.
    fn check_memory(&mut self) -> Result<(), Refusal> {
        let was_confirmed = self.is_confirmed;
        self.is_confirmed = !self.known.is_empty();
        let suffices = match self.is_confirmed && !was_confirmed {
            true => self.passes.are_whole_everywhere(),
            false => self.passes.are_whole(),
        };
        if suffices {
            return Ok(());
        }
        let why = "their memory was needed for something else";
        if was_confirmed && self.passes.are_of_several_ranks() {
            let advice = "leave more memory free, or run with --no-graphs";
            DeviceFailure(format!("recorded steps cannot go on, {why}; {advice}")).unwind();
        }
        Err(Refusal::ForGood(why.to_owned()))
    }

    /// A step by recordings, which are made where there are none yet.
    fn differentiate(
        &mut self,
        turn: &Turn<'_>,
        loss: &impl Fn(&Tokens<S>, &Tokens<S>) -> Loss<S>,
    ) -> Result<Done<S>, Refusal> {
        self.check_memory()?;
        let (mut losses, mut count) = (Vec::with_capacity(turn.parts.len()), 0);
        let name = format!("step {}", turn.step);
        for (index, part) in turn.parts.iter().enumerate() {
            let kind = Kind { is_first: index == 0, is_last: index + 1 == turn.parts.len() };
            let pass = Pass {
                sizes: &turn.sizes,
                first: part.rows.start,
                tokens: part.tokens,
                targets: part.targets,
                name: &name,
            };
            let known = self.known.iter().find(|(known, _)| *known == kind);
            let (metric, counted) = match known {
                Some((_, recorded)) if recorded.takes(part.targets) => {
                    let metric = self.passes.replay(recorded, &pass).ok_or(Refusal::Once)?;
                    (metric, recorded.count())
                }
                Some(_) => return Err(Refusal::Once),
                None => {
                    let so_far = match kind.is_first {
                        true => SoFar::None,
                        false => SoFar::Some(self.passes.gradients::<S, _>(count)),
                    };
                    let work = |tokens: &_, targets: &_| {
                        let (metric, done) = so_far.with(loss(tokens, targets), kind.is_last);
                        done.finish_sums();
                        metric
                    };
                    let recorded = self.passes.record(&pass, work);
                    let (metric, recorded) = recorded.map_err(Refusal::ForGood)?;
                    let counted = recorded.count();
                    self.known.push((kind, recorded));
                    (metric, counted)
                }
            };
            losses.push(metric);
            count += counted;
        }
        Ok((losses, self.passes.gradients::<S, _>(count)))
    }
}

/// A step whose operations are submitted one after the other.
fn asked_for<S: Shape>(
    rank: &Rank,
    turn: &Turn<'_>,
    loss: impl Fn(&Tokens<S>, &Tokens<S>) -> Loss<S>,
) -> Done<S> {
    let mut losses = Vec::with_capacity(turn.parts.len());
    let mut so_far = SoFar::None;
    for (index, part) in turn.parts.iter().enumerate() {
        let from_rows = |ids: &[u32]| Tokens::from_rows(rank, &turn.sizes, part.rows.start, ids);
        let (tokens, targets) = (from_rows(part.tokens), from_rows(part.targets));
        let is_last = index + 1 == turn.parts.len();
        let (metric, with_this) = so_far.with(loss(&tokens, &targets), is_last);
        losses.push(metric);
        so_far = with_this;
    }
    match so_far {
        SoFar::All(gradients) => (losses, gradients),
        SoFar::None | SoFar::Some(_) => unreachable!("a step has a last micro-batch"),
    }
}

impl SoFar {
    /// With the gradient of one more micro-batch. Gives its loss, too.
    fn with<S: Shape>(self, loss: Loss<S>, is_last: bool) -> (Metric<S>, SoFar) {
        let metric = loss.metric();
        let with_this = match (self, is_last) {
            (SoFar::None, false) => SoFar::Some(loss.accumulate()),
            (SoFar::None, true) => SoFar::All(loss.backward()),
            (SoFar::Some(gradients), false) => SoFar::Some(gradients.accumulate(loss)),
            (SoFar::Some(gradients), true) => SoFar::All(gradients.backward(loss)),
            (SoFar::All(_), _) => unreachable!("nothing comes after the last micro-batch"),
        };
        (metric, with_this)
    }

    /// Waits, on the device, for the sums over ranks that the last micro-batch has begun.
    fn finish_sums(&self) {
        if let SoFar::All(gradients) = self {
            gradients.finish_sums();
        }
    }
}
