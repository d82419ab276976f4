// Entry points of the compiler's sanitizers. Sources are compiled with them, so that a misaligned address or an index
// beyond an array is detected where it is used.

namespace meshwright_host {

// Memory layout as defined by the compiler.
struct SourceLocation {
    const char* file;
    uint32_t line, column;
};

struct TypeMismatch {
    SourceLocation place;
    const void* type;
    unsigned char log_alignment, kind;
};

struct OutOfBounds {
    SourceLocation place;
    const void *array, *index;
};

struct ShiftOutOfBounds {
    SourceLocation place;
    const void *left, *right;
};

}  // namespace meshwright_host

extern "C" void __ubsan_handle_type_mismatch_v1(
    meshwright_host::TypeMismatch* data, uintptr_t address) {
    meshwright_host::fail("%s:%u: address %#llx is not aligned to %u bytes", data->place.file, data->place.line,
                          static_cast<unsigned long long>(address), 1u << data->log_alignment);
}
extern "C" void __ubsan_handle_out_of_bounds(meshwright_host::OutOfBounds* data,
                                                                                    uintptr_t index) {
    meshwright_host::fail("%s:%u: index %lld is not in the array", data->place.file, data->place.line,
                          static_cast<long long>(index));
}
extern "C" void __ubsan_handle_shift_out_of_bounds(
    meshwright_host::ShiftOutOfBounds* data, uintptr_t, uintptr_t by) {
    meshwright_host::fail("%s:%u: a shift by %lld places", data->place.file, data->place.line,
                          static_cast<long long>(by));
}

// Continuation of a thread that has accessed invalid memory: see `fault.rs`.
extern "C" __attribute__((visibility("default"))) void meshwright_fault(uintptr_t address) {
    meshwright_host::launch->fault_address = address;
    meshwright_host::fail("used address %#llx", static_cast<unsigned long long>(address));
    abort();
}
