/* Mutexes, conditions and call_once of C11 <threads.h>: in glibc the same objects as those of POSIX, with
 * other results. mtx_init, mtx_destroy, cnd_init and cnd_destroy are libc's. */
#include "clock.h"
#include "preload.h"
#include "real.h"
#include "sync/cond.h"
#include "sync/mutex.h"
#include "sync/once.h"

#include <errno.h>
#include <threads.h>

/* glibc's translation (nptl/thrd_priv.h). */
static int as_thrd(int err)
{
    switch (err) {
    case 0:
        return thrd_success;
    case ENOMEM:
        return thrd_nomem;
    case ETIMEDOUT:
        return thrd_timedout;
    case EBUSY:
        return thrd_busy;
    default:
        return thrd_error;
    }
}

static pthread_mutex_t *mutex(mtx_t *m)
{
    return (pthread_mutex_t *)m;
}

static pthread_cond_t *cond(cnd_t *c)
{
    return (pthread_cond_t *)c;
}

VT_EXPORT int mtx_lock(mtx_t *m)
{
    return vt_on() ? as_thrd(vt_mutex_lock_fast(mutex(m)) ? 0 : vt_mutex_lock(mutex(m))) : vt_real(mtx_lock)(m);
}

VT_EXPORT int mtx_trylock(mtx_t *m)
{
    return vt_on() ? as_thrd(vt_mutex_trylock(mutex(m))) : vt_real(mtx_trylock)(m);
}

VT_EXPORT int mtx_timedlock(mtx_t *restrict m, const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(mtx_timedlock)(m, until);
    return as_thrd(vt_mutex_clocklock(mutex(m), CLOCK_REALTIME, until));
}

VT_EXPORT int mtx_unlock(mtx_t *m)
{
    return vt_on() ? as_thrd(vt_mutex_unlock_fast(mutex(m)) ? 0 : vt_mutex_unlock(mutex(m))) : vt_real(mtx_unlock)(m);
}

VT_EXPORT int cnd_wait(cnd_t *c, mtx_t *m)
{
    return vt_on() ? as_thrd(vt_cond_wait(cond(c), mutex(m), CLOCK_REALTIME, NULL)) : vt_real(cnd_wait)(c, m);
}

VT_EXPORT int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict until)
{
    if (!vt_on())
        return vt_real(cnd_timedwait)(c, m, until);
    if (!vt_nsec_valid(until))
        return thrd_error;
    return as_thrd(vt_cond_wait(cond(c), mutex(m), vt_cond_clock(cond(c)), until));
}

VT_EXPORT int cnd_signal(cnd_t *c)
{
    return vt_on() ? as_thrd(vt_cond_signal(cond(c))) : vt_real(cnd_signal)(c);
}

VT_EXPORT int cnd_broadcast(cnd_t *c)
{
    return vt_on() ? as_thrd(vt_cond_broadcast(cond(c))) : vt_real(cnd_broadcast)(c);
}

VT_EXPORT void call_once(once_flag *flag, void (*init)(void))
{
    if (vt_likely(vt_once_done((pthread_once_t *)flag)))
        return;
    if (vt_on())
        vt_once((pthread_once_t *)flag, init);
    else
        vt_real(call_once)(flag, init);
}
