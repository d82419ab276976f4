//! Asynchronous copies, matrix loads and warp matmuls.

use half::bf16;

use super::rig::{Rig, args, grid, message};

/// c[16, 8] = a[16, 16] b[16, 8] by one warp, from tiles in shared memory that are copied asynchronously.
const PRODUCT: &str = "KERNEL(test)(const bf16* a, const bf16* b, float* c) {
    __shared__ __align__(16) bf16 tile_a[16 * 16];
    __shared__ __align__(16) bf16 tile_b[16 * 8];
    int lane = threadIdx.x;
    cp_async_16(tile_a + 8 * lane, a + 8 * lane);
    if (lane < 16) cp_async_16(tile_b + 8 * lane, b + 8 * lane);
    cp_async_commit();
    WAIT
    __syncwarp();
    uint32_t of_a[4], of_b[2];
    ldmatrix_x4(of_a, tile_a + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix_x2_trans(of_b, tile_b + lane % 16 * 8);
    float sums[4] = {0, 0, 0, 0};
    mma_m16n8k16(sums, of_a, of_b);
    for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}";

fn elements(len: usize, step: usize) -> Vec<f32> {
    (0..len).map(|i| (i * step % 17) as f32 - 8.0).collect()
}

fn product(seed: u64, wait: &str) -> (Vec<f32>, Vec<f32>) {
    let (a, b) = (elements(256, 5), elements(128, 7));
    let at = |row: usize, col: usize| (0..16).map(|k| a[row * 16 + k] * b[k * 8 + col]).sum();
    let expected = (0..128).map(|i| at(i / 8, i % 8)).collect();
    let rig = Rig::new(seed);
    let rounded = |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let (a, b, c) = (rig.put(&rounded(&a)), rig.put(&rounded(&b)), rig.put(&[0f32; 128]));
    rig.run(&PRODUCT.replace("WAIT", wait), grid(1, 32), args![a, b, c]).expect("a run");
    (rig.get(c, 128).expect("a product"), expected)
}

#[test]
fn a_warp_multiplies_tiles() {
    for seed in 0..10 {
        let (got, expected) = product(seed, "cp_async_wait<0>();");
        assert_eq!(got, expected);
    }
}

#[test]
fn a_copy_that_is_not_waited_for_is_nan() {
    for wait in ["", "cp_async_wait<1>();"] {
        let (got, _) = product(1, wait);
        assert!(got.iter().all(|x| x.is_nan()), "{wait}: {got:?}");
    }
}

#[test]
fn copies_fill_up_with_zeros() {
    let text = "KERNEL(test)(const float* x, float* y) {\n\
                    __shared__ __align__(16) float part[4];\n\
                    cp_async_16(part, x, 8);\n\
                    cp_async_commit();\n\
                    cp_async_wait<0>();\n\
                    for (int i = 0; i < 4; i++) y[i] = part[i];\n\
                }";
    let rig = Rig::new(1);
    let (x, y) = (rig.put(&[1f32, 2.0, 3.0, 4.0]), rig.put(&[9f32; 4]));
    rig.run(text, grid(1, 1), args![x, y]).expect("a run");
    assert_eq!(rig.get::<f32>(y, 4), Ok(vec![1.0, 2.0, 0.0, 0.0]));
}

/// Element (row, col) of matrix `m` of four is `100 m + 10 row + col`.
#[test]
fn matrices_are_spread_over_a_warp() {
    let text = "KERNEL(test)(const uint16_t* x, uint32_t* y) {\n\
                    __shared__ __align__(16) uint16_t part[256];\n\
                    int lane = threadIdx.x;\n\
                    cp_async_16(part + 8 * lane, x + 8 * lane);\n\
                    cp_async_commit();\n\
                    cp_async_wait<0>();\n\
                    __syncwarp();\n\
                    uint32_t plain[4], turned[4];\n\
                    ldmatrix_x4(plain, part + 8 * lane);\n\
                    ldmatrix_x4_trans(turned, part + 8 * lane);\n\
                    for (int i = 0; i < 4; i++) y[lane * 4 + i] = plain[i], y[128 + lane * 4 + i] = turned[i];\n\
                }";
    let element = |m: usize, row: usize, col: usize| (100 * m + 10 * row + col) as u16;
    let x: Vec<u16> = (0..256).map(|i| element(i / 64, i / 8 % 8, i % 8)).collect();
    let rig = Rig::new(1);
    let (x, y) = (rig.put(&x), rig.put(&[0u32; 256]));
    rig.run(text, grid(1, 32), args![x, y]).expect("a run");
    let y: Vec<[u16; 2]> = rig.get(y, 256).expect("values");
    for (lane, m) in (0..32).flat_map(|lane| (0..4).map(move |m| (lane, m))) {
        let (row, col) = (lane / 4, lane % 4 * 2);
        assert_eq!(y[lane * 4 + m], [element(m, row, col), element(m, row, col + 1)]);
        assert_eq!(y[128 + lane * 4 + m], [element(m, col, row), element(m, col + 1, row)]);
    }
}

#[test]
fn tiles_must_be_shared_and_aligned() {
    for (statement, told) in [
        ("cp_async_16(part + 1, x);", "not aligned to 16 bytes"),
        ("cp_async_16(part, x + 1);", "not aligned to 16 bytes"),
        ("cp_async_16(x, x);", "outside of shared memory"),
        ("uint32_t r[4]; ldmatrix_x4(r, part + 2);", "not aligned to 16 bytes"),
        ("uint32_t r[4]; ldmatrix_x4(r, x);", "outside of shared memory"),
    ] {
        let text = format!(
            "KERNEL(test)(float* x) {{ __shared__ __align__(16) float part[64]; {statement} }}"
        );
        let rig = Rig::new(1);
        let x = rig.put(&[0f32; 64]);
        let message = message(rig.run(&text, grid(1, 32), args![x]));
        assert!(message.contains(told), "{statement}: {message}");
    }
}

/// Lanes overwrite the operand of a matrix load of the whole warp after it; earlier writes need a barrier.
#[test]
fn matrix_loads_need_a_barrier_before_them_alone() {
    let text = "KERNEL(test)(uint32_t* y) {\n\
                    __shared__ __align__(16) uint16_t part[256];\n\
                    int lane = threadIdx.x;\n\
                    for (int i = 0; i < 8; i++) part[lane * 8 + i] = lane;\n\
                    BARRIER\n\
                    uint32_t r[4];\n\
                    ldmatrix_x4(r, part + 8 * lane);\n\
                    for (int i = 0; i < 8; i++) part[lane * 8 + i] = 0;\n\
                    y[lane] = r[0];\n\
                }";
    let run = |barrier: &str| {
        let rig = Rig::new(1);
        let y = rig.put(&[0u32; 32]);
        rig.run(&text.replace("BARRIER", barrier), grid(1, 32), args![y])
    };
    run("__syncwarp();").expect("a run");
    let told = message(run(""));
    assert!(told.contains("a race in shared memory"), "{told}");
}
