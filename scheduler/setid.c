#include "setid.h"

#include "bound.h"
#include "kstack.h"
#include "place.h"
#include "sys.h"
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

/* The kernel's struct sigaction (include/linux/signal_types.h): libc hides this signal from its own functions. */
struct action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* In si_errno: no thread changes its ids, but the one that runs here is asked to look round. */
#define KICK 0x76746d

static void (*libc_handler)(int, siginfo_t *, void *);

/* Who is in libc's handler, so that it may abort: one of the program's threads or a carrier, or another thread of ours. */
static __thread enum { NOBODY, CARRIER, HELPER } aborting __attribute__((tls_model("initial-exec")));

/* Where libc finds that not all threads got the same answer it aborts here, maybe in the midst of a section: the program's
 * handler for SIGABRT runs as on a kernel thread that the scheduler does not know. Newer releases of libc do not let the signal
 * in. By a call, so that the variables are those of the TCB which is set now. */
static __attribute__((noinline)) void unknown_calls_libc(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *self = vt_self;
    struct action act = {0};
    uint64_t set = UINT64_C(1) << (SIGABRT - 1);
    vt_sys4(SYS_rt_sigaction, SIGABRT, 0, (long)&act, sizeof act.mask);
    bool handled = (void *)act.handler != (void *)SIG_DFL && (void *)act.handler != (void *)SIG_IGN;
    vt_self = NULL;
    if (handled) {
        aborting = self || !vt_kstack_here() ? CARRIER : HELPER;
        vt_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&set, 0, sizeof set);
    }
    libc_handler(sig, info, context);
    if (handled)
        vt_sys4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
    aborting = NOBODY;
    vt_self = self;
}

bool vt_setid_aborts(const siginfo_t *info)
{
    if (aborting == NOBODY)
        return true;
    if (info->si_code != SI_TKILL)
        return false;
    while (aborting == HELPER)
        vt_sys0(SYS_pause);
    return true;
}

/* All signals are blocked, so that no other handler runs with the carrier's TCB. */
static void on_setxid(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    if (info->si_code == SI_QUEUE && info->si_errno == KICK) {
        int saved = errno;
        if (t && t->kind != VT_KERNEL && atomic_load_explicit(&t->crit, memory_order_relaxed) == 0) {
            /* As it was before this handler: what comes next may run on another kernel thread, and this one others. */
            vt_sys_sigmask(t->sigmask);
            vt_bind_if_asked(t);
        }
        errno = saved;
        return;
    }
    void *tp = vt_arch_tp(), *own = t && t->kind != VT_KERNEL && t->carrier ? t->carrier->tp : tp;
    if (own != tp)
        vt_arch_set_tp(own);
    unknown_calls_libc(sig, info, context);
    if (own != tp)
        vt_arch_set_tp(tp);
}

void vt_setid_start(void)
{
    struct action act = {0};
    if (vt_sys4(SYS_rt_sigaction, VT_SIGSETXID, 0, (long)&act, sizeof act.mask) != 0 || !act.handler ||
        act.handler == on_setxid)
        return;
    libc_handler = act.handler;
    act.handler = on_setxid;
    act.mask = UINT64_MAX;
    vt_sys4(SYS_rt_sigaction, VT_SIGSETXID, (long)&act, 0, sizeof act.mask);
}

void vt_setid_kick(pid_t tid)
{
    siginfo_t info;
    if (!libc_handler)
        return;
    memset(&info, 0, sizeof info);
    info.si_signo = VT_SIGSETXID;
    info.si_code = SI_QUEUE;
    info.si_errno = KICK;
    vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), tid, VT_SIGSETXID, (long)&info);
}
