// Runs the threads of a block as fibers, in an order drawn from a seed.
namespace meshwright_host {

constexpr uint32_t MOST_THREADS = 1024;

enum class State : uint8_t { ready, at_block_barrier, in_warp_operation, done };

// A pending asynchronous copy.
struct PendingCopy {
    char* to;
    const char* from;
    uint32_t bytes, zeros;
    uint32_t group;
};

struct Fiber : Thread {
    Context context;
    // The barrier or warp operation that the thread waits in, and its source line.
    const char* operation;
    int line;
    uint32_t mask;
    void* operand;
    Perform perform;
    PendingCopy* copies;
    uint32_t n_copies, copy_capacity;
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
static void (*kernel_body)(const void* const* args);
static const void* const* kernel_args;
static uint64_t random_state;
static bool failed;
// State of the block: live threads, threads at the barrier, and how many of these have a true predicate.
static uint32_t alive, at_barrier, barrier_count, barrier_votes;

// Incremented by every block barrier and every block.
static uint32_t epoch;

Thread* current;
Launch* launch;
uint3 block_index;
dim3 block_size, grid_size;
uint32_t barrier_threads;

extern "C" __attribute__((weak)) char __start_meshwright_shared[];
extern "C" __attribute__((weak)) char __stop_meshwright_shared[];

static void prepare_races();

static inline uint32_t draw(uint32_t below) {
    // SplitMix64.
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return static_cast<uint32_t>(((z >> 32) * below) >> 32);
}

static Fiber& current_fiber() { return *static_cast<Fiber*>(current); }

static void pause() { switch_context(current_fiber().context, scheduler); }

void fail(const char* format, ...) {
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
    if (current) pause();
}

static inline bool is_shared(const void* address, size_t bytes) {
    const char* at = static_cast<const char*>(address);
    return (at >= launch->dynamic_shared && at + bytes <= launch->dynamic_shared + launch->dynamic_shared_asked) ||
           (at >= __start_meshwright_shared && at + bytes <= __stop_meshwright_shared);
}

uint32_t block_barrier(const char* operation, int line, bool vote) {
    Fiber& fiber = current_fiber();
    states[fiber.index] = State::at_block_barrier;
    fiber.operation = operation;
    fiber.line = line;
    at_barrier++;
    barrier_votes += vote;
    pause();
    return barrier_count;
}

static bool is_same_operation(const Fiber& a, const Fiber& b) {
    return a.line == b.line && (a.operation == b.operation || strcmp(a.operation, b.operation) == 0);
}

// Releases the barrier if all live threads have arrived.
static bool release_barrier() {
    if (alive == 0 || at_barrier != alive) return false;
    const Fiber* first = nullptr;
    for (uint32_t i = 0; i < launch->threads; i++) {
        if (states[i] != State::at_block_barrier) continue;
        const Fiber& fiber = fibers[i];
        if (!first) first = &fiber;
        if (!is_same_operation(fiber, *first)) {
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
static bool complete_warp_operation(uint32_t warp_index, uint32_t mask) {
    Warp& warp = warps[warp_index];
    uint32_t lanes = mask & warp.alive;
    if (lanes == 0 || (warp.waiting & lanes) != lanes) return false;
    Fiber* first = nullptr;
    void* operands[32] = {};
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        Fiber& fiber = fibers[warp_index * 32 + lane];
        if (!first) first = &fiber;
        if (fiber.mask != mask || !is_same_operation(fiber, *first)) {
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

void warp_operation(uint32_t mask, const char* operation, int line, void* operand, Perform perform) {
    Fiber& fiber = current_fiber();
    uint32_t warp = fiber.index / 32;
    if (!(mask >> fiber.lane & 1)) fail("%s at line %d of lanes %08x, without the lane itself", operation, line, mask);
    states[fiber.index] = State::in_warp_operation;
    fiber.operation = operation;
    fiber.line = line;
    fiber.mask = mask;
    fiber.operand = operand;
    fiber.perform = perform;
    warps[warp].waiting |= 1u << fiber.lane;
    if (!complete_warp_operation(warp, mask)) pause();
}

static void run_fiber() {
    kernel_body(kernel_args);
    states[current->index] = State::done;
    pause();
    abort();
}

static void resume(Fiber& fiber) {
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

    static uint32_t common(uint32_t a, uint32_t b) { return b == 0 ? a : common(b, a % b); }

    static Order drawn(uint32_t n) {
        uint32_t stride = 1 + draw(n);
        while (common(stride, n) != 1) stride++;
        return {n, draw(n), stride % n};
    }

    uint32_t next_item() {
        uint32_t item = next;
        next += stride;
        if (next >= n) next -= n;
        return item;
    }
};

// Runs every ready thread to its next barrier or warp operation.
static bool step_all() {
    bool any = false;
    Order order = Order::drawn(launch->threads);
    for (uint32_t i = 0; i < order.n && !failed; i++) {
        uint32_t thread = order.next_item();
        if (states[thread] != State::ready) continue;
        any = true;
        resume(fibers[thread]);
    }
    return any;
}

// Runs one warp after the other to the next block barrier or its end.
static bool step_warps() {
    bool any = false;
    Order warp_order = Order::drawn((launch->threads + 31) / 32);
    for (uint32_t i = 0; i < warp_order.n; i++) {
        uint32_t first = warp_order.next_item() * 32;
        uint32_t lanes = launch->threads - first < 32 ? launch->threads - first : 32;
        for (bool moved = true; moved && !failed;) {
            moved = false;
            Order order = Order::drawn(lanes);
            for (uint32_t j = 0; j < lanes && !failed; j++) {
                uint32_t thread = first + order.next_item();
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
        fail("deadlock: thread %u waits in %s at line %d for lanes %08x, and only %08x have come; %u of %u threads "
             "wait at a block barrier",
             fiber.index, fiber.operation, fiber.line, fiber.mask, fiber.mask & warps[i / 32].waiting, at_barrier, alive);
        return;
    }
    fail("deadlock: %u of %u threads wait at a block barrier", at_barrier, alive);
}

static void run_block() {
    uint32_t threads = launch->threads;
    memset(launch->dynamic_shared, 0xff, launch->dynamic_shared_bytes);
    if (__start_meshwright_shared) {
        memset(__start_meshwright_shared, 0xff, __stop_meshwright_shared - __start_meshwright_shared);
    }
    for (uint32_t i = 0; i < threads; i++) {
        Fiber& fiber = fibers[i];
        fiber.place = {i, 0, 0};
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

int run_grid(Launch* wanted, void (*body)(const void* const*), const void* const* args) {
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
                block_index = {order.next_item(), y, z};
                run_block();
            }
        }
    }
    return failed ? 1 : 0;
}

}  // namespace meshwright_host

