/* sem_t.
 *
 * As in glibc (struct new_sem, sysdeps/nptl/internaltypes.h): a 64-bit word with the value below and the
 * number of waiters above, and a word that is 0 when the semaphore is private. Waiters are parked on the
 * semaphore's address. A post touches it no more after it has added to the value. */
#ifndef VT_SEM_H
#define VT_SEM_H

#include "sync.h"

#include <semaphore.h>

/* 0, ETIMEDOUT, EINTR. The time has been checked. Acts on a cancellation that interrupts it. */
int vt_sem_wait(sem_t *sem, clockid_t clock, const struct timespec *until);

/* 0 or EAGAIN. */
int vt_sem_trywait(sem_t *sem);

/* 0 or EOVERFLOW. Also in a signal handler. */
int vt_sem_post(sem_t *sem);

#endif
