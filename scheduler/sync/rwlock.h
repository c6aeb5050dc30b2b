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

int vt_rwlock_rdlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until);
int vt_rwlock_wrlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until);
int vt_rwlock_tryrdlock(pthread_rwlock_t *l);
int vt_rwlock_trywrlock(pthread_rwlock_t *l);
int vt_rwlock_unlock(pthread_rwlock_t *l);

#endif
