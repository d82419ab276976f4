//! Log of driver calls for tests of call sequences, and fault injection.

use meshwright_cuda::{DriverError, Event, Graph, Grid, MatMul, Stream};

macro_rules! calls {
    ($($kind:ident { $($field:ident: $type:ty),* })*) => {
        /// A driver call with its sizes. Variants are named after the methods, fields after the parameters.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Call {
            $($kind { $($field: $type),* },)*
        }

        /// The kind of a [`Call`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Kind {
            $($kind,)*
        }

        impl Call {
            /// Returns the kind of the call.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Call::$kind { .. } => Kind::$kind,)*
                }
            }
        }
    };
}

calls! {
    FreeMemory {}
    Alloc { bytes: usize }
    Free { bytes: usize }
    AllocPinned { bytes: usize }
    FreePinned { bytes: usize }
    NewStream { stream: Stream, high_priority: bool }
    FreeStream { stream: Stream }
    Synchronize { stream: Stream }
    NewEvent { event: Event, timed: bool }
    FreeEvent { event: Event }
    Record { event: Event, stream: Stream }
    RecordInGraph { event: Event, stream: Stream }
    Wait { stream: Stream, event: Event }
    IsDone { event: Event }
    ElapsedMs { from: Event, to: Event }
    Upload { stream: Stream, bytes: usize }
    Download { stream: Stream, bytes: usize }
    Copy { stream: Stream, bytes: usize }
    Zero { stream: Stream, bytes: usize }
    Load { source: String }
    Function { kernel: String }
    Launch { stream: Stream, kernel: String, grid: Grid }
    MatMul { stream: Stream, shape: MatMul }
    BeginCapture { stream: Stream }
    EndCapture { stream: Stream }
    LaunchGraph { stream: Stream, graph: Graph }
    FreeGraph { graph: Graph }
}

/// A [`Call`] and its driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number of the driver, from 0 in the order of creation.
    pub driver: usize,
    /// The call.
    pub call: Call,
}

/// An injected fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Number of calls of the kind that still succeed.
    pub(crate) left: usize,
    pub(crate) error: DriverError,
}
