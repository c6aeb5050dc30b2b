/* sem_t.
 *
 * As in glibc (struct new_sem, sysdeps/nptl/internaltypes.h): a 64-bit word with the value below and the
 * number of waiters above, and a word that is 0 when the semaphore is private. Waiters are parked on the
 * semaphore's address. A post touches it no more after it has added to the value. */
#ifndef VT_SEM_H
#define VT_SEM_H

#include "sync.h"

#include <limits.h>
#include <semaphore.h>

struct vt_sem {
    _Atomic uint64_t data;
    uint32_t shared;
};

#define VT_SEM_WAITER (UINT64_C(1) << 32)

/* Takes one, and gives up being so many waiters with it. Acquire, for what was written before the post. */
static inline bool vt_sem_take(sem_t *sem, uint64_t waiters)
{
    struct vt_sem *s = (struct vt_sem *)sem;
    uint64_t d = atomic_load_explicit(&s->data, memory_order_relaxed);
    while ((uint32_t)d != 0) {
        if (vt_likely(atomic_compare_exchange_weak_explicit(&s->data, &d, d - 1 - waiters, memory_order_acquire,
                                                            memory_order_relaxed)))
            return true;
    }
    return false;
}

/* Adds one, unless somebody waits or there are too many. Release, for who takes it: who comes to wait after this sees it. Also
 * where the semaphore is shared: libc's waiters count themselves in the same word. */
static inline bool vt_sem_add(sem_t *sem)
{
    struct vt_sem *s = (struct vt_sem *)sem;
    uint64_t d = atomic_load_explicit(&s->data, memory_order_relaxed);
    while (d < SEM_VALUE_MAX) {
        if (vt_likely(atomic_compare_exchange_weak_explicit(&s->data, &d, d + 1, memory_order_release, memory_order_relaxed)))
            return true;
    }
    return false;
}

/* 0, ETIMEDOUT, EINTR. The time has been checked. Acts on a cancellation that interrupts it. */
int vt_sem_wait(sem_t *sem, clockid_t clock, const struct timespec *until);

/* 0 or EOVERFLOW. Also in a signal handler. */
int vt_sem_post(sem_t *sem);

#endif
