// What ways to compute a matrix product are tried on, and how their results are compared.

// Element i of an operand whose index of the contraction changes every `stride` elements and has `terms` values. Elements
// whose indices lie as far from both ends are equal, and of opposite signs where `opposed`: if that is one factor of two,
// terms of a sum cancel, and what is left is nothing but its rounding, which shows in which order it was added. Exponents
// range from -6 to 6 around `exponent`: more bits than a sum of f32 has, so that every addition rounds.
__device__ inline float trial_element(uint64_t i, uint64_t key, uint64_t stride, uint64_t terms, uint32_t opposed,
                                      int32_t exponent) {
    uint64_t run = quotient(i, stride), row = quotient(run, terms);
    uint64_t term = run - row * terms, other = row * stride + (i - run * stride);
    bool second = 2 * term >= terms;
    // The one in the middle has no other that cancels it.
    if (opposed && 2 * term + 1 == terms) return 0.0f;
    uint64_t bits = random_bits(key, other * terms + (second ? terms - 1 - term : term));
    uint32_t power = (uint32_t)(127 - 6 + exponent + (int32_t)((uint32_t)(bits >> 40) % 13u));
    uint32_t sign = (uint32_t)(bits >> 32) & 1u;
    if (opposed && second) sign ^= 1u;
    return __uint_as_float(sign << 31 | power << 23 | ((uint32_t)bits & 0x7fffffu));
}

#define TRIAL_OPERAND(T, T_NAME)                                                                                 \
    KERNEL(trial_operand_##T_NAME)                                                                               \
    (T* out, uint64_t n, uint64_t key, uint64_t stride, uint64_t terms, uint32_t opposed, int32_t exponent) {    \
        for (uint64_t i = thread_index(); i < n; i += thread_count()) {                                          \
            store(out + i, trial_element(i, key, stride, terms, opposed, exponent));                             \
        }                                                                                                        \
    }
TRIAL_OPERAND(float, f32)
TRIAL_OPERAND(bf16, bf16)

// Sets `differ` to 1 where two results have unlike bits; `n` counts units of 16 bits.
KERNEL(trial_difference)(const uint16_t* a, const uint16_t* b, uint64_t n, uint32_t* differ) {
    bool found = false;
    for (uint64_t i = thread_index(); i < n; i += thread_count()) found |= a[i] != b[i];
    if (found) atomicOr(differ, 1u);
}
