/* Sleeping and yielding. */
#include "call.h"
#include "clock.h"
#include "park.h"
#include "sys.h"

#include <sched.h>
#include <threads.h>
#include <unistd.h>

static struct timespec to_timespec(uint64_t t)
{
    return (struct timespec){.tv_sec = (time_t)(t / 1000000000u), .tv_nsec = (long)(t % 1000000000u)};
}

/* Sleeps until the deadline, by the clock: 0 or -EINTR. */
static long sleep_until(clockid_t clock, uint64_t deadline)
{
    unsigned flags = VT_PARK_INTERRUPTIBLE | vt_park_clock(clock);
    for (;;) {
        int ret = vt_sleep(deadline, flags);
        if (ret == ETIMEDOUT)
            return 0;
        if (ret == EINTR && vt_io_interrupted(&flags))
            return -EINTR;
    }
}

long vt_call_clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *remaining)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_MONOTONIC:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
        break;
    default: /* processor time, alarms, or an error */
        return VT_HANDED_POINT("clock_nanosleep", vt_sys4(SYS_clock_nanosleep, clock, flags, (long)request, (long)remaining));
    }
    if (!request || request->tv_sec < 0 || !vt_nsec_valid(request))
        return request ? -EINVAL : -EFAULT;
    uint64_t time = vt_timespec_ns(request);
    if (!(flags & TIMER_ABSTIME)) {
        /* A relative sleep does not depend on the setting of its clock (clock_nanosleep(2)). */
        uint64_t deadline = vt_deadline_in(time);
        long ret = 0;
        if (time)
            ret = sleep_until(CLOCK_MONOTONIC, deadline);
        else
            vt_yield(); /* others run meanwhile, as in the kernel: some programs yield so */
        if (ret == -EINTR && remaining) {
            uint64_t now = vt_now();
            *remaining = to_timespec(now < deadline ? deadline - now : 0);
        }
        return ret;
    }
    return sleep_until(clock, time);
}

VT_EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *remaining)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(clock_nanosleep)(clock, flags, request, remaining);
    vt_cancel_point();
    if (clock == CLOCK_THREAD_CPUTIME_ID) /* as libc, which refuses it */
        return EINVAL;
    return (int)-vt_call_clock_nanosleep(clock, flags, request, remaining);
}

VT_EXPORT int nanosleep(const struct timespec *request, struct timespec *remaining)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(nanosleep)(request, remaining);
    vt_cancel_point();
    return (int)vt_result(vt_call_clock_nanosleep(CLOCK_REALTIME, 0, request, remaining));
}
VT_ALIAS(nanosleep, __nanosleep);

VT_EXPORT unsigned sleep(unsigned seconds)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(sleep)(seconds);
    vt_cancel_point();
    struct timespec left = {.tv_sec = seconds};
    /* Interrupted, libc returns the whole seconds that are left. */
    long ret = vt_call_clock_nanosleep(CLOCK_REALTIME, 0, &left, &left);
    if (ret == 0)
        return 0;
    errno = EINTR;
    return (unsigned)left.tv_sec;
}

VT_EXPORT int usleep(useconds_t us)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(usleep)(us);
    vt_cancel_point();
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    return (int)vt_result(vt_call_clock_nanosleep(CLOCK_REALTIME, 0, &time, NULL));
}

VT_EXPORT int thrd_sleep(const struct timespec *request, struct timespec *remaining)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(thrd_sleep)(request, remaining);
    vt_cancel_point();
    long ret = vt_call_clock_nanosleep(CLOCK_REALTIME, 0, request, remaining);
    return ret == 0 ? 0 : ret == -EINTR ? -1 : -2;
}

VT_EXPORT int sched_yield(void)
{
    if (!vt_on() || !vt_is_virtual())
        return (int)vt_result(vt_sys0(SYS_sched_yield));
    vt_yield();
    return 0;
}
VT_ALIAS(sched_yield, __sched_yield);
VT_ALIAS(sched_yield, pthread_yield);

VT_EXPORT void thrd_yield(void)
{
    sched_yield();
}
