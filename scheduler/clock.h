/* Points in time as programs give them, and as vt_park takes them. */
#ifndef VT_CLOCK_H
#define VT_CLOCK_H

#include "park.h"
#include "thread.h"

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
    if (__builtin_mul_overflow((uint64_t)t->tv_sec, VT_SECOND_NS, &ns) || __builtin_add_overflow(ns, (uint64_t)t->tv_nsec, &ns))
        return VT_NEVER;
    return ns;
}

/* What the clock says now, in ns. */
static inline uint64_t vt_clock_now(clockid_t clock)
{
    struct timespec now;
    if (clock == CLOCK_MONOTONIC)
        return vt_now();
    vt_clock_gettime(clock, &now);
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

/* The deadline that an absolute time is, by its own clock (vt_park_clock); NULL is never. */
static inline uint64_t vt_deadline_at(const struct timespec *until)
{
    return until ? vt_timespec_ns(until) : VT_NEVER;
}

/* --- waiting by a clock that may be set -----------------------------------------------------------------------------
 *
 * A virtual thread waits by its place's timers, which are CLOCK_MONOTONIC. A deadline by another clock is converted at
 * each look, and the thread says in its descriptor (clocked) that it relies on the conversion. When the clock has been
 * set, a kernel thread that sleeps on it until then (the watch; made at the first such wait) unblocks all who have said
 * so, and each looks again. Said before the clock is read, and the set clock is there before the watch looks round: so
 * either the wait converts by the new clock or the watch sees it. A kernel thread lets the kernel follow the clock. */

struct vt_until {
    uint64_t at;       /* by `clock` */
    uint64_t deadline; /* what that was by CLOCK_MONOTONIC when last looked at */
    clockid_t clock;
    bool real;    /* a kernel thread's wait by CLOCK_REALTIME */
    bool clocked; /* counted in the thread's clocked */
};

/* The slow half of the next. */
void vt_clock_wait(struct vt_until *u, struct vt_thread *t);

/* t, the calling thread, waits until `at` by the clock that the flags say. */
static inline void vt_until_begin(struct vt_until *u, struct vt_thread *t, uint64_t at, unsigned flags)
{
    *u = (struct vt_until){.at = at, .deadline = at, .clock = CLOCK_MONOTONIC};
    if (__builtin_expect(flags & VT_PARK_CLOCK, 0) && at != VT_NEVER) {
        u->clock = (clockid_t)(flags >> 4 & 15);
        vt_clock_wait(u, t);
    }
}

/* Whether the time has come. */
static inline bool vt_until_passed(struct vt_until *u)
{
    if (u->at == VT_NEVER)
        return false;
    uint64_t now = vt_clock_now(u->clock);
    if (now >= u->at)
        return true;
    if (u->clock != CLOCK_MONOTONIC && !u->real)
        u->deadline = vt_deadline_in(u->at - now);
    return false;
}

/* vt_block until then; after vt_until_passed has said no. */
static inline void vt_until_block(const struct vt_until *u)
{
    if (u->real)
        vt_block_real(u->at);
    else
        vt_block(u->deadline);
}

static inline void vt_until_end(const struct vt_until *u, struct vt_thread *t)
{
    if (__builtin_expect(u->clocked, 0))
        atomic_store_explicit(&t->clocked, atomic_load_explicit(&t->clocked, memory_order_relaxed) - 1, memory_order_relaxed);
}

/* Makes the watch if it is wanted. The keeper. */
void vt_clock_keep(void);

/* What the watch does when a clock has been set. Any thread, not in a section. */
void vt_clock_was_set(void);

/* In a forked child, where there is no watch. */
void vt_clock_fork_child(void);

#endif
