/* Mutexes that the kernel knows owners of, for virtual threads.
 *
 * A robust mutex is on a list that the kernel walks when the thread whose id is in the lock word ends; with
 * priority inheritance the kernel finds the holder by that id; with a priority ceiling libc changes the
 * holder's priority. Each wants a kernel thread, and the same one from lock to unlock. So a virtual thread
 * has one to do these calls for it as long as it holds such a mutex, and when it ends with one locked, that
 * kernel thread ends too. The calls are libc's, so everything is as for a kernel thread, but each costs two
 * switches between kernel threads. */
#ifndef VT_PROXY_H
#define VT_PROXY_H

#include "sync.h"

#include <pthread.h>

enum vt_proxy_op {
    VT_PROXY_LOCK,
    VT_PROXY_TRYLOCK,
    VT_PROXY_CLOCKLOCK,
    VT_PROXY_UNLOCK,
    VT_PROXY_CONSISTENT,
    VT_PROXY_SETPRIOCEILING,
    VT_PROXY_COND_WAIT,
};

struct vt_proxy_call {
    enum vt_proxy_op op;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    clockid_t clock;
    const struct timespec *until; /* NULL: never */
    int ceiling, *old_ceiling;
    int result;
    struct vt_thread *client;
    _Atomic uint32_t done;
};

/* Lets the calling virtual thread's proxy do it; returns the result, or -1 when there is no memory for a
 * proxy. Waits parked. Not a cancellation point. */
int vt_proxy(struct vt_proxy_call *call);

/* The calling virtual thread has run its last destructor: what it has locked gets EOWNERDEAD, before anyone
 * who joins it goes on. */
void vt_proxy_thread_ends(void);

/* In a forked child. */
void vt_proxy_forked(void);

#endif
