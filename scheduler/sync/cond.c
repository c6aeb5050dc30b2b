#include "cond.h"

#include "cancel.h"
#include "clock.h"
#include "handoff.h"
#include "mutex.h"
#include "real.h"

#include <errno.h>

#define VT_COND_MIXED 1u

static _Atomic uint64_t *mutex_of(pthread_cond_t *c)
{
    return (_Atomic uint64_t *)&c->__data.__wseq;
}

/* Broadcasts so far, by a hash of the condition. A broadcast moves waiters to the mutex's queue, where their
 * time may run out: then the count tells them that they have been woken nevertheless, without a look at the
 * condition, which may be gone. Another condition's broadcast makes it a spurious wake-up at worst. */
static _Atomic uint32_t broadcasts[256];

static _Atomic uint32_t *broadcasts_of(const pthread_cond_t *c)
{
    return &broadcasts[(uintptr_t)c * UINT64_C(0x9e3779b97f4a7c15) >> 56];
}

_Atomic size_t vt_cond_flags = offsetof(pthread_cond_t, __data.__wrefs);

static uint32_t flags(const pthread_cond_t *c)
{
    return vt_load((const char *)c + atomic_load_explicit(&vt_cond_flags, memory_order_relaxed));
}

static bool shared(const pthread_cond_t *c)
{
    return flags(c) & VT_COND_SHARED;
}

clockid_t vt_cond_clock(const pthread_cond_t *c)
{
    return flags(c) & VT_COND_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

struct wait {
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    uint32_t broadcasts; /* when it was queued */
    int err;             /* of releasing the mutex */
    int users;           /* to take back from the mutex */
};

/* With the bucket locked. */
static bool queue(void *arg)
{
    struct wait *w = arg;
    _Atomic uint64_t *mutex = mutex_of(w->cond);
    uint64_t mine = vt_mutex_foreign(vt_mutex_kind(w->mutex)) ? VT_COND_MIXED : (uintptr_t)w->mutex;
    uint64_t theirs = atomic_load_explicit(mutex, memory_order_relaxed);
    if (theirs != mine)
        atomic_store_explicit(mutex, theirs ? VT_COND_MIXED : mine, memory_order_relaxed);
    w->broadcasts = atomic_load_explicit(broadcasts_of(w->cond), memory_order_relaxed);
    return true;
}

static void release(void *arg)
{
    struct wait *w = arg;
    /* Who waits stays one of the mutex's users: its destruction fails. vt_mutex_release sees to it for one of ours; libc's
     * unlock counts down, and its lock up again. Of a robust one libc does not look at the count. */
    uint32_t kind = vt_mutex_kind(w->mutex);
    w->users = vt_mutex_foreign(kind) && !(kind & VT_MUTEX_ROBUST);
    w->mutex->__data.__nusers += w->users;
    w->err = vt_mutex_release(w->mutex);
    if (w->err)
        w->mutex->__data.__nusers -= w->users;
    /* Not to wait then; waking all is simplest, for what only a mistake of the program leads to. */
    if (w->err)
        vt_unpark(w->cond, UINT32_MAX, VT_BITS_ALL);
}

static int wait_shared(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    int err;
    /* libc is about to unlock it, and would not wake those parked on it. */
    if (!vt_mutex_foreign(vt_mutex_kind(m))) {
        err = vt_mutex_check_held(m);
        if (err)
            return err;
        vt_mutex_share(m);
    }
    err = vt_mutex_wait_shared(c, m, clock, until);
    if (err >= 0)
        return err;
    vt_handoff_begin("pthread_cond_wait");
    if (!until)
        err = vt_real(pthread_cond_wait)(c, m);
    else if (clock == vt_cond_clock(c))
        err = vt_real(pthread_cond_timedwait)(c, m, until);
    else
        err = vt_real(pthread_cond_clockwait)(c, m, clock, until);
    vt_handoff_end();
    return err;
}

int vt_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    if (vt_unlikely(shared(c)))
        return wait_shared(c, m, clock, until);
    int err = vt_mutex_check_held(m);
    if (err)
        return err;
    struct wait w = {.cond = c, .mutex = m};
    struct vt_thread *t = vt_current();
    t->shielded = true; /* whoever is cancelled in here has the mutex again before it ends */
    /* Queued before the mutex is released: who has it after us finds us. */
    int woken = vt_park_on(c, queue, release, &w, vt_deadline_at(until), VT_BITS_ALL,
                           VT_PARK_CANCELLABLE | VT_PARK_FOR(VT_WAIT_COND) | vt_park_clock(clock));
    if (w.err) {
        t->shielded = false;
        return w.err;
    }
    if (woken == ETIMEDOUT && atomic_load_explicit(broadcasts_of(c), memory_order_relaxed) != w.broadcasts)
        woken = 0;
    err = vt_mutex_relock(m);
    if (err == 0 && w.users)
        m->__data.__nusers--;
    t->shielded = false;
    if (vt_unlikely(atomic_load_explicit(&t->interrupt, memory_order_acquire) & VT_CANCELLED) && t->kind != VT_KERNEL)
        vt_cancel_at_any_time(t);
    if (woken == EINTR) {
        vt_act_on_cancel();
        woken = 0; /* never EINTR: a signal may be a spurious wake-up */
    }
    return err ? err : woken;
}

/* Called with the bucket locked, and either nobody woken yet or one who cannot run yet: c is there. */
static bool note_empty(void *arg, uint32_t bits, bool more)
{
    (void)bits;
    if (!more)
        atomic_store_explicit(mutex_of(arg), 0, memory_order_relaxed);
    return false;
}

int vt_cond_signal(pthread_cond_t *c)
{
    if (vt_unlikely(shared(c)))
        return vt_real(pthread_cond_signal)(c);
    /* Relaxed: a waiter whose release of the mutex happened before this is seen, and no other one has to be.
     */
    if (atomic_load_explicit(mutex_of(c), memory_order_relaxed) != 0)
        vt_unpark_one(c, note_empty, c);
    return 0;
}

struct broadcast {
    pthread_cond_t *cond;
    uint64_t mutex;
};

/* With the bucket locked, nobody woken yet: the queue is about to be emptied. */
static bool still(void *arg)
{
    struct broadcast *b = arg;
    if (atomic_load_explicit(mutex_of(b->cond), memory_order_relaxed) != b->mutex)
        return false;
    atomic_store_explicit(mutex_of(b->cond), 0, memory_order_relaxed);
    atomic_fetch_add_explicit(broadcasts_of(b->cond), 1, memory_order_relaxed);
    return true;
}

int vt_cond_broadcast(pthread_cond_t *c)
{
    if (vt_unlikely(shared(c)))
        return vt_real(pthread_cond_broadcast)(c);
    for (;;) {
        struct broadcast b = {c, atomic_load_explicit(mutex_of(c), memory_order_relaxed)};
        if (b.mutex == 0)
            return 0;
        /* All of them need the mutex, so one is enough to run now and the others queue for it: the first
         * marks the mutex as waited for when it locks it, and from then on each unlock wakes the next. This
         * holds whether the mutex is free or held, and by whom, so its memory is not looked at here. */
        int n = b.mutex == VT_COND_MIXED ? vt_unpark_requeue(c, c, UINT32_MAX, 0, still, &b, NULL)
                                         : vt_unpark_requeue(c, (void *)b.mutex, 1, UINT32_MAX, still, &b, NULL);
        if (n >= 0)
            return 0;
    }
}
