// Stable radix sort of u32 keys with 8-bit digits, lowest first: three kernels per digit. Equal keys keep their order,
// so the result depends on the keys only.

constexpr uint32_t DIGITS = 256;
// Keys per block, which has a thread for every digit.
constexpr uint32_t TILE = 2048;
constexpr uint32_t WARPS = DIGITS / 32;

__device__ inline uint32_t digit_of(uint32_t key, uint32_t shift) { return key >> shift & (DIGITS - 1); }

// counts[digit][block]: occurrences of each digit in each block's keys.
KERNEL(count_digits)(const uint32_t* keys, uint64_t n, uint32_t shift, uint32_t* counts) {
    __shared__ uint32_t count[DIGITS];
    count[threadIdx.x] = 0;
    __syncthreads();
    uint64_t start = (uint64_t)blockIdx.x * TILE;
    for (uint64_t i = start + threadIdx.x; i < n && i < start + TILE; i += DIGITS) {
        // Integer sums do not depend on their order.
        atomicAdd(&count[digit_of(keys[i], shift)], 1u);
    }
    __syncthreads();
    counts[(uint64_t)threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

// Exclusive prefix sum of the counts, in one block.
KERNEL(start_of_counts)(uint32_t* counts, uint64_t n) {
    __shared__ uint32_t of_warp[32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t before = 0;
    for (uint64_t start = 0; start < n; start += blockDim.x) {
        uint64_t i = start + threadIdx.x;
        uint32_t count = i < n ? counts[i] : 0;
        // Within this thread's warp, then over the warps before it.
        uint32_t sum = count;
        for (uint32_t offset = 1; offset < 32; offset *= 2) {
            uint32_t lower = __shfl_up_sync(0xffffffffu, sum, offset);
            if (lane >= offset) sum += lower;
        }
        if (lane == 31) of_warp[warp] = sum;
        __syncthreads();
        uint32_t total = 0;
        for (uint32_t w = 0; w < warps; w++) {
            if (w == warp) sum += total;
            total += of_warp[w];
        }
        if (i < n) counts[i] = before + sum - count;
        before += total;
        __syncthreads();
    }
}

// Scatters keys and values to the positions of their digits; `values` may be null for the positions of keys.
KERNEL(move_by_digit)(const uint32_t* keys, const uint32_t* values, uint64_t n, uint32_t shift, const uint32_t* starts,
                      uint32_t* keys_out, uint32_t* values_out) {
    // Next position of each digit: of the block, and of each of its warps.
    __shared__ uint32_t next[DIGITS];
    __shared__ uint32_t next_of_warp[WARPS][DIGITS];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    next[threadIdx.x] = starts[(uint64_t)threadIdx.x * gridDim.x + blockIdx.x];
    uint64_t start = (uint64_t)blockIdx.x * TILE;
    for (uint64_t round = start; round < n && round < start + TILE; round += DIGITS) {
        for (uint32_t w = 0; w < WARPS; w++) next_of_warp[w][threadIdx.x] = 0;
        __syncthreads();
        uint64_t i = round + threadIdx.x;
        bool valid = i < n;
        uint32_t key = valid ? keys[i] : 0;
        uint32_t digit = digit_of(key, shift);
        // Lanes with the same digit.
        uint32_t peers = __ballot_sync(0xffffffffu, valid);
        for (uint32_t bit = 1; bit < DIGITS; bit *= 2) {
            uint32_t set = __ballot_sync(0xffffffffu, (digit & bit) != 0);
            peers &= digit & bit ? set : ~set;
        }
        uint32_t earlier = __popc(peers & ((1u << lane) - 1));
        if (valid && earlier == 0) next_of_warp[warp][digit] = __popc(peers);
        __syncthreads();
        // One digit per thread: converts the counts of warps to positions.
        uint32_t place = next[threadIdx.x];
        for (uint32_t w = 0; w < WARPS; w++) {
            uint32_t count = next_of_warp[w][threadIdx.x];
            next_of_warp[w][threadIdx.x] = place;
            place += count;
        }
        next[threadIdx.x] = place;
        __syncthreads();
        if (valid) {
            uint32_t to = next_of_warp[warp][digit] + earlier;
            keys_out[to] = key;
            values_out[to] = values ? values[i] : (uint32_t)i;
        }
        // All positions are read before they are cleared.
        __syncthreads();
    }
}
