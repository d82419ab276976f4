use super::*;
use meshwright_cuda::native::nvrtc;

const LOG: &str = "\
k.cu(1): warning #550-D: variable \"c\" was set but never used
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scale_bf16' for 'sm_90a'
ptxas info    : Function properties for scale_bf16
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 16 bytes smem
ptxas info    : Compile time = 8.656 ms
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    48 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Function properties for called_by_k
    64 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, 1024 bytes smem, 400 bytes cmem[0]
";

#[test]
fn log_is_parsed_per_kernel() {
    let kernels: Vec<_> = log::kernels(LOG).collect();
    assert_eq!(
        kernels,
        [
            (
                "scale_bf16".to_string(),
                ResourceUsage { registers: 12, spilled: 0, stack: 0, shared: 16 }
            ),
            (
                "k".to_string(),
                ResourceUsage { registers: 255, spilled: 48, stack: 64, shared: 1024 }
            ),
        ]
    );
    assert_eq!(log::warnings(LOG).len(), 1);
    assert_eq!(log::kernels("").count(), 0);
}

fn kernel(registers: u32, spilled: u32, threads: u32) -> CompiledKernel {
    let usage = ResourceUsage { registers, spilled, ..ResourceUsage::default() };
    CompiledKernel { name: "k".to_string(), usage, threads, contracts: false }
}

#[test]
fn registers_are_allocated_per_warp() {
    assert_eq!(kernel(64, 0, 1024).blocks_per_multiprocessor(), 1);
    assert_eq!(kernel(65, 0, 1024).blocks_per_multiprocessor(), 0);
    assert_eq!(kernel(32, 0, 256).blocks_per_multiprocessor(), 8);
    assert_eq!(kernel(33, 0, 250).blocks_per_multiprocessor(), 6);
    assert_eq!(kernel(255, 0, 256).blocks_per_multiprocessor(), 1);
}

#[test]
fn spills_registers_and_time_are_refused() {
    let mut checked = CheckedSource {
        source: "norm".to_string(),
        architecture: "sm_80".to_string(),
        time: Some(Duration::from_secs(1)),
        kernels: vec![kernel(64, 0, 1024)],
        warnings: Vec::new(),
    };
    assert_eq!(checked.problems(), []);
    checked.kernels = vec![kernel(64, 8, 1024), kernel(100, 0, 1024)];
    checked.time = Some(Duration::from_secs(21));
    let problems: Vec<String> = checked.problems().iter().map(KernelProblem::to_string).collect();
    assert_eq!(problems.len(), 3);
    assert!(
        problems[0].starts_with("norm.cu, kernel k for sm_80 spills 8 bytes"),
        "{}",
        problems[0]
    );
    assert!(problems[1].contains("needs 100 registers in each of 1024 threads"), "{}", problems[1]);
    assert!(problems[2].starts_with("norm.cu for sm_80 took 21.0 s"), "{}", problems[2]);
    // A contraction matters where bits do.
    checked.kernels = vec![CompiledKernel { contracts: true, ..kernel(64, 0, 1024) }];
    checked.time = None;
    assert_eq!(checked.problems(), []);
    checked.source = "rope".to_string();
    let problems = checked.problems();
    assert!(problems[0].to_string().contains("k for sm_80 contracts a mul"), "{}", problems[0]);
    checked.kernels.clear();
    assert!(checked.problems().iter().any(|problem| problem.text.contains("no kernel")));
}

#[test]
fn invalid_machine_code_has_no_attributes() {
    assert_eq!(cubin::max_threads(b"", "k"), None);
    assert_eq!(cubin::max_threads(b"\x7fELF\x02\x01", "k"), None);
    assert_eq!(cubin::max_threads(&[0xff; 4096], "k"), None);
}

const SOURCE: &str = "
extern \"C\" __global__ void __launch_bounds__(192) bounded(float *x) { x[threadIdx.x] *= 2.0f; }
extern \"C\" __global__ void unbounded(float *x, const float *y) {
    __shared__ float s[64];
    s[threadIdx.x % 64] = y[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}
extern \"C\" __global__ void contracted(float *x) { x[0] = x[1] * x[2] + x[3]; }
extern \"C\" __global__ void rounded(float *x) { x[0] = __fmul_rn(x[1], x[2]) + x[3]; }
// More values than there are registers, all alive until the end.
extern \"C\" __global__ void __launch_bounds__(1024) spilling(float *x) {
    float v[256];
    #pragma unroll
    for (int i = 0; i < 256; i++) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 256; i++) x[(255 - i) * 1024 + threadIdx.x] = v[i] * v[(i * 7 + 3) % 256];
}
";

/// Checks compiled kernels if the compiler is available, else the error message.
#[test]
fn kernels_are_checked_as_they_are_compiled() {
    let source = KernelSource { name: "test".into(), text: SOURCE.into() };
    let broken =
        KernelSource { name: "broken".into(), text: "\n\nKERNEL(k)() { nonsense(); }".into() };
    let architectures = ["sm_80", "sm_90a", "sm_100"].map(String::from);
    let dir = tempfile::tempdir().unwrap();
    let cache = DiskCache::in_folder(dir.path());
    let found = check_kernels(&[&source], &architectures, &cache);
    if let Err(error) = nvrtc().map(|_| ()) {
        assert!(error.to_string().starts_with("NVRTC "), "{error}");
        assert_eq!(found.err(), Some(error));
        return;
    }
    let again = check_kernels(&[&source], &architectures, &cache).unwrap();
    for (checked, again) in found.unwrap().into_iter().zip(again) {
        assert!(checked.time.is_some() && again.time.is_none());
        assert_eq!(checked.kernels, again.kernels);
        let threads = |name: &str| {
            let kernel = checked.kernels.iter().find(|kernel| kernel.name == name).unwrap();
            (kernel.threads, kernel.usage.shared >= 256, kernel.usage.spilled > 0)
        };
        assert_eq!(checked.kernels.len(), 5);
        let contracting = checked.kernels.iter().filter(|kernel| kernel.contracts);
        let contracting: Vec<&str> = contracting.map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(contracting, ["contracted"]);
        assert_eq!(threads("bounded"), (192, false, false));
        assert_eq!(threads("unbounded"), (1024, true, false));
        assert!(threads("spilling").2);
        let problems = checked.problems();
        assert_eq!(problems.len(), 1, "{}", problems[0]);
        assert_eq!(problems[0].kernel.as_deref(), Some("spilling"));
    }
    let error = check_kernels(&[&broken], &architectures[..1], &cache).err().unwrap().to_string();
    let expected = "kernel source `broken` does not compile for sm_80:\nbroken.cu(3): error: ";
    assert!(error.starts_with(expected), "{error}");
}
