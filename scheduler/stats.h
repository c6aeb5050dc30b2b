/* Counters for VTHREAD_STATS. */
#ifndef VT_STATS_H
#define VT_STATS_H

#include <stdint.h>

/* Causes of hand-offs that are no call. */
#define VT_HANDOFF_COMPUTING "(computing)"
#define VT_HANDOFF_BLOCKED   "(blocked in the kernel)"
#define VT_HANDOFF_BOUND     "(bound)"
#define VT_HANDOFF_HABIT     "(bound: blocks out of sight)"
#define VT_HANDOFF_KNOWN     "(bound: its kind blocks out of sight)"

struct vt_thread;

/* Counts a hand-off of t under its cause, a static text. Any thread. */
void vt_count_handoff(const char *what, const struct vt_thread *t);

/* A virtual thread has been made: for the greatest number of living ones. Takes its time. Any thread. */
void vt_count_peak(void);

/* In a forked child. */
void vt_stats_reset(void);

/* Prints all counters. */
void vt_stats_print(void);

/* Prints what vt_config asks for at the end of the process. */
void vt_stats_end(void);

/* Below how many ns so many of a thousand delays were, by a histogram as vt_place_stats has it; 0 if it is empty. */
uint64_t vt_delay_share(const uint64_t *delay, unsigned per_mille);

/* For who looks from outside (debug.h). Causes: a pointer to a text (NULL: the last, all others) and a count, 64 bits
 * each. */
extern const struct vt_stats_view {
    const void *causes;
    uint64_t ncauses;
    const void *peak; /* of living threads, with VTHREAD_STATS only */
} vt_stats_view;

#endif
