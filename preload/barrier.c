/* Barriers: init and the attributes are libc's. */
#include "sync/barrier.h"

#include "preload.h"
#include "real.h"

VT_EXPORT int pthread_barrier_wait(pthread_barrier_t *b)
{
    return vt_on() ? vt_barrier_wait(b) : vt_real(pthread_barrier_wait)(b);
}

VT_EXPORT int pthread_barrier_destroy(pthread_barrier_t *b)
{
    return vt_on() ? vt_barrier_destroy(b) : vt_real(pthread_barrier_destroy)(b);
}
