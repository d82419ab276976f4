//! What was asked of a device, for tests of call sequences; and calls that are to fail.

use meshwright::backend::cuda::{DriverError, Event, Graph, Grid, MatMul, Stream};

macro_rules! calls {
    ($($kind:ident { $($field:ident: $type:ty),* })*) => {
        /// A call of a driver, with its sizes. Each is named after the method, and its fields after the parameters.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Call {
            $($kind { $($field: $type),* },)*
        }

        /// A kind of [`Call`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Kind {
            $($kind,)*
        }

        impl Call {
            /// What kind of call it is.
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
    NewStream { stream: Stream, urgent: bool }
    FreeStream { stream: Stream }
    Synchronize { stream: Stream }
    NewEvent { event: Event, timed: bool }
    FreeEvent { event: Event }
    Record { event: Event, stream: Stream }
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

/// A [`Call`], and whose it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The number of the driver, from 0 in the order in which they were made.
    pub driver: usize,
    /// What was asked.
    pub call: Call,
}

/// A call that is to fail.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Calls of the kind that still succeed.
    pub(crate) left: usize,
    pub(crate) error: DriverError,
}
