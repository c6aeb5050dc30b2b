/*
 * How late a thread gets to run that others may keep from it. A busy machine makes single delays that are
 * nobody's fault, so a measurement may be made again: what the scheduler does wrong it does wrong every time.
 */
#ifndef LATENESS_H
#define LATENESS_H

#include "check.h"

enum { LATE_US = 100000, ATTEMPTS = 3 };

/* Calls `measure` (the worst lateness in microseconds) until it is within the limit, three times at most. */
static inline void expect_punctual(const char *name, int64_t (*measure)(void))
{
    for (int i = 0; i < ATTEMPTS; i++) {
        int64_t worst = measure();
        fprintf(stderr, "%s: at worst %.1f ms late\n", name, (double)worst / 1000);
        if (worst < LATE_US) {
            puts(name);
            return;
        }
    }
    FAIL("%s: later than %d ms in each of %d attempts", name, LATE_US / 1000, ATTEMPTS);
}

/* Sleeps `ms` again and again, for `us` in all, and gives the worst lateness. */
static inline int64_t worst_of_sleeps(int64_t us, int ms)
{
    int64_t worst = 0;

    for (int64_t end = now_us() + us, before; (before = now_us()) < end;) {
        sleep_us(ms * 1000L);
        int64_t late = now_us() - before - ms * 1000L;
        if (late > worst)
            worst = late;
    }
    return worst;
}

#endif
