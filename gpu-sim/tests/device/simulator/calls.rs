//! The call log and fault injection of a device.

use meshwright_cuda::{CallKind, DeviceProperties, Driver, DriverCalls, DriverError};
use meshwright_gpu_sim::{SimDevice, h100};

use super::rig::{Rig, args, grid};

#[test]
fn calls_are_noted_in_order() {
    let rig = Rig::new(1);
    let (device, stream) = (rig.driver.device().clone(), rig.stream);
    let x = rig.put(&[0f32; 5]);
    device.clear_log();
    rig.run("KERNEL(test)(float* x) {}", grid(2, 32), args![x]).expect("a run");
    let log = device.log();
    let calls: Vec<_> =
        log.iter().map(|entry| (entry.kind, entry.stream, entry.name.as_deref())).collect();
    let expected = [
        (CallKind::Load, None, Some("test")),
        (CallKind::Function, None, Some("test")),
        (CallKind::Launch, Some(stream), Some("test")),
        (CallKind::Synchronize, Some(stream), None),
    ];
    assert_eq!(calls, expected);
    assert_eq!(log[2].launch(), Some(("test", grid(2, 32))));
}

#[test]
fn a_call_fails_on_request() {
    let driver = Rig::new(1).driver;
    let lost = DriverError::NoDevice("the device fell off".to_string());
    driver.device().fail(CallKind::Alloc, 2, lost.clone());
    let results: Vec<_> = (0..4).map(|_| driver.alloc(8)).collect();
    assert!(results[0].is_ok() && results[1].is_ok() && results[3].is_ok(), "{results:?}");
    assert_eq!(results[2], Err(lost));
    assert_eq!(driver.device().live(), (24, 3));
}

#[test]
fn properties_are_those_asked_for() {
    let wanted = DeviceProperties { name: "old".to_string(), capability: (8, 0), ..h100() };
    assert_eq!(*SimDevice::with(1, wanted.clone()).driver().properties(), wanted);
    assert_eq!(SimDevice::new(1).driver().properties().capability, (9, 0));
}
