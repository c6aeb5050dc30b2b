/* pthread_barrier_t.
 *
 * Fields as libc's init leaves them (struct pthread_barrier, sysdeps/nptl/internaltypes.h): count and the
 * shared flag. The others are 0 then, and mean here: in, how many have arrived in this round (with the bucket
 * of the barrier's address locked); current_round, which round it is; out, how many of earlier rounds have
 * not left yet, and in bit 31 that somebody waits for that in order to destroy the barrier. Threads are
 * parked on the barrier's address, who destroys it on that of out. */
#ifndef VT_BARRIER_H
#define VT_BARRIER_H

#include "sync.h"

#include <pthread.h>

/* 0 or PTHREAD_BARRIER_SERIAL_THREAD. */
int vt_barrier_wait(pthread_barrier_t *barrier);

/* Waits until all that have been released have left it. Always 0. */
int vt_barrier_destroy(pthread_barrier_t *barrier);

#endif
