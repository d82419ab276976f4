//! An engine whose messages take time: a message begins when its send and its receive are posted, and the messages of
//! one channel are transferred one after the other, as with NCCL.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use meshwright::backend::Buffer;
use meshwright::comm::{
    Call, CommOp, Completion, Engine, GroupMember, Operands, ProcessGroup, Promise, RankComms,
    RankExit,
};

/// The directed edges between all ranks.
pub struct SlowLinks {
    time: Duration,
    edges: Mutex<HashMap<(usize, usize), mpsc::Sender<End>>>,
}

/// One end of a message.
enum End {
    Send(Promise, Arc<Buffer>),
    Recv(Promise, Buffer),
}

struct SlowEngine {
    links: Arc<SlowLinks>,
    inner: Arc<dyn Engine>,
}

struct SlowGroup {
    links: Arc<SlowLinks>,
    member: Arc<GroupMember>,
    inner: Arc<dyn ProcessGroup>,
}

impl SlowLinks {
    /// Creates channels whose messages take `time`.
    pub fn new(time: Duration) -> Arc<SlowLinks> {
        Arc::new(SlowLinks { time, edges: Mutex::default() })
    }

    /// Sends the messages of a rank over these channels, and its collectives over the rank's own engine.
    pub fn connect(self: &Arc<Self>, comms: RankComms) -> RankComms {
        let (links, inner) = (Arc::clone(self), Arc::clone(comms.engine()));
        comms.over(Arc::new(SlowEngine { links, inner }))
    }

    fn post(&self, edge: (usize, usize), end: End) {
        let mut edges = self.edges.lock().expect("no thread panics with the lock");
        let sender = edges.entry(edge).or_insert_with(|| {
            let (sender, ends) = mpsc::channel();
            let time = self.time;
            thread::spawn(move || transfer_messages(ends, time));
            sender
        });
        sender.send(end).expect("the thread of an edge ends after its sender");
    }
}

/// Transfers the messages of one channel.
fn transfer_messages(ends: mpsc::Receiver<End>, time: Duration) {
    let (mut sends, mut receives) = (VecDeque::new(), VecDeque::new());
    for end in ends {
        match end {
            End::Send(promise, src) => sends.push_back((promise, src)),
            End::Recv(promise, dst) => receives.push_back((promise, dst)),
        }
        while let (false, false) = (sends.is_empty(), receives.is_empty()) {
            let pair = sends.pop_front().zip(receives.pop_front());
            let Some(((sent, src), (received, mut dst))) = pair else { break };
            thread::sleep(time);
            dst.typed_mut::<f32>().copy_from_slice(src.typed());
            drop(src);
            sent.fulfill(Ok(None));
            received.fulfill(Ok(Some(dst)));
        }
    }
}

impl Engine for SlowEngine {
    fn process_group(&self, member: &Arc<GroupMember>) -> Arc<dyn ProcessGroup> {
        let (links, member) = (Arc::clone(&self.links), Arc::clone(member));
        let inner = self.inner.process_group(&member);
        Arc::new(SlowGroup { links, member, inner })
    }

    fn leave(&self, exit: &RankExit) {
        self.inner.leave(exit);
    }
}

impl ProcessGroup for SlowGroup {
    fn issue(&self, call: &Arc<Call>, operands: Operands<'_>) -> Completion {
        let own = self.member.group_rank();
        let (edge, is_send) = match call.op {
            CommOp::Send { to, .. } => ((own, to.group_rank), true),
            CommOp::Recv { from, .. } => ((from.group_rank, own), false),
            _ => return self.inner.issue(call, operands),
        };
        let (promise, completion) = Completion::promised(self.member.world_rank());
        let end = match (operands.into_buffers(), is_send) {
            ((Some(src), _), true) => End::Send(promise, src),
            ((_, Some(dst)), false) => End::Recv(promise, dst),
            _ => {
                return Completion::completed(Err(
                    call.refuse("only asynchronous messages are slow")
                ));
            }
        };
        self.links.post(edge, end);
        completion
    }
}
