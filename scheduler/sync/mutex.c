#include "mutex.h"

#include "clock.h"
#include "handoff.h"
#include "proxy.h"
#include "real.h"

#include <errno.h>

static const volatile char not_single;
const volatile char *_Atomic vt_libc_single = &not_single;

/* The mutex has been given to libc's protocol meanwhile; no errno. */
#define VT_SHARED_NOW (-1)

static bool held_and_ours(void *arg)
{
    pthread_mutex_t *m = arg;
    /* seq_cst, as in vt_park: who changes these looks for waiters only after. */
    return atomic_load_explicit(vt_word(&m->__data.__lock), memory_order_seq_cst) == 2 &&
           !vt_mutex_foreign(atomic_load_explicit(vt_word(&m->__data.__kind), memory_order_seq_cst));
}

/* Takes the lock word, which is not free or must be left as 2. */
static int acquire(pthread_mutex_t *m, clockid_t clock, const struct timespec *until, bool marked)
{
    _Atomic uint32_t *word = vt_word(&m->__data.__lock);
    if (!marked) {
        uint32_t seen = vt_load(word);
        /* With others parked already (2), spinning would only jump the queue. */
        for (unsigned n = seen == 2 ? 0 : vt_spin_limit(vt_load(&m->__data.__owner)); n && seen != 2; n--) {
            if (seen == 0 && vt_mutex_take(m))
                return 0;
            vt_cpu_relax();
            seen = vt_load(word);
        }
    }
    bool late = false;
    uint32_t bits = VT_BITS_ALL;
    uint64_t since = 0;
    /* We cannot know whether others are parked, so it is 2 from here on. Acquire, for what the last holder
     * wrote. */
    while (atomic_exchange_explicit(word, 2, memory_order_acquire) != 0) {
        if (until) {
            /* As glibc: in this order, and only when it has to wait. */
            if (until->tv_sec < 0)
                return ETIMEDOUT;
            if (!vt_nsec_valid(until))
                return EINVAL;
            if (late)
                return ETIMEDOUT;
        }
        int err = vt_park_on(m, held_and_ours, NULL, m, vt_deadline_at(until), bits,
                             VT_PARK_FOR(VT_WAIT_MUTEX) | vt_park_clock(clock));
        if (err == VT_GRANTED)
            return 0;
        if (vt_mutex_foreign(vt_mutex_kind(m)))
            return VT_SHARED_NOW;
        late = err == ETIMEDOUT;
        if (err == 0)
            bits = vt_bits_after(&since);
    }
    return 0;
}

/* Whether a proxy has to do it. */
static bool by_proxy(uint32_t kind)
{
    return (kind & (VT_MUTEX_ROBUST | VT_MUTEX_INHERIT | VT_MUTEX_PROTECT)) && kind != UINT32_MAX &&
           (vt_is_ours() || (vt_self && vt_came_by_fork(vt_self))); /* it may be virtual again by the unlock */
}

static int lock_foreign(pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    int err;
    if (by_proxy(vt_mutex_kind(m))) {
        struct vt_proxy_call call = {
            .op = until ? VT_PROXY_CLOCKLOCK : VT_PROXY_LOCK, .mutex = m, .clock = clock, .until = until};
        err = vt_proxy(&call);
        if (err >= 0)
            return err;
    }
    if (vt_is_ours()) {
        err = vt_real(pthread_mutex_trylock)(m);
        if (err != EBUSY)
            return err;
    }
    vt_handoff_begin("pthread_mutex_lock");
    if (!until)
        err = vt_real(pthread_mutex_lock)(m);
    else if (clock == CLOCK_REALTIME)
        err = vt_real(pthread_mutex_timedlock)(m, until);
    else
        err = vt_real(pthread_mutex_clocklock)(m, clock, until);
    vt_handoff_end();
    return err;
}

static int trylock_foreign(pthread_mutex_t *m)
{
    if (by_proxy(vt_mutex_kind(m))) {
        struct vt_proxy_call call = {.op = VT_PROXY_TRYLOCK, .mutex = m};
        int err = vt_proxy(&call);
        if (err >= 0)
            return err;
    }
    return vt_real(pthread_mutex_trylock)(m);
}

static int unlock_foreign(pthread_mutex_t *m)
{
    if (by_proxy(vt_mutex_kind(m))) {
        struct vt_proxy_call call = {.op = VT_PROXY_UNLOCK, .mutex = m};
        int err = vt_proxy(&call);
        if (err >= 0)
            return err;
    }
    return vt_real(pthread_mutex_unlock)(m);
}

/* 0: lock the word; EAGAIN, EDEADLK; or EBUSY: it was ours and is deeper now. */
static int enter(pthread_mutex_t *m, uint32_t kind, uint32_t me)
{
    uint32_t type = kind & VT_MUTEX_TYPE;
    /* Only we write our tid there, so it is stale in no way that matters. */
    if ((type != PTHREAD_MUTEX_RECURSIVE && type != PTHREAD_MUTEX_ERRORCHECK) || vt_load(&m->__data.__owner) != me)
        return 0;
    if (type == PTHREAD_MUTEX_ERRORCHECK)
        return EDEADLK;
    if (m->__data.__count + 1 == 0)
        return EAGAIN;
    m->__data.__count++;
    return EBUSY;
}

static void own(pthread_mutex_t *m, uint32_t kind, uint32_t me)
{
    if ((kind & VT_MUTEX_TYPE) == PTHREAD_MUTEX_RECURSIVE)
        m->__data.__count = 1;
    vt_store(&m->__data.__owner, me);
}

static __attribute__((noinline)) int lock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    uint32_t me = vt_tid();
    for (;;) {
        uint32_t kind = vt_mutex_kind(m);
        if (vt_mutex_foreign(kind))
            return lock_foreign(m, clock, until);
        int err = enter(m, kind, me);
        if (err)
            return err == EBUSY ? 0 : err;
        if (!vt_mutex_take(m))
            err = acquire(m, clock, until, false);
        if (err == VT_SHARED_NOW)
            continue;
        if (err == 0) {
            own(m, kind, me);
            m->__data.__nusers++;
        }
        return err;
    }
}

int vt_mutex_lock(pthread_mutex_t *m)
{
    struct vt_thread *self = vt_self;
    if (vt_likely(vt_mutex_kind(m) == PTHREAD_MUTEX_RECURSIVE && self)) {
        if (vt_load(&m->__data.__owner) == self->tid && vt_likely(m->__data.__count + 1 != 0)) {
            m->__data.__count++;
            return 0;
        }
        if (vt_likely(vt_mutex_take(m))) {
            own(m, PTHREAD_MUTEX_RECURSIVE, self->tid);
            m->__data.__nusers++;
            return 0;
        }
    }
    return lock(m, CLOCK_REALTIME, NULL);
}

int vt_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    return lock(m, clock, until);
}

int vt_mutex_trylock(pthread_mutex_t *m)
{
    uint32_t kind = vt_mutex_kind(m), me = vt_tid();
    if (vt_mutex_foreign(kind))
        return trylock_foreign(m);
    /* POSIX: EBUSY, not EDEADLK, for one's own errorcheck mutex. */
    int err = (kind & VT_MUTEX_TYPE) == PTHREAD_MUTEX_RECURSIVE ? enter(m, kind, me) : 0;
    if (err)
        return err == EBUSY ? 0 : err;
    if (!vt_mutex_take(m))
        return EBUSY;
    own(m, kind, me);
    m->__data.__nusers++;
    return 0;
}

/* With the bucket locked: the mutex is there, as we hold it. Release, for what the next holder reads. */
static bool pass(void *arg, uint32_t bits, bool more)
{
    pthread_mutex_t *m = arg;
    (void)more;
    if (bits == VT_HUNGRY && vt_load(&m->__data.__lock) == 2)
        return true;
    atomic_store_explicit(vt_word(&m->__data.__lock), 0, memory_order_release);
    return false;
}

void vt_mutex_pass(pthread_mutex_t *m)
{
    vt_unpark_one(m, pass, m);
}

static int check_held(pthread_mutex_t *m, uint32_t kind)
{
    uint32_t type = kind & VT_MUTEX_TYPE;
    if (type != PTHREAD_MUTEX_RECURSIVE && type != PTHREAD_MUTEX_ERRORCHECK)
        return 0;
    return vt_load(&m->__data.__owner) == vt_tid() ? 0 : EPERM;
}

/* Unlocks a mutex that is ours and held, for good or for a wait on a condition. */
static void leave(pthread_mutex_t *m, uint32_t kind, unsigned users)
{
    if ((kind & VT_MUTEX_TYPE) == PTHREAD_MUTEX_RECURSIVE && --m->__data.__count != 0)
        return;
    vt_store(&m->__data.__owner, 0);
    m->__data.__nusers -= users;
    vt_mutex_free(m);
}

int vt_mutex_unlock(pthread_mutex_t *m)
{
    uint32_t kind = vt_mutex_kind(m);
    if (vt_mutex_foreign(kind))
        return unlock_foreign(m);
    int err = check_held(m, kind);
    if (err == 0)
        leave(m, kind, 1);
    return err;
}

int vt_mutex_check_held(pthread_mutex_t *m)
{
    uint32_t kind = vt_mutex_kind(m);
    if (kind == UINT32_MAX)
        return EINVAL;
    return vt_mutex_foreign(kind) ? 0 : check_held(m, kind);
}

int vt_mutex_release(pthread_mutex_t *m)
{
    uint32_t kind = vt_mutex_kind(m);
    if (vt_mutex_foreign(kind))
        return unlock_foreign(m);
    leave(m, kind, 0);
    return 0;
}

int vt_mutex_relock(pthread_mutex_t *m)
{
    uint32_t kind = vt_mutex_kind(m), me = vt_tid();
    int err = 0;
    if (!vt_mutex_foreign(kind)) {
        err = enter(m, kind, me); /* a recursive mutex that was held twice has never been free */
        if (err)
            return err == EBUSY ? 0 : err;
        err = acquire(m, CLOCK_REALTIME, NULL, true);
        if (err == 0) {
            own(m, kind, me);
            return 0;
        }
    }
    err = lock_foreign(m, CLOCK_REALTIME, NULL);
    /* Those that a broadcast moved here before the mutex became libc's are nobody else's concern. */
    vt_unpark(m, UINT32_MAX, VT_BITS_ALL);
    return err;
}

void vt_mutex_share(pthread_mutex_t *m)
{
    /* The lock words of both protocols mean the same, so it can go on being held. Seen by those that are
     * about to park (held_and_ours) as they take the bucket's lock after us or are woken by us. */
    vt_store(&m->__data.__kind, vt_mutex_kind(m) | VT_MUTEX_SHARED);
    vt_unpark(m, UINT32_MAX, VT_BITS_ALL);
}

int vt_mutex_consistent(pthread_mutex_t *m)
{
    if (by_proxy(vt_mutex_kind(m))) {
        struct vt_proxy_call call = {.op = VT_PROXY_CONSISTENT, .mutex = m};
        int err = vt_proxy(&call);
        if (err >= 0)
            return err;
    }
    return vt_real(pthread_mutex_consistent)(m);
}

int vt_mutex_setprioceiling(pthread_mutex_t *m, int ceiling, int *old)
{
    if (by_proxy(vt_mutex_kind(m))) {
        struct vt_proxy_call call = {.op = VT_PROXY_SETPRIOCEILING, .mutex = m, .ceiling = ceiling, .old_ceiling = old};
        int err = vt_proxy(&call);
        if (err >= 0)
            return err;
    }
    return vt_real(pthread_mutex_setprioceiling)(m, ceiling, old);
}

int vt_mutex_wait_shared(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    if (!by_proxy(vt_mutex_kind(m)))
        return -1;
    struct vt_proxy_call call = {.op = VT_PROXY_COND_WAIT, .mutex = m, .cond = c, .clock = clock, .until = until};
    return vt_proxy(&call);
}
