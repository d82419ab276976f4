// Counter-based random numbers.

// The generator Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011): 128 random bits, a function of a key and a
// counter. `philox.rs` has the same function for CPUs.
__device__ inline uint4 philox4x32(uint64_t key, uint4 counter) {
    uint32_t x0 = counter.x, x1 = counter.y, x2 = counter.z, x3 = counter.w;
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = 0xd2511f53ull * x0, product1 = 0xcd9e8d57ull * x2;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ key0;
        x1 = (uint32_t)product1;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ key1;
        x3 = (uint32_t)product0;
        key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
    }
    return uint4{x0, x1, x2, x3};
}

__device__ inline uint4 philox4x32(uint64_t key, uint64_t counter) {
    return philox4x32(key, uint4{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0});
}

// Random word of element `index` of the stream `key`: word `index % 4` of counter `index / 4`.
__device__ inline uint32_t random_word(uint64_t key, uint64_t index) {
    uint4 words = philox4x32(key, index / 4);
    uint32_t low = index & 1 ? words.y : words.x, high = index & 1 ? words.w : words.z;
    return index & 2 ? high : low;
}

// Random words of the N elements from `index` on.
template <int N>
__device__ inline void random_words(uint64_t key, uint64_t index, uint32_t (&words)[N]) {
    if constexpr (N % 4 == 0) {
        if (index % 4 == 0) {
#pragma unroll
            for (int n = 0; n < N; n += 4) {
                uint4 four = philox4x32(key, (index + n) / 4);
                words[n] = four.x, words[n + 1] = four.y, words[n + 2] = four.z, words[n + 3] = four.w;
            }
            return;
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++) words[n] = random_word(key, index + n);
}

