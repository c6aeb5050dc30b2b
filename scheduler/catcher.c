#include "catcher.h"

#include "chaos.h"
#include "config.h"
#include "life.h"
#include "place.h"
#include "putoff.h"
#include "sigqueue.h"
#include "sys.h"
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#define VT_CATCHER_STACK ((size_t)64 << 10)

/* libc's signal for cancellations: nobody sends it to the process, so it is free to wake the catcher. */
#define VT_WAKE 32

#define BIT(sig) (UINT64_C(1) << ((sig)-1))

/* Not to be blocked, or libc's own. */
#define NEVER (BIT(SIGKILL) | BIT(SIGSTOP) | BIT(32) | BIT(33))

static _Atomic uint64_t main_blocks;
/* What a virtual thread has let in since main has last looked whether one does: it need not look again for
 * others. */
static _Atomic uint64_t let_in;
static _Atomic uint64_t wanted;  /* what the catcher is to wait for */
static _Atomic uint64_t without; /* what has no effect: it may stay pending */

static _Atomic uint64_t main_waits; /* main has let them in for a wait, and may again */
static _Atomic uint64_t called_for; /* the program waits for them by sigwait or a signalfd: these are to have them */
static _Atomic uint64_t waiting;    /* what the catcher waits for */

static _Atomic uint32_t catcher; /* 0: nobody has needed it, 1: wanted, 2: made */
static _Atomic pid_t catcher_tid;

/* --- who takes it ----------------------------------------------------------------------------------- */

struct search {
    uint64_t open;             /* signals that are looked for; those found are taken out */
    struct vt_thread *found;   /* lets in one of them */
    struct vt_thread *handles; /* will, when its handler returns */
};

static bool lets_in(struct vt_thread *t, void *arg)
{
    struct search *s = arg;
    uint64_t mask = __atomic_load_n(&t->sigmask, __ATOMIC_RELAXED);
    if (s->open & ~mask)
        s->found = t;
    else if (s->open & __atomic_load_n(&t->handling, __ATOMIC_RELAXED))
        s->handles = t;
    s->open &= mask;
    return s->open == 0;
}

/* Those of set that some virtual thread lets in. */
static uint64_t accepted(uint64_t set)
{
    struct search s = {.open = set};
    if (set)
        vt_find_thread(lets_in, &s);
    return set & ~s.open;
}

static void (*action(int sig))(int)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } act = {0}; /* the kernel's (include/linux/signal_types.h) */
    return vt_sys4(SYS_rt_sigaction, sig, 0, (long)&act, sizeof act.mask) == 0 ? act.handler : SIG_IGN;
}

static bool is_handled(int sig)
{
    void (*handler)(int) = action(sig);
    return handler != SIG_IGN && handler != SIG_DFL;
}

/* Whether the signal would do something: the kernel drops it where a thread lets it in that is not to take
 * it. */
static bool has_effect(int sig)
{
    void (*handler)(int) = action(sig);
    if (handler == SIG_IGN)
        return false;
    return handler != SIG_DFL || !(BIT(sig) & (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH)));
}

/* --- what is waited for ----------------------------------------------------------------------------- */

static void wake(void)
{
    /* The catcher says who it is before it looks at what is wanted. */
    pid_t tid = atomic_load_explicit(&catcher_tid, memory_order_seq_cst);
    if (tid)
        vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), tid, VT_WAKE);
}

static void want(uint64_t set)
{
    uint32_t none = 0;
    for (int sig = 1; sig <= 64; sig++)
        if ((set & BIT(sig)) && !has_effect(sig)) {
            set &= ~BIT(sig);
            atomic_fetch_or_explicit(&without, BIT(sig), memory_order_seq_cst);
        }
    if (!(set & ~atomic_fetch_or_explicit(&wanted, set, memory_order_seq_cst)))
        return;
    vt_chaos();
    if (atomic_compare_exchange_strong_explicit(&catcher, &none, 1, memory_order_seq_cst, memory_order_relaxed))
        vt_keeper_call();
    else
        wake();
}

static uint64_t not_wanted(uint64_t set)
{
    return set & ~NEVER &
           ~(atomic_load_explicit(&wanted, memory_order_relaxed) | atomic_load_explicit(&without, memory_order_relaxed) |
             atomic_load_explicit(&called_for, memory_order_relaxed));
}

void vt_catch_let_in(uint64_t mask)
{
    uint64_t in = ~mask & ~NEVER;
    if (in & ~atomic_load_explicit(&let_in, memory_order_relaxed))
        atomic_fetch_or_explicit(&let_in, in, memory_order_seq_cst);
    uint64_t set = not_wanted(in & atomic_load_explicit(&main_blocks, memory_order_seq_cst));
    if (__builtin_expect(set != 0, 0))
        want(set);
}

/* main blocks those of set: whether somebody else lets them in. */
static void look(uint64_t set)
{
    set = not_wanted(set) & atomic_load_explicit(&let_in, memory_order_seq_cst);
    if (!set || !vt_sched.nplaces)
        return;
    /* Who lets one in from now on says so again, and looks at what main blocks. */
    atomic_fetch_and_explicit(&let_in, ~set, memory_order_seq_cst);
    vt_chaos();
    uint64_t found = accepted(set);
    if (found) {
        atomic_fetch_or_explicit(&let_in, found, memory_order_relaxed);
        want(found);
    }
}

void vt_catch_main_blocks(uint64_t set)
{
    uint64_t before = atomic_load_explicit(&main_blocks, memory_order_relaxed);
    if (set == before)
        return;
    atomic_store_explicit(&main_blocks, set, memory_order_seq_cst);
    vt_chaos();
    look(set & ~before);
}

void vt_catch_handled(int sig)
{
    if (!(atomic_load_explicit(&without, memory_order_relaxed) & BIT(sig)))
        return;
    atomic_fetch_and_explicit(&without, ~BIT(sig), memory_order_seq_cst);
    look(atomic_load_explicit(&main_blocks, memory_order_seq_cst) & BIT(sig));
}

void vt_catch_called_for(uint64_t set)
{
    if (!(set & ~atomic_load_explicit(&called_for, memory_order_relaxed)) || (vt_self && vt_self->vforked))
        return;
    atomic_fetch_or_explicit(&called_for, set, memory_order_seq_cst);
    vt_chaos();
    /* Two who wait for one signal: who loses would be told that it was interrupted. */
    if (atomic_load_explicit(&waiting, memory_order_seq_cst) & set)
        wake();
    while (atomic_load_explicit(&waiting, memory_order_seq_cst) & set)
        vt_sys0(SYS_sched_yield);
}

/* --- sending ---------------------------------------------------------------------------------------- */

/* To one that lets it in, or will when its handler returns: 0, EAGAIN (as many are queued as may be) or ESRCH. */
static int offer(const siginfo_t *info)
{
    struct vt_thread *me = vt_self, *t;
    do {
        struct search s = {.open = BIT(info->si_signo)};
        /* Who sends it has it before the call returns. */
        if (!me || me->kind == VT_KERNEL || !lets_in(me, &s))
            vt_find_thread(lets_in, &s);
        t = s.found ? s.found : s.handles;
        if (t && vt_hold(t)) {
            int err = vt_signal_offer(t, info);
            vt_release();
            if (err != EBUSY)
                return err;
        }
    } while (t);
    return ESRCH;
}

/* What else it does is the kernel's business. */
#define STOPS (BIT(SIGCONT) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU))

bool vt_catch_send(const siginfo_t *info)
{
    uint64_t bit = BIT(info->si_signo);
    if (!(bit & ~NEVER & ~STOPS & atomic_load_explicit(&main_blocks, memory_order_seq_cst) &
          atomic_load_explicit(&let_in, memory_order_seq_cst) & ~atomic_load_explicit(&called_for, memory_order_seq_cst) &
          ~atomic_load_explicit(&main_waits, memory_order_relaxed)))
        return false;
    return vt_sched.nplaces && !(vt_self && vt_self->vforked) && is_handled(info->si_signo) && offer(info) == 0;
}

void vt_catch_main_waits(uint64_t mask)
{
    if (~mask & ~atomic_load_explicit(&main_waits, memory_order_relaxed))
        atomic_fetch_or_explicit(&main_waits, ~mask, memory_order_relaxed);
}

void vt_catch_pass_on(struct vt_thread *t, uint64_t set)
{
    siginfo_t info;
    for (int sig = 1; sig <= 64; sig++)
        while ((set & BIT(sig)) && vt_sigqueue_withdraw(t, sig, &info))
            if (offer(&info) != 0)
                vt_signal_send_again(sig, &info);
}

/* --- the catcher ------------------------------------------------------------------------------------ */

/* What some thread lets in now. The rest is no longer wanted: it is to stay pending, for whoever looks for
 * it. */
static uint64_t wait_for(void)
{
    uint64_t all =
                 atomic_load_explicit(&wanted, memory_order_seq_cst) & ~atomic_load_explicit(&called_for, memory_order_seq_cst),
             none = all & ~accepted(all);
    if (none) {
        atomic_fetch_and_explicit(&wanted, ~none, memory_order_seq_cst);
        vt_chaos();
        /* Who has let it in meanwhile has seen it wanted. */
        uint64_t some = accepted(none);
        atomic_fetch_or_explicit(&wanted, some, memory_order_seq_cst);
        none &= ~some;
    }
    return all & ~none;
}

static void send_on(const siginfo_t *info)
{
    int err;
    /* As many are queued as may be. */
    while ((err = offer(info)) == EAGAIN)
        vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&(struct timespec){0, 1000000}, 0);
    if (err) {
        /* All block it since the wait for it began. By whom it was sent is lost, where the kernel lets
         * only the sender say so. */
        atomic_fetch_and_explicit(&wanted, ~BIT(info->si_signo), memory_order_seq_cst);
        vt_signal_send_again(info->si_signo, info);
    }
}

static void *catcher_main(void *arg)
{
    siginfo_t info;
    const uint64_t woken = BIT(VT_WAKE);
    vt_staff_joins("vt-catcher");
    vt_sys4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&woken, 0, sizeof woken);
    atomic_store_explicit(&catcher_tid, (pid_t)vt_sys0(SYS_gettid), memory_order_seq_cst);
    for (;;) {
        uint64_t set = wait_for() | woken;
        atomic_store_explicit(&waiting, set & ~woken, memory_order_seq_cst);
        vt_chaos();
        if (set & atomic_load_explicit(&called_for, memory_order_seq_cst))
            continue;
        long sig = vt_sys4(SYS_rt_sigtimedwait, (long)&set, (long)&info, 0, sizeof set);
        if (sig > 0 && sig != VT_WAKE)
            send_on(&info);
    }
    return arg;
}

void vt_catch_keep(void)
{
    uint32_t asked = 1;
    if (!atomic_compare_exchange_strong_explicit(&catcher, &asked, 2, memory_order_seq_cst, memory_order_relaxed))
        return;
    int err = vt_kernel_thread(catcher_main, NULL, VT_CATCHER_STACK);
    if (err)
        vt_say("cannot catch signals to the process (error %d): those that only waiting threads let in stay "
               "pending",
               err);
}

void vt_catch_fork_child(void)
{
    atomic_store_explicit(&catcher, 0, memory_order_relaxed);
    atomic_store_explicit(&catcher_tid, 0, memory_order_relaxed);
    atomic_store_explicit(&wanted, 0, memory_order_relaxed);
    atomic_store_explicit(&waiting, 0, memory_order_relaxed);
    atomic_store_explicit(&without, 0, memory_order_relaxed);
    atomic_store_explicit(&let_in, 0, memory_order_relaxed);
    atomic_store_explicit(&main_waits, 0, memory_order_relaxed);
}
