#include "park.h"

#include "bound.h"
#include "chaos.h"
#include "clock.h"
#include "monitor.h"
#include "place.h"
#include "probe.h"
#include "sys.h"

#include <errno.h>

/* Linux 3.14, include/uapi/linux/sched.h. */
#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif

/* --- permits -------------------------------------------------------------------------------------------------------- */

/* Of a stack that was left, what is touched first on coming back. */
#define VT_STACK_LINES 8

int (*vt_clock_gettime)(clockid_t, struct timespec *) = clock_gettime;

uint64_t vt_now(void)
{
    struct timespec ts;
    vt_clock_gettime(CLOCK_MONOTONIC, &ts); /* the vDSO's: no system call is made */
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* In the context that runs after t's: t may be unblocked from here on. */
static void now_blocked(struct vt_carrier *c, void *arg)
{
    struct vt_thread *t = arg;
    uint32_t none = VT_NO_PERMIT;
    vt_chaos();
    /* A signal that was put off on the way here is to be taken now: this block is over. The permit, if any, stays. */
    if (!t->settling && atomic_load_explicit(&t->deferred, memory_order_relaxed)) {
        if (c->lodger != t)
            vt_ready(t);
        return;
    }
    if (c->lodger == t) {
        /* Its carrier looks whether it still says so. */
        atomic_compare_exchange_strong_explicit(&t->token, &none, VT_LODGED, memory_order_acq_rel, memory_order_relaxed);
        return;
    }
    /* Release: t's context, saved by the switch, is seen by whoever unblocks it. */
    if (!atomic_compare_exchange_strong_explicit(&t->token, &none, VT_BLOCKED, memory_order_acq_rel, memory_order_acquire)) {
        vt_chaos();
        atomic_store_explicit(&t->token, VT_NO_PERMIT, memory_order_relaxed);
        vt_ready(t);
    }
}

static bool take_permit(struct vt_thread *t)
{
    uint32_t permit = VT_PERMIT;
    return atomic_load_explicit(&t->token, memory_order_relaxed) == VT_PERMIT &&
           atomic_compare_exchange_strong_explicit(&t->token, &permit, VT_NO_PERMIT, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Whether what ends a wait mostly comes from the ring or the timers of the place where it began. */
static bool ended_by_carrier(uint32_t kind)
{
    return kind == VT_WAIT_RING || kind == VT_WAIT_READY || kind == VT_WAIT_POLL || kind == VT_WAIT_SLEEP;
}

static void block_virtual(struct vt_thread *t, uint64_t deadline)
{
    struct vt_place *p = atomic_load_explicit(&t->carrier->place, memory_order_relaxed);
    if (p) {
        p->stats.parks[t->wait_kind % 16]++;
        t->since = vt_place_clock(p);
    }
    VT_PROBE3(park, t->tid, t->wait_kind, t->wait_on);
    if (deadline != VT_NEVER)
        vt_timer_arm(p, t, deadline);
    vt_chaos();
    if (p && ended_by_carrier(t->wait_kind))
        vt_unmount_lodging(t, now_blocked);
    else
        vt_unmount(t, now_blocked);
    vt_chaos();
    if (deadline != VT_NEVER)
        vt_timer_disarm(t);
}

/* A kernel thread that was woken soon after its last sleeps began looks out for its permit a little before it sleeps again,
 * some 10 us: main and a carrier that hand work to each other then make no system call for it. */
#define VT_SOON  UINT64_C(20000)
#define VT_SPINS 30

static void spin_kernel(struct vt_thread *t)
{
    for (int i = 0; i < VT_SPINS; i++) {
        for (int k = 0; k < 8; k++)
            vt_cpu_relax();
        if (atomic_load_explicit(&t->token, memory_order_relaxed) != VT_NO_PERMIT) {
            vt_eager_seen(&t->eager, true);
            return;
        }
    }
    vt_eager_seen(&t->eager, false);
}

static void block_kernel(struct vt_thread *t, uint64_t deadline, bool real)
{
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    uint32_t none = VT_NO_PERMIT;
    if (vt_eager(&t->eager))
        spin_kernel(t);
    if (atomic_compare_exchange_strong_explicit(&t->token, &none, VT_BLOCKED, memory_order_acquire, memory_order_relaxed)) {
        t->since = vt_now() & ~VT_MEASURED;
        t->timer.deadline = deadline; /* never armed: for who looks from outside */
        /* A section no longer: a handler may run while we sleep. */
        vt_leave(t);
        vt_chaos();
        long err = 0;
        while (atomic_load_explicit(&t->token, memory_order_acquire) == VT_BLOCKED && err == 0)
            err = real ? vt_sys_futex_wait_real(&t->token, VT_BLOCKED, &until)
                       : vt_sys_futex_wait(&t->token, VT_BLOCKED, deadline == VT_NEVER ? NULL : &until);
        vt_enter();
        if (t->kind == VT_KERNEL && vt_sched.nplaces > 1 && vt_now() - t->since < VT_SOON)
            vt_eager_slept(&t->eager);
        if (err == -EINTR) /* a handler without SA_RESTART has run, or libc's of a cancellation */
            atomic_fetch_or_explicit(&t->interrupt, VT_SIGNALLED | VT_NORESTART, memory_order_relaxed);
    }
    /* With or without a permit: this block is over. */
    atomic_exchange_explicit(&t->token, VT_NO_PERMIT, memory_order_acquire);
}

void vt_block(uint64_t deadline)
{
    struct vt_thread *t = vt_enter();
    if (!take_permit(t)) {
        /* Not while requests are under way: as a kernel thread it would sleep in the section that they keep it in. */
        if (t->kind != VT_KERNEL && atomic_load_explicit(&t->crit, memory_order_relaxed) == 1)
            vt_bind_waits(t);
        if (t->kind == VT_VIRTUAL)
            block_virtual(t, deadline);
        else
            block_kernel(t, deadline, false);
    }
    vt_leave(t);
}

void vt_block_real(uint64_t deadline)
{
    struct vt_thread *t = vt_enter();
    if (!take_permit(t))
        block_kernel(t, deadline, true);
    vt_leave(t);
}

/* many: one of several that are woken together, which run in their order. */
static void unblock(struct vt_thread *t, bool many)
{
    struct vt_thread *me = vt_enter();
    uint32_t old = atomic_exchange_explicit(&t->token, VT_PERMIT, memory_order_acq_rel);
    if (old == VT_BLOCKED) {
        vt_chaos();
        if (t->kind == VT_VIRTUAL) {
            VT_PROBE2(unpark, t->tid, me->tid);
            /* It is ours alone: whoever else unblocks it now finds a permit. The wake-up itself is the permit. */
            atomic_store_explicit(&t->token, VT_NO_PERMIT, memory_order_relaxed);
            vt_chaos();
            if (many || vt_in_loop(me)) /* the carrier's loop wakes many */
                vt_ready_last(t);
            else
                vt_ready(t);
        } else {
            vt_sys_futex_wake(&t->token, 1);
        }
    } else if (old == VT_LODGED && t != me) {
        vt_chaos();
        /* Its carrier may have seen the permit meanwhile: then another one is called in vain; or none, where t has ended and
         * its descriptor is another thread's. */
        struct vt_carrier *home = __atomic_load_n(&t->carrier, __ATOMIC_RELAXED);
        struct vt_place *p = home ? atomic_load_explicit(&home->place, memory_order_acquire) : NULL;
        vt_chaos();
        if (p)
            vt_wake_place(p);
    }
    vt_leave(me);
}

void vt_prefetch_thread(const struct vt_thread *t)
{
    const char *sp = t->ctx.sp;
    for (unsigned i = 0; i < VT_STACK_LINES; i++)
        __builtin_prefetch(sp + i * 64, 1);
    __builtin_prefetch(t->tp);
}

void vt_unblock(struct vt_thread *t)
{
    unblock(t, false);
}

/* --- queues by address ----------------------------------------------------------------------------------------------- */

#define VT_BUCKET_BITS 14

enum woken {
    VT_NOT_WOKEN = 0,
    VT_WOKEN = 1,
    VT_WOKEN_GRANTED = 2, /* by one who said so: VT_GRANTED */
};

struct waiter {
    struct waiter *next, *prev; /* in the bucket */
    struct vt_thread *thread;
    const void *addr;
    struct bucket *_Atomic bucket; /* changes at a requeue, under both locks */
    uint32_t bits;
    uint32_t priority;      /* of a thread with a real-time policy, when it began to wait, as in the kernel's futex; else 0 */
    _Atomic uint32_t woken; /* enum woken; set with the bucket locked: the waker's last access to the waiter */
    uint32_t process;       /* vt_process when it was queued: after a fork it is in no queue */
};

struct bucket {
    alignas(64) struct vt_lock lock;
    /* Waiters, and threads that are about to be: counted before they compare, so that a waker which has changed the word
     * and sees none here may leave without the lock. */
    _Atomic uint32_t count;
    struct waiter *first, *last;
};

static alignas(4096) struct bucket buckets[1 << VT_BUCKET_BITS];

static struct bucket *bucket_of(const void *addr)
{
    return &buckets[((uintptr_t)addr >> 2) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - VT_BUCKET_BITS)];
}

/* By priority, first in first out among equals: whoever takes the first of an address takes the right one. */
static void enqueue(struct bucket *b, struct waiter *w)
{
    struct waiter *after = b->last;
    if (__builtin_expect(w->priority, 0))
        while (after && after->priority < w->priority)
            after = after->prev;
    w->prev = after;
    w->next = after ? after->next : b->first;
    if (w->prev)
        w->prev->next = w;
    else
        b->first = w;
    if (w->next)
        w->next->prev = w;
    else
        b->last = w;
}

static void dequeue(struct bucket *b, struct waiter *w)
{
    if (w->prev)
        w->prev->next = w->next;
    else
        b->first = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        b->last = w->prev;
    atomic_fetch_sub_explicit(&b->count, 1, memory_order_relaxed);
}

/* What has been seen in the process. While nobody has ever queued here, a process that only forks has nothing to clear. */
enum seen {
    SEEN_NOTHING,
    SEEN_WAITERS,
    SEEN_REALTIME, /* threads may have real-time policies */
};
static _Atomic uint32_t seen;

/* Of virtual threads: their carriers'. */
static uint32_t base_priority;

/* The calling kernel thread's, 1..99, 100 for a deadline, or 0: all other policies are alike. */
static uint32_t own_priority(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {0};
    if (vt_sys4(SYS_sched_getattr, 0, (long)&attr, sizeof attr, 0) != 0)
        return 0;
    return attr.policy == SCHED_DEADLINE ? 100 : attr.priority;
}

void vt_park_realtime(void)
{
    atomic_store_explicit(&seen, SEEN_REALTIME, memory_order_relaxed);
}

void vt_park_start(void)
{
    base_priority = own_priority();
    if (base_priority)
        vt_park_realtime();
}

static __attribute__((noinline, cold)) void see(struct waiter *w)
{
    uint32_t nothing = SEEN_NOTHING;
    if (!atomic_compare_exchange_strong_explicit(&seen, &nothing, SEEN_WAITERS, memory_order_relaxed, memory_order_relaxed) &&
        nothing == SEEN_REALTIME)
        w->priority = w->thread->kind == VT_VIRTUAL ? base_priority : own_priority();
}

/* Counts a waiter in, and locks. */
static void count_and_lock(struct bucket *b)
{
    atomic_fetch_add_explicit(&b->count, 1, memory_order_seq_cst);
    vt_chaos();
    vt_lock(&b->lock);
}

static void unlock_and_uncount(struct bucket *b)
{
    vt_unlock(&b->lock);
    atomic_fetch_sub_explicit(&b->count, 1, memory_order_relaxed);
}

/* A handler has forked while w waited, and this is the child: it is as if it came now. False if it need not wait. */
static bool join_again(struct waiter *w, bool (*check)(void *), void *arg)
{
    struct bucket *b = bucket_of(w->addr);
    bool wait = true;
    vt_enter();
    count_and_lock(b);
    if (check && !check(arg)) {
        unlock_and_uncount(b);
        wait = false;
    } else {
        w->process = vt_process;
        atomic_store_explicit(&w->bucket, b, memory_order_relaxed);
        enqueue(b, w);
        vt_unlock(&b->lock);
    }
    vt_leave(w->thread);
    return wait;
}

/* Takes w out of its queue unless it has been woken. True if it has been. */
static bool give_up(struct waiter *w)
{
    for (;;) {
        struct bucket *b = atomic_load_explicit(&w->bucket, memory_order_acquire);
        vt_chaos();
        vt_lock(&b->lock);
        if (atomic_load_explicit(&w->bucket, memory_order_relaxed) == b) {
            bool woken = atomic_load_explicit(&w->woken, memory_order_relaxed);
            if (!woken)
                dequeue(b, w);
            vt_unlock(&b->lock);
            return woken;
        }
        vt_unlock(&b->lock);
    }
}

void vt_wait_begins(struct vt_thread *t)
{
    if (__builtin_expect(atomic_load_explicit(&t->interrupt, memory_order_relaxed) & (VT_SIGNALLED | VT_NORESTART), 0))
        atomic_fetch_and_explicit(&t->interrupt, (uint32_t)VT_CANCELLED, memory_order_relaxed);
}

bool vt_interrupted(struct vt_thread *t, unsigned flags)
{
    uint32_t why = atomic_load_explicit(&t->interrupt, memory_order_acquire);
    if (__builtin_expect(!why, 1))
        return false;
    vt_wait_begins(t); /* what has run by now is dealt with here */
    return ((why & VT_CANCELLED) && (flags & VT_PARK_CANCELLABLE)) ||
           ((why & VT_NORESTART) && (flags & VT_PARK_RESTARTABLE & ~VT_PARK_CANCELLABLE)) ||
           ((why & VT_SIGNALLED) && (flags & VT_PARK_INTERRUPTIBLE & ~VT_PARK_RESTARTABLE));
}

/* Read by debuggers and the like, and written by a requeue while the thread waits: in one piece. */
static void set_wait_on(struct vt_thread *t, const void *addr)
{
    __atomic_store_n(&t->wait_on, addr, __ATOMIC_RELAXED);
}

int vt_park_on(const void *addr, bool (*check)(void *), void (*then)(void *), void *arg, uint64_t deadline, uint32_t bits,
               unsigned flags)
{
    struct vt_thread *t = vt_enter();
    struct bucket *b = bucket_of(addr);
    struct waiter w = {.thread = t, .addr = addr, .bits = bits, .process = vt_process};
    vt_wait_begins(t);
    t->wait_kind = flags >> VT_PARK_FOR_SHIFT; /* before it is queued: a requeue changes it */
    atomic_init(&w.bucket, b);
    if (__builtin_expect(atomic_load_explicit(&seen, memory_order_relaxed) != SEEN_WAITERS, 0))
        see(&w);
    count_and_lock(b);
    if (check && !check(arg)) {
        unlock_and_uncount(b);
        vt_leave(t);
        return EAGAIN;
    }
    enqueue(b, &w);
    set_wait_on(t, addr); /* under the lock, as by a requeue: whoever sees it finds the waiter queued */
    vt_unlock(&b->lock);
    vt_leave(t);
    vt_chaos();
    if (then)
        then(arg);
    int result = 0;
    struct vt_until until;
    vt_until_begin(&until, t, deadline, flags);
    while (!atomic_load_explicit(&w.woken, memory_order_acquire)) {
        if (__builtin_expect(w.process != vt_process, 0) && !join_again(&w, check, arg))
            break;
        if (vt_interrupted(t, flags))
            result = EINTR;
        else if (vt_until_passed(&until))
            result = ETIMEDOUT;
        vt_chaos();
        if (result) {
            vt_enter();
            if (give_up(&w))
                result = 0;
            vt_leave(t);
            break;
        }
        vt_until_block(&until);
    }
    set_wait_on(t, NULL);
    vt_until_end(&until, t);
    return result == 0 && atomic_load_explicit(&w.woken, memory_order_relaxed) == VT_WOKEN_GRANTED ? VT_GRANTED : result;
}

int vt_sleep(uint64_t deadline, unsigned flags)
{
    struct vt_thread *t = vt_current();
    struct vt_until until;
    int result = 0;
    vt_wait_begins(t);
    vt_until_begin(&until, t, deadline, flags);
    t->wait_kind = VT_WAIT_SLEEP;
    set_wait_on(t, NULL);
    while (!result) {
        if (vt_interrupted(t, flags))
            result = EINTR;
        else if (vt_until_passed(&until))
            result = ETIMEDOUT;
        else
            vt_until_block(&until);
    }
    vt_until_end(&until, t);
    return result;
}

struct expectation {
    const _Atomic uint32_t *addr;
    uint32_t expected;
};

static bool as_expected(void *arg)
{
    const struct expectation *e = arg;
    /* seq_cst, as the kernel's check: the waker has changed the word before it looks for waiters. */
    return atomic_load_explicit(e->addr, memory_order_seq_cst) == e->expected;
}

int vt_park(const _Atomic uint32_t *addr, uint32_t expected, uint64_t deadline, uint32_t bits, unsigned flags)
{
    struct expectation e = {addr, expected};
    return vt_park_on((const void *)addr, as_expected, NULL, &e, deadline, bits, flags);
}

/* Marks w, which has been dequeued, as woken; returns whom to unblock. w is gone after this. */
static struct vt_thread *mark(struct waiter *w, enum woken how)
{
    struct vt_thread *t = w->thread;
    atomic_store_explicit(&w->woken, how, memory_order_release);
    return t;
}

unsigned vt_unpark(const void *addr, unsigned max, uint32_t bits)
{
    struct bucket *b = bucket_of(addr);
    unsigned total = 0;
    struct vt_thread *me = vt_enter();
    /* The word was changed before; a waiter that we do not see here will see that. */
    atomic_thread_fence(memory_order_seq_cst);
    vt_chaos();
    while (total < max && atomic_load_explicit(&b->count, memory_order_relaxed)) {
        struct vt_thread *wake[32];
        unsigned n = 0, room = max - total < 32 ? max - total : 32;
        bool more = false;
        vt_lock(&b->lock);
        for (struct waiter *w = b->first, *next; w; w = next) {
            next = w->next;
            if (w->addr != addr || !(w->bits & bits))
                continue;
            if (n == room) {
                more = true;
                break;
            }
            dequeue(b, w);
            wake[n++] = mark(w, VT_WOKEN);
        }
        vt_unlock(&b->lock);
        vt_chaos();
        for (unsigned i = 0; i < n; i++)
            unblock(wake[i], n > 1);
        total += n;
        if (!more)
            break;
    }
    vt_leave(me);
    return total;
}

void vt_unpark_one(const void *addr, bool (*under)(void *, uint32_t bits, bool more), void *arg)
{
    struct bucket *b = bucket_of(addr);
    struct vt_thread *me = vt_enter(), *wake = NULL;
    struct waiter *first = NULL;
    bool more = false;
    vt_lock(&b->lock);
    for (struct waiter *w = b->first; w && !more; w = w->next) {
        if (w->addr != addr)
            continue;
        more = first != NULL;
        if (!first)
            first = w;
    }
    if (first)
        dequeue(b, first);
    bool granted = under(arg, first ? first->bits : 0, more);
    if (first)
        wake = mark(first, granted ? VT_WOKEN_GRANTED : VT_WOKEN);
    vt_unlock(&b->lock);
    vt_chaos();
    if (wake)
        vt_unblock(wake);
    vt_leave(me);
}

int vt_unpark_requeue(const void *from, const void *to, unsigned wake, unsigned move, bool (*check)(void *), void *arg,
                      unsigned *woken)
{
    struct bucket *b = bucket_of(from), *d = bucket_of(to);
    struct waiter *list = NULL, **tail = &list;
    unsigned nwoken = 0, nmoved = 0;
    struct vt_thread *me = vt_enter();
    if (b <= d) {
        vt_lock(&b->lock);
        if (d != b)
            vt_lock(&d->lock);
    } else {
        vt_lock(&d->lock);
        vt_lock(&b->lock);
    }
    bool ok = !check || check(arg);
    if (ok) {
        for (struct waiter *w = b->first, *next; w; w = next) {
            next = w->next;
            if (w->addr != from)
                continue;
            if (nwoken < wake) {
                dequeue(b, w);
                w->next = NULL;
                *tail = w; /* stays on its stack: marked only below, with the lock held */
                tail = &w->next;
                nwoken++;
            } else if (nmoved < move) {
                if (d != b) {
                    dequeue(b, w);
                    atomic_fetch_add_explicit(&d->count, 1, memory_order_seq_cst);
                    enqueue(d, w);
                    atomic_store_explicit(&w->bucket, d, memory_order_release);
                }
                w->addr = to;
                set_wait_on(w->thread, to);
                if (w->thread->wait_kind == VT_WAIT_COND)
                    w->thread->wait_kind = VT_WAIT_MUTEX; /* of the condition: now it queues for that */
                nmoved++;
            } else {
                break;
            }
        }
    }
    /* Unblocking is allowed with a bucket locked: it takes no bucket. */
    for (struct waiter *w = list, *next; w; w = next) {
        next = w->next;
        vt_unblock(mark(w, VT_WOKEN));
    }
    if (d != b)
        vt_unlock(&d->lock);
    vt_unlock(&b->lock);
    vt_leave(me);
    if (woken)
        *woken = nwoken;
    return ok ? (int)(nwoken + nmoved) : -1;
}

bool vt_parked_on(const void *addr)
{
    return atomic_load_explicit(&bucket_of(addr)->count, memory_order_relaxed) != 0;
}

void vt_park_fork_child(void)
{
    /* Private and anonymous (.bss): zero again, without touching what was never used. */
    uint32_t waiters = SEEN_WAITERS;
    if (!atomic_load_explicit(&seen, memory_order_relaxed))
        return;
    atomic_compare_exchange_strong_explicit(&seen, &waiters, SEEN_NOTHING, memory_order_relaxed, memory_order_relaxed);
    vt_sys3(SYS_madvise, (long)buckets, sizeof buckets, MADV_DONTNEED);
}
