//! Rank assignment from the variables of launchers.

use super::{ProcessRank, RankAssignment, RankAssignmentError};

fn assignment_of(
    variables: &[(&str, &str)],
) -> Result<Option<RankAssignment>, RankAssignmentError> {
    let value =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    RankAssignment::from_variables(&|name| value(name).map(|value| value.to_string()))
}

#[test]
fn every_launcher_is_recognized() {
    let torchrun = [
        ("RANK", "5"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node7"),
        ("MASTER_PORT", "1234"),
        ("TORCHELASTIC_RUN_ID", "abc"),
        // It listens on its port itself, so that the store uses the next one.
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        // torchrun may run under SLURM.
        ("SLURM_PROCID", "1"),
    ];
    let master = "node7:1235".to_string();
    let expected = RankAssignment {
        rank: 5,
        world: 16,
        local_rank: 1,
        master,
        job: "abc".into(),
        one_host: false,
    };
    assert_eq!(assignment_of(&torchrun), Ok(Some(expected)));

    let slurm = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "3"),
        ("SLURM_NNODES", "1"),
        ("SLURM_JOB_ID", "77"),
    ];
    let master = "127.0.0.1:29500".to_string();
    let expected = RankAssignment {
        rank: 3,
        world: 4,
        local_rank: 3,
        master,
        job: "77".into(),
        one_host: true,
    };
    assert_eq!(assignment_of(&slurm), Ok(Some(expected)));

    let mpirun = [
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("MASTER_ADDR", "::1"),
        ("MESHWRIGHT_JOB", "secret"),
    ];
    let master = "[::1]:29500".to_string();
    let expected = RankAssignment {
        rank: 0,
        world: 2,
        local_rank: 0,
        master,
        job: "secret".into(),
        one_host: true,
    };
    assert_eq!(assignment_of(&mpirun), Ok(Some(expected)));

    assert_eq!(assignment_of(&[("HOME", "/root")]), Ok(None));
}

/// The variables of further launchers, and the rank, world size, local rank and address in them.
#[test]
fn launchers_of_clusters_are_recognized() {
    let node = ("MASTER_ADDR", "node7");
    for (variables, expected) in [
        // Open MPI 5 numbers the ranks of a host in another order.
        (
            vec![
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ("PMIX_RANK", "1"),
            ],
            (1, 4, 2, "127.0.0.1:29500"),
        ),
        (
            vec![
                ("PMI_RANK", "1"),
                ("PMI_SIZE", "2"),
                ("MPI_LOCALRANKID", "1"),
                ("MPI_LOCALNRANKS", "2"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
        // PALS, with and without the rank of PMI.
        (
            vec![
                ("PMI_RANK", "3"),
                ("PALS_RANKID", "3"),
                ("PMI_SIZE", "4"),
                ("PALS_LOCAL_RANKID", "1"),
                node,
            ],
            (3, 4, 1, "node7:29500"),
        ),
        (
            vec![("PALS_RANKID", "3"), ("PMI_SIZE", "4"), ("PALS_LOCAL_RANKID", "1"), node],
            (3, 4, 1, "node7:29500"),
        ),
        // Flux in a job of SLURM.
        (
            vec![
                ("FLUX_TASK_RANK", "2"),
                ("FLUX_JOB_SIZE", "3"),
                ("FLUX_TASK_LOCAL_ID", "0"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_NTASKS", "1"),
                node,
            ],
            (2, 3, 0, "node7:29500"),
        ),
        // MVAPICH in a task of SLURM.
        (
            vec![
                ("MV2_COMM_WORLD_RANK", "1"),
                ("MV2_COMM_WORLD_SIZE", "2"),
                ("MV2_COMM_WORLD_LOCAL_RANK", "1"),
                ("MV2_COMM_WORLD_LOCAL_SIZE", "2"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_NTASKS", "1"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
        // jsrun gives the rank of PMIx too.
        (
            vec![
                ("JSM_NAMESPACE_RANK", "5"),
                ("JSM_NAMESPACE_SIZE", "8"),
                ("JSM_NAMESPACE_LOCAL_RANK", "1"),
                ("JSM_NAMESPACE_LOCAL_SIZE", "4"),
                ("PMIX_RANK", "5"),
                node,
            ],
            (5, 8, 1, "node7:29500"),
        ),
        (
            vec![("JOB_COMPLETION_INDEX", "1"), ("MESHWRIGHT_WORLD_SIZE", "2"), node],
            (1, 2, 0, "node7:29500"),
        ),
        // One process needs no address.
        (
            vec![("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")],
            (0, 1, 0, "127.0.0.1:29500"),
        ),
        // A step with fewer tasks than its job.
        (
            vec![
                ("SLURM_PROCID", "1"),
                ("SLURM_NTASKS", "8"),
                ("SLURM_STEP_NUM_TASKS", "2"),
                ("SLURM_STEP_ID", "3"),
                ("SLURM_LOCALID", "1"),
                ("SLURM_NNODES", "4"),
                ("SLURM_STEP_NUM_NODES", "1"),
            ],
            (1, 2, 1, "127.0.0.1:29500"),
        ),
    ] {
        let found = assignment_of(&variables).unwrap().expect("a rank");
        let found = (found.rank, found.world, found.local_rank, found.master.as_str());
        assert_eq!(found, expected, "{variables:?}");
    }
    let unknown = RankAssignmentError::UnknownWorld { present: "PMIX_RANK" };
    assert_eq!(assignment_of(&[("PMIX_RANK", "1")]), Err(unknown));
}

#[test]
fn a_slurm_batch_script_is_no_task() {
    let rank_of = |variables: &[(&str, &str)]| {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        ProcessRank::from_variables(&|name| value(name).map(|value| value.to_string()))
    };
    let script = [
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_NNODES", "1"),
        ("SLURM_JOB_ID", "77"),
    ];
    assert_eq!(rank_of(&script), Ok(None));
    // The steps of batch scripts and of interactive shells.
    for step in ["4294967291", "4294967290"] {
        assert_eq!(rank_of(&[&script[..], &[("SLURM_STEP_ID", step)]].concat()), Ok(None));
        assert_eq!(assignment_of(&[&script[..], &[("SLURM_STEP_ID", step)]].concat()), Ok(None));
    }
    let first = Some(ProcessRank { rank: 0, world: 4 });
    assert_eq!(rank_of(&[&script[..], &[("SLURM_STEP_ID", "0")]].concat()), Ok(first));
    let later = Some(ProcessRank { rank: 3, world: 4 });
    assert_eq!(rank_of(&[&[("SLURM_PROCID", "3")], &script[1..]].concat()), Ok(later));
    // Other launchers start their processes from such a script.
    let torchrun = [("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")];
    assert_eq!(rank_of(&[&script[..], &torchrun].concat()), Ok(first));
}

/// A number of processes without a rank is refused, unless it is that of one process, or of something else.
#[test]
fn a_world_size_needs_a_rank() {
    for (size, rank) in [("WORLD_SIZE", "RANK"), ("MESHWRIGHT_WORLD_SIZE", "JOB_COMPLETION_INDEX")]
    {
        let found = |value: &str| {
            let variables = [(size, value), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
            let of = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.to_string())
            };
            let assigned = assignment_of(&variables).map(|_| ());
            let ranked = ProcessRank::from_variables(&of).map(|own| assert_eq!(own, None));
            assert_eq!(assigned, ranked);
            ranked.map_err(|error| error.to_string())
        };
        let refused = found("4").unwrap_err();
        let expected = format!("the environment has {size}, but no {rank}, so each process would");
        assert!(refused.starts_with(&expected), "{refused}");
        assert_eq!(["1", "large", ""].map(found), [Ok(()), Ok(()), Ok(())]);
    }
}

#[test]
fn inconsistent_variables_are_named() {
    let text =
        |variables: &[(&str, &str)]| assignment_of(variables).expect_err("refused").to_string();
    assert_eq!(
        text(&[("RANK", "0")]),
        "the environment has RANK, but no WORLD_SIZE: start all processes by one launcher, or set it"
    );
    let two = [("RANK", "2"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert_eq!(text(&two), "RANK=2 is not below WORLD_SIZE=2");
    let one = [("RANK", "one"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert_eq!(text(&one), "RANK=one is not a number");
    let nowhere = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
    assert!(text(&nowhere).contains("no MASTER_ADDR"));
}
