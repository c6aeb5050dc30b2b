#include "bound.h"
#include "catcher.h"
#include "chaos.h"
#include "clock.h"
#include "config.h"
#include "deadlock.h"
#include "handoff.h"
#include "helper.h"
#include "kstack.h"
#include "monitor.h"
#include "own.h"
#include "park.h"
#include "pinned.h"
#include "place.h"
#include "putoff.h"
#include "real.h"
#include "ring.h"
#include "selfdump.h"
#include "setid.h"
#include "slot.h"
#include "stats.h"
#include "sys.h"
#include "tcb.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define VT_CARRIER_GUARD ((size_t)4096)
#define VT_KEEPER_STACK  ((size_t)64 << 10)
/* Descriptors of carriers that are made at once: a mapping each would be one more for every fork to copy. */
#define VT_FRESH 16
/* ns that free slots keep surplus memory. */
#define VT_TRIM_AFTER UINT64_C(1000000000)

struct vt_host vt_host = {.thread_create = pthread_create};

static _Atomic uint32_t keeper_word; /* 0 asleep, 1 not, 2 called since */
static _Atomic bool limit_seen;      /* there are places without carriers because of the limit */
static _Atomic bool trim_wanted;     /* free slots hold more memory than they should */
static _Atomic uint32_t joined;      /* carriers that have been among the spares: the keeper waits for it to grow */
static _Atomic pid_t keeper_tid;
static _Atomic bool stopped; /* the start has failed: carriers and keeper end */

/* --- who blocks ------------------------------------------------------------------------------------------------------- */

/* A thread that blocks has a kernel thread natively too, and whoever is to end its wait may be among those that need a
 * carrier. So the limit does not count it, and there is always another one to be had, as long as the system gives it. */
static void goes_out(struct vt_carrier *c)
{
    if (!atomic_exchange_explicit(&c->out, true, memory_order_relaxed))
        atomic_fetch_add_explicit(&vt_sched.nout, 1, memory_order_release);
}

static void comes_back(struct vt_carrier *c)
{
    if (atomic_load_explicit(&c->out, memory_order_relaxed) && atomic_exchange_explicit(&c->out, false, memory_order_relaxed))
        atomic_fetch_sub_explicit(&vt_sched.nout, 1, memory_order_relaxed);
}

/* Whether the limit is reached. Under spare_lock, else a hint. */
static bool at_limit(void)
{
    unsigned n = __atomic_load_n(&vt_sched.ncarriers, __ATOMIC_RELAXED);
    return n >= vt_sched.max_carriers + atomic_load_explicit(&vt_sched.nout, memory_order_acquire);
}

/* --- spares --------------------------------------------------------------------------------------------------------- */

/* Waits until somebody gives c a place. */
static void become_spare(struct vt_carrier *c, bool first)
{
    c->bound = NULL;
    if (c->kernel_mask != VT_ALL_SIGNALS) {
        c->kernel_mask = VT_ALL_SIGNALS;
        vt_sys_sigmask(VT_ALL_SIGNALS);
    }
    if (c->put_off)
        vt_signal_give_back(c, UINT64_MAX);
    comes_back(c);
    vt_chaos();
    atomic_store_explicit(&c->wake, 0, memory_order_relaxed);
    vt_spare_return(c);
    if (first) {
        atomic_fetch_add_explicit(&joined, 1, memory_order_release);
        vt_sys_futex_wake(&joined, 1);
    }
    vt_chaos();
    vt_adopt_orphans();
    vt_chaos();
    while (!atomic_load_explicit(&c->wake, memory_order_acquire))
        vt_sys_futex_wait(&c->wake, 0, NULL);
    if (__builtin_expect(atomic_load_explicit(&stopped, memory_order_relaxed), 0))
        return;
    if (c->bound)
        return;
    c->clean = false;
    atomic_load_explicit(&c->place, memory_order_relaxed)->clock = vt_now();
    /* The place may have been idle, and the monitor asleep because all were. */
    vt_monitor_wake();
}

/* The kernel thread of c ends: a bound thread has left it with properties that nobody else is to have. */
static void retire(struct vt_carrier *c)
{
    vt_sys_sigmask(VT_ALL_SIGNALS);
    comes_back(c);
    vt_self = NULL;
    c->tid = 0;
    vt_lock(&vt_sched.spare_lock);
    vt_sched.ncarriers--;
    c->spare_next = vt_sched.retired;
    vt_sched.retired = c;
    vt_unlock(&vt_sched.spare_lock);
}

static void run_bound(struct vt_carrier *c)
{
    struct vt_thread *t = c->bound;
    c->bound = NULL;
    t->kind = VT_BOUND;
    goes_out(c);
    vt_run(c, NULL, t);
}

/* Until its kernel thread is to end. */
static void attend(struct vt_carrier *c)
{
    while (!__builtin_expect(atomic_load_explicit(&stopped, memory_order_relaxed), 0)) {
        struct vt_place *p = atomic_load_explicit(&c->place, memory_order_acquire);
        if (p)
            vt_run(c, p, vt_find(c, p));
        else if (c->bound)
            run_bound(c);
        else if (c->tainted)
            break;
        else
            become_spare(c, false);
    }
}

static void *carrier_main(void *arg)
{
    struct vt_carrier *c = arg;
    c->tid = (pid_t)vt_sys0(SYS_gettid);
    c->tp = vt_arch_tp();
    c->self.tid = (uint32_t)c->tid;
    c->self.tp = c->tp;
    vt_self = &c->self;
    char name[16];
    snprintf(name, sizeof name, "vt-carrier/%u", c->index % 10000);
    vt_sys2(SYS_prctl, 15 /* PR_SET_NAME */, (long)name);
    if (!c->bound)
        become_spare(c, true);
    attend(c);
    retire(c);
    return NULL;
}

/* Under spare_lock. */
static struct vt_carrier *take_fresh(void)
{
    if (!vt_sched.nfresh) {
        if (!(vt_sched.fresh = vt_sys_map(VT_FRESH * sizeof *vt_sched.fresh)))
            return NULL;
        vt_sched.nfresh = VT_FRESH;
    }
    vt_sched.nfresh--;
    return vt_sched.fresh++;
}

/* The descriptor of a carrier, which has been another's if one has retired: who looks at it late finds a carrier. */
static struct vt_carrier *carrier_make(void)
{
    vt_lock(&vt_sched.spare_lock);
    struct vt_carrier *c = vt_sched.retired;
    unsigned index = vt_sched.ncarriers - 1;
    bool used = c != NULL;
    if (used)
        vt_sched.retired = c->spare_next;
    else
        c = take_fresh();
    vt_unlock(&vt_sched.spare_lock);
    if (used) {
        c->tainted = c->clean = false;
        atomic_store_explicit(&c->cpu_mark, 0, memory_order_relaxed);
        c->alt_stack = NULL;
        c->kernel_mask = VT_ALL_SIGNALS;
        return c;
    }
    if (!c)
        return NULL;
    c->index = index;
    c->self.kind = VT_KERNEL;
    c->self.carrier = c;
    atomic_store_explicit(&c->self.crit, 1, memory_order_relaxed); /* for ever: it is all scheduler */
    c->kernel_mask = VT_ALL_SIGNALS;
    vt_lock(&vt_sched.spare_lock);
    c->all_next = vt_sched.carriers;
    __atomic_store_n(&vt_sched.carriers, c, __ATOMIC_RELEASE);
    vt_unlock(&vt_sched.spare_lock);
    return c;
}

/* c, which may be NULL, gets no kernel thread. How many others there are. */
static unsigned carrier_unmake(struct vt_carrier *c)
{
    vt_lock(&vt_sched.spare_lock);
    unsigned n = --vt_sched.ncarriers;
    if (c) {
        c->spare_next = vt_sched.retired;
        vt_sched.retired = c;
    }
    vt_unlock(&vt_sched.spare_lock);
    return n;
}

void vt_staff_joins(const char *name)
{
    unsigned n = atomic_fetch_add_explicit(&vt_sched.nstaff, 1, memory_order_acq_rel);
    if (n < VT_STAFF)
        atomic_store_explicit(&vt_sched.staff[n], (pid_t)vt_sys0(SYS_gettid), memory_order_release);
    vt_sys2(SYS_prctl, 15 /* PR_SET_NAME */, (long)name);
}

int vt_kernel_thread(void *(*main)(void *), void *arg, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attr;
    uint64_t all = VT_ALL_SIGNALS, old = 0;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, sizeof all);
    void *lo = NULL;
    size_t bytes = 0;
    struct vt_kstack *s = vt_kstack_get(stack, &lo, &bytes);
    if (s && vt_real(pthread_attr_setstack)(&attr, lo, bytes) == 0) {
        vt_kstack_set_main(s, main, arg);
        err = vt_host.thread_create(&thread, &attr, vt_kstack_main, s);
    } else {
        vt_real(pthread_attr_setstacksize)(&attr, stack);
        err = vt_host.thread_create(&thread, &attr, main, arg);
    }
    if (err && s)
        vt_kstack_unget(s);
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof old);
    pthread_attr_destroy(&attr);
    return err;
}

/* Makes one more carrier, which joins the spares by itself. Kernel threads only, not in a section: it calls libc, which may
 * wait. */
static bool carrier_start(void)
{
    vt_lock(&vt_sched.spare_lock);
    bool may = !at_limit();
    if (may)
        vt_sched.ncarriers++;
    vt_unlock(&vt_sched.spare_lock);
    static _Atomic bool said;
    if (!may)
        return false;
    struct vt_carrier *c = carrier_make();
    int err = c ? vt_kernel_thread(carrier_main, c, VT_CARRIER_STACK) : ENOMEM;
    /* While a thread is in execve the kernel makes no other (copy_fs): either it fails, or there is nothing left to do. */
    for (int tries = 0; err == EAGAIN && tries < 30; tries++) {
        struct timespec ms = {0, 1000000};
        vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&ms, 0);
        err = vt_kernel_thread(carrier_main, c, VT_CARRIER_STACK);
    }
    if (err == 0)
        return true;
    unsigned n = carrier_unmake(c);
    if (!atomic_exchange(&said, true))
        vt_say("cannot make carrier %u (error %d): threads that block may delay others", n, err);
    return false;
}

/* A thread that is to be bound has no kernel thread: it goes on among the others. */
static void leave_unbound(struct vt_thread *t, int err)
{
    static _Atomic bool said;
    if (!vt_bind_optional(t) && !atomic_exchange(&said, true))
        vt_say("cannot make a kernel thread for a thread that needs its own (error %d): it shares one", err);
    struct vt_thread *me = vt_enter();
    atomic_store_explicit(&t->hidden, 0, memory_order_relaxed);
    vt_ready_last(t);
    vt_leave(me);
}

/* Makes clean carriers for the threads that wait for one. They do not count against the limit, natively they would have
 * a kernel thread too. As carrier_start. */
static void start_clean(void)
{
    for (;;) {
        vt_lock(&vt_sched.spare_lock);
        struct vt_thread *t = (struct vt_thread *)vt_task_list_pop(&vt_sched.binding);
        if (t)
            vt_sched.ncarriers++;
        vt_unlock(&vt_sched.spare_lock);
        if (!t)
            return;
        struct vt_carrier *c = carrier_make();
        int err = ENOMEM;
        if (c) {
            c->clean = true;
            c->bound = t;
            err = vt_kernel_thread(carrier_main, c, VT_CARRIER_STACK);
        }
        if (err) {
            carrier_unmake(c);
            leave_unbound(t, err);
        }
    }
}

void vt_give_carrier(struct vt_carrier *unused, void *arg)
{
    struct vt_thread *t = arg;
    (void)unused;
    vt_lock(&vt_sched.spare_lock);
    struct vt_carrier *c = vt_sched.clean;
    if (c)
        vt_sched.clean = c->spare_next;
    else
        vt_task_list_push(&vt_sched.binding, &t->task);
    vt_unlock(&vt_sched.spare_lock);
    if (!c) {
        vt_keeper_call();
        return;
    }
    c->bound = t;
    atomic_store_explicit(&c->wake, 1, memory_order_release);
    vt_sys_futex_wake(&c->wake, 1);
}

/* The keeper, a kernel thread of its own, sees to it that there is a spare carrier whenever there can be: so whoever is in
 * need finds one, and need not make one in a section, or on a carrier that others wait for. It also makes the thread that
 * watches the clock (clock.h), and gives back the memory of free slots, some time after threads have ended: mostly others
 * come, and giving back and getting is dear. */
void vt_keeper_call(void)
{
    if (atomic_exchange_explicit(&keeper_word, 2, memory_order_acq_rel) == 0)
        vt_sys_futex_wake(&keeper_word, 1);
}

pid_t vt_keeper(void)
{
    return vt_sched.nplaces ? atomic_load_explicit(&keeper_tid, memory_order_acquire) : 0;
}

static void slot_surplus(void)
{
    atomic_store_explicit(&trim_wanted, true, memory_order_relaxed);
    vt_keeper_call();
}

/* Gives surplus memory of slots back, unless the keeper is called meanwhile. True when all is done. */
static bool trim(void)
{
    while (vt_slot_trim())
        if (atomic_load_explicit(&keeper_word, memory_order_relaxed) == 2)
            return false;
    return true;
}

static void say_limit(void)
{
    static bool said;
    if (!said && (said = atomic_load_explicit(&limit_seen, memory_order_relaxed)))
        vt_say("all %u carriers of VTHREAD_MAX_CARRIERS are in use: threads that compute may delay others",
               vt_sched.max_carriers);
}

static void *keeper_main(void *arg)
{
    uint64_t trim_at = VT_NEVER;
    vt_staff_joins("vt-keeper");
    atomic_store_explicit(&keeper_tid, (pid_t)vt_sys0(SYS_gettid), memory_order_release);
    for (;;) {
        uint32_t not_called = 1;
        unsigned seen = atomic_load_explicit(&joined, memory_order_acquire);
        start_clean();
        while (!__atomic_load_n(&vt_sched.spares, __ATOMIC_RELAXED) && carrier_start()) {
            /* Until it has joined the spares; by then somebody may have come for it. */
            while (atomic_load_explicit(&joined, memory_order_acquire) == seen)
                vt_sys_futex_wait(&joined, seen, NULL);
            seen = atomic_load_explicit(&joined, memory_order_acquire);
        }
        vt_clock_keep();
        vt_catch_keep();
        say_limit();
        vt_deadlock_look();
        if (atomic_exchange_explicit(&trim_wanted, false, memory_order_relaxed))
            trim_at = vt_now() + VT_TRIM_AFTER;
        if (trim_at != VT_NEVER && vt_now() >= trim_at && trim())
            trim_at = VT_NEVER;
        struct timespec until = {(time_t)(trim_at / 1000000000), (long)(trim_at % 1000000000)};
        if (atomic_compare_exchange_strong_explicit(&keeper_word, &not_called, 0, memory_order_acq_rel, memory_order_acquire)) {
            long err = 0;
            while (atomic_load_explicit(&keeper_word, memory_order_acquire) == 0 && err != -ETIMEDOUT)
                err = vt_sys_futex_wait(&keeper_word, 0, trim_at == VT_NEVER ? NULL : &until);
        }
        if (atomic_load_explicit(&stopped, memory_order_acquire))
            break;
        atomic_store_explicit(&keeper_word, 1, memory_order_release);
    }
    return arg;
}

struct vt_carrier *vt_spare_take(void)
{
    vt_lock(&vt_sched.spare_lock);
    struct vt_carrier *c = vt_sched.spares, **list = c ? &vt_sched.spares : &vt_sched.clean;
    if (c || (c = vt_sched.clean))
        *list = c->spare_next;
    bool last = !vt_sched.spares;
    vt_unlock(&vt_sched.spare_lock);
    if (last)
        vt_keeper_call();
    return c;
}

void vt_spare_return(struct vt_carrier *c)
{
    vt_lock(&vt_sched.spare_lock);
    struct vt_carrier **list = c->clean ? &vt_sched.clean : &vt_sched.spares;
    c->spare_next = *list;
    *list = c;
    vt_unlock(&vt_sched.spare_lock);
}

void vt_spare_give(struct vt_carrier *c, struct vt_place *p)
{
    vt_chaos();
    atomic_store_explicit(&p->carrier, c, memory_order_release);
    vt_chaos();
    atomic_store_explicit(&c->place, p, memory_order_release);
    vt_chaos();
    atomic_store_explicit(&c->wake, 1, memory_order_release);
    vt_sys_futex_wake(&c->wake, 1);
    vt_monitor_wake(); /* the place has left the idle ones */
}

void vt_say_limit(void)
{
    /* By the keeper: who calls this, the monitor, has no standard error. */
    if (at_limit() && !atomic_exchange_explicit(&limit_seen, true, memory_order_relaxed))
        vt_keeper_call();
}

/* --- hand-off ------------------------------------------------------------------------------------------------------- */

/* Finds a carrier for p, which has just lost its own, if it needs one. In a section. */
static void give_away(struct vt_place *p)
{
    struct vt_task *task;
    vt_chaos();
    if (vt_place_needs_carrier(p)) {
        struct vt_carrier *c = vt_spare_take();
        if (c) {
            vt_spare_give(c, p);
            return;
        }
        /* Let others run its threads at least. */
        if ((task = atomic_exchange_explicit(&p->next, NULL, memory_order_acquire)))
            vt_globq_push(&vt_sched.globq, task);
    }
    vt_chaos();
    vt_place_set_idle(p);
    vt_chaos();
    /* Who armed a timer or queued something in between saw no idle place, nor did a carrier that joined the spares. */
    if (vt_place_needs_carrier(p)) {
        vt_adopt_orphans();
        vt_wake_idle();
    }
}

bool vt_handoff_by_monitor(struct vt_place *p, struct vt_carrier *c, struct vt_thread *t, uint64_t mounts, enum vt_stuck how)
{
    bool ok = false;
    atomic_store_explicit(&c->claim.claimed, true, memory_order_seq_cst);
    /* Either the carrier's thread has entered a section before this and we see it, or it will see our claim when it
     * enters one, and wait (thread.h). */
    vt_barrier_all();
    vt_chaos();
    if (atomic_load_explicit(&c->mounted, memory_order_acquire) == t &&
        atomic_load_explicit(&c->place, memory_order_acquire) == p &&
        atomic_load_explicit(&p->mounts, memory_order_acquire) == mounts &&
        atomic_load_explicit(&t->crit, memory_order_acquire) == 0) {
        if (how != VT_STUCK_COMPUTING)
            goes_out(c); /* before the claim ends: only then can it come back */
        atomic_store_explicit(&c->place, NULL, memory_order_release);
        vt_chaos();
        atomic_store_explicit(&p->carrier, NULL, memory_order_release);
        vt_pinned_found(c, how != VT_STUCK_COMPUTING);
        vt_bind_seen(t, how);
        ok = true;
    }
    vt_chaos();
    atomic_store_explicit(&c->claim.claimed, false, memory_order_release);
    if (ok)
        give_away(p);
    return ok;
}

void vt_await_claim(struct vt_carrier *c)
{
    for (unsigned i = 1; atomic_load_explicit(&c->claim.claimed, memory_order_acquire); i++) {
        vt_cpu_relax();
        if (i % 64 == 0)
            vt_sys0(SYS_sched_yield);
    }
}

void vt_give_up_place(struct vt_carrier *c)
{
    struct vt_place *p = atomic_load_explicit(&c->place, memory_order_relaxed);
    goes_out(c);
    if (p) {
        atomic_store_explicit(&c->place, NULL, memory_order_release);
        vt_chaos();
        atomic_store_explicit(&p->carrier, NULL, memory_order_release);
        c->lost = p;
        give_away(p);
    }
}

void vt_handoff_begin(const char *what)
{
    if (!vt_is_virtual())
        return;
    int saved = errno;
    struct vt_thread *t = vt_enter();
    struct vt_carrier *c = t->carrier;
    struct vt_place *p = atomic_load_explicit(&c->place, memory_order_relaxed);
    vt_count_handoff(what, t);
    t->wait_what = what;
    if (p)
        t->since = vt_place_clock(p);
    vt_pinned_begin(c, t, what);
    vt_give_up_place(c);
    vt_leave(t);
    errno = saved;
}

void vt_handoff_end(void)
{
    if (!vt_is_virtual()) {
        if (vt_is_ours())
            vt_self->wait_what = NULL; /* it has been bound meanwhile */
        return;
    }
    int saved = errno;
    struct vt_thread *t = vt_enter();
    struct vt_carrier *c = t->carrier;
    t->wait_what = NULL;
    vt_pinned_end(c, t);
    comes_back(c);
    if (!atomic_load_explicit(&c->place, memory_order_relaxed) && atomic_load_explicit(&vt_sched.nidle, memory_order_relaxed)) {
        struct vt_place *p = vt_place_take_unattended(c->lost);
        vt_chaos();
        if (p) {
            atomic_store_explicit(&p->carrier, c, memory_order_release);
            vt_chaos();
            p->clock = vt_now(); /* it may have been idle for long */
            atomic_store_explicit(&c->place, p, memory_order_release);
            vt_monitor_wake();
        }
    }
    vt_leave(t);
    errno = saved;
}

bool vt_handed_off(void)
{
    struct vt_thread *t = vt_self;
    return t->carrier && !atomic_load_explicit(&t->carrier->place, memory_order_relaxed);
}

/* --- the kernel thread of a forked child ------------------------------------------------------------------------------ */

/* The first function on the carrier's own stack: its thread has been left for the first time. */
static void attend_first(void *arg)
{
    struct vt_carrier *c = arg;
    vt_run_after(c);
    attend(c);
    /* The process's first kernel thread does not end before the process, or that would look like a zombie. */
    retire(c);
    for (;;)
        vt_sys4(SYS_ppoll, 0, 0, 0, 0);
}

bool vt_carrier_become(struct vt_thread *t, ptrdiff_t self_offset)
{
    size_t size = VT_CARRIER_GUARD + VT_CARRIER_STACK + ((vt_tcb_size() + 4095) & ~(size_t)4095);
    vt_lock(&vt_sched.spare_lock);
    vt_sched.ncarriers++; /* beyond the limit if need be, as long as it has no place */
    vt_unlock(&vt_sched.spare_lock);
    struct vt_carrier *c = carrier_make();
    char *mem = c ? vt_sys_map(size) : NULL;
    pid_t tid = (pid_t)vt_sys0(SYS_gettid);
    if (!mem || vt_tcb_make(mem + size, (unsigned)tid, &c->tp) != 0) {
        if (mem)
            vt_sys2(SYS_munmap, (long)mem, (long)size);
        carrier_unmake(c);
        return false;
    }
    vt_sys3(SYS_mprotect, (long)mem, VT_CARRIER_GUARD, PROT_NONE);
    c->tid = tid;
    c->self.tid = (uint32_t)tid;
    c->self.tp = c->tp;
    *(struct vt_thread **)((char *)c->tp + self_offset) = &c->self;
    vt_context_make(&c->ctx, mem + VT_CARRIER_GUARD, mem + VT_CARRIER_GUARD + VT_CARRIER_STACK, attend_first, c);

    /* No handler may find it half the one and half the other. */
    uint64_t all = VT_ALL_SIGNALS, mask = 0;
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, sizeof all);
    vt_tcb_replace(t->tp, c->tp);
    stack_t alt = {.ss_flags = SS_DISABLE};
    vt_sys2(SYS_sigaltstack, 0, (long)&alt);
    t->alt_stack = c->alt_stack = alt.ss_flags & SS_DISABLE ? NULL : alt.ss_sp;
    t->alt_size = alt.ss_size;
    t->sigmask = c->kernel_mask = mask;
    vt_sys2(SYS_prctl, 16 /* PR_GET_NAME */, (long)t->name);
    goes_out(c);
    atomic_store_explicit(&c->mounted, t, memory_order_relaxed);
    t->carrier = c;
    t->kind = t->bound_for_good ? VT_BOUND : VT_VIRTUAL;
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof mask);
    return true;
}

/* --- start ---------------------------------------------------------------------------------------------------------- */

/* Until the kernel thread has gone, and counts no longer. */
static void await_end(pid_t tid)
{
    struct timespec ms = {0, 1000000};
    while (vt_sys3(SYS_tgkill, vt_sys0(SYS_getpid), tid, 0) == 0)
        vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&ms, 0);
}

/* After a start that has failed: nothing is left of it, above all no kernel thread, as the program now needs its own. */
static void stop(unsigned before, bool keeper)
{
    struct timespec ms = {0, 1000000};
    if (keeper)
        while (!atomic_load_explicit(&keeper_tid, memory_order_acquire))
            vt_sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&ms, 0);
    atomic_store_explicit(&stopped, true, memory_order_seq_cst);
    if (keeper) {
        vt_keeper_call();
        await_end(atomic_load_explicit(&keeper_tid, memory_order_relaxed));
    }
    /* No more of them come now, and none has a place yet. */
    uint32_t seen;
    while ((seen = atomic_load_explicit(&joined, memory_order_acquire)) != before + vt_sched.ncarriers)
        vt_sys_futex_wait(&joined, seen, NULL);
    for (struct vt_carrier *c = vt_sched.carriers; c; c = c->all_next) {
        atomic_store_explicit(&c->wake, 1, memory_order_release);
        vt_sys_futex_wake(&c->wake, 1);
        await_end(c->tid);
    }
    vt_slot_surplus = NULL;
    vt_own_fork_child();
    memset(&vt_sched, 0, sizeof vt_sched);
}

int vt_sched_start(void)
{
    int err;
    uint32_t before = atomic_load_explicit(&joined, memory_order_relaxed);
    atomic_store_explicit(&stopped, false, memory_order_relaxed);
    atomic_store_explicit(&keeper_tid, 0, memory_order_relaxed);
    vt_arch_init();
    vt_barrier_init();
    vt_park_start();
    if ((err = vt_ring_choose(vt_config.io)) || (err = vt_places_make(vt_config.carriers)))
        return err;
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        if ((err = vt_ring_open(&vt_sched.places[i])) == 0)
            continue;
        if (i == 0)
            return err;
        vt_say("only %u of %u carriers: no ring for more (error %d)", i, vt_sched.nplaces, err);
        vt_sched.nplaces = i;
    }
    vt_places_open();
    vt_sched.max_carriers = vt_config.max_carriers;
    /* One for each place, as far as sensible at once, and a spare. More come as they are needed. */
    unsigned first = vt_sched.nplaces < 8 ? vt_sched.nplaces + 1 : 8;
    for (unsigned i = 0; i < first; i++)
        if (!carrier_start())
            break;
    atomic_store_explicit(&keeper_word, 1, memory_order_relaxed);
    vt_slot_surplus = slot_surplus;
    err = vt_sched.ncarriers ? vt_kernel_thread(keeper_main, NULL, VT_KEEPER_STACK) : EAGAIN;
    bool keeper = err == 0;
    if (keeper)
        err = vt_monitor_start();
    if (err) {
        stop(before, keeper);
        return err;
    }
    vt_setid_start();
    vt_selfdump_start();
    vt_pinned_start();
    return 0;
}

void vt_sched_fork_child(void)
{
    vt_own_fork_child();
    vt_kstack_fork_child();
    vt_ring_fork_child();
    /* What the parent's places and carriers had stays where it is, unused. */
    memset(&vt_sched, 0, sizeof vt_sched);
    vt_monitor_fork_child();
    vt_clock_fork_child();
    vt_catch_fork_child();
    vt_help_fork_child();
    vt_selfdump_fork_child();
    vt_pinned_fork_child();
}
