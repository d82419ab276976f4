// Finds threads of a block that use the same shared memory, one of them to write, with no barrier between them.
//
// The sources are compiled with the instrumentation that the compiler has for a detector of races; what it calls for every
// access is here. Order is made by block barriers, and between lanes of a warp by `__syncwarp`; shuffles and votes make
// none. Atomic operations, and accesses of single bytes, are not looked at.
namespace meshwright_host {

// The last uses of two bytes. They count while no block barrier has come since, and within a warp no `__syncwarp`.
struct Uses {
    uint32_t write_epoch, write_sync, read_epoch, read_sync;
    uint16_t writer, reader;
};

// Readers of several warps, or of the warp in the lower bits.
constexpr uint16_t MANY = 0xffff, OF_WARP = 0x8000;

// Of dynamic and of static shared memory.
static Uses* uses[2];
static size_t n_uses[2];

static void prepare_races() {
    size_t bytes[2] = {launch->dynamic_shared_bytes, 0};
    if (__start_meshwright_shared) bytes[1] = __stop_meshwright_shared - __start_meshwright_shared;
    for (int region = 0; region < 2; region++) {
        size_t n = bytes[region] / 2 + 1;
        if (n <= n_uses[region]) continue;
        free(uses[region]);
        uses[region] = static_cast<Uses*>(calloc(n, sizeof(Uses)));
        n_uses[region] = uses[region] ? n : 0;
    }
}

UNCHECKED static void race(const char* does, const char* others, uint32_t other, const char* did) {
    fail("a race in shared memory: after its barrier at line %d this thread %s what %s %u %s, and no barrier orders them",
         current->line, does, others, other, did);
}

// What is done to memory: by one thread, or read by an instruction that all lanes of a warp go through together, so that
// none of them can do anything later before it.
enum class Use { read, write, warp_read };

UNCHECKED static void note(const void* address, size_t bytes, Use use) {
    if (!current || bytes < 2) return;
    size_t offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(launch->dynamic_shared);
    int region = 0;
    if (offset >= launch->dynamic_shared_bytes) {
        offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(__start_meshwright_shared);
        region = 1;
        if (offset >= static_cast<size_t>(__stop_meshwright_shared - __start_meshwright_shared)) return;
    }
    uint16_t self = static_cast<uint16_t>(current->index), warp = self / 32;
    uint32_t sync = warps[warp].syncs;
    for (size_t i = offset / 2; i < (offset + bytes) / 2 && i < n_uses[region]; i++) {
        Uses& used = uses[region][i];
        bool written = used.write_epoch == epoch && (used.writer != self || use == Use::warp_read);
        if (written && (used.writer / 32 != warp || used.write_sync == sync)) {
            race(use == Use::write ? "writes" : "reads", "thread", used.writer, "has written");
        }
        bool is_read = used.read_epoch == epoch;
        uint16_t of = used.reader & OF_WARP ? used.reader & ~OF_WARP : used.reader / 32;
        bool here = used.reader != MANY && of == warp, unordered = here && used.read_sync == sync;
        if (use == Use::write) {
            if (is_read && used.reader != self && (!here || unordered)) {
                bool several = used.reader == MANY, one = !(used.reader & OF_WARP);
                race("writes", one ? "thread" : several ? "a thread other than" : "a lane of warp",
                     one ? used.reader : several ? self : of, "has read");
            }
            used.write_epoch = epoch;
            used.write_sync = sync;
            used.writer = self;
            continue;
        }
        used.read_epoch = epoch;
        if (is_read && !here) {
            used.reader = MANY;
        } else if (use == Use::read) {
            used.reader = is_read && unordered && used.reader != self ? OF_WARP | warp : self;
            used.read_sync = sync;
        } else if (!(is_read && unordered)) {
            // Before whatever the warp does next, as if it had met since.
            used.reader = self;
            used.read_sync = sync - 1;
        }
    }
}

}  // namespace meshwright_host

#define MESHWRIGHT_HOOK(name, parameters) extern "C" __attribute__((visibility("hidden"))) UNCHECKED void name parameters
#define MESHWRIGHT_ACCESS(bytes)                                                                                         \
    MESHWRIGHT_HOOK(__tsan_read##bytes, (void* at)) { meshwright_host::note(at, bytes, meshwright_host::Use::read); }                         \
    MESHWRIGHT_HOOK(__tsan_write##bytes, (void* at)) { meshwright_host::note(at, bytes, meshwright_host::Use::write); }                         \
    MESHWRIGHT_HOOK(__tsan_unaligned_read##bytes, (void* at)) { meshwright_host::note(at, bytes, meshwright_host::Use::read); }               \
    MESHWRIGHT_HOOK(__tsan_unaligned_write##bytes, (void* at)) { meshwright_host::note(at, bytes, meshwright_host::Use::write); }
MESHWRIGHT_ACCESS(1)
MESHWRIGHT_ACCESS(2)
MESHWRIGHT_ACCESS(4)
MESHWRIGHT_ACCESS(8)
MESHWRIGHT_ACCESS(16)
MESHWRIGHT_HOOK(__tsan_read_range, (void* at, size_t bytes)) { meshwright_host::note(at, bytes, meshwright_host::Use::read); }
MESHWRIGHT_HOOK(__tsan_write_range, (void* at, size_t bytes)) { meshwright_host::note(at, bytes, meshwright_host::Use::write); }
MESHWRIGHT_HOOK(__tsan_func_entry, (void*)) {}
MESHWRIGHT_HOOK(__tsan_func_exit, ()) {}
MESHWRIGHT_HOOK(__tsan_init, ()) {}
#undef MESHWRIGHT_ACCESS
#undef MESHWRIGHT_HOOK
