/* Semaphores: sem_init, sem_open, sem_close, sem_destroy, sem_getvalue are libc's. sem_wait and sem_timedwait
 * look for a cancellation also when they need not wait (POSIX: cancellation points that "shall occur"). */
#include "sync/sem.h"

#include "call.h"
#include "clock.h"
#include "preload.h"
#include "real.h"

#include <errno.h>
#include <pthread.h>

static int as_result(int err)
{
    if (err == 0)
        return 0;
    errno = err;
    return -1;
}

VT_EXPORT int sem_wait(sem_t *sem)
{
    if (!vt_on())
        return vt_real(sem_wait)(sem);
    if (vt_likely(vt_is_virtual()))
        vt_cancel_point();
    else
        vt_real(pthread_testcancel)();
    return vt_likely(vt_sem_take(sem, 0)) ? 0 : as_result(vt_sem_wait(sem, CLOCK_REALTIME, NULL));
}

VT_EXPORT int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(sem_timedwait)(sem, until);
    if (!vt_nsec_valid(until))
        return as_result(EINVAL);
    vt_real(pthread_testcancel)();
    return as_result(vt_sem_wait(sem, CLOCK_REALTIME, until));
}

VT_EXPORT int sem_clockwait(sem_t *restrict sem, clockid_t clock, const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(sem_clockwait)(sem, clock, until);
    if (!vt_clock_waitable(clock) || !vt_nsec_valid(until))
        return as_result(EINVAL);
    return as_result(vt_sem_wait(sem, clock, until));
}

VT_EXPORT int sem_trywait(sem_t *sem)
{
    if (!vt_on())
        return vt_real(sem_trywait)(sem);
    return as_result(vt_sem_take(sem, 0) ? 0 : EAGAIN);
}

VT_EXPORT int sem_post(sem_t *sem)
{
    if (!vt_on())
        return vt_real(sem_post)(sem);
    return vt_likely(vt_sem_add(sem)) ? 0 : as_result(vt_sem_post(sem));
}
