/* Counters for VTHREAD_STATS. */
#ifndef VT_STATS_H
#define VT_STATS_H

#include <stdint.h>

/* Causes of hand-offs that are no call. */
#define VT_HANDOFF_COMPUTING "(computing)"
#define VT_HANDOFF_BLOCKED   "(blocked in the kernel)"

/* Counts a hand-off under its cause, a static text. Any thread. */
void vt_count_handoff(const char *what);

/* Counts a virtual thread that starts (+1) or ends (-1). Any thread. */
void vt_count_thread(int change);

uint64_t vt_threads_living(void);

/* In a forked child. */
void vt_stats_reset(void);

/* Prints all counters, as asked for by vt_config. */
void vt_stats_print(void);

#endif
