// Runs the threads of a block as fibers, in an order drawn from a seed.
namespace meshwright_host {

constexpr uint32_t MOST_THREADS = 1024;

// For code between the steps of threads, which makes no access on behalf of a thread.
#define UNCHECKED __attribute__((no_sanitize("thread"), no_sanitize("undefined")))

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

enum class State : uint8_t { ready, at_block_barrier, in_warp_operation, done };

// A pending asynchronous copy.
struct PendingCopy {
    char* to;
    const char* from;
    uint32_t bytes, zeros;
    uint32_t group;
};

typedef void (*Perform)(void* const* operands, uint32_t lanes);

struct Fiber {
    Context context;
    uint3 thread;
    uint32_t index, lane;
    // The barrier or warp operation that the thread waits in, and its source line.
    const char* operation;
    int line;
    uint32_t mask;
    void* operand;
    Perform perform;
    PendingCopy* copies;
    uint32_t n_copies, copy_capacity, open_group;
};

struct Warp {
    uint32_t alive, waiting;
    // Number of `__syncwarp` that the lanes have passed.
    uint32_t syncs;
};

static Fiber fibers[MOST_THREADS];
// Side by side, as they are looked for far more often than the rest of the threads.
static State states[MOST_THREADS];
static Warp warps[MOST_THREADS / 32];
static Context scheduler;
static Fiber* current;
static Launch* launch;
static uint3 block_index;
static dim3 block_size, grid_size;
static void (*kernel_body)(const void* const* args);
static const void* const* kernel_args;
static uint64_t random_state;
static bool failed;
// State of the block: live threads, threads at the barrier, and how many of these have a true predicate.
static uint32_t alive, at_barrier, barrier_count, barrier_threads, barrier_votes;

// Incremented by every block barrier and every block.
static uint32_t epoch;

extern "C" __attribute__((weak, visibility("hidden"))) char __start_meshwright_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_meshwright_shared[];

static void prepare_races();

UNCHECKED static inline uint32_t draw(uint32_t below) {
    // SplitMix64.
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return static_cast<uint32_t>(((z >> 32) * below) >> 32);
}

// Aborts the launch with a message; the first failure is reported.
__attribute__((format(printf, 1, 2))) static void fail(const char* format, ...) {
    if (!failed) {
        failed = true;
        int used = snprintf(launch->message, launch->message_bytes, "kernel `%s`, block (%u, %u, %u)", launch->kernel,
                            block_index.x, block_index.y, block_index.z);
        char* rest = launch->message + used;
        size_t room = launch->message_bytes - used;
        if (current) {
            used = snprintf(rest, room, ", thread %u", current->index);
            rest += used;
            room -= used;
        }
        used = snprintf(rest, room, ": ");
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(rest + used, room - used, format, arguments);
        va_end(arguments);
    }
    if (current) {
        Fiber* fiber = current;
        switch_context(fiber->context, scheduler);
    }
}

static inline bool is_shared(const void* address, size_t bytes) {
    const char* at = static_cast<const char*>(address);
    return (at >= launch->dynamic_shared && at + bytes <= launch->dynamic_shared + launch->dynamic_shared_asked) ||
           (at >= __start_meshwright_shared && at + bytes <= __stop_meshwright_shared);
}

UNCHECKED static inline void pause() { switch_context(current->context, scheduler); }

UNCHECKED static uint32_t block_barrier(const char* operation, int line, bool vote) {
    states[current->index] = State::at_block_barrier;
    current->operation = operation;
    current->line = line;
    at_barrier++;
    barrier_votes += vote;
    pause();
    return barrier_count;
}

// Releases the barrier if all live threads have arrived.
UNCHECKED static bool release_barrier() {
    if (alive == 0 || at_barrier != alive) return false;
    const Fiber* first = nullptr;
    for (uint32_t i = 0; i < launch->threads; i++) {
        if (states[i] != State::at_block_barrier) continue;
        const Fiber& fiber = fibers[i];
        if (!first) first = &fiber;
        bool same = fiber.operation == first->operation || strcmp(fiber.operation, first->operation) == 0;
        if (fiber.line != first->line || !same) {
            fail("divergent barrier: thread %u waits in %s at line %d, thread %u in %s at line %d", first->index,
                 first->operation, first->line, fiber.index, fiber.operation, fiber.line);
            return false;
        }
        states[i] = State::ready;
    }
    barrier_count = barrier_votes;
    barrier_threads = at_barrier;
    at_barrier = barrier_votes = 0;
    epoch++;
    return true;
}

// Performs the warp operation of `mask` if all its live lanes have arrived.
UNCHECKED static bool complete_warp_operation(uint32_t warp_index, uint32_t mask) {
    Warp& warp = warps[warp_index];
    uint32_t lanes = mask & warp.alive;
    if (lanes == 0 || (warp.waiting & lanes) != lanes) return false;
    Fiber* first = nullptr;
    void* operands[32] = {};
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        Fiber& fiber = fibers[warp_index * 32 + lane];
        if (!first) first = &fiber;
        if (fiber.mask != mask || fiber.line != first->line || fiber.perform != first->perform) {
            fail("divergent warp operation: thread %u waits in %s of lanes %08x at line %d, thread %u in %s of lanes %08x "
                 "at line %d",
                 first->index, first->operation, first->mask, first->line, fiber.index, fiber.operation, fiber.mask,
                 fiber.line);
            return false;
        }
        operands[lane] = fiber.operand;
    }
    if (first->perform) {
        first->perform(operands, lanes);
    } else {
        warp.syncs++;
    }
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (lanes >> lane & 1) states[warp_index * 32 + lane] = State::ready;
    }
    warp.waiting &= ~lanes;
    return true;
}

// Synchronizes the lanes of `mask`; the last to arrive performs the operation, with a pointer to each lane's operand.
UNCHECKED static void warp_operation(uint32_t mask, const char* operation, int line, void* operand, Perform perform) {
    uint32_t warp = current->index / 32;
    if (!(mask >> current->lane & 1)) fail("%s at line %d of lanes %08x, without the lane itself", operation, line, mask);
    states[current->index] = State::in_warp_operation;
    current->operation = operation;
    current->line = line;
    current->mask = mask;
    current->operand = operand;
    current->perform = perform;
    warps[warp].waiting |= 1u << current->lane;
    if (!complete_warp_operation(warp, mask)) pause();
}

UNCHECKED static void run_fiber() {
    kernel_body(kernel_args);
    states[current->index] = State::done;
    pause();
    abort();
}

UNCHECKED static void resume(Fiber& fiber) {
    current = &fiber;
    switch_context(scheduler, fiber.context);
    if (states[fiber.index] == State::done) {
        alive--;
        uint32_t warp_index = fiber.index / 32;
        Warp& warp = warps[warp_index];
        warp.alive &= ~(1u << fiber.lane);
        // Other threads may have waited for this one only.
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (warp.waiting >> lane & 1) complete_warp_operation(warp_index, fibers[warp_index * 32 + lane].mask);
        }
    }
    current = nullptr;
}

// An order of `n` items: every `stride`-th, around the end.
struct Order {
    uint32_t n, next, stride;

    UNCHECKED static uint32_t common(uint32_t a, uint32_t b) { return b == 0 ? a : common(b, a % b); }

    UNCHECKED static Order drawn(uint32_t n) {
        uint32_t stride = 1 + draw(n);
        while (common(stride, n) != 1) stride++;
        return {n, draw(n), stride % n};
    }

    UNCHECKED uint32_t take() {
        uint32_t item = next;
        next += stride;
        if (next >= n) next -= n;
        return item;
    }
};

// Runs every ready thread to its next barrier or warp operation.
UNCHECKED static bool step_all() {
    bool any = false;
    Order order = Order::drawn(launch->threads);
    for (uint32_t i = 0; i < order.n && !failed; i++) {
        uint32_t thread = order.take();
        if (states[thread] != State::ready) continue;
        any = true;
        resume(fibers[thread]);
    }
    return any;
}

// Runs one warp after the other to the next block barrier or its end.
UNCHECKED static bool step_warps() {
    bool any = false;
    Order warp_order = Order::drawn((launch->threads + 31) / 32);
    for (uint32_t i = 0; i < warp_order.n; i++) {
        uint32_t first = warp_order.take() * 32;
        uint32_t lanes = launch->threads - first < 32 ? launch->threads - first : 32;
        for (bool moved = true; moved && !failed;) {
            moved = false;
            Order order = Order::drawn(lanes);
            for (uint32_t j = 0; j < lanes && !failed; j++) {
                uint32_t thread = first + order.take();
                if (states[thread] != State::ready) continue;
                any = moved = true;
                resume(fibers[thread]);
            }
        }
    }
    return any;
}

static void report_deadlock() {
    for (uint32_t i = 0; i < launch->threads; i++) {
        if (states[i] != State::in_warp_operation) continue;
        const Fiber& fiber = fibers[i];
        fail("deadlock: thread %u waits in %s at line %d for lanes %08x, of which only %08x have come; %u of %u threads "
             "wait at a block barrier",
             fiber.index, fiber.operation, fiber.line, fiber.mask, fiber.mask & warps[i / 32].waiting, at_barrier, alive);
        return;
    }
    fail("deadlock: %u of %u threads wait at a block barrier", at_barrier, alive);
}

UNCHECKED static void run_block() {
    uint32_t threads = launch->threads;
    memset(launch->dynamic_shared, 0xff, launch->dynamic_shared_bytes);
    if (__start_meshwright_shared) {
        memset(__start_meshwright_shared, 0xff, __stop_meshwright_shared - __start_meshwright_shared);
    }
    for (uint32_t i = 0; i < threads; i++) {
        Fiber& fiber = fibers[i];
        fiber.thread = {i, 0, 0};
        fiber.index = i;
        fiber.lane = i % 32;
        states[i] = State::ready;
        fiber.line = 0;
        fiber.n_copies = fiber.open_group = 0;
        // The stacks are some pages apart: without a shift of so many cache lines, their ends would share a few sets of the
        // caches.
        uint64_t bytes = launch->stack_bytes - i % 64 * 9 * 64 % 4096;
        prepare_context(fiber.context, launch->stacks + i * launch->stack_stride, bytes, run_fiber);
    }
    for (uint32_t first = 0; first < threads; first += 32) {
        warps[first / 32] = {threads - first >= 32 ? ~0u : (1u << (threads - first)) - 1, 0, 0};
    }
    epoch++;
    alive = threads;
    at_barrier = barrier_votes = 0;
    while (alive > 0 && !failed) {
        bool any = draw(2) ? step_all() : step_warps();
        if (failed) return;
        if (!release_barrier() && !any && !failed) report_deadlock();
    }
    for (uint64_t i = launch->dynamic_shared_asked; i < launch->dynamic_shared_bytes && !failed; i++) {
        if (static_cast<unsigned char>(launch->dynamic_shared[i]) != 0xff) {
            fail("wrote %llu bytes beyond the end of its %llu bytes of dynamic shared memory",
                 static_cast<unsigned long long>(i - launch->dynamic_shared_asked),
                 static_cast<unsigned long long>(launch->dynamic_shared_asked));
        }
    }
}

// Runs every block; returns 0 for success, otherwise there is a message.
static int run_grid(Launch* wanted, void (*body)(const void* const*), const void* const* args) {
    launch = wanted;
    kernel_body = body;
    kernel_args = args;
    random_state = launch->seed;
    failed = false;
    current = nullptr;
    prepare_races();
    grid_size = dim3(launch->blocks[0], launch->blocks[1], launch->blocks[2]);
    block_size = dim3(launch->threads);
    // Along x, the longest dim, in random order; y and z are usually short.
    Order order = Order::drawn(grid_size.x);
    for (uint32_t z = 0; z < grid_size.z; z++) {
        for (uint32_t y = 0; y < grid_size.y; y++) {
            for (uint32_t x = 0; x < grid_size.x && !failed; x++) {
                block_index = {order.take(), y, z};
                run_block();
            }
        }
    }
    return failed ? 1 : 0;
}

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

#define threadIdx (meshwright_host::current->thread)
#define blockIdx (meshwright_host::block_index)
#define blockDim (meshwright_host::block_size)
#define gridDim (meshwright_host::grid_size)
#define warpSize 32
