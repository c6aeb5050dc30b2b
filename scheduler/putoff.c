#include "putoff.h"

#include "park.h"
#include "place.h"
#include "sys.h"

#include <string.h>
#include <ucontext.h>

/* A kick makes a running thread look at what is pending for it. The kernel lets a thread send SI_TKILL to itself only, and
 * leaves si_errno alone. */
#define KICK 0x76746b
/* What was pending for a thread and is on its way to it through the kernel. */
#define TAKEN 0x76746c

static bool is_kick(const siginfo_t *info)
{
    return info->si_code == SI_QUEUE && info->si_errno == KICK;
}

bool vt_signal_put_off(int sig, const siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    if (!t || atomic_load_explicit(&t->crit, memory_order_relaxed) == 0)
        return false;
    /* What an instruction of the section itself raised cannot wait. */
    if (info->si_code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP))
        return false;
    ucontext_t *uc = context;
    uint64_t bit = UINT64_C(1) << (sig - 1);
    struct vt_carrier *c = t->carrier;
    if (!c && !atomic_load_explicit(&t->deferred, memory_order_relaxed)) /* the first of several knows the mask */
        t->sigmask = *(uint64_t *)(void *)&uc->uc_sigmask;
    /* Blocked on return from this handler; for the thread until it leaves its section, for a carrier until it mounts a
     * thread that takes the signal. */
    *(uint64_t *)(void *)&uc->uc_sigmask |= bit;
    if (c)
        c->kernel_mask |= bit;
    atomic_store_explicit(&t->deferred, bit, memory_order_relaxed);
    if (is_kick(info))
        return true; /* what it stands for is noted in the thread that it was meant for */
    if (c && !atomic_load_explicit(&c->mounted, memory_order_relaxed))
        /* No thread of the program is here: any other may have it. From whom it came is lost; the kernel lets nobody say. */
        vt_sys2(SYS_kill, vt_sys0(SYS_getpid), sig);
    else
        vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), sig, (long)info);
    return true;
}

void vt_signal_describe(struct vt_thread *t, int sig, siginfo_t *info)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    memset(info, 0, sizeof *info);
    info->si_signo = sig;
    info->si_code = SI_TKILL;
    info->si_pid = (pid_t)vt_sys0(SYS_getpid);
    info->si_uid = (uid_t)vt_sys0(SYS_getuid);
    if (atomic_fetch_and_explicit(&t->valued, ~bit, memory_order_acq_rel) & bit) {
        info->si_code = SI_QUEUE;
        info->si_value.sival_ptr = (void *)(uintptr_t)atomic_load_explicit(&t->value, memory_order_relaxed);
    }
}

static void kick(struct vt_carrier *c, int sig)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = SI_QUEUE;
    info.si_errno = KICK;
    vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), c->tid, sig, (long)&info);
}

int vt_signal_queue(struct vt_thread *t, int sig, uint64_t value)
{
    atomic_store_explicit(&t->value, value, memory_order_relaxed);
    atomic_fetch_or_explicit(&t->valued, UINT64_C(1) << (sig - 1), memory_order_release);
    return vt_signal_send(t, sig);
}

int vt_signal_send(struct vt_thread *t, int sig)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    atomic_fetch_or_explicit(&t->pending, bit, memory_order_seq_cst);
    /* One that waits in sigwait has said so before it has looked at pending. */
    if (atomic_load_explicit(&t->awaited, memory_order_seq_cst) & bit) {
        kick(t->carrier, sig);
        return 0;
    }
    if (t->sigmask & bit)
        return 0;
    atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
    if (t == vt_self) {
        vt_enter();
        vt_leave(t);
        return 0;
    }
    vt_unblock(t);
    /* If it runs and enters no section the kernel must interrupt it. It may have left the carrier when the signal comes,
     * and then takes the signal on leaving its next section. */
    struct vt_carrier *c = t->carrier;
    if (c && atomic_load_explicit(&c->mounted, memory_order_acquire) == t)
        kick(c, sig);
    return 0;
}

bool vt_signal_mine(int sig, siginfo_t *info)
{
    struct vt_thread *t = vt_self;
    uint64_t bit = UINT64_C(1) << (sig - 1);
    bool ours = info->si_errno == TAKEN && info->si_code <= 0;
    if (!ours && !is_kick(info))
        return true;
    bool taken = t && (atomic_fetch_and_explicit(&t->taken, ~bit, memory_order_relaxed) & bit);
    if (ours) {
        info->si_errno = 0;
        return taken; /* a kick that came just before it may have stood for it */
    }
    /* Of an ordinary signal the kernel keeps one only: what was delivered while a kick was pending has become that kick. */
    if (!taken && (!t || !(atomic_fetch_and_explicit(&t->pending, ~bit, memory_order_acq_rel) & bit)))
        return false;
    vt_signal_describe(t, sig, info);
    return true;
}

void vt_signal_mask_is(uint64_t set)
{
    struct vt_thread *t = vt_enter();
    t->sigmask = set;
    if (t->carrier)
        t->carrier->kernel_mask = set;
    /* seq_cst: whoever makes a signal pending does so before looking at the mask. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&t->pending, memory_order_relaxed) & ~set)
        atomic_store_explicit(&t->deferred, 1, memory_order_relaxed);
    vt_leave(t);
}

/* To the calling kernel thread, which runs t: its handler runs before this returns, or as soon as the kernel lets it in. */
static void deliver(struct vt_thread *t, int sig)
{
    siginfo_t info;
    vt_signal_describe(t, sig, &info);
    info.si_errno = TAKEN;
    atomic_fetch_or_explicit(&t->taken, UINT64_C(1) << (sig - 1), memory_order_relaxed);
    vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), sig, (long)&info);
}

static void take_pending(struct vt_thread *t)
{
    uint64_t take = atomic_load_explicit(&t->pending, memory_order_seq_cst) & ~t->sigmask;
    for (int sig = 1; take && sig <= 64; sig++) {
        uint64_t bit = UINT64_C(1) << (sig - 1);
        if ((take & bit) && (atomic_fetch_and_explicit(&t->pending, ~bit, memory_order_acq_rel) & bit))
            deliver(t, sig);
    }
}

void vt_put_off(struct vt_thread *t)
{
    atomic_store_explicit(&t->deferred, 0, memory_order_seq_cst);
    struct vt_carrier *c = t->carrier;
    if (c)
        c->kernel_mask = t->sigmask;
    vt_sys_sigmask(t->sigmask);
    take_pending(t);
}

void vt_signal_returns(uint64_t set)
{
    struct vt_thread *t = vt_self;
    do {
        t->sigmask = set;
        t->carrier->kernel_mask = set;
        atomic_thread_fence(memory_order_seq_cst); /* as in vt_signal_mask_is */
        /* What came during the handler and was blocked by it stays so until the kernel sets the mask. */
        take_pending(t);
    } while (t->sigmask != set); /* another handler has run here */
}

void vt_set_alt_stack(struct vt_carrier *c, struct vt_thread *t)
{
    stack_t ss = {.ss_sp = t->alt_stack, .ss_size = t->alt_size, .ss_flags = t->alt_stack ? 0 : SS_DISABLE};
    /* EPERM while the stack being left is the alternate one: tried again at the next mount. */
    c->alt_stack = vt_sys2(SYS_sigaltstack, (long)&ss, 0) == 0 ? t->alt_stack : NULL;
}
