/*
 * Contexts by makecontext and swapcontext, for machines without assembly here and as a yardstick for those
 * with. Slow: swapcontext makes a system call for the signal mask, which a context therefore carries.
 */
#include "../arch.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#include <asm/prctl.h>
#else
#error "no way to set the thread pointer"
#endif

const char *const vt_arch_name = "generic";
const bool vt_arch_carries_mask = true; /* swapcontext does */

int vt_arch_init(void)
{
    return 0;
}

void vt_arch_set_tp(void *tp)
{
    long ret;

    /* The raw system call: the C library's wrapper could touch errno, which is reached by the thread pointer.
     */
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"((long)SYS_arch_prctl), "D"((long)ARCH_SET_FS), "S"(tp)
                     : "rcx", "r11", "memory");
    (void)ret;
}

/* Nothing is known of the machine: as if it were under way, which is what libc takes it for. */
bool vt_arch_call_done(const void *context)
{
    (void)context;
    return false;
}

/* What a new context needs, at the top of its stack. */
struct start {
    ucontext_t uc;
    void (*entry)(void *);
    void *arg;
};

/* makecontext passes ints only (POSIX), so the pointer comes in two. */
static void start_context(unsigned int hi, unsigned int lo)
{
    struct start *s = (struct start *)((uintptr_t)hi << 32 | lo); /* NOLINT(performance-no-int-to-ptr) */

    s->entry(s->arg);
    __builtin_trap();
}

#define SAVED(reg) offsetof(ucontext_t, uc_mcontext.gregs[reg])
const int32_t vt_arch_saved[VT_SAVED_REGISTERS] = {SAVED(REG_RIP), SAVED(REG_RSP), SAVED(REG_RBP), SAVED(REG_RBX),
                                                   SAVED(REG_R12), SAVED(REG_R13), SAVED(REG_R14), SAVED(REG_R15)};
const void *const vt_arch_outermost = (const void *)start_context;

void vt_context_make(struct vt_context *c, void *stack_lo, void *stack_hi, void (*entry)(void *), void *arg)
{
    struct start *s = (struct start *)((char *)stack_hi - (uintptr_t)stack_hi % 64) - 1;
    uintptr_t p = (uintptr_t)s;

    /* Fails only for a bad address. */
    if (getcontext(&s->uc))
        __builtin_trap();
    s->uc.uc_stack.ss_sp = stack_lo;
    s->uc.uc_stack.ss_size = p - (uintptr_t)stack_lo;
    s->uc.uc_link = NULL;
    s->entry = entry;
    s->arg = arg;
    makecontext(&s->uc, (void (*)(void))start_context, 2, (unsigned int)(p >> 32), (unsigned int)p);
    /* makecontext leaves the creator's frame pointer; a chain of frame pointers must end here. */
    s->uc.uc_mcontext.gregs[REG_RBP] = 0;
    c->sp = &s->uc;
}

static void context_switch(struct vt_context *save, const struct vt_context *load, void *tp)
{
    ucontext_t self;

    save->sp = &self;
    if (tp != vt_arch_tp())
        vt_arch_set_tp(tp);
    if (swapcontext(&self, load->sp))
        __builtin_trap();
}

void (*vt_context_switch_fn)(struct vt_context *, const struct vt_context *, void *) = context_switch;

void vt_context_export(const struct vt_context *c, ucontext_t *uc)
{
    const ucontext_t *from = c->sp;

    memcpy(uc, from, sizeof(*uc));
    uc->uc_mcontext.fpregs = &uc->__fpregs_mem;
}
