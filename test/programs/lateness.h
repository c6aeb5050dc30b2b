/*
 * How late a thread gets to run that others may keep from it. A busy machine makes everyone late, so a
 * process of its own sleeps beside the program: by as much as that is late, the program may be later. And a
 * measurement may be made again: what the scheduler does wrong it does wrong every time.
 */
#ifndef LATENESS_H
#define LATENESS_H

#include "check.h"
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

enum { LATE_US = 100000, ATTEMPTS = 3 };

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

static int control_in, control_out;

/* To be called before there is any thread. The process sleeps from one byte to the next and then says how
 * late it was. */
static inline void start_control(void)
{
    int in[2], out[2];
    char byte;

    SYS(pipe(in));
    SYS(pipe(out));
    control_in = in[1];
    control_out = out[0];
    if (SYS(fork()) != 0) {
        close(in[0]);
        close(out[1]);
        return;
    }
    close(in[1]);
    close(out[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(in[0], &byte, 1) == 1) {
        struct pollfd p = {in[0], POLLIN, 0};
        int64_t worst = 0;
        while (poll(&p, 1, 0) == 0) {
            int64_t late = worst_of_sleeps(1, 10);
            if (late > worst)
                worst = late;
        }
        if (read(in[0], &byte, 1) != 1 || write(out[1], &worst, sizeof worst) != sizeof worst)
            break;
    }
    _exit(0);
}

/* Calls `measure` (the worst lateness in microseconds) until it is within the limit, three times at most. */
static inline void expect_punctual(const char *name, int64_t (*measure)(void))
{
    for (int i = 0; i < ATTEMPTS; i++) {
        int64_t control;
        write_all(control_in, "b", 1);
        int64_t worst = measure();
        write_all(control_in, "e", 1);
        read_all(control_out, &control, sizeof control);
        fprintf(stderr, "%s: at worst %.1f ms late, and another process %.1f ms\n", name, (double)worst / 1000,
                (double)control / 1000);
        if (worst < LATE_US + control) {
            puts(name);
            return;
        }
    }
    FAIL("%s: later than %d ms in each of %d attempts", name, LATE_US / 1000, ATTEMPTS);
}

#endif
