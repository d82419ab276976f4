//! The cases of every engine, on ranks that are threads.

mod cases;

use meshwright_comm::launch;
use meshwright_mesh::{AxisId, AxisSet, MeshShape};

#[test]
fn threads_pass_every_case() {
    for ranks in 1..=5 {
        let mesh = MeshShape::new([(AxisId::Tp, ranks)]).unwrap();
        for (name, case) in cases::CASES {
            let outcome = launch(&mesh, |comms| case(&comms.group(AxisSet::of(AxisId::Tp))));
            outcome.unwrap_or_else(|error| panic!("{name} on {ranks} ranks: {error}"));
        }
    }
}
