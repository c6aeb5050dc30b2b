#include "cancel.h"

#include "life.h"
#include "monitor.h"
#include "park.h"
#include "place.h"
#include "putoff.h"
#include "real.h"
#include "sys.h"
#include "tcb.h"
#include "undo.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* The kernel's struct sigaction (include/linux/signal_types.h): libc hides this signal from its own
 * functions. */
struct action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static void (*_Atomic libc_handler)(int, siginfo_t *, void *);

void vt_cancel_at_any_time(struct vt_thread *t)
{
    if (!(atomic_load_explicit(&t->interrupt, memory_order_acquire) & VT_CANCELLED) || t->shielded)
        return;
    atomic_int *word = vt_tcb_cancelhandling(t->tp);
    int now = atomic_load(word);
    if ((now & VT_TCB_CANCELED) && !(now & VT_TCB_ANY_TIME))
        return;
    if (!(now & (VT_TCB_CANCELED | VT_TCB_CANCELING | VT_TCB_ANY_TIME)))
        return; /* not by libc */
    if (t->lent) {
        t->lent = false;
        vt_sys_sigmask(t->own_mask);
        vt_signal_mask_is(t->own_mask);
    }
    if (!(now & VT_TCB_CANCELED)) {
        /* Where libc finds the type "at any time" it leaves the rest to its handler. */
        vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), VT_SIGCANCEL);
        return;
    }
    vt_undo_all();
    vt_real(pthread_testcancel)(); /* returns if it is disabled, or under way */
}

static void on_cancel(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    int saved = errno;
    if (t && t->carrier) {
        if (t == &t->carrier->self || vt_in_loop(t))
            return; /* the thread that it was for has left; it looks when it leaves its section */
        if (atomic_load_explicit(&t->crit, memory_order_relaxed) != 0 || t->lent || t->shielded) {
            atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
            return;
        }
        /* libc's handler takes whom it finds for cancelled: it may have been for a thread that was here
         * before. */
        if (!(atomic_load_explicit(&t->interrupt, memory_order_acquire) & VT_CANCELLED))
            return;
        if (t->in_call) {
            if (vt_arch_call_done(context))
                return; /* it has a result, which is not to be lost */
            t->in_call = false;
            vt_undo_all();
            vt_real(pthread_testcancel)();
            t->in_call = true; /* it is disabled, or under way */
            errno = saved;
            return;
        }
    } else if (t && vt_signal_put_off(sig, info, context)) {
        return;
    }
    vt_undo_all();
    /* In a call of libc's that blocks it does not return. */
    atomic_load (&libc_handler)(sig, info, context);
    errno = saved;
}

/* Unlike libc's our handler does not block the signal: it leaves by unwinding, and the kernel thread goes on
 * to run others. */
void vt_cancel_start(void)
{
    struct action act = {0};
    if (atomic_load_explicit(&libc_handler, memory_order_acquire) ||
        vt_sys4(SYS_rt_sigaction, VT_SIGCANCEL, 0, (long)&act, sizeof act.mask) != 0 || !act.handler ||
        act.handler == on_cancel)
        return;
    atomic_store_explicit(&libc_handler, act.handler, memory_order_release);
    act.handler = on_cancel;
    act.flags |= SA_NODEFER;
    vt_sys4(SYS_rt_sigaction, VT_SIGCANCEL, (long)&act, 0, sizeof act.mask);
}

void vt_cancel(struct vt_thread *t)
{
    atomic_fetch_or_explicit(&t->interrupt, VT_CANCELLED, memory_order_seq_cst);
    int word = atomic_load(vt_tcb_cancelhandling(t->tp));
    /* As libc saw it, or as it is by now. */
    bool any_time = (word & VT_TCB_ANY_TIME) || !(word & VT_TCB_CANCELED);
    if (any_time)
        atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
    vt_unblock(t);
    if (t == vt_self)
        return;
    if (vt_came_by_fork(t))
        vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), t->tid, VT_SIGCANCEL);
    /* Either it finds deferred when it leaves the section that it was mounted in, or it is seen to be
     * mounted. */
    if (any_time)
        vt_barrier_all();
    /* One that runs outside sections, or is in a call of libc's on a carrier of its own, gets libc's signal.
     */
    struct vt_carrier *c = t->carrier;
    if (c && atomic_load_explicit(&c->mounted, memory_order_acquire) == t &&
        (t->wait_what || t->kind == VT_BOUND || any_time) && !(word & VT_TCB_DISABLED)) /* would end the call with EINTR */
        vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), c->tid, VT_SIGCANCEL);
}

void vt_cancel_kernel(void *tp)
{
    /* The same distance from each thread pointer: static TLS. */
    ptrdiff_t at = (char *)&vt_self - (char *)vt_arch_tp();
    struct vt_thread *t = *(struct vt_thread *volatile *)((char *)tp + at);
    /* One without a descriptor looks at libc's word when it gets one (vt_adopt). */
    if (!t || !atomic_load_explicit(&t->adopted, memory_order_acquire))
        return;
    atomic_fetch_or_explicit(&t->interrupt, VT_CANCELLED, memory_order_seq_cst);
    vt_unblock(t);
}
