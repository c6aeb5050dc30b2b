/* Points in time as programs give them, and as vt_park takes them. */
#ifndef VT_CLOCK_H
#define VT_CLOCK_H

#include "park.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define VT_SECOND_NS UINT64_C(1000000000)

/* The clocks that a wait can name (pthread_cond_clockwait and its kin; glibc's set). */
static inline bool vt_clock_waitable(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC;
}

static inline bool vt_nsec_valid(const struct timespec *t)
{
    return (unsigned long)t->tv_nsec < VT_SECOND_NS;
}

/* t in ns: 0 before the epoch, VT_NEVER beyond 584 years. */
static inline uint64_t vt_timespec_ns(const struct timespec *t)
{
    uint64_t ns;
    if (t->tv_sec < 0)
        return 0;
    if (__builtin_mul_overflow((uint64_t)t->tv_sec, VT_SECOND_NS, &ns) ||
        __builtin_add_overflow(ns, (uint64_t)t->tv_nsec, &ns))
        return VT_NEVER;
    return ns;
}

/* What the clock says now, in ns. */
static inline uint64_t vt_clock_now(clockid_t clock)
{
    struct timespec now;
    if (clock == CLOCK_MONOTONIC)
        return vt_now();
    clock_gettime(clock, &now);
    return vt_timespec_ns(&now);
}

/* ns from now on. */
static inline uint64_t vt_deadline_in(uint64_t ns)
{
    uint64_t now = vt_now();
    return ns < VT_NEVER - now ? now + ns : VT_NEVER;
}

/* What is left until the deadline, as a time-out of the kernel's; NULL for VT_NEVER. */
static inline struct timespec *vt_timespec_left(uint64_t deadline, struct timespec *left)
{
    if (deadline == VT_NEVER)
        return NULL;
    uint64_t now = vt_now(), ns = now < deadline ? deadline - now : 0;
    *left = (struct timespec){.tv_sec = (time_t)(ns / VT_SECOND_NS), .tv_nsec = (long)(ns % VT_SECOND_NS)};
    return left;
}

/* The deadline for an absolute time of a waitable clock, by what that clock says now; NULL is never. */
static inline uint64_t vt_deadline(clockid_t clock, const struct timespec *until)
{
    if (!until)
        return VT_NEVER;
    uint64_t at = vt_timespec_ns(until);
    if (clock == CLOCK_MONOTONIC || at == VT_NEVER)
        return at;
    uint64_t now = vt_clock_now(clock);
    return at <= now ? 0 : vt_deadline_in(at - now);
}

/* Whether until has come by the clock that it is meant for. CLOCK_REALTIME may have been set back since the deadline
 * was worked out: nothing may report a time-out before this says so. */
static inline bool vt_clock_reached(clockid_t clock, const struct timespec *until)
{
    return until && vt_clock_now(clock) >= vt_timespec_ns(until);
}

#endif
