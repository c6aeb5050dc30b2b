/* Handlers and masks. The kernel calls our handler in place of the program's: it keeps the program's from running inside
 * the scheduler, and sees to it that a signal for a virtual thread runs on that thread. */
#include "call.h"
#include "catcher.h"
#include "glibc.h"
#include "life.h"
#include "place.h"
#include "preload.h"
#include "putoff.h"
#include "real.h"
#include "start.h"
#include "sys.h"
#include "undo.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

struct handler {
    _Atomic(void *) function; /* NULL: the default */
    _Atomic int flags;        /* the program's */
    _Atomic uint64_t mask;
    _Atomic bool used; /* the program has had a handler: the trampoline is the kernel's action */
};

static struct handler handlers[65];

static uint64_t to_bits(const sigset_t *set)
{
    uint64_t bits;
    memcpy(&bits, set, sizeof bits);
    return bits;
}

/* Stay real defaults: they do nothing to a program that has not asked for them. */
static bool default_is_harmless(int sig)
{
    return sig == SIGCHLD || sig == SIGCONT || sig == SIGURG || sig == SIGWINCH;
}

static bool raised_by_instruction(int sig, const siginfo_t *info)
{
    return info->si_code > 0 &&
           (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP || sig == SIGSYS);
}

/* The signal has come to a program that has gone back to the default. It comes again when this handler returns, and does
 * what it does by default. */
static void by_default(int sig, siginfo_t *info)
{
    struct sigaction act = {.sa_flags = 0};
    act.sa_handler = SIG_DFL;
    vt_real(sigaction)(sig, &act, NULL);
    if (!raised_by_instruction(sig, info))
        vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), sig, (long)info);
}

/* What to call, NULL for the default. SA_RESETHAND is ours to do: the kernel would do it where the trampoline only puts the
 * signal off. */
static void *take_function(struct handler *h, int flags)
{
    void *function = atomic_load_explicit(&h->function, memory_order_acquire);
    while (function && (flags & SA_RESETHAND) &&
           !atomic_compare_exchange_weak_explicit(&h->function, &function, NULL, memory_order_acq_rel, memory_order_acquire))
        ;
    return function;
}

static void trampoline(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    ucontext_t *uc = context;
    if (vt_signal_put_off(sig, info, context))
        return;
    if (!vt_signal_mine(sig, info))
        return;
    struct handler *h = &handlers[sig];
    int flags = atomic_load_explicit(&h->flags, memory_order_relaxed);
    void *function = take_function(h, flags);
    uint64_t own = 0, kernel = 0, handling = 0;
    bool in_call = false;
    if (!function) {
        by_default(sig, info);
        return;
    }
    if (t && t->kind != VT_KERNEL) {
        /* To which it returns: the thread's mask, and the kernel's, which has more where this handler has interrupted another
         * before its first step or after its last. */
        own = t->lent ? t->own_mask : t->sigmask;
        kernel = t->lent ? t->own_mask : vt_signal_mask_before(to_bits(&uc->uc_sigmask));
        memcpy(&uc->uc_sigmask, &kernel, sizeof kernel);
        /* As the kernel has done with its own mask: the thread may go on elsewhere in the midst of its handler. */
        uint64_t set = t->sigmask | (t->lent ? 0 : kernel) | atomic_load_explicit(&h->mask, memory_order_relaxed);
        if (!(flags & SA_NODEFER))
            set |= UINT64_C(1) << (sig - 1);
        t->lent = false; /* for a wait, which this ends */
        handling = t->handling;
        in_call = t->in_call;
        t->in_call = false;
        t->handling |= set & ~own;
        vt_signal_mask_is(set);
    }
    /* Only now, and not by the kernel: what is put off waits blocked until this has returned. */
    uint64_t bit = UINT64_C(1) << (sig - 1);
    if ((flags & SA_NODEFER) && !(atomic_load_explicit(&h->mask, memory_order_relaxed) & bit))
        vt_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&bit, 0, sizeof bit);
    if (flags & SA_SIGINFO)
        ((void (*)(int, siginfo_t *, void *))function)(sig, info, context);
    else
        ((void (*)(int))function)(sig);
    if (t)
        atomic_fetch_or_explicit(&t->interrupt, flags & SA_RESTART ? VT_SIGNALLED : VT_SIGNALLED | VT_NORESTART,
                                 memory_order_relaxed);
    if (t && t->kind != VT_KERNEL) {
        uint64_t now = to_bits(&uc->uc_sigmask); /* the handler may have set another */
        t->handling = handling;
        if (in_call) /* it may go on */
            vt_call_begins();
        vt_signal_returns(now == kernel ? own : now, now);
    }
}

VT_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
    if (!vt_on() || sig < 1 || sig > 64)
        return vt_real(sigaction)(sig, act, old);
    struct handler *h = &handlers[sig];
    struct sigaction was, ours;
    void *old_function = atomic_load_explicit(&h->function, memory_order_relaxed);
    int old_flags = atomic_load_explicit(&h->flags, memory_order_relaxed);
    /* The memory of a child of vfork is its parent's, its actions are not: what it sets is for the kernel alone. */
    bool parents = vt_self && vt_self->vforked;
    bool handles = act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN && !parents;
    /* Back to the default: where there are virtual threads the trampoline stays, for a kick on its way may not end the program.
     */
    bool stays = act && act->sa_handler == SIG_DFL && vt_sched.nplaces && !parents &&
                 atomic_load_explicit(&h->used, memory_order_relaxed) && !default_is_harmless(sig);
    if (handles || stays) {
        ours = *act;
        ours.sa_sigaction = trampoline;
        ours.sa_flags =
            stays ? SA_SIGINFO | SA_RESTART | SA_ONSTACK : (act->sa_flags | SA_SIGINFO) & (int)~(SA_NODEFER | SA_RESETHAND);
        /* Before the kernel knows: a signal in between finds the new handler a little early. */
        atomic_store_explicit(&h->used, true, memory_order_relaxed);
        atomic_store_explicit(&h->flags, act->sa_flags, memory_order_relaxed);
        atomic_store_explicit(&h->mask, to_bits(&act->sa_mask), memory_order_relaxed);
        atomic_store_explicit(&h->function, handles ? (void *)act->sa_handler : NULL, memory_order_release);
        act = &ours;
    }
    int ret = vt_real(sigaction)(sig, act, &was);
    if (ret == 0 && act == &ours)
        vt_catch_handled(sig);
    if (ret == 0 && old) {
        *old = was;
        if (was.sa_sigaction == trampoline) {
            const int kernels = SA_SIGINFO | SA_NODEFER | SA_RESETHAND | SA_RESTART | SA_ONSTACK;
            old->sa_handler = (void (*)(int))old_function;
            old->sa_flags = (was.sa_flags & ~kernels) | (old_flags & kernels);
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
    bool interrupts =
        sig >= 1 && sig <= 64 && (atomic_load_explicit(&interrupting, memory_order_relaxed) >> (sig - 1) & 1) != 0;
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

/* The calling thread is main. */
static __thread bool is_main __attribute__((tls_model("initial-exec")));

static uint64_t kernel_mask(void)
{
    uint64_t now = 0;
    vt_sys4(SYS_rt_sigprocmask, 0, 0, (long)&now, sizeof now);
    return now;
}

void vt_signal_main_is_me(void)
{
    is_main = true;
    vt_catch_main_blocks(kernel_mask());
}

/* Not a child of vfork, which runs in this memory. */
static bool main_sets(void)
{
    return is_main && !(vt_self && vt_self->vforked);
}

void vt_signal_waits_with(const sigset_t *mask)
{
    if (mask && main_sets())
        vt_catch_main_waits(to_bits(mask));
}

/* The mask of a virtual thread is its own: its carrier's kernel mask follows it. */
void vt_signal_mask_changed(void)
{
    if (vt_is_ours())
        vt_signal_mask_is(kernel_mask());
    else if (main_sets())
        vt_catch_main_blocks(kernel_mask());
}

VT_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    int err = vt_real(pthread_sigmask)(how, set, old);
    if (!err && set)
        vt_signal_mask_changed();
    return err;
}

VT_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    int ret = vt_real(sigprocmask)(how, set, old);
    if (!ret && set)
        vt_signal_mask_changed();
    return ret;
}

/* The older functions, whose masks and handlers libc would set out of sight. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int change_one(int how, int sig)
{
    sigset_t set;
    sigemptyset(&set);
    return sigaddset(&set, sig) < 0 ? -1 : sigprocmask(how, &set, NULL);
}

VT_EXPORT int sighold(int sig)
{
    return change_one(SIG_BLOCK, sig);
}

VT_EXPORT int sigrelse(int sig)
{
    return change_one(SIG_UNBLOCK, sig);
}

VT_EXPORT int sigignore(int sig)
{
    struct sigaction act = {.sa_flags = 0};
    act.sa_handler = SIG_IGN;
    return sigaction(sig, &act, NULL);
}

VT_EXPORT void (*sigset(int sig, void (*handler)(int)))(int)
{
    struct sigaction act = {.sa_flags = 0}, old;
    sigset_t set, before;
    if (!vt_on())
        return vt_real(sigset)(sig, handler);
    sigemptyset(&set);
    if (handler == SIG_ERR || sigaddset(&set, sig) < 0) {
        errno = EINVAL;
        return SIG_ERR;
    }
    act.sa_handler = handler;
    if (handler == SIG_HOLD) {
        if (sigprocmask(SIG_BLOCK, &set, &before) < 0 || sigaction(sig, NULL, &old) < 0)
            return SIG_ERR;
    } else if (sigaction(sig, &act, &old) < 0 || sigprocmask(SIG_UNBLOCK, &set, &before) < 0) {
        return SIG_ERR;
    }
    return sigismember(&before, sig) ? SIG_HOLD : old.sa_handler;
}

/* Of the first 32 signals. */
static int change_low(int how, int mask)
{
    sigset_t set, before;
    uint64_t bits = (uint32_t)mask;
    memset(&set, 0, sizeof set);
    memcpy(&set, &bits, sizeof bits);
    if (sigprocmask(how, &set, &before) < 0)
        return -1;
    return (int)(uint32_t)to_bits(&before);
}

VT_EXPORT int sigblock(int mask)
{
    return change_low(SIG_BLOCK, mask);
}

VT_EXPORT int sigsetmask(int mask)
{
    return change_low(SIG_SETMASK, mask);
}

#pragma GCC diagnostic pop

/* A jump that restores the mask makes the system call inside libc. What it is about to set is set before. */
static void jump_brings(const sigset_t *mask)
{
    /* In a section it is the scheduler that switches (arch/generic). */
    uint64_t set = to_bits(mask);
    if (main_sets())
        vt_catch_main_blocks(set);
    if (!vt_on() || !vt_is_ours() || atomic_load_explicit(&vt_self->crit, memory_order_relaxed) != 0)
        return;
    vt_self->handling = 0; /* what the mask blocks now is no handler's any more */
    vt_sys_sigmask(set);
    vt_signal_mask_is(set);
}

static void jump_restores(struct __jmp_buf_tag *env)
{
    if (vt_on() && vt_self && atomic_load_explicit(&vt_self->crit, memory_order_relaxed) == 0) {
        vt_self->in_call = false;
        vt_undo_all();
    }
    if (env->__mask_was_saved)
        jump_brings(&env->__saved_mask);
}

VT_EXPORT void siglongjmp(sigjmp_buf env, int value)
{
    jump_restores(env);
    vt_real(siglongjmp)(env, value);
}

VT_EXPORT void longjmp(jmp_buf env, int value)
{
    jump_restores(env);
    vt_real(longjmp)(env, value);
}

VT_EXPORT void _longjmp(jmp_buf env, int value)
{
    jump_restores(env);
    vt_real(_longjmp)(env, value);
}

_Noreturn void __longjmp_chk(jmp_buf env, int value);

VT_EXPORT void __longjmp_chk(jmp_buf env, int value)
{
    jump_restores(env);
    vt_real(__longjmp_chk)(env, value);
}

VT_EXPORT int sigaltstack(const stack_t *ss, stack_t *old)
{
    int ret = vt_real(sigaltstack)(ss, old);
    if (ret == 0 && ss && vt_is_ours()) {
        struct vt_thread *t = vt_enter();
        t->alt_stack = ss->ss_flags & SS_DISABLE ? NULL : ss->ss_sp;
        t->alt_size = ss->ss_size;
        if (t->carrier) /* else a handler has forked, and this is the child */
            t->carrier->alt_stack = t->alt_stack;
        vt_leave(t);
    }
    return ret;
}

VT_EXPORT int setcontext(const ucontext_t *to)
{
    jump_brings(&to->uc_sigmask);
    return vt_real(setcontext)(to);
}

/* libc keeps the mask that the kernel thread has, and sets the other one: until then what is pending has to wait. By a jump,
 * not a call: who goes on in this context may be another thread. */
VT_EXPORT int swapcontext(ucontext_t *restrict from, const ucontext_t *restrict to)
{
    struct vt_thread *t = vt_self;
    if (vt_is_ours() && atomic_load_explicit(&t->crit, memory_order_relaxed) == 0)
        vt_signal_mask_will_be(to_bits(&to->uc_sigmask));
    return vt_real(swapcontext)(from, to);
}

/* --- sending --------------------------------------------------------------------------------------------------------- */

/* For one that has ended and can be joined. */
#define ENDED (VT_OLD_GLIBC ? ESRCH : 0)

VT_EXPORT int pthread_kill(pthread_t thread, int sig)
{
    if (!vt_is_handle(thread))
        return vt_real(pthread_kill)(thread, sig);
    struct vt_thread *t = vt_of_handle(thread);
    if (!t)
        return ESRCH;
    if (sig < 0 || sig > 64 || sig == 32 || sig == 33) /* 32, 33: libc's own */
        return EINVAL;
    if (!atomic_load_explicit(&t->alive, memory_order_acquire))
        return ENDED;
    if (sig == 0)
        return 0;
    if (vt_came_by_fork(t))
        return (int)-vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), t->tid, sig);
    if (t == vt_self && t->vforked) /* the child, not the thread that made it */
        return (int)-vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), sig);
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
    if (!atomic_load_explicit(&t->alive, memory_order_acquire))
        return ENDED;
    if (sig == 0)
        return 0;
    if (vt_came_by_fork(t)) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        info.si_signo = sig;
        info.si_code = SI_QUEUE;
        info.si_pid = (pid_t)vt_sys0(SYS_getpid);
        info.si_uid = (uid_t)vt_sys0(SYS_getuid);
        info.si_value = value;
        return (int)-vt_sys4(SYS_rt_tgsigqueueinfo, info.si_pid, t->tid, sig, (long)&info);
    }
    return vt_signal_queue(t, sig, (uint64_t)(uintptr_t)value.sival_ptr);
}

/* To this process: at once, where no thread is at hand to which the kernel could give it. */
static bool send_here(pid_t pid, int sig, int code, const union sigval *value)
{
    siginfo_t info;
    if (!vt_on() || sig < 1 || sig > 64 || pid <= 0 || pid != (pid_t)vt_sys0(SYS_getpid))
        return false;
    if (!atomic_load_explicit(&handlers[sig].function, memory_order_relaxed))
        return false; /* what is done by default is done to the process */
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = code;
    info.si_pid = pid;
    info.si_uid = (uid_t)vt_sys0(SYS_getuid);
    if (value)
        info.si_value = *value;
    return vt_catch_send(&info);
}

VT_EXPORT int kill(pid_t pid, int sig)
{
    return send_here(pid, sig, SI_USER, NULL) ? 0 : vt_real(kill)(pid, sig);
}

VT_EXPORT int sigqueue(pid_t pid, int sig, const union sigval value)
{
    return send_here(pid, sig, SI_QUEUE, &value) ? 0 : vt_real(sigqueue)(pid, sig, value);
}

VT_EXPORT int raise(int sig)
{
    if (!vt_is_ours())
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
