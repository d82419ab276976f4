// A fiber simulates a thread of a block: a stack and the address to resume at.
namespace meshwright_host {

#if defined(__x86_64__)

struct Context {
    void* stack_pointer;
};

// Pushes the callee-saved registers, stores the stack pointer to `from`, and resumes the stack stored in `to`.
extern "C" void meshwright_switch(void** from, void* to);
asm(R"(
.text
.hidden meshwright_switch
.globl meshwright_switch
.type meshwright_switch, @function
meshwright_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size meshwright_switch, . - meshwright_switch
)");

__attribute__((always_inline)) static inline void switch_context(Context& from, Context& to) {
    meshwright_switch(&from.stack_pointer, to.stack_pointer);
}

// The first switch to `context` calls `entry`, which must not return.
static inline void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
    void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15));
    // The stack as after a call: the (absent) return address is 8 bytes above a multiple of 16.
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    context.stack_pointer = top;
}

#else

}  // namespace meshwright_host
#include <ucontext.h>
namespace meshwright_host {

struct Context {
    ucontext_t state;
};

static inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

// The first switch to `context` calls `entry`, which must not return.
static inline void prepare_context(Context& context, char* stack, size_t bytes, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = bytes;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}

#endif

}  // namespace meshwright_host
