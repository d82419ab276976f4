// The second stage of sums over rows: partial sums, one row of them for each part of the operand.

// out (+)= the sum of the rows of `parts`. Blocks of 1024 threads take 32 columns each.
KERNEL_OF(1024, add_partials)(float* out, const float* parts, uint64_t rows, uint64_t cols, uint32_t accumulate) {
    // Of column `c`, the sum of the rows `s`, `s + 32`, .. is at [s][c]; one more column keeps the banks apart.
    __shared__ float of_slice[32][33];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint64_t first = (uint64_t)blockIdx.x * 32; first < cols; first += (uint64_t)gridDim.x * 32) {
        float sum = 0.0f;
        if (first + lane < cols) {
#pragma unroll 8
            for (uint64_t row = warp; row < rows; row += 32) sum += parts[row * cols + first + lane];
        }
        __syncthreads();
        of_slice[warp][lane] = sum;
        __syncthreads();
        sum = warp_reduce(of_slice[lane][warp], Sum());
        uint64_t col = first + warp;
        if (lane == 0 && col < cols) out[col] = accumulate ? out[col] + sum : sum;
    }
}
