/* pthread_rwlock_t.
 *
 * Of glibc's fields (bits/struct_rwlock.h), __flags is the kind and __shared the process-shared flag, as
 * libc's init leaves them; __cur_writer is the writer's vt_tid(), or 0; __readers is the state:
 *
 *     bit 31  held by a writer
 *     bit 30  readers may be parked, on the address of __wrphase_futex
 *     bit 29  writers may be parked, on the address of __writers_futex
 *     rest    how many readers hold it
 *
 * Free or held by readers, it can be had by any reader, except that in
 * PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP a reader does not join others while a writer waits. Free, it
 * can be had by anyone: it is not handed over, those that are woken compete for it.
 *
 * What keeps wake-ups from being lost: a parked thread's bit is set, unless the thread's waker is under way;
 * and while bits are set, somebody holds the lock, or has been woken and will take and leave it. Who gives up
 * after a wake-up has seen another holder, who now has that duty. Who unlocks touches the lock no more after
 * the access that frees it. */
#ifndef VT_RWLOCK_H
#define VT_RWLOCK_H

#include "sync.h"

#include <pthread.h>

enum {
    VT_RW_WRITER = 1u << 31,
    VT_RW_READERS_WAIT = 1u << 30,
    VT_RW_WRITERS_WAIT = 1u << 29,
    VT_RW_WAIT = VT_RW_READERS_WAIT | VT_RW_WRITERS_WAIT,
    VT_RW_COUNT = (1u << 28) - 1, /* glibc's largest number of readers, too; bit 28 takes no part */
};

int vt_rwlock_rdlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until);
int vt_rwlock_wrlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until);
int vt_rwlock_tryrdlock(pthread_rwlock_t *l);
int vt_rwlock_trywrlock(pthread_rwlock_t *l);
int vt_rwlock_unlock(pthread_rwlock_t *l);

/* The uncontended cases, for inlining into the interposed functions. False: nothing has been done. Orders as
 * in rwlock.c. */
static inline bool vt_rwlock_rdlock_fast(pthread_rwlock_t *l)
{
    uint32_t s = vt_load(&l->__data.__readers);
    /* Below VT_RW_COUNT there are no bits set. */
    return vt_likely(s < VT_RW_COUNT && !vt_load(&l->__data.__shared)) &&
           vt_likely(atomic_compare_exchange_strong_explicit(vt_word(&l->__data.__readers), &s, s + 1, memory_order_acquire,
                                                             memory_order_relaxed));
}

static inline bool vt_rwlock_wrlock_fast(pthread_rwlock_t *l)
{
    struct vt_thread *self = vt_self;
    uint32_t s = 0;
    if (vt_unlikely(vt_load(&l->__data.__shared) || !self) ||
        vt_unlikely(!atomic_compare_exchange_strong_explicit(vt_word(&l->__data.__readers), &s, VT_RW_WRITER,
                                                             memory_order_acquire, memory_order_relaxed)))
        return false;
    vt_store(&l->__data.__cur_writer, self->tid);
    return true;
}

static inline bool vt_rwlock_unlock_fast(pthread_rwlock_t *l)
{
    uint32_t s = vt_load(&l->__data.__readers), left = s - 1;
    if (vt_unlikely(vt_load(&l->__data.__shared)))
        return false;
    if (s == VT_RW_WRITER) {
        vt_store(&l->__data.__cur_writer, 0);
        left = 0;
    } else if (vt_unlikely(left >= VT_RW_COUNT)) {
        return false;
    }
    return vt_likely(atomic_compare_exchange_strong_explicit(vt_word(&l->__data.__readers), &s, left, memory_order_release,
                                                             memory_order_relaxed));
}

#endif
