// Rotary position embedding (Su et al. 2021), in the half-split layout.

// Rotates every head of x[positions, heads, 2 half] in place; position `p` uses row `p % seq` of the tables [seq, half].
// `sign` is -1 to rotate back.
template <class T, int N>
__device__ inline void rope(T* x, const float* cos, const float* sin, float sign, uint64_t positions, uint64_t seq,
                            uint64_t heads, uint64_t half) {
    uint64_t vectors = half / N;
    for (uint64_t i = thread_index(); i < positions * heads * vectors; i += thread_count()) {
        uint64_t head = quotient(i, vectors), j = (i - head * vectors) * N;
        uint64_t in_table = modulo(quotient(head, heads), seq) * half + j;
        T* first = x + head * 2 * half + j;
        float a[N], b[N], c[N], s[N];
        load_vector(first, a);
        load_vector(first + half, b);
        load_vector(cos + in_table, c);
        load_vector(sin + in_table, s);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float turned = a[n] * c[n] - b[n] * (s[n] * sign);
            b[n] = b[n] * c[n] + a[n] * (s[n] * sign);
            a[n] = turned;
        }
        store_vector(first, a);
        store_vector(first + half, b);
    }
}

#define ROPE(T, NAME, N)                                                                                         \
    KERNEL(rope_##NAME)                                                                                          \
    (T* x, const float* cos, const float* sin, float sign, uint64_t positions, uint64_t seq, uint64_t heads,     \
     uint64_t half) {                                                                                            \
        rope<T, N>(x, cos, sin, sign, positions, seq, heads, half);                                              \
    }
ROPE(float, f32, WIDE<float>)
ROPE(bf16, bf16, WIDE<bf16>)
ROPE(float, any_f32, 1)
ROPE(bf16, any_bf16, 1)
