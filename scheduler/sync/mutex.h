/* pthread_mutex_t and mtx_t.
 *
 * Fields as in glibc (sysdeps/nptl/bits/struct_mutex.h): __lock is 0 when free, 1 when held, 2 when held and
 * somebody may be parked on it; __owner is the holder's vt_tid(), or 0; __count the depth of a recursive one;
 * __nusers the number of holders and of waiters on conditions (pthread_mutex_destroy looks at it). Waiters
 * are parked on the mutex's address.
 *
 * Who unlocks touches the mutex no more after the store that frees it, or after it has given it to a waiter: the next
 * holder may destroy it. */
#ifndef VT_MUTEX_H
#define VT_MUTEX_H

#include "sync.h"

#include <pthread.h>

/* Bits of __kind: public ABI through static initialisers, and nptl/pthreadP.h for the rest. */
enum vt_mutex_kind {
    VT_MUTEX_TYPE = 3, /* PTHREAD_MUTEX_NORMAL, RECURSIVE, ERRORCHECK, ADAPTIVE_NP */
    VT_MUTEX_ROBUST = 16,
    VT_MUTEX_INHERIT = 32,        /* PTHREAD_PRIO_INHERIT */
    VT_MUTEX_PROTECT = 64,        /* PTHREAD_PRIO_PROTECT */
    VT_MUTEX_SHARED = 128,        /* process-shared */
    VT_MUTEX_ELISION = 256 | 512, /* lock elision wanted or forbidden: of no consequence here */
};

static inline uint32_t vt_mutex_kind(const pthread_mutex_t *m)
{
    return vt_load(&m->__data.__kind);
}

/* Whether a mutex of this kind is libc's business: shared with other processes, known to the kernel, or
 * destroyed. */
static inline bool vt_mutex_foreign(uint32_t kind)
{
    return (kind & ~(uint32_t)(VT_MUTEX_TYPE | VT_MUTEX_ELISION)) != 0;
}

/* A private mutex of type PTHREAD_MUTEX_NORMAL, which is what the fast paths are for. */
static inline bool vt_mutex_normal(uint32_t kind)
{
    return (kind & ~(uint32_t)VT_MUTEX_ELISION) == 0;
}

int vt_mutex_lock(pthread_mutex_t *m);
int vt_mutex_trylock(pthread_mutex_t *m);
int vt_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until);
int vt_mutex_unlock(pthread_mutex_t *m);

/* Frees the lock word, which is not 1, and wakes the first of those parked on it, or leaves the word to that one. */
void vt_mutex_pass(pthread_mutex_t *m);

int vt_mutex_consistent(pthread_mutex_t *m);
int vt_mutex_setprioceiling(pthread_mutex_t *m, int ceiling, int *old);

/* For conditions: 0, or why the caller may not wait with m (EPERM); of libc's mutexes only the unlocking
 * tells. */
int vt_mutex_check_held(pthread_mutex_t *m);

/* Unlocks, but stays one of its users. Cannot fail for one of ours that has been checked. */
int vt_mutex_release(pthread_mutex_t *m);

/* Locks a mutex that the caller has released. It may have been moved to m's queue with others, so m is marked
 * as waited for whatever its state. */
int vt_mutex_relock(pthread_mutex_t *m);

/* Gives a mutex that the caller holds to libc's protocol, for good: before libc unlocks it itself. */
void vt_mutex_share(pthread_mutex_t *m);

/* For process-shared conditions: if m is locked by a proxy, lets it wait on c; else -1. */
int vt_mutex_wait_shared(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until);

/* libc knows whether the process ever had a second thread, and while it has not, saves the bus lock: so do
 * we. Points to libc's __libc_single_threaded (2.32) once it has been looked for, and to a false before. */
extern const volatile char *_Atomic vt_libc_single;
#ifdef __SANITIZE_THREAD__
#define vt_single_threaded false
#else
#define vt_single_threaded vt_unlikely(*atomic_load_explicit(&vt_libc_single, memory_order_relaxed))
#endif

/* Takes the lock word if it is free. Acquire, for what the last holder wrote. */
static inline bool vt_mutex_take(pthread_mutex_t *m)
{
    uint32_t was = 0;
    if (vt_single_threaded && vt_load(&m->__data.__lock) == 0) {
        vt_store(&m->__data.__lock, 1);
        return true;
    }
    return atomic_compare_exchange_strong_explicit(vt_word(&m->__data.__lock), &was, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Frees the lock word. */
static inline void vt_mutex_free(pthread_mutex_t *m)
{
    uint32_t was = 1;
    if (vt_single_threaded)
        vt_store(&m->__data.__lock, 0);
    else if (vt_unlikely(!atomic_compare_exchange_strong_explicit(vt_word(&m->__data.__lock), &was, 0, memory_order_release,
                                                                  memory_order_relaxed)))
        vt_mutex_pass(m);
}

/* The uncontended case of a normal mutex, for inlining into the interposed function. False: nothing has been
 * done. */
static inline bool vt_mutex_lock_fast(pthread_mutex_t *m)
{
    struct vt_thread *self = vt_self;
    if (vt_unlikely(!vt_mutex_normal(vt_mutex_kind(m)) || !self) || vt_unlikely(!vt_mutex_take(m)))
        return false;
    vt_store(&m->__data.__owner, self->tid);
    m->__data.__nusers++;
    return true;
}

static inline bool vt_mutex_unlock_fast(pthread_mutex_t *m)
{
    if (vt_unlikely(!vt_mutex_normal(vt_mutex_kind(m))))
        return false;
    vt_store(&m->__data.__owner, 0);
    m->__data.__nusers--;
    vt_mutex_free(m);
    return true;
}

#endif
