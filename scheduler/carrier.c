#include "chaos.h"
#include "config.h"
#include "handoff.h"
#include "monitor.h"
#include "park.h"
#include "ring.h"
#include "stats.h"
#include "place.h"
#include "setid.h"
#include "sys.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A carrier's own stack: the loop, ring and timers, and a frame for a signal of libc's own (setuid). */
#define VT_CARRIER_STACK ((size_t)128 << 10)
#define VT_KEEPER_STACK  ((size_t)64 << 10)

struct vt_host vt_host = {.thread_create = pthread_create};

static _Atomic uint32_t keeper_word; /* 0 asleep, 1 not, 2 called since */
static _Atomic uint32_t joined;      /* carriers that have been among the spares: the keeper waits for it to grow */

/* --- spares --------------------------------------------------------------------------------------------------------- */

/* Waits until somebody gives c a place. */
static void become_spare(struct vt_carrier *c, bool first)
{
    if (c->kernel_mask != VT_ALL_SIGNALS) {
        c->kernel_mask = VT_ALL_SIGNALS;
        vt_sys_sigmask(VT_ALL_SIGNALS);
    }
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
    /* The place may have been idle, and the monitor asleep because all were. */
    vt_monitor_wake();
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
    become_spare(c, true);
    for (;;) {
        struct vt_place *p = atomic_load_explicit(&c->place, memory_order_acquire);
        if (p)
            vt_run(c, p, vt_find(c, p));
        else
            become_spare(c, false);
    }
    return NULL;
}

static struct vt_carrier *carrier_make(unsigned index)
{
    struct vt_carrier *c = vt_sys_map(sizeof *c);
    if (!c)
        return NULL;
    c->index = index;
    c->self.kind = VT_KERNEL;
    c->self.carrier = c;
    atomic_store_explicit(&c->self.crit, 1, memory_order_relaxed); /* for ever: it is all scheduler */
    c->kernel_mask = VT_ALL_SIGNALS;
    return c;
}

int vt_kernel_thread(void *(*main)(void *), void *arg, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attr;
    uint64_t all = VT_ALL_SIGNALS, old = 0;
    int err = pthread_attr_init(&attr);
    if (err)
        return err;
    pthread_attr_setstacksize(&attr, stack);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, sizeof all);
    err = vt_host.thread_create(&thread, &attr, main, arg);
    vt_sys4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, sizeof old);
    pthread_attr_destroy(&attr);
    return err;
}

/* Makes one more carrier, which joins the spares by itself. Kernel threads only, not in a section: it calls libc, which may
 * wait. */
static bool carrier_start(void)
{
    vt_lock(&vt_sched.spare_lock);
    bool may = vt_sched.ncarriers < vt_sched.max_carriers;
    unsigned index = vt_sched.ncarriers;
    if (may)
        vt_sched.ncarriers++;
    vt_unlock(&vt_sched.spare_lock);
    static _Atomic bool said;
    if (!may)
        return false;
    struct vt_carrier *c = carrier_make(index);
    int err = c ? vt_kernel_thread(carrier_main, c, VT_CARRIER_STACK) : ENOMEM;
    if (err == 0)
        return true;
    if (c)
        vt_sys2(SYS_munmap, (long)c, sizeof *c);
    vt_lock(&vt_sched.spare_lock);
    vt_sched.ncarriers--;
    vt_unlock(&vt_sched.spare_lock);
    if (!atomic_exchange(&said, true))
        vt_say("cannot make carrier %u (error %d): threads that block may delay others", index, err);
    return false;
}

/* The keeper, a kernel thread of its own, sees to it that there is a spare carrier whenever there can be: so whoever is in
 * need finds one, and need not make one in a section, or on a carrier that others wait for. */
static void keeper_call(void)
{
    if (atomic_exchange_explicit(&keeper_word, 2, memory_order_acq_rel) == 0)
        vt_sys_futex_wake(&keeper_word, 1);
}

static void *keeper_main(void *arg)
{
    vt_sys2(SYS_prctl, 15 /* PR_SET_NAME */, (long)"vt-keeper");
    for (;;) {
        uint32_t not_called = 1;
        unsigned seen = atomic_load_explicit(&joined, memory_order_acquire);
        while (!__atomic_load_n(&vt_sched.spares, __ATOMIC_RELAXED) && carrier_start()) {
            /* Until it has joined the spares; by then somebody may have come for it. */
            while (atomic_load_explicit(&joined, memory_order_acquire) == seen)
                vt_sys_futex_wait(&joined, seen, NULL);
            seen = atomic_load_explicit(&joined, memory_order_acquire);
        }
        if (atomic_compare_exchange_strong_explicit(&keeper_word, &not_called, 0, memory_order_acq_rel,
                                                    memory_order_acquire))
            while (atomic_load_explicit(&keeper_word, memory_order_acquire) == 0)
                vt_sys_futex_wait(&keeper_word, 0, NULL);
        atomic_store_explicit(&keeper_word, 1, memory_order_release);
    }
    return arg;
}

struct vt_carrier *vt_spare_take(void)
{
    vt_lock(&vt_sched.spare_lock);
    struct vt_carrier *c = vt_sched.spares;
    if (c)
        vt_sched.spares = c->spare_next;
    bool last = !vt_sched.spares;
    vt_unlock(&vt_sched.spare_lock);
    if (last)
        keeper_call();
    return c;
}

void vt_spare_return(struct vt_carrier *c)
{
    vt_lock(&vt_sched.spare_lock);
    c->spare_next = vt_sched.spares;
    vt_sched.spares = c;
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

/* Somebody needs a carrier, and there is none. */
static void out_of_carriers(void)
{
    static _Atomic bool said;
    /* Below the limit the keeper is at work on one. */
    if (vt_sched.ncarriers >= vt_sched.max_carriers && !atomic_exchange(&said, true))
        vt_say("all %u carriers of VTHREAD_MAX_CARRIERS are in use: threads that block may delay others",
               vt_sched.max_carriers);
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
        out_of_carriers();
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

bool vt_handoff_by_monitor(struct vt_place *p, struct vt_carrier *c, struct vt_thread *t, uint64_t mounts)
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
        atomic_store_explicit(&c->place, NULL, memory_order_release);
        vt_chaos();
        atomic_store_explicit(&p->carrier, NULL, memory_order_release);
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

void vt_handoff_begin(const char *what)
{
    if (!vt_is_virtual())
        return;
    int saved = errno;
    struct vt_thread *t = vt_enter();
    struct vt_carrier *c = t->carrier;
    struct vt_place *p = atomic_load_explicit(&c->place, memory_order_relaxed);
    vt_count_handoff(what);
    t->wait_what = what;
    if (p) {
        atomic_store_explicit(&c->place, NULL, memory_order_release);
        vt_chaos();
        atomic_store_explicit(&p->carrier, NULL, memory_order_release);
        c->lost = p;
        give_away(p);
    }
    vt_leave(t);
    errno = saved;
}

void vt_handoff_end(void)
{
    if (!vt_is_virtual())
        return;
    int saved = errno;
    struct vt_thread *t = vt_enter();
    struct vt_carrier *c = t->carrier;
    t->wait_what = NULL;
    if (!atomic_load_explicit(&c->place, memory_order_relaxed) &&
        atomic_load_explicit(&vt_sched.nidle, memory_order_relaxed)) {
        struct vt_place *p = vt_place_take_unattended(c->lost);
        vt_chaos();
        if (p) {
            atomic_store_explicit(&p->carrier, c, memory_order_release);
            vt_chaos();
            atomic_store_explicit(&c->place, p, memory_order_release);
            vt_monitor_wake();
        }
    }
    vt_leave(t);
    errno = saved;
}

/* --- start ---------------------------------------------------------------------------------------------------------- */

int vt_sched_start(void)
{
    int err;
    vt_arch_init();
    vt_barrier_init();
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
        if (!carrier_start() && i == 0)
            return EAGAIN;
    atomic_store_explicit(&keeper_word, 1, memory_order_relaxed);
    if ((err = vt_kernel_thread(keeper_main, NULL, VT_KEEPER_STACK)) == 0)
        err = vt_monitor_start();
    vt_setid_start();
    return err;
}

void vt_sched_fork_child(void)
{
    for (unsigned i = 0; i < vt_sched.nplaces; i++)
        vt_ring_abandon(&vt_sched.places[i]);
    /* What the parent's places and carriers had stays where it is, unused. */
    memset(&vt_sched, 0, sizeof vt_sched);
    vt_monitor_fork_child();
}
