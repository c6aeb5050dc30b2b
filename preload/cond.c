/* Condition variables. init and destroy are libc's current ones: they are here because programs built for the
 * first glibc on x86-64 import another version of the five older functions, GLIBC_2.2.5, which must not meet
 * ours. */
#include "sync/cond.h"

#include "clock.h"
#include "preload.h"
#include "real.h"

#include <errno.h>

VT_EXPORT int pthread_cond_init(pthread_cond_t *restrict c, const pthread_condattr_t *restrict attr)
{
    return vt_real(pthread_cond_init)(c, attr);
}

VT_EXPORT int pthread_cond_destroy(pthread_cond_t *c)
{
    return vt_real(pthread_cond_destroy)(c);
}

VT_EXPORT int pthread_cond_wait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m)
{
    return vt_on() ? vt_cond_wait(c, m, CLOCK_REALTIME, NULL) : vt_real(pthread_cond_wait)(c, m);
}

VT_EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                                     const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(pthread_cond_timedwait)(c, m, until);
    return vt_nsec_valid(until) ? vt_cond_wait(c, m, vt_cond_clock(c), until) : EINVAL;
}

VT_EXPORT int pthread_cond_clockwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, clockid_t clock,
                                     const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(pthread_cond_clockwait)(c, m, clock, until);
    return vt_nsec_valid(until) && vt_clock_waitable(clock) ? vt_cond_wait(c, m, clock, until) : EINVAL;
}

VT_EXPORT int pthread_cond_signal(pthread_cond_t *c)
{
    return vt_on() ? vt_cond_signal(c) : vt_real(pthread_cond_signal)(c);
}

VT_EXPORT int pthread_cond_broadcast(pthread_cond_t *c)
{
    return vt_on() ? vt_cond_broadcast(c) : vt_real(pthread_cond_broadcast)(c);
}
