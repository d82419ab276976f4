// Synthetic operands for autotuning matmuls, and comparison of results.

// Element i of an operand whose contraction index changes every `stride` elements and has `terms` values. Elements with
// indices at equal distances from both ends are equal, with opposite signs if `opposed`: if one of the two inputs is
// opposed, the exact sum is 0 and the result consists of rounding errors, which reveal the order of summation.
// Exponents range from -6 to 6 around `exponent`, more bits than an f32 sum holds, so that every addition rounds.
__device__ inline float autotune_element(uint64_t i, uint64_t key, uint64_t stride, uint64_t terms, uint32_t opposed,
                                      int32_t exponent) {
    uint64_t run = quotient(i, stride), row = quotient(run, terms);
    uint64_t term = run - row * terms, other = row * stride + (i - run * stride);
    bool second = 2 * term >= terms;
    // The middle element has no opposite.
    if (opposed && 2 * term + 1 == terms) return 0.0f;
    uint4 bits = philox4x32(key, other * terms + (second ? terms - 1 - term : term));
    uint32_t power = (uint32_t)(127 - 6 + exponent + (int32_t)(bits.x % 13u));
    uint32_t sign = bits.y & 1u;
    if (opposed && second) sign ^= 1u;
    return __uint_as_float(sign << 31 | power << 23 | (bits.z & 0x7fffffu));
}

#define AUTOTUNE_OPERAND(T, T_NAME)                                                                                 \
    KERNEL(autotune_operand_##T_NAME)                                                                               \
    (T* out, uint64_t n, uint64_t key, uint64_t stride, uint64_t terms, uint32_t opposed, int32_t exponent) {    \
        for (uint64_t i = thread_index(); i < n; i += thread_count()) {                                          \
            store(out + i, autotune_element(i, key, stride, terms, opposed, exponent));                             \
        }                                                                                                        \
    }
AUTOTUNE_OPERAND(float, f32)
AUTOTUNE_OPERAND(bf16, bf16)

// Sets `differ` to 1 if two results differ in any bit; `n` counts units of 16 bits.
KERNEL(autotune_difference)(const uint16_t* a, const uint16_t* b, uint64_t n, uint32_t* differ) {
    bool found = false;
    for (uint64_t i = thread_index(); i < n; i += thread_count()) found |= a[i] != b[i];
    if (found) atomicOr(differ, 1u);
}
