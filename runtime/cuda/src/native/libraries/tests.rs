use super::*;
use crate::native::api::{CublasLtApi, CudnnApi, DriverApi, NcclApi, NvrtcApi};
use std::process::Command;

/// Builds a shared library from C definitions under the name of `library`'s file.
fn stub(folder: &Path, library: VendorLibrary, definitions: &str) {
    let source = folder.join("stub.c");
    std::fs::write(&source, definitions).unwrap();
    let file = folder.join(library.files()[0]);
    let mut cc = Command::new("cc");
    let cc = cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(&file).arg(&source).status();
    let cc = cc.expect("there is a C compiler, `cc`, which linking Rust needs too");
    assert!(cc.success(), "the C compiler makes {}", file.display());
}

fn refusal<A: Api>(folder: &Path) -> String {
    match open_library::<A>(&LibrarySearch::in_folders(&[folder])) {
        Ok(_) => panic!("a library is found"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn missing_library_is_reported_with_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let place = format!("the folders of MESHWRIGHT_CUDA_LIBS ({})", dir.path().display());
    assert_eq!(
        refusal::<NcclApi>(dir.path()),
        format!(
            "NCCL was not found (searched libnccl.so.2 or libnccl.so in {place}): install it, for example by \
             `pip install nvidia-nccl-cu13`, and put its folder into MESHWRIGHT_CUDA_LIBS"
        )
    );
    assert!(
        refusal::<DriverApi>(dir.path()).contains(
            "(searched libcuda.so.1 or libcuda.so in the folders of MESHWRIGHT_CUDA_LIBS"
        )
    );
    for error in [
        refusal::<NvrtcApi>(dir.path()),
        refusal::<CublasLtApi>(dir.path()),
        refusal::<CudnnApi>(dir.path()),
    ] {
        assert!(error.contains(&place) && error.contains("pip install nvidia-"), "{error}");
    }
}

#[test]
fn missing_function_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    stub(
        dir.path(),
        VendorLibrary::Nvrtc,
        "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }",
    );
    let path = dir.path().join("libnvrtc.so.13");
    let expected = format!("NVRTC in {} has no function nvrtcGetErrorString: ", path.display());
    let error = refusal::<NvrtcApi>(dir.path());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn outdated_library_is_reported_with_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    let mut definitions =
        "int nvrtcVersion(int *a, int *b) { *a = 12; *b = 4; return 0; }\n".to_string();
    for function in [
        "nvrtcGetErrorString",
        "nvrtcGetNumSupportedArchs",
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcDestroyProgram",
        "nvrtcCompileProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetPTXSize",
        "nvrtcGetPTX",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    ] {
        definitions += &format!("int {function}() {{ return 1; }}\n");
    }
    stub(dir.path(), VendorLibrary::Nvrtc, &definitions);
    let error = refusal::<NvrtcApi>(dir.path());
    assert!(error.contains("is too old: version 12.4, but at least 12.8 is required"), "{error}");
}

#[test]
fn load_error_of_the_loader_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("libcudnn.so.9"), "text").unwrap();
    let error = refusal::<CudnnApi>(dir.path());
    assert!(
        error.contains("what is there cannot be opened") && error.contains("libcudnn.so.9"),
        "{error}"
    );
}

#[test]
fn versions_are_parsed_and_compared() {
    assert_eq!(Version::of_decimals(22_809), Version::new(2, 28, 9));
    assert_eq!(Version::of_decimals(130_100).to_string(), "13.1");
    assert_eq!(Version::of_decimals(91_900).to_string(), "9.19");
    assert!(Version::new(2, 27, 3) >= VendorLibrary::Nccl.minimum());
    assert!(Version::new(9, 7, 9) < VendorLibrary::Cudnn.minimum());
}

/// Checks that each installed library matches its function table, and that a missing one is reported in one sentence.
#[test]
fn installed_libraries_open_with_every_function() {
    fn check<A: Api>() {
        let library = A::LIBRARY;
        match open_library::<A>(&LibrarySearch::from_environment(library)) {
            Ok(loaded) => assert!(loaded.path.is_absolute() && loaded.version >= library.minimum()),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.starts_with(library.name()) && error.contains("was not found"),
                    "{error}"
                );
            }
        }
    }
    check::<DriverApi>();
    check::<NvrtcApi>();
    check::<CublasLtApi>();
    check::<CudnnApi>();
    check::<NcclApi>();
}
