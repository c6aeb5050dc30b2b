#include "putoff.h"

#include "place.h"
#include "sys.h"

#include <ucontext.h>

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
    if (!c)
        t->sigmask = *(uint64_t *)(void *)&uc->uc_sigmask;
    /* Blocked on return from this handler; for the thread until it leaves its section, for a carrier until it mounts a
     * thread that takes the signal. */
    *(uint64_t *)(void *)&uc->uc_sigmask |= bit;
    if (c)
        c->kernel_mask |= bit;
    atomic_store_explicit(&t->deferred, bit, memory_order_relaxed);
    long pid = vt_sys0(SYS_getpid);
    if (info->si_code == SI_TKILL)
        vt_sys4(SYS_rt_tgsigqueueinfo, pid, vt_sys0(SYS_gettid), sig, (long)info);
    else
        vt_sys3(SYS_rt_sigqueueinfo, pid, sig, (long)info);
    return true;
}

void vt_put_off(struct vt_thread *t)
{
    atomic_store_explicit(&t->deferred, 0, memory_order_relaxed);
    if (t->carrier)
        t->carrier->kernel_mask = t->sigmask;
    vt_sys_sigmask(t->sigmask);
}
