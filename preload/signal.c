/* Handlers and masks. The kernel calls our handler in place of the program's: it keeps the program's from running inside
 * the scheduler, and sees to it that a signal for a virtual thread runs on that thread. */
#include "life.h"
#include "preload.h"
#include "putoff.h"
#include "place.h"
#include "real.h"
#include "start.h"
#include "sys.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

struct handler {
    _Atomic(void *) function;
    _Atomic int flags; /* the program's */
    _Atomic uint64_t mask;
};

static struct handler handlers[65];

static uint64_t to_bits(const sigset_t *set)
{
    uint64_t bits;
    memcpy(&bits, set, sizeof bits);
    return bits;
}

static void trampoline(int sig, siginfo_t *info, void *context)
{
    if (vt_signal_put_off(sig, info, context) || !vt_signal_mine(sig, info))
        return;
    const struct handler *h = &handlers[sig];
    void *function = atomic_load_explicit(&h->function, memory_order_acquire);
    int flags = atomic_load_explicit(&h->flags, memory_order_relaxed);
    struct vt_thread *t = vt_self;
    if (t && t->kind == VT_VIRTUAL) {
        /* As the kernel has done with its own mask: the thread may go on elsewhere in the midst of its handler. */
        uint64_t set = t->sigmask | atomic_load_explicit(&h->mask, memory_order_relaxed);
        if (!(flags & SA_NODEFER))
            set |= UINT64_C(1) << (sig - 1);
        vt_signal_mask_is(set);
    }
    if (flags & SA_SIGINFO)
        ((void (*)(int, siginfo_t *, void *))function)(sig, info, context);
    else
        ((void (*)(int))function)(sig);
    if (t)
        atomic_fetch_or_explicit(&t->interrupt, flags & SA_RESTART ? VT_SIGNALLED : VT_SIGNALLED | VT_NORESTART,
                                 memory_order_relaxed);
    if (t && t->kind == VT_VIRTUAL)
        vt_signal_returns(to_bits(&((ucontext_t *)context)->uc_sigmask));
}

VT_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    if (!vt_on() || sig < 1 || sig > 64)
        return vt_real(sigaction)(sig, act, old);
    struct handler *h = &handlers[sig];
    struct sigaction was, ours;
    void *old_function = atomic_load_explicit(&h->function, memory_order_relaxed);
    int old_flags = atomic_load_explicit(&h->flags, memory_order_relaxed);
    if (act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN) {
        ours = *act;
        ours.sa_sigaction = trampoline;
        ours.sa_flags |= SA_SIGINFO;
        /* Before the kernel knows: a signal in between finds the new handler a little early. */
        atomic_store_explicit(&h->flags, act->sa_flags, memory_order_relaxed);
        atomic_store_explicit(&h->mask, to_bits(&act->sa_mask), memory_order_relaxed);
        atomic_store_explicit(&h->function, (void *)act->sa_handler, memory_order_release);
        act = &ours;
    }
    int ret = vt_real(sigaction)(sig, act, &was);
    if (ret == 0 && old) {
        *old = was;
        if (was.sa_sigaction == trampoline) {
            old->sa_handler = (void (*)(int))old_function;
            if (!(old_flags & SA_SIGINFO))
                old->sa_flags &= ~SA_SIGINFO;
        }
    }
    return ret;
}

static void (*set_handler(int sig, void (*handler)(int), int flags))(int)
{
    struct sigaction act = {.sa_flags = flags}, old;
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    act.sa_handler = handler;
    sigemptyset(&act.sa_mask);
    if (!(flags & SA_NODEFER) && sig >= 1 && sig <= 64)
        sigaddset(&act.sa_mask, sig);
    return sigaction(sig, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

/* Signals for which siginterrupt has asked that calls be interrupted. */
static _Atomic uint64_t interrupting;

VT_EXPORT void (*signal(int sig, void (*handler)(int)))(int)
{
    bool interrupts = sig >= 1 && sig <= 64 &&
                      (atomic_load_explicit(&interrupting, memory_order_relaxed) >> (sig - 1) & 1) != 0;
    return vt_on() ? set_handler(sig, handler, interrupts ? 0 : SA_RESTART) : vt_real(signal)(sig, handler);
}

VT_EXPORT void (*bsd_signal(int sig, void (*handler)(int)))(int)
{
    return signal(sig, handler);
}

VT_EXPORT void (*ssignal(int sig, void (*handler)(int)))(int)
{
    return signal(sig, handler);
}

VT_EXPORT void (*__sysv_signal(int sig, void (*handler)(int)))(int)
{
    return vt_on() ? set_handler(sig, handler, SA_RESETHAND | SA_NODEFER) : vt_real(__sysv_signal)(sig, handler);
}

VT_EXPORT void (*sysv_signal(int sig, void (*handler)(int)))(int)
{
    return __sysv_signal(sig, handler);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
VT_EXPORT int siginterrupt(int sig, int interrupt)
{
    struct sigaction act;
    if (!vt_on())
        return vt_real(siginterrupt)(sig, interrupt);
    if (sigaction(sig, NULL, &act) < 0)
        return -1;
    uint64_t bit = UINT64_C(1) << (sig - 1);
    if (interrupt) {
        atomic_fetch_or(&interrupting, bit);
        act.sa_flags &= ~SA_RESTART;
    } else {
        atomic_fetch_and(&interrupting, ~bit);
        act.sa_flags |= SA_RESTART;
    }
    return sigaction(sig, &act, NULL);
}

#pragma GCC diagnostic pop

/* --- masks --------------------------------------------------------------------------------------------------------- */

/* 0 or an errno. The mask of a virtual thread is its own: its carrier's kernel mask follows it. */
static int change_mask(int how, const sigset_t *set, sigset_t *old)
{
    int err = vt_real(pthread_sigmask)(how, set, old);
    if (err == 0 && set && vt_is_virtual()) {
        uint64_t now = 0;
        vt_sys4(SYS_rt_sigprocmask, 0, 0, (long)&now, sizeof now);
        vt_signal_mask_is(now);
    }
    return err;
}

VT_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return change_mask(how, set, old);
}

VT_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    int err = change_mask(how, set, old);
    if (err)
        errno = err;
    return err ? -1 : 0;
}

VT_EXPORT int sigaltstack(const stack_t *ss, stack_t *old)
{
    int ret = vt_real(sigaltstack)(ss, old);
    if (ret == 0 && ss && vt_is_virtual()) {
        struct vt_thread *t = vt_enter();
        t->alt_stack = ss->ss_flags & SS_DISABLE ? NULL : ss->ss_sp;
        t->alt_size = ss->ss_size;
        t->carrier->alt_stack = t->alt_stack;
        vt_leave(t);
    }
    return ret;
}

/* --- sending --------------------------------------------------------------------------------------------------------- */

VT_EXPORT int pthread_kill(pthread_t thread, int sig)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_kill)(thread, sig);
    struct vt_thread *t = vt_of_handle(thread);
    if (!t)
        return ESRCH;
    if (sig < 0 || sig > 64 || sig == 32 || sig == 33) /* 32, 33: libc's own */
        return EINVAL;
    if (sig == 0 || !atomic_load_explicit(&t->alive, memory_order_acquire))
        return 0; /* glibc: no error for one that has ended and can be joined */
    return vt_signal_send(t, sig);
}

VT_EXPORT int pthread_sigqueue(pthread_t thread, int sig, const union sigval value)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_sigqueue)(thread, sig, value);
    struct vt_thread *t = vt_of_handle(thread);
    if (!t)
        return ESRCH;
    if (sig < 0 || sig > 64 || sig == 32 || sig == 33)
        return EINVAL;
    if (sig == 0 || !atomic_load_explicit(&t->alive, memory_order_acquire))
        return 0;
    return vt_signal_queue(t, sig, (uint64_t)(uintptr_t)value.sival_ptr);
}

VT_EXPORT int raise(int sig)
{
    if (!vt_is_virtual())
        return vt_real(raise)(sig);
    int err = pthread_kill(vt_self->handle, sig);
    if (err)
        errno = err;
    return err ? -1 : 0;
}

VT_EXPORT int tgkill(pid_t group, pid_t tid, int sig)
{
    struct vt_thread *t = vt_on() && group == (pid_t)vt_sys0(SYS_getpid) ? vt_by_tid((uint32_t)tid) : NULL;
    if (!t)
        return vt_real(tgkill)(group, tid, sig);
    int err = pthread_kill(t->handle, sig);
    if (err)
        errno = err;
    return err ? -1 : 0;
}
