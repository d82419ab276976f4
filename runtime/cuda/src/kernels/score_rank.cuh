// The order of the scores of experts.

// Sort key of a score: larger for larger numbers, the largest for NaN, and among equals larger for lower columns. It is
// neither 0 nor all ones.
__device__ inline uint64_t rank_of(float x, uint32_t col) {
    // The same for both zeros.
    uint32_t bits = __float_as_uint(x + 0.0f);
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if (x != x) key = 0xfffffffeu;
    return (uint64_t)key << 32 | (0xffffffffu - col);
}

