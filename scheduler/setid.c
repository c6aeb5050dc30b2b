#include "setid.h"

#include "place.h"
#include "sys.h"
#include "thread.h"

#include <signal.h>
#include <stddef.h>

/* The kernel's struct sigaction (include/linux/signal_types.h): libc hides this signal from its own functions. */
struct action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static void (*libc_handler)(int, siginfo_t *, void *);

/* All signals are blocked, so that no other handler runs with the carrier's TCB. */
static void on_setxid(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    void *tp = vt_arch_tp(), *own = t && t->kind == VT_VIRTUAL && t->carrier ? t->carrier->tp : tp;
    if (own != tp)
        vt_arch_set_tp(own);
    libc_handler(sig, info, context);
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
