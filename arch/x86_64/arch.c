#include "../arch.h"
#include "frame.h"

#include <asm/hwcap2.h>
#include <asm/prctl.h>
#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#pragma GCC visibility push(hidden)
void vt_x86_switch_fsgsbase(struct vt_context *save, const struct vt_context *load, void *tp);
void vt_x86_switch_prctl(struct vt_context *save, const struct vt_context *load, void *tp);
void vt_x86_start(void);
#pragma GCC visibility pop

struct frame {
    uint32_t mxcsr;
    uint16_t fcw;
    uint16_t fsw;
    uint64_t r15, r14, r13, r12, rbx, rbp, rip;
};

static_assert(offsetof(struct frame, mxcsr) == VT_FRAME_MXCSR, "frame");
static_assert(offsetof(struct frame, fcw) == VT_FRAME_FCW, "frame");
static_assert(offsetof(struct frame, fsw) == VT_FRAME_FSW, "frame");
static_assert(offsetof(struct frame, r15) == VT_FRAME_R15, "frame");
static_assert(offsetof(struct frame, r14) == VT_FRAME_R14, "frame");
static_assert(offsetof(struct frame, r13) == VT_FRAME_R13, "frame");
static_assert(offsetof(struct frame, r12) == VT_FRAME_R12, "frame");
static_assert(offsetof(struct frame, rbx) == VT_FRAME_RBX, "frame");
static_assert(offsetof(struct frame, rbp) == VT_FRAME_RBP, "frame");
static_assert(offsetof(struct frame, rip) == VT_FRAME_RIP, "frame");
static_assert(sizeof(struct frame) == VT_FRAME_SIZE, "frame");

const int32_t vt_arch_saved[VT_SAVED_REGISTERS] = {VT_FRAME_RIP, -VT_FRAME_SIZE, VT_FRAME_RBP, VT_FRAME_RBX,
                                                   VT_FRAME_R12, VT_FRAME_R13,   VT_FRAME_R14, VT_FRAME_R15};
const void *const vt_arch_outermost = (const void *)vt_x86_start;

const char *const vt_arch_name = "x86_64";
const bool vt_arch_carries_mask = false;

static void set_tp_prctl(void *tp)
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

static void set_tp_fsgsbase(void *tp)
{
    __asm__ volatile("wrfsbase %0" : : "r"(tp) : "memory");
}

void (*vt_context_switch_fn)(struct vt_context *, const struct vt_context *, void *) = vt_x86_switch_prctl;
static void (*set_tp)(void *) = set_tp_prctl;

int vt_arch_init(void)
{
    /* Linux Documentation/arch/x86/x86_64/fsgs.rst: cpuid is not enough, the kernel must have enabled it. */
    if (getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE) {
        set_tp = set_tp_fsgsbase;
        vt_context_switch_fn = vt_x86_switch_fsgsbase;
    }
    return 0;
}

void vt_arch_set_tp(void *tp)
{
    set_tp(tp);
}

bool vt_arch_call_done(const void *context)
{
    const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *pc = (const unsigned char *)(uintptr_t)regs[REG_RIP];
    /* The instruction is 0f 05. A call that is to be made again is interrupted before it. */
    bool again = pc[0] == 0x0f && pc[1] == 0x05, behind = pc[-2] == 0x0f && pc[-1] == 0x05;
    return behind && !again && (unsigned long)regs[REG_RAX] < -4095UL;
}

void vt_context_make(struct vt_context *c, void *stack_lo, void *stack_hi, void (*entry)(void *), void *arg)
{
    /*
     * vt_x86_start gets a stack pointer that is a multiple of 16, so that its call leaves it as the psABI
     * asks at a function's entry. Two zero words above it end a chain of frame pointers for unwinders that go
     * by rbp alone.
     */
    char *top = (char *)stack_hi - 16 - (uintptr_t)stack_hi % 16;
    struct frame *f = (struct frame *)top - 1;
    uint16_t fsw;

    (void)stack_lo;
    memset(top, 0, 16);
    memset(f, 0, sizeof(*f));
    __asm__("stmxcsr %0" : "=m"(f->mxcsr));
    __asm__("fnstcw %0" : "=m"(f->fcw));
    __asm__("fnstsw %0" : "=a"(fsw));
    f->fsw = fsw & VT_FSW_FLAGS;
    f->r12 = (uintptr_t)entry;
    f->r13 = (uintptr_t)arg;
    f->rip = (uintptr_t)vt_x86_start;
    c->sp = f;
}

void vt_context_export(const struct vt_context *c, ucontext_t *uc)
{
    const struct frame *f = c->sp;
    greg_t *g = uc->uc_mcontext.gregs;

    memset(uc, 0, sizeof(*uc));
    g[REG_RIP] = (greg_t)f->rip;
    g[REG_RSP] = (greg_t)(uintptr_t)(f + 1);
    g[REG_RBP] = (greg_t)f->rbp;
    g[REG_RBX] = (greg_t)f->rbx;
    g[REG_R12] = (greg_t)f->r12;
    g[REG_R13] = (greg_t)f->r13;
    g[REG_R14] = (greg_t)f->r14;
    g[REG_R15] = (greg_t)f->r15;
    uc->uc_mcontext.fpregs = &uc->__fpregs_mem;
    uc->__fpregs_mem.mxcsr = f->mxcsr;
    uc->__fpregs_mem.cwd = f->fcw;
    uc->__fpregs_mem.swd = f->fsw;
}
