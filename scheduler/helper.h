/* Helpers: a few kernel threads that make blocking calls for virtual threads, which park meanwhile. For calls that many
 * threads make at once and that end by themselves (reading a file that is not in memory): a hand-off would take a kernel
 * thread for each. Not for a call whose end may depend on another thread of the program: there are only so many helpers. */
#ifndef VT_HELPER_H
#define VT_HELPER_H

#include <stdbool.h>

/* Has a helper make call(arg), and parks until it has; the result goes to *result. False if there is no helper and none can
 * be made: nothing has been called then. Virtual threads only, not in a section. Not interrupted by anything. */
bool vt_help(long (*call)(void *arg), void *arg, long *result);

/* In a forked child: there are none. */
void vt_help_fork_child(void);

#endif
