/* Whether to look out for a little before going to sleep. That pays where what is waited for mostly comes within that time:
 * no sleep, and no wake-up by who makes the work. Where it does not, the time is burnt, once for each request of a client that
 * waits for its answer; so who has looked out in vain sleeps at once for a while, twice as often each time.
 *
 *     if (vt_eager(&e))
 *         vt_eager_seen(&e, looked out: whether it came);
 *     ... sleeps
 *     if (the sleep was short)
 *         vt_eager_slept(&e);
 *
 * One thread at a time. All zero at first. */
#ifndef VT_EAGER_H
#define VT_EAGER_H

#include <stdbool.h>
#include <stdint.h>

#define VT_EAGER_CREDIT 2
#define VT_EAGER_PAUSE  255 /* short sleeps between two attempts, at the most */

struct vt_eager {
    uint8_t credit; /* how many more times in vain */
    uint8_t rest;   /* short sleeps to come that are not worth an attempt */
    uint8_t pause;  /* what rest begins with */
};

static inline bool vt_eager(const struct vt_eager *e)
{
    return e->credit != 0;
}

static inline void vt_eager_seen(struct vt_eager *e, bool came)
{
    if (came) {
        e->credit += e->credit < VT_EAGER_CREDIT;
        e->pause = 0;
    } else if (--e->credit == 0) {
        e->pause = e->pause < VT_EAGER_PAUSE / 2 ? (uint8_t)(2 * e->pause + 1) : VT_EAGER_PAUSE;
        e->rest = e->pause;
    }
}

static inline void vt_eager_slept(struct vt_eager *e)
{
    if (e->rest)
        e->rest--;
    else if (!e->credit)
        e->credit = VT_EAGER_CREDIT;
}

#endif
