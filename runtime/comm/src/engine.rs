//! The interface of a collective-communication engine.

use std::sync::Arc;

use meshwright_backend::CachingAllocator;

use super::{Call, CommError, Completion, GroupMember, Operands, RankExit};

/// A collective-communication engine for one rank: `local`, MPI, NCCL, or one from outside of this crate.
///
/// [`Communicator`](super::Communicator) is the same for all engines. Before an engine gets a [`Call`], its arguments
/// are checked, its bytes are counted, and the main thread is marked as in communication if the call is blocking. So an
/// engine consists of these methods:
///
/// | method | required | task |
/// |---|---|---|
/// | [`Engine::process_group`] | yes | joins a process group |
/// | [`Engine::leave`] | yes | ends the rank's communication |
/// | [`Engine::use_allocator`] | no | takes memory from the rank's allocator |
/// | [`Engine::extend_time_limit`] | if calls have a time limit | lets calls wait for the files of another rank |
/// | [`Engine::graph_pools`], [`Engine::replay`] | for CUDA graphs | lets calls be captured and replayed |
/// | [`ProcessGroup::issue`] | yes | carries out a call |
/// | [`ProcessGroup::issue_exchange`], [`ProcessGroup::groups_messages`] | no | submits messages as one group |
/// | [`Peers::failed_peer`], [`Peers::announce_exit`] | across processes | failure detection, used by the engine |
///
/// An engine is passed to [`RankComms::over`](super::RankComms::over), in a run by
/// `Machine::connect`.
///
/// # Contract
/// - Reductions combine in the same order on all members, so that their results are identical to the bit.
/// - Blocking collectives, asynchronous collectives and messages each keep their order of issue and do not wait for
///   each other. A blocking send matches an asynchronous receive, and the reverse.
/// - No call waits forever: after the timeout, which is longer where a rank [waits for
///   files](Engine::extend_time_limit), and when a rank has failed, it returns an error, and so do all later calls.
///
/// # Example
/// An engine for meshes of one rank, where every collective is at most a copy:
/// ```
/// use std::sync::Arc;
/// use meshwright::backend::ViewMut;
/// use meshwright::comm::{
///     Call, CommError, Completion, Engine, GroupMember, Operands, ProcessGroup, RankComms, RankExit, ReduceOp, Site,
/// };
/// use meshwright::mesh::MeshShape;
///
/// struct SingleRank;
///
/// impl Engine for SingleRank {
///     fn process_group(&self, _: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
///         Arc::new(SingleRank)
///     }
///
///     fn leave(&self, _: &RankExit) {}
/// }
///
/// impl ProcessGroup for SingleRank {
///     fn issue(&self, call: &Arc<Call>, mut operands: Operands<'_>) -> Completion {
///         if call.op.is_point_to_point() || call.on_device {
///             return Completion::completed(Err(call.refuse("a single rank has no peers and no device")));
///         }
///         if let (Some(src), Some(mut dst)) = operands.views_mut() {
///             dst.bytes_mut().copy_from_slice(src.bytes());
///         }
///         let (_, dst) = operands.into_buffers();
///         Completion::completed(Ok(dst))
///     }
/// }
///
/// let comms = RankComms::with_engine(MeshShape::SINGLE, 0, Arc::new(SingleRank));
/// let mut data = [2f32];
/// comms.world().all_reduce(&Site::here("x"), ReduceOp::Sum, ViewMut::from(&mut data[..]))?;
/// assert_eq!(data, [2.0]);
/// # Ok::<_, CommError>(())
/// ```
///
/// [`Peers::failed_peer`]: super::Peers::failed_peer
/// [`Peers::announce_exit`]: super::Peers::announce_exit
pub trait Engine: Send + Sync {
    /// Joins the process group of `member`. It is called once for each set of axes, at its first use, which may be at
    /// different times on different ranks.
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup>;

    /// Ends the communication of the rank. After [`RankExit::Returned`] asynchronous calls are completed first; after a
    /// failure they are aborted.
    fn leave(&self, exit: &RankExit);

    /// Passes the allocator of the rank, once, when its context is created. Memory that the engine takes from it is
    /// part of the rank's accounting and limit.
    fn use_allocator(&self, allocator: &Arc<CachingAllocator>) {
        // An engine without memory of its own needs none.
        let _ = allocator;
    }

    /// Extends the time limit of the calls that the rank issues from now on to
    /// [`FILE_TIME_LIMIT`](super::FILE_TIME_LIMIT), or restores it: see
    /// [`RankComms::extend_time_limit`](super::RankComms::extend_time_limit).
    fn extend_time_limit(&self, waits_for_files: bool) {
        // An engine without a time limit has none to extend.
        let _ = waits_for_files;
    }

    /// Returns the memory pools that CUDA graphs with calls of this engine have to keep, besides that of the
    /// [rank's allocator](Self::use_allocator). `None` if calls cannot be captured.
    fn graph_pools(&self) -> Option<Vec<Arc<CachingAllocator>>> {
        None
    }

    /// Replays a CUDA graph by `submit`. `calls` describes the captured calls for errors; `None` if there are none.
    ///
    /// # Errors
    /// If no call can be issued any more.
    fn replay(&self, calls: Option<String>, submit: &mut dyn FnMut()) -> Result<(), CommError> {
        let _ = calls;
        submit();
        Ok(())
    }
}

/// One rank's access to a process group of an [`Engine`].
pub trait ProcessGroup: Send + Sync {
    /// Issues a call.
    ///
    /// The operands are [borrowed](Operands::Borrowed) for a blocking call: the host is done with them when this
    /// returns, and device work on them completes before the event of the [`Completion`]. For an asynchronous call they
    /// are [owned](Operands::Owned), and the completion returns the destination. [`Operands`] lists the operands of
    /// each operation.
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion;

    /// Issues the asynchronous messages of an [exchange](super::Communicator::exchange). Returns one completion for
    /// each, in order.
    fn issue_exchange(&self, calls: Vec<(Arc<Call>, Operands<'_>)>) -> Vec<Completion> {
        calls.into_iter().map(|(call, operands)| self.issue(&call, operands)).collect()
    }

    /// Returns true if messages wait for earlier messages, also to other members, and the messages of an
    /// [exchange](Self::issue_exchange) for each other.
    fn groups_messages(&self) -> bool {
        false
    }

    /// Returns true in dry runs: calls do not involve the other members, and no values are compared.
    fn is_dry_run(&self) -> bool {
        false
    }
}
