#include "barrier.h"

#include "handoff.h"
#include "real.h"

#include <errno.h>

struct barrier {
    _Atomic uint32_t in;
    _Atomic uint32_t round;
    uint32_t count;
    uint32_t shared;
    _Atomic uint32_t out;
};

#define VT_BARRIER_DESTROYED (UINT32_C(1) << 31)

struct arrival {
    struct barrier *barrier;
    uint32_t round;
    uint32_t others;
};

/* With the bucket locked. False: the last one, and the next round has begun. */
static bool arrive(void *arg)
{
    struct arrival *a = arg;
    struct barrier *b = a->barrier;
    uint32_t in = atomic_load_explicit(&b->in, memory_order_relaxed) + 1;
    a->round = atomic_load_explicit(&b->round, memory_order_relaxed);
    if (in < b->count) {
        atomic_store_explicit(&b->in, in, memory_order_relaxed);
        return true;
    }
    a->others = in - 1;
    /* Those of the round are in the queue or will find that it is over; none of them can leave unseen. */
    atomic_fetch_add_explicit(&b->out, a->others, memory_order_relaxed);
    atomic_store_explicit(&b->in, 0, memory_order_relaxed);
    /* Release, together with the lock: what any of them wrote before is seen by all. */
    atomic_store_explicit(&b->round, a->round + 1, memory_order_release);
    return false;
}

static bool not_over(void *arg)
{
    const struct arrival *a = arg;
    return atomic_load_explicit(&a->barrier->round, memory_order_seq_cst) == a->round;
}

int vt_barrier_wait(pthread_barrier_t *barrier)
{
    struct barrier *b = (struct barrier *)barrier;
    if (vt_unlikely(b->shared)) {
        vt_handoff_begin("pthread_barrier_wait");
        int ret = vt_real(pthread_barrier_wait)(barrier);
        vt_handoff_end();
        return ret;
    }
    struct arrival a = {.barrier = b};
    if (vt_park_on(b, arrive, NULL, &a, VT_NEVER, VT_BITS_ALL, VT_PARK_FOR(VT_WAIT_BARRIER)) == EAGAIN) {
        /* First in, first out: these are our round's before they are the next one's. */
        if (a.others)
            vt_unpark(b, a.others, VT_BITS_ALL);
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    while (atomic_load_explicit(&b->round, memory_order_acquire) == a.round)
        vt_park_on(b, not_over, NULL, &a, VT_NEVER, VT_BITS_ALL, VT_PARK_FOR(VT_WAIT_BARRIER));
    /* Our last access; release, for who destroys it. */
    if (atomic_fetch_sub_explicit(&b->out, 1, memory_order_release) == (VT_BARRIER_DESTROYED | 1))
        vt_unpark(&b->out, 1, VT_BITS_ALL);
    return 0;
}

int vt_barrier_destroy(pthread_barrier_t *barrier)
{
    struct barrier *b = (struct barrier *)barrier;
    if (vt_unlikely(b->shared))
        return vt_real(pthread_barrier_destroy)(barrier);
    uint32_t out = atomic_fetch_or_explicit(&b->out, VT_BARRIER_DESTROYED, memory_order_acquire);
    while ((out & ~VT_BARRIER_DESTROYED) != 0) {
        out |= VT_BARRIER_DESTROYED;
        vt_park(&b->out, out, VT_NEVER, VT_BITS_ALL, VT_PARK_FOR(VT_WAIT_BARRIER));
        out = atomic_load_explicit(&b->out, memory_order_acquire);
    }
    /* Some use it again without init, and libc allows that. */
    atomic_store_explicit(&b->out, 0, memory_order_relaxed);
    return 0;
}
