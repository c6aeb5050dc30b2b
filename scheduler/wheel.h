/*
 * Timers: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987). Adding and removing is O(1) and
 * touches two timers at most; a timer moves at most once a level before it expires.
 *
 * Time is counted in ticks of VT_WHEEL_GRAIN ns. A deadline is rounded up to a tick and `now` down, so
 * nothing expires early, and at most a tick late. Level n has 64 slots of 64^n ticks; a timer is on the level
 * of the highest digit, to the base of 64, in which its tick differs from the wheel's. So all timers of a
 * level come before all of the next, and the first slot in use of the first level in use holds the earliest.
 *
 * Not thread-safe: the caller has a lock. The wheel owns no memory; it must not move while timers are armed.
 */
#ifndef VT_WHEEL_H
#define VT_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VT_WHEEL_SHIFT  15 /* a tick is 2^15 ns, 33 us */
#define VT_WHEEL_GRAIN  (UINT64_C(1) << VT_WHEEL_SHIFT)
#define VT_WHEEL_BITS   6
#define VT_WHEEL_SLOTS  (1 << VT_WHEEL_BITS)
#define VT_WHEEL_LEVELS 9 /* 54 bits; the last tick is 2^(64 - VT_WHEEL_SHIFT) */

/* A timer is armed if and only if pprev is not NULL. All zero is a timer that is not armed. */
struct vt_timer {
    uint64_t deadline;
    struct vt_timer *next;
    struct vt_timer **pprev;
};

static inline bool vt_timer_armed(const struct vt_timer *t)
{
    return t->pprev != NULL;
}

struct vt_wheel_slot {
    struct vt_timer *first;
    uint64_t min; /* no tick in the slot is less; meaningful when the slot is not empty */
};

struct vt_wheel {
    uint64_t tick;                  /* all timers of earlier ticks have expired */
    size_t count;                   /* of armed timers */
    struct vt_timer *moving;        /* timers of a slot that time has reached, on their way to lower levels */
    uint32_t levels;                /* bit n: level n has timers */
    uint64_t used[VT_WHEEL_LEVELS]; /* bit n: slot n has timers */
    struct vt_wheel_slot slot[VT_WHEEL_LEVELS * VT_WHEEL_SLOTS];
};

/* An empty wheel at `now` ns. */
void vt_wheel_init(struct vt_wheel *w, uint64_t now);

/*
 * Arms t, which must not be armed, for `deadline` ns; one that has passed is due at once. A deadline in the
 * last tick of 64 bits, UINT64_MAX among them, never comes.
 */
void vt_wheel_add(struct vt_wheel *w, struct vt_timer *t, uint64_t deadline);

/* Disarms t. False if it was not armed. */
bool vt_wheel_remove(struct vt_wheel *w, struct vt_timer *t);

/*
 * When vt_wheel_expire must be called next, in ns: never later than the earliest deadline, rounded up to a
 * tick. UINT64_MAX: not before another timer is added. It is that deadline itself unless timers were removed;
 * a removed one can cost one call that expires nothing for each level it would have gone through. In the past
 * when more is due than the last call could take.
 */
uint64_t vt_wheel_next(const struct vt_wheel *w);

/*
 * Disarms up to `max` timers that are due at `now` ns and returns them linked by `next`, in the order of
 * their ticks (within a tick: in no order). Does a bounded amount of work: `max` and VT_WHEEL_WORK moves
 * between levels. So it may return fewer than are due, even NULL; vt_wheel_next is not later than `now` then,
 * and it is to be called again.
 */
struct vt_timer *vt_wheel_expire(struct vt_wheel *w, uint64_t now, size_t max);

#define VT_WHEEL_WORK 1024

static inline size_t vt_wheel_count(const struct vt_wheel *w)
{
    return w->count;
}

#ifdef __cplusplus
}
#endif

#endif
