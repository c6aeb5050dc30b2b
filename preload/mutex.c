/* Mutexes: pthread_mutex_init, destroy and the attributes are libc's. */
#include "sync/mutex.h"

#include "clock.h"
#include "preload.h"
#include "real.h"

#include <errno.h>

/* What is not the fast path is kept out of its way. */
static __attribute__((noinline)) int lock_slowly(pthread_mutex_t *m)
{
    return vt_on() ? vt_mutex_lock(m) : vt_real(pthread_mutex_lock)(m);
}

static __attribute__((noinline)) int unlock_slowly(pthread_mutex_t *m)
{
    return vt_on() ? vt_mutex_unlock(m) : vt_real(pthread_mutex_unlock)(m);
}

static inline bool certainly_on(void)
{
    return vt_likely(atomic_load_explicit(&vt_mode, memory_order_relaxed) == VT_ON);
}

VT_EXPORT int pthread_mutex_lock(pthread_mutex_t *m)
{
    return certainly_on() && vt_likely(vt_mutex_lock_fast(m)) ? 0 : lock_slowly(m);
}

VT_EXPORT int pthread_mutex_unlock(pthread_mutex_t *m)
{
    return certainly_on() && vt_likely(vt_mutex_unlock_fast(m)) ? 0 : unlock_slowly(m);
}

VT_EXPORT int pthread_mutex_trylock(pthread_mutex_t *m)
{
    return vt_on() ? vt_mutex_trylock(m) : vt_real(pthread_mutex_trylock)(m);
}

VT_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *until)
{
    if (!vt_on())
        return vt_real(pthread_mutex_timedlock)(m, until);
    return vt_mutex_clocklock(m, CLOCK_REALTIME, until);
}

VT_EXPORT int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    if (!vt_on())
        return vt_real(pthread_mutex_clocklock)(m, clock, until);
    return vt_clock_waitable(clock) ? vt_mutex_clocklock(m, clock, until) : EINVAL;
}

VT_EXPORT int pthread_mutex_consistent(pthread_mutex_t *m)
{
    return vt_on() ? vt_mutex_consistent(m) : vt_real(pthread_mutex_consistent)(m);
}

VT_EXPORT int pthread_mutex_setprioceiling(pthread_mutex_t *restrict m, int ceiling, int *restrict old)
{
    return vt_on() ? vt_mutex_setprioceiling(m, ceiling, old) : vt_real(pthread_mutex_setprioceiling)(m, ceiling, old);
}

/* Names that programs built for glibc before 2.34 may import. */
/* pthread.h makes its name another one for pthread_mutex_consistent. */
VT_EXPORT int consistent_np(pthread_mutex_t *m) __asm__("pthread_mutex_consistent_np")
    __attribute__((alias("pthread_mutex_consistent"), copy(pthread_mutex_consistent)));
VT_EXPORT int __pthread_mutex_lock(pthread_mutex_t *m) __attribute__((alias("pthread_mutex_lock"), copy(pthread_mutex_lock)));
VT_EXPORT int __pthread_mutex_unlock(pthread_mutex_t *m)
    __attribute__((alias("pthread_mutex_unlock"), copy(pthread_mutex_unlock)));
VT_EXPORT int __pthread_mutex_trylock(pthread_mutex_t *m)
    __attribute__((alias("pthread_mutex_trylock"), copy(pthread_mutex_trylock)));
