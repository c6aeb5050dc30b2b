/* Read-write locks: init, destroy and the attributes are libc's. */
#include "sync/rwlock.h"

#include "preload.h"
#include "real.h"

VT_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
    if (!vt_on())
        return vt_real(pthread_rwlock_rdlock)(l);
    return vt_likely(vt_rwlock_rdlock_fast(l)) ? 0 : vt_rwlock_rdlock(l, CLOCK_REALTIME, NULL);
}

VT_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    if (!vt_on())
        return vt_real(pthread_rwlock_wrlock)(l);
    return vt_likely(vt_rwlock_wrlock_fast(l)) ? 0 : vt_rwlock_wrlock(l, CLOCK_REALTIME, NULL);
}

VT_EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *restrict l, const struct timespec *restrict until)
{
    return vt_on() ? vt_rwlock_rdlock(l, CLOCK_REALTIME, until) : vt_real(pthread_rwlock_timedrdlock)(l, until);
}

VT_EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *restrict l, const struct timespec *restrict until)
{
    return vt_on() ? vt_rwlock_wrlock(l, CLOCK_REALTIME, until) : vt_real(pthread_rwlock_timedwrlock)(l, until);
}

VT_EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *restrict l, clockid_t clock, const struct timespec *restrict until)
{
    return vt_on() ? vt_rwlock_rdlock(l, clock, until) : vt_real(pthread_rwlock_clockrdlock)(l, clock, until);
}

VT_EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *restrict l, clockid_t clock, const struct timespec *restrict until)
{
    return vt_on() ? vt_rwlock_wrlock(l, clock, until) : vt_real(pthread_rwlock_clockwrlock)(l, clock, until);
}

VT_EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *l)
{
    return vt_on() ? vt_rwlock_tryrdlock(l) : vt_real(pthread_rwlock_tryrdlock)(l);
}

VT_EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *l)
{
    return vt_on() ? vt_rwlock_trywrlock(l) : vt_real(pthread_rwlock_trywrlock)(l);
}

VT_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
    if (!vt_on())
        return vt_real(pthread_rwlock_unlock)(l);
    return vt_likely(vt_rwlock_unlock_fast(l)) ? 0 : vt_rwlock_unlock(l);
}

/* Names that programs built for glibc before 2.34 may import. */
VT_EXPORT int __pthread_rwlock_rdlock(pthread_rwlock_t *l)
    __attribute__((alias("pthread_rwlock_rdlock"), copy(pthread_rwlock_rdlock)));
VT_EXPORT int __pthread_rwlock_wrlock(pthread_rwlock_t *l)
    __attribute__((alias("pthread_rwlock_wrlock"), copy(pthread_rwlock_wrlock)));
VT_EXPORT int __pthread_rwlock_tryrdlock(pthread_rwlock_t *l)
    __attribute__((alias("pthread_rwlock_tryrdlock"), copy(pthread_rwlock_tryrdlock)));
VT_EXPORT int __pthread_rwlock_trywrlock(pthread_rwlock_t *l)
    __attribute__((alias("pthread_rwlock_trywrlock"), copy(pthread_rwlock_trywrlock)));
VT_EXPORT int __pthread_rwlock_unlock(pthread_rwlock_t *l)
    __attribute__((alias("pthread_rwlock_unlock"), copy(pthread_rwlock_unlock)));
