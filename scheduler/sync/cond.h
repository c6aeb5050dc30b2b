/* pthread_cond_t and cnd_t.
 *
 * Waiters are parked on the condition's address. Of glibc's fields __wrefs keeps its two flags, and the first
 * eight bytes (__wseq) hold what the waiters wait with: 0 when nobody waits, the mutex, or VT_COND_MIXED when
 * it is not certain to be one mutex of ours. It is written with the bucket locked only, and never once a
 * waiter may have left: a condition may be destroyed as soon as its last waiter has been woken. libc's
 * destroy, which waits for the references in __wrefs, finds none. */
#ifndef VT_COND_H
#define VT_COND_H

#include "sync.h"

#include <pthread.h>

/* glibc's bits in __wrefs, and where that word is: another place since 2.41. */
#define VT_COND_SHARED    1u
#define VT_COND_MONOTONIC 2u
extern _Atomic size_t vt_cond_flags;

/* The clock that pthread_cond_timedwait uses. */
clockid_t vt_cond_clock(const pthread_cond_t *c);

/* Waits; the time's nanoseconds have been checked. 0, also for no reason; ETIMEDOUT; EPERM; or what locking
 * the mutex again says. A cancellation point. */
int vt_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *until);
int vt_cond_signal(pthread_cond_t *c);
int vt_cond_broadcast(pthread_cond_t *c);

#endif
