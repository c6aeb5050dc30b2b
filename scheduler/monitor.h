/* The monitor: a kernel thread that sees carriers which are stuck (their thread computes for long, or blocks in the
 * kernel) while others wait, and hands their places over. It sleeps without a timeout while every place is idle. */
#ifndef VT_MONITOR_H
#define VT_MONITOR_H

#include <stdatomic.h>
#include <stdbool.h>

int vt_monitor_start(void);

/* In a forked child, where there is no monitor. */
void vt_monitor_fork_child(void);

extern _Atomic bool vt_monitor_asleep;
void vt_monitor_wake_slow(void);

/* To be called by a carrier whose place stops being idle, and for an idle place that needs a carrier and finds none. */
static inline void vt_monitor_wake(void)
{
    if (__builtin_expect(atomic_load_explicit(&vt_monitor_asleep, memory_order_seq_cst), 0))
        vt_monitor_wake_slow();
}

/* Registers the process for expedited membarriers, if the kernel has them. Before the first carrier. */
void vt_barrier_init(void);

/* Makes every other thread of the process pass a full barrier: the slow half of an asymmetric fence. */
void vt_barrier_all(void);

#endif
