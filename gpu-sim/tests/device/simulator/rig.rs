//! A device with one stream, and shortcuts for tests.

use std::borrow::Cow;

use bytemuck::Pod;
use meshwright_cuda::{DriverCalls, DriverError, Grid, KernelSource, Stream};
use meshwright_gpu_sim::SimDriver;

pub struct Rig {
    pub driver: SimDriver,
    pub stream: Stream,
}

impl Rig {
    pub fn new(seed: u64) -> Rig {
        let driver = SimDriver::new(seed);
        let stream = driver.new_stream(false).expect("a stream");
        Rig { driver, stream }
    }

    /// Allocates device memory with these values.
    pub fn put<T: Pod>(&self, values: &[T]) -> u64 {
        let address = self.driver.alloc(size_of_val(values)).expect("memory");
        self.write(address, values).expect("an upload");
        address
    }

    pub fn write<T: Pod>(&self, address: u64, values: &[T]) -> Result<(), DriverError> {
        // SAFETY: the memory is large enough, and the values live until the stream is synchronized.
        unsafe {
            self.driver.upload(
                self.stream,
                address,
                values.as_ptr().cast(),
                size_of_val(values),
            )?;
        }
        self.driver.synchronize(self.stream)
    }

    pub fn get<T: Pod>(&self, address: u64, len: usize) -> Result<Vec<T>, DriverError> {
        let mut values = vec![T::zeroed(); len];
        // SAFETY: as in `write`.
        unsafe {
            let to = values.as_mut_ptr().cast();
            self.driver.download(self.stream, to, address, size_of_val(&values[..]))?;
        }
        self.driver.synchronize(self.stream)?;
        Ok(values)
    }

    /// Runs the kernel `test` of a source, and synchronizes.
    pub fn run(&self, text: &str, grid: Grid, args: &[&[u8]]) -> Result<(), DriverError> {
        let module = self.driver.load(&source(text))?;
        let function = self.driver.function(module, "test")?;
        // SAFETY: sizes are correct unless the test expects an error.
        unsafe { self.driver.launch(self.stream, function, grid, args)? };
        self.driver.synchronize(self.stream)
    }
}

pub fn source(text: &str) -> KernelSource {
    KernelSource { name: Cow::Borrowed("test"), text: Cow::Owned(text.to_string()) }
}

pub fn grid(blocks: u32, threads: u32) -> Grid {
    Grid { blocks: [blocks, 1, 1], threads, shared: 0 }
}

/// Returns the message of an error.
pub fn message(result: Result<(), DriverError>) -> String {
    result.expect_err("a failure").to_string()
}

/// Returns kernel parameters as bytes.
macro_rules! args {
    ($($arg:expr),* $(,)?) => { &[$(::bytemuck::bytes_of(&$arg)),*] };
}
pub(crate) use args;
