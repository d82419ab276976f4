//! Stream capture and CUDA graphs.

use meshwright_cuda::{DriverCalls, DriverError, Graph, KernelFunction, Stream};

use super::rig::{Rig, args, grid, message, source};

const TEXT: &str = "KERNEL(add)(float* x, float by) { x[threadIdx.x] += by; }\n\
                    KERNEL(scale)(float* x, float by) { x[threadIdx.x] *= by; }";

struct CaptureRig {
    rig: Rig,
    side: Stream,
    add: KernelFunction,
    scale: KernelFunction,
    x: u64,
    y: u64,
}

impl CaptureRig {
    fn new(seed: u64) -> CaptureRig {
        let rig = Rig::new(seed);
        let module = rig.driver.load(&source(TEXT)).expect("a module");
        let [add, scale] =
            ["add", "scale"].map(|name| rig.driver.function(module, name).expect("a kernel"));
        let side = rig.driver.new_stream(false).expect("a stream");
        let (x, y) = (rig.put(&[1f32; 4]), rig.put(&[0f32; 4]));
        CaptureRig { rig, side, add, scale, x, y }
    }

    fn launch(
        &self,
        stream: Stream,
        function: KernelFunction,
        to: u64,
        by: f32,
    ) -> Result<(), DriverError> {
        // SAFETY: there is an element for every thread.
        unsafe { self.rig.driver.launch(stream, function, grid(1, 4), args![to, by]) }
    }

    /// Captures x = 2 x + 1 on one stream and y += 1 on another, which joins the first if `joined`.
    fn capture(&self, joined: bool) -> Result<Graph, DriverError> {
        let (driver, main) = (&self.rig.driver, self.rig.stream);
        let [fork, join] = [driver.new_event(false)?, driver.new_event(false)?];
        driver.begin_capture(main)?;
        self.launch(main, self.scale, self.x, 2.0)?;
        driver.record(fork, main)?;
        driver.wait(self.side, fork)?;
        self.launch(self.side, self.add, self.y, 1.0)?;
        self.launch(main, self.add, self.x, 1.0)?;
        if joined {
            driver.record(join, self.side)?;
            driver.wait(main, join)?;
        }
        driver.end_capture(main)
    }
}

#[test]
fn every_launch_repeats_the_captured_work() -> Result<(), DriverError> {
    for seed in 0..20 {
        let capturing = CaptureRig::new(seed);
        let graph = capturing.capture(true)?;
        let CaptureRig { rig, x, y, .. } = &capturing;
        assert_eq!(rig.get::<f32>(*x, 4)?, [1.0; 4], "captured work is not executed");
        for _ in 0..3 {
            // SAFETY: the memory is live.
            unsafe { rig.driver.launch_graph(rig.stream, graph)? };
        }
        assert_eq!(rig.get::<f32>(*x, 4)?, [15.0; 4], "seed {seed}");
        assert_eq!(rig.get::<f32>(*y, 4)?, [3.0; 4], "seed {seed}");
        rig.driver.free_graph(graph)?;
        assert!(rig.driver.free_graph(graph).is_err());
        // Neither stream is captured any more.
        capturing.launch(capturing.side, capturing.add, *y, 1.0)?;
        rig.driver.synchronize(capturing.side)?;
        assert_eq!(rig.get::<f32>(*y, 4)?, [4.0; 4]);
    }
    Ok(())
}

#[test]
fn all_streams_must_join_the_first() {
    let told = message(CaptureRig::new(1).capture(false).map(drop));
    assert!(told.contains("has not waited for"), "{told}");
}

#[test]
fn captured_streams_cannot_be_synchronized() -> Result<(), DriverError> {
    let CaptureRig { rig, side, .. } = CaptureRig::new(1);
    let driver = &rig.driver;
    let (before, inside) = (driver.new_event(false)?, driver.new_event(false)?);
    driver.record(before, side)?;
    driver.begin_capture(rig.stream)?;
    assert!(driver.begin_capture(rig.stream).is_err());
    driver.record(inside, rig.stream)?;
    assert!(message(driver.synchronize(rig.stream)).contains("is being captured"));
    assert!(message(driver.is_done(inside).map(drop)).contains("recorded during capture"));
    assert!(message(driver.wait(rig.stream, before)).contains("for an event that is not captured"));
    assert!(driver.end_capture(side).is_err());
    driver.end_capture(rig.stream)?;
    assert!(message(driver.wait(side, inside)).contains("a capture that has ended"));
    driver.synchronize(rig.stream)
}
