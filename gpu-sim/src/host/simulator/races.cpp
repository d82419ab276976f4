// Detects races in shared memory: accesses of two threads, one of them a write, without a barrier between them.
//
// Kernels are compiled with the compiler's thread-sanitizer instrumentation, whose hooks for every access are defined
// here. Block barriers order threads, and `__syncwarp` the lanes of a warp; shuffles and votes do not. Atomic
// operations and single-byte accesses are not checked.
namespace meshwright_host {

// Last accesses of two bytes, valid until the next block barrier and, within a warp, the next `__syncwarp`.
struct Uses {
    uint32_t write_epoch, write_sync, read_epoch, read_sync;
    uint16_t writer, reader;
};

// Readers of several warps, or of the warp in the lower bits.
constexpr uint16_t MANY = 0xffff, OF_WARP = 0x8000;

// Dynamic or static shared memory, and its shadow.
struct Region {
    uintptr_t start;
    size_t bytes;
    Uses* uses;
    size_t n_uses;
};

static Region regions[2];

static void prepare_races() {
    regions[0].start = reinterpret_cast<uintptr_t>(launch->dynamic_shared);
    regions[0].bytes = launch->dynamic_shared_bytes;
    regions[1].start = reinterpret_cast<uintptr_t>(__start_meshwright_shared);
    if (__start_meshwright_shared) regions[1].bytes = __stop_meshwright_shared - __start_meshwright_shared;
    for (Region& region : regions) {
        size_t n = region.bytes / 2 + 1;
        if (n <= region.n_uses) continue;
        free(region.uses);
        region.uses = static_cast<Uses*>(calloc(n, sizeof(Uses)));
        region.n_uses = region.uses ? n : 0;
    }
}

static void race(const char* does, const char* others, uint32_t other, const char* did) {
    fail("a race in shared memory: after its barrier at line %d this thread %s what %s %u %s, and no barrier orders them",
         current_fiber().line, does, others, other, did);
}

static inline uint16_t warp_of_reader(const Uses& used) {
    return used.reader & OF_WARP ? used.reader & ~OF_WARP : used.reader / 32;
}

// Whether all reads are by this warp, with a `__syncwarp` after them.
static inline bool is_ordered(const Uses& used, uint16_t warp, uint32_t sync) {
    return used.reader != MANY && warp_of_reader(used) == warp && used.read_sync != sync;
}

// Kind of access: by one thread, or a read by an instruction of the whole warp, which orders all lanes.
enum class Use { read, write, warp_read };

template <Use USE>
__attribute__((noinline)) static void note_shared(const Region& region, size_t offset, size_t bytes) {
    uint16_t self = static_cast<uint16_t>(current->index), warp = self / 32;
    uint32_t sync = warps[warp].syncs, now = epoch;
    size_t end = (offset + bytes) / 2;
    if (end > region.n_uses) end = region.n_uses;
    for (Uses *used = region.uses + offset / 2, *last = region.uses + end; used < last; used++) {
        bool is_read = used->read_epoch == now;
        if (used->write_epoch == now) {
            bool other = used->writer != self || USE == Use::warp_read;
            if (other && (used->writer / 32 != warp || used->write_sync == sync)) {
                race(USE == Use::write ? "writes" : "reads", "thread", used->writer, "has written");
            }
        }
        if (USE == Use::write) {
            if (is_read && used->reader != self && !is_ordered(*used, warp, sync)) {
                bool several = used->reader == MANY, one = !(used->reader & OF_WARP);
                race("writes", one ? "thread" : several ? "a thread other than" : "a lane of warp",
                     one ? used->reader : several ? self : warp_of_reader(*used), "has read");
            }
            used->write_epoch = now;
            used->write_sync = sync;
            used->writer = self;
            continue;
        }
        if (is_read && used->reader == MANY) continue;
        if (is_read && warp_of_reader(*used) != warp) {
            used->reader = MANY;
            continue;
        }
        bool unordered = is_read && used->read_sync == sync;
        used->read_epoch = now;
        if (USE == Use::read) {
            used->reader = unordered && used->reader != self ? OF_WARP | warp : self;
            used->read_sync = sync;
        } else if (!unordered) {
            // Ordered before all later accesses of the warp, as by `__syncwarp`.
            used->reader = self;
            used->read_sync = sync - 1;
        }
    }
}

// Inlined into the hooks, because most accesses are to other memory.
template <Use USE>
__attribute__((always_inline)) static inline void note(const void* address, size_t bytes) {
    if (!current || bytes < 2) return;
    for (const Region& region : regions) {
        size_t offset = reinterpret_cast<uintptr_t>(address) - region.start;
        if (offset < region.bytes) return note_shared<USE>(region, offset, bytes);
    }
}

}  // namespace meshwright_host

#define MESHWRIGHT_HOOK(name, parameters) extern "C" void name parameters
#define MESHWRIGHT_NOTE(name, use, bytes) \
    MESHWRIGHT_HOOK(name, (void* at)) { meshwright_host::note<meshwright_host::Use::use>(at, bytes); }
#define MESHWRIGHT_ACCESS(bytes)                                \
    MESHWRIGHT_NOTE(__tsan_read##bytes, read, bytes)            \
    MESHWRIGHT_NOTE(__tsan_write##bytes, write, bytes)          \
    MESHWRIGHT_NOTE(__tsan_unaligned_read##bytes, read, bytes)  \
    MESHWRIGHT_NOTE(__tsan_unaligned_write##bytes, write, bytes)
MESHWRIGHT_ACCESS(1)
MESHWRIGHT_ACCESS(2)
MESHWRIGHT_ACCESS(4)
MESHWRIGHT_ACCESS(8)
MESHWRIGHT_ACCESS(16)
MESHWRIGHT_HOOK(__tsan_read_range, (void* at, size_t bytes)) {
    meshwright_host::note<meshwright_host::Use::read>(at, bytes);
}
MESHWRIGHT_HOOK(__tsan_write_range, (void* at, size_t bytes)) {
    meshwright_host::note<meshwright_host::Use::write>(at, bytes);
}
MESHWRIGHT_HOOK(__tsan_func_entry, (void*)) {}
MESHWRIGHT_HOOK(__tsan_func_exit, ()) {}
MESHWRIGHT_HOOK(__tsan_init, ()) {}
#undef MESHWRIGHT_ACCESS
#undef MESHWRIGHT_NOTE
#undef MESHWRIGHT_HOOK
