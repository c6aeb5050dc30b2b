#include "putoff.h"

#include "bound.h"
#include "cancel.h"
#include "catcher.h"
#include "park.h"
#include "place.h"
#include "setid.h"
#include "sigqueue.h"
#include "sys.h"

#include <string.h>
#include <ucontext.h>

/* A kick makes a running thread look at what is pending for it. The kernel lets a thread send SI_TKILL to itself only, and
 * leaves si_errno alone. */
#define KICK 0x76746b

static bool is_kick(const siginfo_t *info)
{
    return info->si_code == SI_QUEUE && info->si_errno == KICK;
}

/* So is marked, in the same place, what a carrier sends to itself again: it is pending for that kernel thread alone. */
#define AGAIN 0x76746f

/* It is no longer. */
static void taken_again(struct vt_carrier *c, siginfo_t *info)
{
    if (info->si_errno != AGAIN)
        return;
    info->si_errno = 0;
    if (c && atomic_load_explicit(&c->again, memory_order_relaxed))
        atomic_fetch_sub_explicit(&c->again, 1, memory_order_relaxed);
}

/* To the process again. From whom a signal of another process's came is lost: the kernel lets only main say so. */
void vt_signal_send_again(int sig, const siginfo_t *info)
{
    long pid = vt_sys0(SYS_getpid);
    if (info->si_code >= 0 || info->si_code == SI_TKILL || vt_sys3(SYS_rt_sigqueueinfo, pid, sig, (long)info) != 0)
        vt_sys2(SYS_kill, pid, sig);
}

bool vt_signal_put_off(int sig, siginfo_t *info, void *context)
{
    struct vt_thread *t = vt_self;
    if (!t) {
        if (vt_setid_aborts(info))
            return false;
        *(uint64_t *)(void *)&((ucontext_t *)context)->uc_sigmask |= UINT64_C(1) << (sig - 1);
        vt_signal_send_again(sig, info);
        return true;
    }
    struct vt_carrier *c = t->carrier;
    if (vt_in_loop(t))
        t = &c->self; /* if it still goes by its lodger's thread pointer */
    /* A kernel thread that has left its section, and still has to set back its mask, is not to record another one. */
    if (atomic_load_explicit(&t->crit, memory_order_relaxed) == 0 &&
        (c || !atomic_load_explicit(&t->deferred, memory_order_relaxed)))
        return false;
    /* What an instruction of the section itself raised cannot wait. */
    if (info->si_code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP))
        return false;
    ucontext_t *uc = context;
    uint64_t bit = UINT64_C(1) << (sig - 1);
    uint64_t mask = *(uint64_t *)(void *)&uc->uc_sigmask;
    /* Where several come at once the kernel puts one handler's frame on another's, and one may interrupt the next here: the
     * mask is that of the lowest, which leaves here last. All others have more. */
    bool first = atomic_exchange_explicit(&t->deferred, bit, memory_order_relaxed) == 0;
    if (!c)
        t->sigmask = first ? mask : t->sigmask & mask;
    else if (t != &c->self)
        atomic_fetch_or_explicit(&t->held, bit, memory_order_relaxed);
    /* Blocked on return from this handler; for the thread until it leaves its section, for a carrier until it mounts a
     * thread that takes the signal. */
    *(uint64_t *)(void *)&uc->uc_sigmask |= bit;
    if (c) {
        c->kernel_mask |= bit | VT_PUT_OFF;
        c->put_off |= bit; /* also for a kick: there may be others of the same signal behind it */
    }
    if (is_kick(info))
        return true; /* what it stands for is noted in the thread that it was meant for */
    if (c && !atomic_load_explicit(&c->mounted, memory_order_relaxed)) {
        taken_again(c, info);
        vt_signal_send_again(sig, info); /* no thread of the program is here: any other may have it */
        return true;
    }
    if (c && info->si_errno != AGAIN) {
        info->si_errno = AGAIN;
        atomic_fetch_add_explicit(&c->again, 1, memory_order_relaxed);
    }
    vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), vt_sys0(SYS_gettid), sig, (long)info);
    return true;
}

void vt_signal_give_back(struct vt_carrier *c, uint64_t mask)
{
    siginfo_t info;
    const struct timespec none = {0, 0};
    uint64_t set = __atomic_exchange_n(&c->put_off, 0, __ATOMIC_RELAXED) & mask; /* a handler may put off another one */
    long sig;
    /* The kernel gives what is pending for the kernel thread first; what is for the process is none of ours. */
    while (set && atomic_load_explicit(&c->again, memory_order_relaxed) &&
           (sig = vt_sys4(SYS_rt_sigtimedwait, (long)&set, (long)&info, (long)&none, sizeof set)) > 0) {
        if (is_kick(&info))
            continue;
        /* The count may be too high, where the kernel had one already. */
        info.si_errno = AGAIN;
        taken_again(c, &info);
        vt_signal_send_again((int)sig, &info);
    }
}

static void kick(pid_t tid, int sig)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = SI_QUEUE;
    info.si_errno = KICK;
    info.si_value.sival_int = (int)vt_process;
    vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), tid, sig, (long)&info);
}

/* The kernel's struct sigaction (include/linux/signal_types.h). */
struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Whether the program has a handler for sig, which is then ours: it takes what is pending itself. */
static bool handled(int sig)
{
    struct action act = {0};
    return vt_sys4(SYS_rt_sigaction, sig, 0, (long)&act, sizeof act.mask) == 0 && act.handler != SIG_DFL &&
           act.handler != SIG_IGN;
}

/* To t itself: it has come when this returns, unless t blocks it. A handler of another signal comes before or after, for it may
 * fork, and what is pending does not come to the child. */
static int post_to_self(struct vt_thread *t, const siginfo_t *info)
{
    int sig = info->si_signo;
    vt_enter();
    if (!t->carrier) { /* one has forked meanwhile, and this is the child */
        siginfo_t ours = *info;
        vt_leave(t);
        ours.si_pid = (pid_t)vt_sys0(SYS_getpid);
        return (int)-vt_sys4(SYS_rt_tgsigqueueinfo, ours.si_pid, vt_sys0(SYS_gettid), sig, (long)&ours);
    }
    int err = vt_sigqueue_add(t, info, false);
    if (!err && !(t->sigmask >> (sig - 1) & 1)) {
        /* The kernel lets it in together with what has been put off, and nothing in between. */
        if (handled(sig)) {
            vt_sys_sigmask(VT_ALL_SIGNALS);
            kick((pid_t)vt_sys0(SYS_gettid), sig);
        }
        atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
    }
    vt_leave(t);
    return err;
}

/* sig has been made pending for t. */
static void tell(struct vt_thread *t, int sig)
{
    uint64_t bit = UINT64_C(1) << (sig - 1);
    /* One that waits in sigwait has said so before it has looked at pending. */
    if (atomic_load_explicit(&t->awaited, memory_order_seq_cst) & bit) {
        kick(t->carrier->tid, sig);
        return;
    }
    if (t->sigmask & bit)
        return;
    atomic_store_explicit(&t->deferred, 1, memory_order_seq_cst);
    if (t == vt_self)
        return;
    vt_unblock(t);
    /* If it runs and enters no section the kernel must interrupt it. It may have left the carrier when the signal comes,
     * and then takes the signal on leaving its next section. */
    struct vt_carrier *c = t->carrier;
    if (c && atomic_load_explicit(&c->mounted, memory_order_acquire) == t)
        kick(c->tid, sig);
}

int vt_signal_post(struct vt_thread *t, const siginfo_t *info)
{
    /* In a section it may go on on another kernel thread before that is left. */
    if (t == vt_self && atomic_load_explicit(&t->crit, memory_order_relaxed) == 0)
        return post_to_self(t, info);
    int err = vt_sigqueue_add(t, info, false);
    if (!err)
        tell(t, info->si_signo);
    return err;
}

int vt_signal_offer(struct vt_thread *t, const siginfo_t *info)
{
    siginfo_t taken;
    uint64_t bit = UINT64_C(1) << (info->si_signo - 1);
    int err = vt_sigqueue_add(t, info, true);
    if (err)
        return err;
    vt_chaos();
    /* Either we see that t blocks it meanwhile, or t sees it (vt_signal_mask_is). */
    if ((t->sigmask & ~t->handling & bit) && vt_sigqueue_withdraw(t, info->si_signo, &taken))
        return EBUSY;
    tell(t, info->si_signo);
    return 0;
}

static siginfo_t from_us(int sig, int code)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = sig;
    info.si_code = code;
    info.si_pid = (pid_t)vt_sys0(SYS_getpid);
    info.si_uid = (uid_t)vt_sys0(SYS_getuid);
    return info;
}

int vt_signal_send(struct vt_thread *t, int sig)
{
    siginfo_t info = from_us(sig, SI_TKILL);
    return vt_signal_post(t, &info);
}

int vt_signal_queue(struct vt_thread *t, int sig, uint64_t value)
{
    siginfo_t info = from_us(sig, SI_QUEUE);
    info.si_value.sival_ptr = (void *)(uintptr_t)value;
    return vt_signal_post(t, &info);
}

bool vt_signal_mine(int sig, siginfo_t *info)
{
    struct vt_thread *t = vt_self;
    taken_again(t ? t->carrier : NULL, info);
    if (!is_kick(info))
        return true;
    /* In the parent a handler had begun, and before it took what it is for, one that came on top of it has forked. */
    if (info->si_value.sival_int != (int)vt_process)
        return vt_sigqueue_take_forked(sig, info);
    if (t && vt_sigqueue_take(t, sig, info))
        return true;
    if (t && atomic_load_explicit(&t->held, memory_order_relaxed)) { /* while it looked */
        vt_enter();
        vt_leave(t);
    }
    return false;
}

void vt_signal_mask_is(uint64_t set)
{
    struct vt_thread *t = vt_enter();
    t->sigmask = set;
    t->handling &= set; /* the rest had been left by a jump */
    if (t->carrier)
        t->carrier->kernel_mask = set;
    /* seq_cst: whoever makes a signal pending does so before looking at the mask. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&t->pending, memory_order_relaxed) & ~set)
        atomic_store_explicit(&t->deferred, 1, memory_order_relaxed);
    if (t->carrier)
        vt_catch_let_in(set);
    bool blocked = atomic_load_explicit(&t->pending, memory_order_relaxed) & set & ~t->handling;
    vt_leave(t);
    if (__builtin_expect(blocked, 0))
        vt_catch_pass_on(t, set & ~t->handling);
}

void vt_mask_lend(struct vt_thread *t, uint64_t set)
{
    t->own_mask = t->sigmask;
    t->lent = true;
    t->sigmask = set & ~(UINT64_C(3) << 31);   /* libc's own signals */
    atomic_thread_fence(memory_order_seq_cst); /* as in vt_signal_mask_is */
    if (atomic_load_explicit(&t->pending, memory_order_relaxed) & ~t->sigmask)
        atomic_store_explicit(&t->deferred, 1, memory_order_relaxed);
}

bool vt_mask_return(struct vt_thread *t)
{
    struct vt_carrier *c = t->carrier;
    if (!t->lent)
        return true;
    if (!c) { /* a handler has forked, and this is the child */
        vt_sys_sigmask(t->own_mask);
    } else if (c->kernel_mask != t->own_mask) {
        vt_sys_sigmask(t->own_mask);
        c->kernel_mask = t->own_mask;
    }
    /* From here on the kernel lets nothing in that the thread's own mask blocks. What it let in before was put off, and is
     * pending for this kernel thread, where nobody else looks for it. */
    if (atomic_load_explicit(&t->deferred, memory_order_relaxed))
        return false;
    t->lent = false;
    t->sigmask = t->own_mask;
    return true;
}

/* Outside a section a handler may come at any step, and fork: the child has no carrier. The parent's is still there to be
 * written to. */
static void kernel_mask_is(struct vt_thread *t, uint64_t set)
{
    struct vt_carrier *c = *(struct vt_carrier *volatile *)&t->carrier;
    if (c)
        c->kernel_mask = set;
}

void vt_signal_mask_will_be(uint64_t set)
{
    struct vt_thread *t = vt_self;
    t->sigmask = set;
    kernel_mask_is(t, set);
    atomic_thread_fence(memory_order_seq_cst); /* as above */
    vt_catch_let_in(set);
    if (atomic_load_explicit(&t->pending, memory_order_relaxed) & ~set)
        atomic_store_explicit(&t->deferred, 1, memory_order_relaxed);
}

/* Lets the handlers run of what is pending and not blocked, the lowest number first, before this returns, or as soon as the
 * kernel lets them in. More of the same are taken when the handler returns. */
static void take_pending(struct vt_thread *t)
{
    for (int sig = 1; sig <= 64; sig++) {
        uint64_t bit = UINT64_C(1) << (sig - 1);
        siginfo_t info;
        /* A handler may have brought another mask (vt_mask_lend). */
        if (!(atomic_load_explicit(&t->pending, memory_order_seq_cst) & ~t->sigmask & -bit))
            break;
        if (!(atomic_load_explicit(&t->pending, memory_order_relaxed) & ~t->sigmask & bit))
            continue;
        /* A handler may have moved the thread to another kernel thread. */
        pid_t tid = (pid_t)vt_sys0(SYS_gettid);
        if (handled(sig))
            kick(tid, sig);
        else
            while (vt_sigqueue_take(t, sig, &info)) /* ignored, or the end */
                vt_sys4(SYS_rt_tgsigqueueinfo, vt_sys0(SYS_getpid), tid, sig, (long)&info);
    }
}

void vt_put_off(struct vt_thread *t)
{
    struct vt_carrier *c = t->carrier;
    /* Nothing comes in between: what was put off comes when the mask is as it was, and no handler's frame has another. */
    if (!c || atomic_load_explicit(&t->held, memory_order_relaxed))
        vt_sys_sigmask(VT_ALL_SIGNALS);
    atomic_store_explicit(&t->held, 0, memory_order_relaxed);
    atomic_store_explicit(&t->deferred, 0, memory_order_seq_cst);
    if ((c = t->carrier))
        c->kernel_mask = t->sigmask;
    vt_sys_sigmask(t->sigmask);
    if (t->carrier) {
        vt_bind_if_asked(t);
        take_pending(t);
        vt_cancel_at_any_time(t);
    }
}

uint64_t vt_signal_mask_before(uint64_t kernel)
{
    return kernel & ~atomic_load_explicit(&vt_self->held, memory_order_relaxed);
}

void vt_signal_returns(uint64_t set, uint64_t kernel)
{
    struct vt_thread *t = vt_self;
    do {
        t->sigmask = set;
        kernel_mask_is(t, kernel);
        atomic_thread_fence(memory_order_seq_cst); /* as in vt_signal_mask_is */
        vt_catch_let_in(set);
        /* What came during the handler and was blocked by it stays so until the kernel sets the mask. */
        take_pending(t);
    } while (t->sigmask != set); /* another handler has run here */
    if (__builtin_expect((atomic_load_explicit(&t->pending, memory_order_relaxed) & set & ~t->handling) != 0, 0))
        vt_catch_pass_on(t, set & ~t->handling);
}

void vt_set_alt_stack(struct vt_carrier *c, struct vt_thread *t)
{
    stack_t ss = {.ss_sp = t->alt_stack, .ss_size = t->alt_size, .ss_flags = t->alt_stack ? 0 : SS_DISABLE};
    /* EPERM while the stack being left is the alternate one: tried again at the next mount. */
    c->alt_stack = vt_sys2(SYS_sigaltstack, (long)&ss, 0) == 0 ? t->alt_stack : NULL;
}
