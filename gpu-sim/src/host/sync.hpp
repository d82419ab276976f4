// Barriers and warp operations. The source line of the call is recorded to detect divergent threads.

static inline void __syncthreads(int line = __builtin_LINE()) {
    meshwright_host::block_barrier("__syncthreads", line, false);
}
static inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return meshwright_host::block_barrier("__syncthreads_count", line, predicate != 0);
}
static inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return meshwright_host::block_barrier("__syncthreads_or", line, predicate != 0) != 0;
}
static inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    uint32_t count = meshwright_host::block_barrier("__syncthreads_and", line, predicate != 0);
    return count == meshwright_host::barrier_threads;
}
static inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
    meshwright_host::warp_operation(mask, "__syncwarp", line, nullptr, nullptr);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __trap() { meshwright_host::fail("trapped"); }

#pragma GCC visibility push(hidden)
namespace meshwright_host {

struct Shuffle {
    uint64_t value, result;
    int source;
};

void shuffle_all(void* const* operands, uint32_t lanes);

template <class T>
static inline T shuffle(uint32_t mask, const char* operation, int line, T value, int source) {
    static_assert(sizeof(T) <= 8, "what is shuffled has at most 8 bytes");
    Shuffle operand = {0, 0, source};
    memcpy(&operand.value, &value, sizeof value);
    warp_operation(mask, operation, line, &operand, shuffle_all);
    memcpy(&value, &operand.result, sizeof value);
    return value;
}

struct Vote {
    uint32_t predicate, result;
};

void ballot_all(void* const* operands, uint32_t lanes);

static inline uint32_t ballot(uint32_t mask, const char* operation, int line, bool predicate) {
    Vote vote = {predicate, 0};
    warp_operation(mask, operation, line, &vote, ballot_all);
    return vote.result;
}

}  // namespace meshwright_host
#pragma GCC visibility pop

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    int lane = meshwright_host::current->lane;
    int from = (lane & ~(width - 1)) | (source & (width - 1));
    return meshwright_host::shuffle(mask, "__shfl_sync", line, value, from);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    int lane = meshwright_host::current->lane;
    int from = (lane ^ bits) >= (lane & ~(width - 1)) + width ? lane : lane ^ bits;
    return meshwright_host::shuffle(mask, "__shfl_xor_sync", line, value, from);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, int line = __builtin_LINE()) {
    int lane = meshwright_host::current->lane;
    int from = (lane & (width - 1)) + static_cast<int>(by) >= width ? lane : lane + static_cast<int>(by);
    return meshwright_host::shuffle(mask, "__shfl_down_sync", line, value, from);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, int line = __builtin_LINE()) {
    int lane = meshwright_host::current->lane;
    int from = (lane & (width - 1)) < static_cast<int>(by) ? lane : lane - static_cast<int>(by);
    return meshwright_host::shuffle(mask, "__shfl_up_sync", line, value, from);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return meshwright_host::ballot(mask, "__ballot_sync", line, predicate != 0);
}
static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return meshwright_host::ballot(mask, "__any_sync", line, predicate != 0) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return meshwright_host::ballot(mask, "__all_sync", line, predicate == 0) == 0;
}
