/*
 * Machine layer: contexts and the thread pointer. Knows no scheduler.
 *
 * A context is a flow of control with a stack of its own. While it runs, its state is in the processor; while
 * it does not, all of it is on its stack and `sp` says where. A context has one owner at a time: whoever
 * switches to it must know that the switch away from it has returned on the other side (the switch stores
 * `sp` before it leaves the old stack, but goes on using that stack for some instructions after).
 *
 * Carried over a switch: callee-saved registers, MXCSR, x87 control word and exception flags, thread pointer.
 * Not carried, as the psABI lets a call destroy it: everything else. Not carried although a kernel thread has
 * its own: the signal mask (arch generic carries it) and PKRU.
 *
 * User shadow stacks are not switched. The objects of this layer therefore do not carry the SHSTK property,
 * and the C library does not enable them in a process that loads the library at start.
 */
#ifndef VT_ARCH_H
#define VT_ARCH_H

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(hidden)

/* The saved state of a context that is not running; everything else is on its stack. */
struct vt_context {
    void *sp;
};

/* "x86_64" or "generic". */
extern const char *const vt_arch_name;

/* Whether a switch brings back the signal mask that the context was left with, whatever the kernel thread's is. */
extern const bool vt_arch_carries_mask;

/*
 * Chooses how the thread pointer is set (wrfsbase where the kernel allows it, else arch_prctl). Call once,
 * before the second kernel thread that switches; everything works before it, but by the slow way. Returns 0.
 * Any thread.
 */
int vt_arch_init(void);

/*
 * Makes a context that calls entry(arg) when first switched to, on the stack [stack_lo, stack_hi). `entry`
 * must not return. Its caller is the end of the stack for unwinders and debuggers: an undefined return
 * address in the call frame information, and frame pointer 0. MXCSR and x87 control word and flags are those
 * of the calling thread, as pthread_create requires (POSIX: the floating-point environment is inherited). Any
 * thread; the stack must stay until the context is never switched to again. At least VT_CONTEXT_MIN_STACK
 * bytes, to which `entry`'s needs come on top.
 */
void vt_context_make(struct vt_context *c, void *stack_lo, void *stack_hi, void (*entry)(void *), void *arg);

#define VT_CONTEXT_MIN_STACK 2048

/*
 * Leaves the running context, which becomes `save`, for `load`, and sets the thread pointer to `tp`. Returns
 * when something switches to `save`, perhaps on another kernel thread. A signal handler that runs in the
 * midst of it may see the stack of one context and the thread pointer of the other.
 */
static inline void vt_context_switch(struct vt_context *save, const struct vt_context *load, void *tp);

/*
 * The registers of a context that does not run, as if it had just returned from vt_context_switch: rip, rsp,
 * rbp, rbx, r12 to r15, MXCSR and x87 control word; the rest is 0. Good for unw_init_local2() and the like,
 * not for setcontext(). The context must stay parked meanwhile. Any thread; async-signal-safe.
 */
void vt_context_export(const struct vt_context *c, ucontext_t *uc);

/*
 * For who reads a context from outside: where rip, rsp, rbp, rbx, r12, r13, r14, r15 of one that does not run are,
 * from `sp`. Where the second is negative, rsp is not saved: it is `sp` less that number. And a pointer to the
 * function that is outermost on every stack of vt_context_make.
 */
enum { VT_SAVED_REGISTERS = 8 };
extern const int32_t vt_arch_saved[VT_SAVED_REGISTERS];
extern const void *const vt_arch_outermost;

/* Sets the thread pointer of the calling kernel thread. */
void vt_arch_set_tp(void *tp);

/* The thread pointer of the calling kernel thread. */
static inline void *vt_arch_tp(void);

/* Whether a signal's handler has interrupted its thread right behind a system call that has a result other than an error: the
 * context is the handler's third argument. */
bool vt_arch_call_done(const void *context);

/* Says to the processor that this is a spinning loop. */
static inline void vt_cpu_relax(void);

#if !defined(__x86_64__)
#error "only x86-64 so far"
#endif

/* Never called directly. A pointer, so that the choice of vt_arch_init costs no branch. */
extern void (*vt_context_switch_fn)(struct vt_context *save, const struct vt_context *load, void *tp);

static inline void vt_context_switch(struct vt_context *save, const struct vt_context *load, void *tp)
{
    vt_context_switch_fn(save, load, tp);
}

static inline void *vt_arch_tp(void)
{
    void *tp;

    /*
     * The word at the thread pointer is its own address (ELF TLS psABI for x86-64). Volatile: the value
     * changes when a flow of control moves, and two reads must not be made one.
     */
    __asm__ volatile("movq %%fs:0, %0" : "=r"(tp));
    return tp;
}

static inline void vt_cpu_relax(void)
{
    __builtin_ia32_pause();
}

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
