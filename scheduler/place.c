#include "place.h"

#include "chaos.h"
#include "config.h"
#include "cputime.h"
#include "monitor.h"
#include "park.h"
#include "pinned.h"
#include "probe.h"
#include "putoff.h"
#include "ring.h"
#include "sys.h"

#include <errno.h>

/* After so many switches from thread to thread the carrier looks round: ring, timers, other places. */
#define VT_DIRECT_MAX 32
/* After so many picks of the slot for the newest in a row, the queue has its turn: a pair that wakes each other must not
 * starve the rest. */
#define VT_NEXT_STREAK 16
/* Every so many picks the process's queue comes before the place's own. Prime, so that it keeps no step with programs. */
#define VT_GLOBAL_TURN 61
#define VT_SOLO_MAX    1023
/* Who yields and finds nobody waiting here asks the kernel, for the sake of others than virtual threads, once in so many
 * times: less than a microsecond of waiting more for them, and many system calls less for who waits in a loop of yields. */
#define VT_LONE_YIELDS 16
/* A sleep shorter than this was hardly worth it: a carrier may spin first, some 20 us. */
#define VT_SOON  UINT64_C(50000)
#define VT_SPINS 60
/* So many places are looked at before the carrier looks at its own ring again, and in a turn of a spin: what their owners
 * write is fetched for that, some 100 ns each, and they fetch it back. */
#define VT_LOOK_PLACES 8
/* Of so many threads that are made runnable at a place, the delay of one is measured: that costs two looks at the clock. */
#define VT_MEASURE_ONE 64

struct vt_sched vt_sched;

/* --- mounting --------------------------------------------------------------------------------------------------- */

static void push_last(struct vt_place *p, struct vt_task *task)
{
    /* What does not fit is the newest, so it comes behind the others in the process's queue: each look-round takes as much from
     * there as it has run from here (vt_find), so that nobody waits for longer than in one long queue. */
    if (!vt_runq_push(&p->runq, task))
        vt_globq_push(&vt_sched.globq, task);
}

static struct vt_task *take_global(struct vt_place *p, size_t max)
{
    struct vt_task_list list = VT_TASK_LIST_INIT;
    if (!vt_globq_pop(&vt_sched.globq, max, &list))
        return NULL;
    struct vt_task *first = vt_task_list_pop(&list);
    struct vt_task *task;
    while ((task = vt_task_list_pop(&list)))
        push_last(p, task);
    return first;
}

/* The thread that p should run next, of those that p itself knows of. */
static struct vt_thread *pick(struct vt_place *p)
{
    struct vt_task *task;
    if (++p->picks % VT_GLOBAL_TURN == 0 && vt_globq_len(&vt_sched.globq) && (task = take_global(p, 1)))
        return (struct vt_thread *)task;
    if (atomic_load_explicit(&p->next, memory_order_relaxed) &&
        (task = atomic_exchange_explicit(&p->next, NULL, memory_order_acquire))) {
        if (++p->next_streak <= VT_NEXT_STREAK || vt_runq_len(&p->runq) == 0)
            return (struct vt_thread *)task;
        push_last(p, task);
    }
    p->next_streak = 0;
    return (struct vt_thread *)vt_runq_pop(&p->runq);
}

/* When t, which has been made runnable, was: for a sample exactly, else by the place's clock. */
static uint64_t runnable_since(struct vt_place *p)
{
    if (__builtin_expect(p->stats.wakes++ % VT_MEASURE_ONE == 0, 0))
        return vt_now() | VT_MEASURED;
    return vt_place_clock(p);
}

/* The same for who has no place, and is about to take a lock that all share anyway. */
static uint64_t runnable_outside(void)
{
    static _Atomic uint32_t n;
    return atomic_fetch_add_explicit(&n, 1, memory_order_relaxed) % VT_MEASURE_ONE == 0 ? vt_now() | VT_MEASURED : 0;
}

static void measured(struct vt_place *p, uint64_t since)
{
    uint64_t now = vt_now(), delay = now > since ? now - since : 0;
    unsigned bucket = delay ? 64 - (unsigned)__builtin_clzll(delay) : 0;
    p->stats.delay[bucket < VT_DELAYS ? bucket : VT_DELAYS - 1]++;
    if (delay > p->stats.delay_most)
        p->stats.delay_most = delay;
}

/* The kernel's mask is to be t's. What was put off comes now, or goes to others: except what a thread blocks that has the
 * kernel thread to itself. */
static void __attribute__((noinline)) take_mask(struct vt_carrier *c, struct vt_thread *t)
{
    if (c->put_off && t->kind == VT_VIRTUAL)
        vt_signal_give_back(c, t->sigmask);
    c->kernel_mask = t->sigmask;
    vt_sys_sigmask(t->sigmask);
}

static void mount(struct vt_carrier *c, struct vt_place *p, struct vt_thread *t)
{
    VT_PROBE2(mount, t->tid, c->index);
    t->carrier = c;
    t->turns++;
    atomic_store_explicit(&c->mounted, t, memory_order_relaxed);
    if (__builtin_expect(p != NULL, 1)) {
        if (__builtin_expect(t->since & VT_MEASURED, 0))
            measured(p, t->since);
        t->since = vt_place_clock(p);
        atomic_store_explicit(&p->mounts, atomic_load_explicit(&p->mounts, memory_order_relaxed) + 1, memory_order_relaxed);
    }
    if (__builtin_expect(c->kernel_mask != t->sigmask, 0))
        take_mask(c, t);
    if (__builtin_expect(c->alt_stack != t->alt_stack, 0))
        vt_set_alt_stack(c, t);
}

void vt_run_after(struct vt_carrier *c)
{
    void (*after)(struct vt_carrier *, void *) = c->after;
    if (after) {
        c->after = NULL;
        after(c, c->after_arg);
    }
}

static inline __attribute__((always_inline)) void unmount(struct vt_thread *t, void (*after)(struct vt_carrier *, void *),
                                                          bool lodge)
{
    struct vt_carrier *c = t->carrier;
    struct vt_place *p = atomic_load_explicit(&c->place, memory_order_relaxed);
    struct vt_thread *next = NULL;
    VT_PROBE1(unmount, t->tid);
    if (__builtin_expect(!p, 0))
        vt_pinned_end(c, t);
    if (p && ++p->direct < VT_DIRECT_MAX)
        next = pick(p);
    c->after = after;
    c->after_arg = t;
    if (__builtin_expect(vt_cpu_kept, 0))
        vt_cpu_leave(c, t);
    if (next) {
        p->stats.direct++;
        vt_chaos();
        mount(c, p, next);
        vt_chaos();
        vt_context_switch(&t->ctx, &next->ctx, next->tp);
    } else {
        if (lodge && p)
            c->lodger = t;
        atomic_store_explicit(&c->mounted, NULL, memory_order_relaxed);
        vt_chaos();
        vt_context_switch(&t->ctx, &c->ctx, c->lodger ? t->tp : c->tp);
    }
    vt_chaos();
    c = t->carrier;
    vt_run_after(c);
    vt_chaos();
    vt_mask_mounted(c, t);
}

void vt_unmount(struct vt_thread *t, void (*after)(struct vt_carrier *, void *))
{
    unmount(t, after, false);
}

void vt_unmount_lodging(struct vt_thread *t, void (*after)(struct vt_carrier *, void *))
{
    unmount(t, after, true);
}

void vt_mask_mounted(struct vt_carrier *c, struct vt_thread *t)
{
    /* A signal was put off in between, and is blocked in the kernel since; or the switch has brought an old mask. */
    if (__builtin_expect(vt_arch_carries_mask || c->kernel_mask != t->sigmask, 0))
        take_mask(c, t);
}

/* --- making runnable ---------------------------------------------------------------------------------------------- */

/* A lone thread lies in the slot of a place whose carrier is running another. Mostly the running one parks at once (a
 * ping-pong) and another carrier would come in vain; so the calls become rarer until one of them helps. What is missed
 * the monitor sees. */
static void solo_wake(struct vt_place *p)
{
    if (p->solo_skip) {
        p->solo_skip--;
        return;
    }
    p->solo_wait = p->solo_wait < VT_SOLO_MAX / 2 ? 2 * p->solo_wait + 1 : VT_SOLO_MAX;
    p->solo_skip = p->solo_wait;
    vt_wake_idle();
}

void vt_ready(struct vt_thread *t)
{
    struct vt_carrier *c = vt_self->carrier;
    struct vt_place *p = c ? atomic_load_explicit(&c->place, memory_order_relaxed) : NULL;
    t->since = p ? runnable_since(p) : runnable_outside();
    if (!p) {
        vt_globq_push(&vt_sched.globq, &t->task);
        vt_wake_idle();
        return;
    }
    /* seq_cst: before the look at nidle in vt_wake_idle, against a carrier that says it is idle and then looks here. */
    struct vt_task *old = atomic_exchange_explicit(&p->next, &t->task, memory_order_seq_cst);
    vt_chaos();
    if (old) {
        push_last(p, old);
        vt_chaos();
        atomic_thread_fence(memory_order_seq_cst);
        vt_wake_idle();
    } else if (atomic_load_explicit(&vt_sched.nidle, memory_order_relaxed) &&
               atomic_load_explicit(&c->mounted, memory_order_relaxed)) {
        solo_wake(p);
    }
}

void vt_ready_last(struct vt_thread *t)
{
    struct vt_carrier *c = vt_self->carrier;
    struct vt_place *p = c ? atomic_load_explicit(&c->place, memory_order_relaxed) : NULL;
    t->since = p ? runnable_since(p) : runnable_outside();
    if (!p) {
        vt_globq_push(&vt_sched.globq, &t->task);
        vt_wake_idle();
        return;
    }
    push_last(p, &t->task);
    vt_chaos();
    if (vt_runq_len(&p->runq) > 1 || atomic_load_explicit(&c->mounted, memory_order_relaxed)) {
        atomic_thread_fence(memory_order_seq_cst); /* as in vt_ready */
        vt_wake_idle();
    }
}

/* --- idle places -------------------------------------------------------------------------------------------------- */

/* Whether there is a thread in the process's queue, or in that of one of n places from `from` on, other than p, which may be
 * NULL. */
static bool work_among(const struct vt_place *p, unsigned from, unsigned n)
{
    if (vt_globq_len(&vt_sched.globq))
        return true;
    for (unsigned i = from; n--; i++) {
        const struct vt_place *q = &vt_sched.places[i % vt_sched.nplaces];
        if (q != p && vt_runq_len(&q->runq))
            return true;
    }
    return false;
}

/* Whether there is a thread in a queue, other than that of p, which may be NULL. */
static bool work_elsewhere(const struct vt_place *p)
{
    return work_among(p, 0, vt_sched.nplaces);
}

/* Under idle_lock. */
static bool idle_remove(struct vt_place *p)
{
    if (!atomic_load_explicit(&p->idle, memory_order_relaxed))
        return false;
    /* Without a walk along the list: each place on the way would be a line to fetch, under a lock that all share. */
    if (p->idle_prev)
        p->idle_prev->idle_next = p->idle_next;
    else
        vt_sched.idle = p->idle_next;
    if (p->idle_next)
        p->idle_next->idle_prev = p->idle_prev;
    atomic_store_explicit(&p->idle, false, memory_order_relaxed);
    atomic_fetch_sub_explicit(&vt_sched.nidle, 1, memory_order_seq_cst);
    return true;
}

void vt_place_set_idle(struct vt_place *p)
{
    vt_lock(&vt_sched.idle_lock);
    p->idle_prev = NULL;
    p->idle_next = vt_sched.idle;
    if (p->idle_next)
        p->idle_next->idle_prev = p;
    vt_sched.idle = p;
    p->called = false;
    atomic_store_explicit(&p->idle, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&vt_sched.nidle, 1, memory_order_seq_cst);
    vt_unlock(&vt_sched.idle_lock);
}

struct vt_place *vt_place_take_unattended(struct vt_place *p)
{
    struct vt_place *found = NULL;
    vt_lock(&vt_sched.idle_lock);
    if (p && atomic_load_explicit(&p->idle, memory_order_relaxed) && !atomic_load_explicit(&p->carrier, memory_order_relaxed)) {
        found = p;
    } else {
        for (struct vt_place *q = vt_sched.idle; q && !found; q = q->idle_next)
            if (!atomic_load_explicit(&q->carrier, memory_order_relaxed))
                found = q;
    }
    if (found)
        idle_remove(found);
    vt_unlock(&vt_sched.idle_lock);
    return found;
}

/* Calls a carrier to look for work: one that sleeps at its place, or a spare for a place that nobody attends. */
static bool call_one(void)
{
    struct vt_carrier *spare = NULL;
    vt_lock(&vt_sched.idle_lock);
    struct vt_place *p = vt_sched.idle;
    if (p && !atomic_load_explicit(&p->carrier, memory_order_relaxed) && !(spare = vt_spare_take()))
        while (p && !atomic_load_explicit(&p->carrier, memory_order_relaxed))
            p = p->idle_next;
    if (p) {
        idle_remove(p);
        p->called = true;
    }
    bool lacking = !p && vt_sched.idle;
    vt_unlock(&vt_sched.idle_lock);
    if (lacking)
        vt_monitor_wake(); /* it tries again until there is a carrier */
    if (!p)
        return false;
    vt_chaos();
    if (spare) {
        spare->searching = true;
        vt_spare_give(spare, p);
    } else {
        vt_ring_wake(p); /* it stays attended: its carrier will find that it has been called */
    }
    return true;
}

/* Whether call_one would find somebody. */
static bool anyone(void)
{
    vt_lock(&vt_sched.idle_lock);
    struct vt_place *p = vt_sched.idle;
    if (p && !__atomic_load_n(&vt_sched.spares, __ATOMIC_RELAXED))
        while (p && !atomic_load_explicit(&p->carrier, memory_order_relaxed))
            p = p->idle_next;
    vt_unlock(&vt_sched.idle_lock);
    return p != NULL;
}

void vt_wake_idle(void)
{
    do {
        unsigned none = 0;
        if (atomic_load_explicit(&vt_sched.nidle, memory_order_seq_cst) == 0 ||
            atomic_load_explicit(&vt_sched.searching, memory_order_seq_cst) != 0 ||
            !atomic_compare_exchange_strong_explicit(&vt_sched.searching, &none, 1, memory_order_seq_cst, memory_order_relaxed))
            return;
        vt_chaos();
        if (call_one())
            return;
        vt_chaos();
        atomic_store_explicit(&vt_sched.searching, 0, memory_order_seq_cst);
        vt_chaos();
        /* Who queued something meanwhile relied on us, and a carrier may have gone to sleep since. */
    } while (work_elsewhere(NULL) && anyone());
}

void vt_wake_place(struct vt_place *p)
{
    struct vt_carrier *spare = NULL;
    bool attended = false, lacking = false;
    vt_lock(&vt_sched.idle_lock);
    if (atomic_load_explicit(&p->idle, memory_order_relaxed)) {
        attended = atomic_load_explicit(&p->carrier, memory_order_relaxed) != NULL;
        /* Without a spare it stays as it is: the next carrier that joins the spares, and the monitor again and again, look
         * for it (vt_adopt_orphans). */
        if (attended || (spare = vt_spare_take()))
            idle_remove(p);
        else
            lacking = true;
    }
    vt_unlock(&vt_sched.idle_lock);
    if (lacking)
        vt_monitor_wake();
    vt_chaos();
    if (attended)
        vt_ring_wake(p);
    else if (spare)
        vt_spare_give(spare, p);
}

bool vt_adopt_orphans(void)
{
    bool some = false;
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        struct vt_place *p = &vt_sched.places[i];
        if (atomic_load_explicit(&p->idle, memory_order_relaxed) && !atomic_load_explicit(&p->carrier, memory_order_relaxed) &&
            vt_place_needs_carrier(p)) {
            vt_wake_place(p);
            some |= atomic_load_explicit(&p->idle, memory_order_relaxed) &&
                    !atomic_load_explicit(&p->carrier, memory_order_relaxed);
        }
    }
    return some;
}

bool vt_place_needs_carrier(const struct vt_place *p)
{
    return vt_runq_len(&p->runq) || atomic_load_explicit(&p->next, memory_order_relaxed) ||
           atomic_load_explicit(&p->due, memory_order_relaxed) != VT_NEVER || vt_ring_inflight(p) || vt_ring_stirs(p) ||
           vt_globq_len(&vt_sched.globq);
}

/* --- timers ------------------------------------------------------------------------------------------------------- */

void vt_timer_arm(struct vt_place *mine, struct vt_thread *t, uint64_t deadline)
{
    struct vt_place *p = mine ? mine : &vt_sched.places[t->index % vt_sched.nplaces];
    vt_lock(&p->timer_lock);
    vt_wheel_add(&p->wheel, &t->timer, deadline);
    atomic_store_explicit(&t->timer_place, p, memory_order_relaxed);
    uint64_t due = vt_wheel_next(&p->wheel);
    bool earlier = due < atomic_load_explicit(&p->due, memory_order_relaxed);
    if (earlier)
        atomic_store_explicit(&p->due, due, memory_order_seq_cst);
    vt_unlock(&p->timer_lock);
    vt_chaos();
    if (earlier && !mine)
        vt_wake_place(p);
}

void vt_timer_disarm(struct vt_thread *t)
{
    struct vt_place *p = atomic_load_explicit(&t->timer_place, memory_order_acquire);
    if (!p)
        return;
    vt_chaos();
    vt_lock(&p->timer_lock);
    if (vt_wheel_remove(&p->wheel, &t->timer) && vt_wheel_count(&p->wheel) == 0)
        atomic_store_explicit(&p->due, VT_NEVER, memory_order_relaxed);
    atomic_store_explicit(&t->timer_place, NULL, memory_order_relaxed);
    vt_unlock(&p->timer_lock);
}

/* Owner. Copies what has expired before it wakes anybody: a thread that runs may arm its timer again. */
static void expire_timers(struct vt_place *p, uint64_t now)
{
    for (;;) {
        struct vt_thread *expired[64];
        unsigned n = 0;
        vt_lock(&p->timer_lock);
        for (struct vt_timer *timer = vt_wheel_expire(&p->wheel, now, 64), *next; timer; timer = next) {
            /* Read first: as soon as timer_place says so the thread, woken by another, may arm it again elsewhere. */
            next = timer->next;
            struct vt_thread *t = (struct vt_thread *)((char *)timer - offsetof(struct vt_thread, timer));
            atomic_store_explicit(&t->timer_place, NULL, memory_order_release);
            vt_chaos();
            expired[n++] = t;
        }
        uint64_t due = vt_wheel_next(&p->wheel);
        atomic_store_explicit(&p->due, due, memory_order_relaxed);
        vt_unlock(&p->timer_lock);
        p->stats.timers += n;
        vt_chaos();
        for (unsigned i = 0; i < n; i++)
            vt_prefetch_thread(expired[i]);
        for (unsigned i = 0; i < n; i++)
            vt_unblock(expired[i]);
        if (due > now)
            return;
    }
}

/* --- the carrier's loop -------------------------------------------------------------------------------------------- */

static uint32_t random_next(struct vt_carrier *c)
{
    uint32_t x = c->random ? c->random : (uint32_t)c->tid | 1;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return c->random = x;
}

/* Takes the slot of a place whose carrier leaves it lying for some microseconds. */
static struct vt_task *steal_next(struct vt_place *victim)
{
    struct vt_task *task = atomic_load_explicit(&victim->next, memory_order_relaxed);
    if (!task)
        return NULL;
    uint64_t mounts = atomic_load_explicit(&victim->mounts, memory_order_relaxed);
    for (int i = 0; i < 64; i++)
        vt_cpu_relax();
    /* Only a hint: if the slot was emptied and filled with the same thread meanwhile, it is as good to take. */
    if (atomic_load_explicit(&victim->mounts, memory_order_relaxed) != mounts ||
        !atomic_compare_exchange_strong_explicit(&victim->next, &task, NULL, memory_order_acquire, memory_order_relaxed))
        return NULL;
    victim->solo_wait = 0; /* races with the owner, for a guess */
    return task;
}

/* Whether something of its own has come for p while it looked elsewhere: going to sleep would be in vain. Owner. */
static bool own_work(const struct vt_place *p)
{
    uint64_t due = atomic_load_explicit(&p->due, memory_order_relaxed);
    return vt_ring_ready(p) || (due != VT_NEVER && due <= vt_now());
}

/* Takes threads from another place; NULL if there is none, or if p's own ring has something meanwhile. */
static struct vt_thread *steal(struct vt_carrier *c, struct vt_place *p)
{
    unsigned n = vt_sched.nplaces, start = n > 1 ? random_next(c) % n : 0;
    for (unsigned i = 0; i < n; i++) {
        if (i % VT_LOOK_PLACES == VT_LOOK_PLACES - 1 && vt_ring_ready(p))
            return NULL;
        struct vt_place *victim = &vt_sched.places[(start + i) % n];
        struct vt_task *first;
        unsigned got;
        if (victim != p && vt_runq_len(&victim->runq) && (got = vt_runq_steal(&victim->runq, &p->runq, &first)) != 0) {
            p->stats.steals += got;
            return (struct vt_thread *)first;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        if (i % VT_LOOK_PLACES == VT_LOOK_PLACES - 1 && vt_ring_ready(p))
            return NULL;
        struct vt_place *victim = &vt_sched.places[(start + i) % n];
        struct vt_task *task;
        if (victim != p && (task = steal_next(victim))) {
            p->stats.steals++;
            return (struct vt_thread *)task;
        }
    }
    return NULL;
}

/* When work has come soon after the last sleeps began, looks out for it a little longer before sleeping again: that is
 * cheaper than being woken, above all for those who make the work. One carrier at a time. */
static bool spin(struct vt_carrier *c, struct vt_place *p)
{
    unsigned none = 0;
    if (!vt_eager(&c->eager))
        return false;
    if (!c->searching) {
        if (!atomic_compare_exchange_strong_explicit(&vt_sched.searching, &none, 1, memory_order_seq_cst, memory_order_relaxed))
            return false;
        c->searching = true;
    }
    unsigned few = vt_sched.nplaces < VT_LOOK_PLACES ? vt_sched.nplaces : VT_LOOK_PLACES;
    for (unsigned i = 0; i < VT_SPINS; i++) {
        if (work_among(p, p->index + i * few, few) || vt_ring_ready(p)) {
            vt_eager_seen(&c->eager, true);
            return true;
        }
        for (int k = 0; k < 8; k++)
            vt_cpu_relax();
    }
    vt_eager_seen(&c->eager, false);
    return false;
}

/* Whether the lodger of c, if there is one, has been unblocked. */
static bool lodger_called(const struct vt_carrier *c)
{
    return c->lodger && atomic_load_explicit(&c->lodger->token, memory_order_acquire) != VT_LODGED;
}

/* In the context of the thread that runs after it: another carrier may run it from here on. */
static void lodger_leaves(struct vt_carrier *c, void *arg)
{
    struct vt_thread *t = arg;
    uint32_t lodged = VT_LODGED;
    (void)c;
    vt_chaos();
    /* Release: as in park.c. */
    if (!atomic_compare_exchange_strong_explicit(&t->token, &lodged, VT_BLOCKED, memory_order_acq_rel, memory_order_acquire)) {
        vt_chaos();
        atomic_store_explicit(&t->token, VT_NO_PERMIT, memory_order_relaxed);
        vt_ready(t);
    }
}

/* Sleeps until there may be something to do. First it says so, then it looks once more: whoever makes a thread runnable
 * first queues it, then looks for idle places. */
static void sleep_idle(struct vt_carrier *c, struct vt_place *p)
{
    vt_chaos();
    vt_place_set_idle(p);
    vt_chaos();
    if (c->searching) {
        c->searching = false;
        atomic_store_explicit(&vt_sched.searching, 0, memory_order_seq_cst);
    }
    atomic_thread_fence(memory_order_seq_cst);
    vt_chaos();
    if (__builtin_expect(c->put_off != 0, 0))
        vt_signal_give_back(c, UINT64_MAX);
    if (!work_elsewhere(p) && !vt_ring_ready(p) && !lodger_called(c)) { /* mail for the ring comes like threads do */
        uint64_t before = vt_now();
        p->stats.sleeps++;
        vt_chaos();
        vt_ring_wait(p, atomic_load_explicit(&p->due, memory_order_relaxed));
        p->clock = vt_now();
        if (p->clock - before < VT_SOON && vt_sched.nplaces > 1)
            vt_eager_slept(&c->eager);
    }
    vt_chaos();
    vt_lock(&vt_sched.idle_lock);
    idle_remove(p);
    c->searching = p->called;
    p->called = false;
    vt_unlock(&vt_sched.idle_lock);
    vt_monitor_wake();
}

/* Takes from the process's queue what a round of switches has made room for: before those that have become runnable
 * meanwhile, which are newer. */
static void refill(struct vt_place *p)
{
    size_t room = VT_RUNQ_SIZE - vt_runq_len(&p->runq), n = vt_globq_len(&vt_sched.globq) / vt_sched.nplaces;
    if (n == 0 || room == 0)
        return;
    struct vt_task_list list = VT_TASK_LIST_INIT;
    struct vt_task *task;
    vt_globq_pop(&vt_sched.globq, n < room ? n : room, &list);
    while ((task = vt_task_list_pop(&list)))
        push_last(p, task);
}

/* The next thread for c, which attends p, to run; waits for one. */
struct vt_thread *vt_find(struct vt_carrier *c, struct vt_place *p)
{
    struct vt_thread *t;
    for (;;) {
        p->direct = 0;
        refill(p);
        if (vt_ring_stirs(p)) {
            vt_ring_submit(p);
            vt_ring_reap(p);
        }
        uint64_t due = atomic_load_explicit(&p->due, memory_order_relaxed), now;
        if (due != VT_NEVER && (p->clock = now = vt_now()) >= due)
            expire_timers(p, now);
        if (lodger_called(c)) {
            t = c->lodger;
            /* The permit is the wake-up itself; what was unblocked before this the thread sees when it looks. */
            atomic_exchange_explicit(&t->token, VT_NO_PERMIT, memory_order_acquire);
            p->stats.lodged++;
            break;
        }
        size_t share = vt_globq_len(&vt_sched.globq) / vt_sched.nplaces + 1;
        if ((t = pick(p)) || (t = (struct vt_thread *)take_global(p, share < 64 ? share : 64)) || (t = steal(c, p)))
            break;
        if (!own_work(p) && !vt_slot_ahead() && !spin(c, p))
            sleep_idle(c, p);
    }
    vt_chaos();
    if (c->searching) {
        c->searching = false;
        atomic_store_explicit(&vt_sched.searching, 0, memory_order_seq_cst);
        vt_chaos();
        /* The one who found work sees to it that the next one looks. */
        if (vt_runq_len(&p->runq) || work_elsewhere(p))
            vt_wake_idle();
    }
    return t;
}

void vt_run(struct vt_carrier *c, struct vt_place *p, struct vt_thread *t)
{
    if (__builtin_expect(vt_cpu_kept, 0))
        vt_cpu_begin(c);
    if (c->lodger && c->lodger != t) {
        c->after = lodger_leaves;
        c->after_arg = c->lodger;
    }
    c->lodger = NULL;
    mount(c, p, t);
    vt_context_switch(&c->ctx, &t->ctx, t->tp);
    vt_run_after(c);
}

/* --- places for those who lost theirs ---------------------------------------------------------------------------- */

/* Behind the others, without calling for help as long as the one that runs is all that it waits for. */
static void requeue(struct vt_carrier *c, void *arg)
{
    struct vt_place *p = atomic_load_explicit(&c->place, memory_order_relaxed);
    struct vt_thread *t = arg;
    if (!p) {
        vt_ready_last(t);
        return;
    }
    push_last(p, &t->task);
    if (atomic_load_explicit(&vt_sched.nidle, memory_order_relaxed)) {
        if (vt_runq_len(&p->runq) > 1)
            vt_wake_idle();
        else
            solo_wake(p);
    }
}

static void requeue_global(struct vt_carrier *c, void *arg)
{
    struct vt_thread *t = arg;
    (void)c;
    vt_globq_push(&vt_sched.globq, &t->task);
    vt_wake_idle();
}

struct vt_place *vt_need_place(struct vt_thread *t)
{
    struct vt_place *p = atomic_load_explicit(&t->carrier->place, memory_order_relaxed);
    if (p)
        return p;
    /* Who mounts it has a place, which cannot be taken before it leaves its section. */
    vt_unmount(t, requeue_global);
    return atomic_load_explicit(&t->carrier->place, memory_order_relaxed);
}

void vt_yield(void)
{
    struct vt_thread *t = vt_enter();
    struct vt_place *p = NULL;
    if (t->kind == VT_VIRTUAL)
        p = atomic_load_explicit(&t->carrier->place, memory_order_relaxed);
    if (!p) {
        vt_leave(t);
        vt_sys0(SYS_sched_yield);
        return;
    }
    p->stats.yields++;
    bool others =
        vt_runq_len(&p->runq) || atomic_load_explicit(&p->next, memory_order_relaxed) || vt_globq_len(&vt_sched.globq);
    uint64_t due = others ? VT_NEVER : atomic_load_explicit(&p->due, memory_order_relaxed);
    if (others || vt_ring_stirs(p) || (due != VT_NEVER && due <= vt_now())) {
        vt_unmount(t, requeue);
        vt_leave(t);
        return;
    }
    bool kernel = ++p->lone_yields % VT_LONE_YIELDS == 0;
    vt_leave(t);
    if (kernel)
        vt_sys0(SYS_sched_yield);
    else
        vt_cpu_relax();
}

/* --- start -------------------------------------------------------------------------------------------------------- */

int vt_places_make(unsigned n)
{
    size_t size = sizeof(struct vt_place) * n;
    void *mem = vt_sys_map(size);
    if (!mem)
        return ENOMEM;
    vt_sched.places = mem;
    vt_sched.nplaces = n;
    uint64_t now = vt_now();
    vt_globq_init(&vt_sched.globq);
    for (unsigned i = 0; i < n; i++) {
        struct vt_place *p = &vt_sched.places[i];
        p->index = i;
        p->clock = now;
        vt_runq_init(&p->runq);
        vt_wheel_init(&p->wheel, now);
        atomic_store_explicit(&p->due, VT_NEVER, memory_order_relaxed);
    }
    return 0;
}

void vt_places_open(void)
{
    for (unsigned i = vt_sched.nplaces; i-- > 0;)
        vt_place_set_idle(&vt_sched.places[i]);
}
