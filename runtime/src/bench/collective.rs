//! The collectives that are measured, and their bus bandwidth.
//!
//! *Algorithm bandwidth* is the size of the whole tensor over the time of a call. *Bus bandwidth* is that times a
//! factor of the operation and the number of ranks: the rate at which a link of each rank would have to carry the bytes
//! that the operation cannot do without. The factors are those of NCCL's own tests, `doc/PERFORMANCE.md` of
//! <https://github.com/NVIDIA/nccl-tests>, so that results are comparable.

use std::sync::Arc;

use crate::backend::{Buffer, CachingAllocator, Category, DType};
use crate::comm::{Blocks, CommError, Communicator, ReduceOp, Site};

/// A collective on a whole tensor, or messages of its size.
pub struct Collective {
    /// Name on the command line and in files.
    pub name: &'static str,
    /// Name of the call in records of steps, from which links are calibrated; `None` if a rank may run ahead of the
    /// others, or sends nothing.
    pub call: Option<&'static str>,
    bus_factor: fn(f64) -> f64,
    pub(super) run: fn(&Communicator, &Site, &mut CollectiveMemory) -> Result<(), CommError>,
}

/// Buffers of one rank.
pub(super) struct CollectiveMemory {
    whole: Buffer,
    other: Buffer,
    part: Buffer,
    blocks: Blocks,
}

impl CollectiveMemory {
    /// Allocates what the collectives of `ranks` ranks on `len` elements need, a multiple of the ranks.
    pub fn new(
        allocator: &Arc<CachingAllocator>,
        dtype: DType,
        len: usize,
        ranks: usize,
    ) -> CollectiveMemory {
        let buffer = |len| {
            let mut buffer = allocator.alloc(dtype, len, Category::Communication);
            // Zeros stay in range however often they are summed. They are written, so that each page has memory of its
            // own before the first call.
            buffer.view_mut().clear();
            buffer
        };
        let blocks = Blocks::even(1, len / ranks, ranks);
        CollectiveMemory {
            whole: buffer(len),
            other: buffer(len),
            part: buffer(len / ranks),
            blocks,
        }
    }
}

/// All collectives. Rooted ones have the root 0.
pub const COLLECTIVES: [Collective; 10] = [
    Collective {
        name: "all_reduce",
        call: Some("all_reduce"),
        bus_factor: |ranks| 2.0 * (ranks - 1.0) / ranks,
        run: |group, site, m| group.all_reduce(site, ReduceOp::Sum, m.whole.view_mut()),
    },
    Collective {
        name: "all_gather",
        call: Some("all_gather"),
        bus_factor: |ranks| (ranks - 1.0) / ranks,
        run: |group, site, m| group.all_gather(site, m.part.view(), m.whole.view_mut(), &m.blocks),
    },
    Collective {
        name: "reduce_scatter",
        call: Some("reduce_scatter"),
        bus_factor: |ranks| (ranks - 1.0) / ranks,
        run: |group, site, m| {
            group.reduce_scatter(site, m.whole.view(), m.part.view_mut(), &m.blocks)
        },
    },
    Collective {
        name: "all_to_all",
        call: Some("all_to_all"),
        bus_factor: |ranks| (ranks - 1.0) / ranks,
        run: |group, site, m| {
            let lens = &m.blocks.lens;
            group.all_to_all(site, m.whole.view(), m.other.view_mut(), lens, lens)
        },
    },
    Collective {
        name: "broadcast",
        call: None,
        bus_factor: |_| 1.0,
        run: |group, site, m| group.broadcast(site, 0, m.whole.view_mut()),
    },
    Collective {
        name: "reduce",
        call: None,
        bus_factor: |_| 1.0,
        run: |group, site, m| group.reduce(site, 0, ReduceOp::Sum, m.whole.view_mut()),
    },
    Collective {
        name: "scatter",
        call: None,
        bus_factor: |ranks| (ranks - 1.0) / ranks,
        run: |group, site, m| {
            let src = (group.rank() == 0).then(|| m.whole.view());
            group.scatter(site, 0, src, m.part.view_mut(), &m.blocks.lens)
        },
    },
    Collective {
        name: "gather",
        call: None,
        bus_factor: |ranks| (ranks - 1.0) / ranks,
        run: |group, site, m| {
            let dst = (group.rank() == 0).then(|| m.whole.view_mut());
            group.gather(site, 0, m.part.view(), dst, &m.blocks.lens)
        },
    },
    Collective {
        name: "send_recv",
        call: Some("send"),
        bus_factor: |_| 1.0,
        run: |group, site, m| {
            let (rank, size) = (group.rank(), group.size());
            group.send(site, (rank + 1) % size, m.whole.view())?;
            group.recv(site, (rank + size - 1) % size, m.other.view_mut())
        },
    },
    Collective {
        name: "barrier",
        call: None,
        bus_factor: |_| 0.0,
        run: |group, site, _| group.barrier(site),
    },
];

impl Collective {
    /// Returns the collective of a name.
    pub fn find(name: &str) -> Option<&'static Collective> {
        COLLECTIVES.iter().find(|collective| collective.name == name)
    }

    /// True for an operation on data.
    pub fn has_data(&self) -> bool {
        self.name != "barrier"
    }

    /// Returns the bus bandwidth over the algorithm bandwidth, among `ranks` ranks.
    pub fn bus_factor(&self, ranks: usize) -> f64 {
        (self.bus_factor)(ranks as f64)
    }
}
