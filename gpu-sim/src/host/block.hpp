// The parts of the simulator that kernels call; `simulator/` defines them, compiled once for all kernels.
#pragma GCC visibility push(hidden)
namespace meshwright_host {

// Launch parameters from the host; mirrored in `kernel.rs`.
struct Launch {
    const char* kernel;
    uint32_t blocks[3];
    uint32_t threads;
    uint64_t seed;
    // One stack per thread.
    char* stacks;
    uint64_t stack_stride;
    uint64_t stack_bytes;
    char* dynamic_shared;
    // Including the red zone after the requested size.
    uint64_t dynamic_shared_bytes;
    uint64_t dynamic_shared_asked;
    char* message;
    uint64_t message_bytes;
    // Address of the invalid memory that a thread accessed, if any.
    uint64_t fault_address;
};

typedef void (*Perform)(void* const* operands, uint32_t lanes);

// A thread of the running block.
struct Thread {
    uint3 place;
    uint32_t index, lane;
    // The group of its next asynchronous copy.
    uint32_t open_group;
};

extern Thread* current;
extern Launch* launch;
extern uint3 block_index;
extern dim3 block_size, grid_size;
// Threads that have passed the last block barrier.
extern uint32_t barrier_threads;

// Aborts the launch with a message; the first failure is reported.
__attribute__((format(printf, 1, 2))) void fail(const char* format, ...);

// Returns how many threads have come to the barrier with a vote.
uint32_t block_barrier(const char* operation, int line, bool vote);

// Synchronizes the lanes of `mask`; the last to arrive performs the operation, with a pointer to each lane's operand.
void warp_operation(uint32_t mask, const char* operation, int line, void* operand, Perform perform);

// Runs every block; returns 0 for success, otherwise there is a message.
int run_grid(Launch* wanted, void (*body)(const void* const*), const void* const* args);

template <size_t... I>
struct Indices {};

// `Indices<0, 1, .., N - 1>` is its base.
template <size_t N, size_t... I>
struct IndicesUpTo : IndicesUpTo<N - 1, N - 1, I...> {};

template <size_t... I>
struct IndicesUpTo<0, I...> : Indices<I...> {};

template <class... A, size_t... I>
static void call(void (*kernel)(A...), const void* const* args, Indices<I...>) {
    kernel(*static_cast<const A*>(args[I])...);
}

template <class... A>
static void call(void (*kernel)(A...), const void* const* args) {
    call(kernel, args, IndicesUpTo<sizeof...(A)>{});
}

// Number of parameters, and the size of each.
template <class... A>
static const uint32_t* parameter_sizes(void (*)(A...)) {
    static const uint32_t sizes[] = {sizeof...(A), static_cast<uint32_t>(sizeof(A))...};
    return sizes;
}

}  // namespace meshwright_host
#pragma GCC visibility pop

#define threadIdx (meshwright_host::current->place)
#define blockIdx (meshwright_host::block_index)
#define blockDim (meshwright_host::block_size)
#define gridDim (meshwright_host::grid_size)
#define warpSize 32
