/* Signals to the process. The kernel gives one to main if that lets it in, else to any kernel thread that
 * does. A virtual thread that is parked has none: what main blocks and only parked threads let in would come
 * to nobody. So the catcher, a kernel thread, waits for these signals and sends them on to such a thread. It
 * is made when it is first needed. */
#ifndef VT_CATCHER_H
#define VT_CATCHER_H

#include <stdint.h>

/* main blocks these signals from now on; all of them when it has gone. main itself; takes no lock,
 * async-signal-safe. */
void vt_catch_main_blocks(uint64_t set);

/* A virtual thread has this mask from now on: set before, with a fence in between. Any thread, also in a
 * section and in a handler. */
void vt_catch_let_in(uint64_t mask);

/* The program waits for these by sigwait or a signalfd: the catcher leaves them alone from now on. Any
 * thread, not in a section. */
void vt_catch_called_for(uint64_t set);

/* The program has a handler for sig from now on. Any thread. */
void vt_catch_handled(int sig);

/* Makes the catcher if it is wanted. The keeper. */
void vt_catch_keep(void);

/* In a forked child, on its only thread. */
void vt_catch_fork_child(void);

#endif
