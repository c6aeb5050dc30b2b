/* pthread_once_t and once_flag.
 *
 * The word as in glibc (nptl/pthread_once.c): 0 fresh, bit 0 in progress together with the fork generation
 * from bit 2 up, bit 1 done. In progress with another generation means that the thread at work was left
 * behind by a fork. */
#ifndef VT_ONCE_H
#define VT_ONCE_H

#include "sync.h"

#include <pthread.h>

enum {
    VT_ONCE_IN_PROGRESS = 1,
    VT_ONCE_DONE = 2,
    VT_ONCE_GENERATION = 4,
};

/* Runs init, or waits until another thread's run is over. If init is left by an exception, a cancellation or
 * pthread_exit, the word is fresh again and a waiter tries. Always 0. */
int vt_once(pthread_once_t *once, void (*init)(void));

/* In a forked child, before it runs the program's code. */
void vt_once_forked(void);

/* Acquire pairs with the release of who has run init. */
static inline bool vt_once_done(pthread_once_t *once)
{
    return atomic_load_explicit(vt_word(once), memory_order_acquire) & VT_ONCE_DONE;
}

#endif
