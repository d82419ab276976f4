// Second stage of sums over rows: sums partial sums, one row for each part of the operand.

// Output of the sums of one launch; accumulated if set.
struct Sums {
    float* out[2];
    uint32_t accumulate[2];
};

// The sums of a block: over `rows` rows of `parts`, and in blocks with y = 1 over the rows after these.
struct BlockSums {
    const float* parts;
    float* out;
    bool accumulate;

    __device__ BlockSums(const Sums& sums, const float* all, uint64_t rows, uint64_t cols) {
        bool second = blockIdx.y == 1;
        parts = second ? all + rows * cols : all;
        out = second ? sums.out[1] : sums.out[0];
        accumulate = second ? sums.accumulate[1] : sums.accumulate[0];
    }

    __device__ void write(uint64_t col, float sum) const { out[col] = accumulate ? out[col] + sum : sum; }
};

// A block of 1024 threads processes 32 columns.
KERNEL_OF(1024, add_partials)(Sums sums, const float* parts, uint64_t rows, uint64_t cols) {
    // The sum of rows `s`, `s + 32`, .. of column `c` is at [s][c]; the additional column avoids bank conflicts.
    __shared__ float of_slice[32][33];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    BlockSums of_block(sums, parts, rows, cols);
    for (uint64_t first = (uint64_t)blockIdx.x * 32; first < cols; first += (uint64_t)gridDim.x * 32) {
        float sum = 0.0f;
        if (first + lane < cols) {
#pragma unroll 8
            for (uint64_t row = warp; row < rows; row += 32) sum += of_block.parts[row * cols + first + lane];
        }
        __syncthreads();
        of_slice[warp][lane] = sum;
        __syncthreads();
        sum = warp_reduce(of_slice[lane][warp], Sum());
        uint64_t col = first + warp;
        if (lane == 0 && col < cols) of_block.write(col, sum);
    }
}

// For so few rows that a thread per column issues all of their loads before it needs the first.
KERNEL(add_few_partials)(Sums sums, const float* parts, uint64_t rows, uint64_t cols) {
    BlockSums of_block(sums, parts, rows, cols);
    for (uint64_t col = thread_index(); col < cols; col += thread_count()) {
        float sum = 0.0f;
#pragma unroll 8
        for (uint64_t row = 0; row < rows; row++) sum += of_block.parts[row * cols + col];
        of_block.write(col, sum);
    }
}
