/* The library's own descriptors (scheduler/own.h) as the program is to see them: not at all. The functions that say bool
 * return whether they have dealt with the call; then *ret is the kernel's result. Any thread. */
#ifndef VT_HIDE_H
#define VT_HIDE_H

#include "own.h"

#include <poll.h>

/* close(fd). Acts upon a pending cancellation. */
bool vt_hidden_close(int fd, long *ret);

/* dup2, dup3 (number) onto to, which one of ours makes way for. */
bool vt_hidden_dup_over(long number, int fd, int to, int flags, long *ret);

bool vt_hidden_fcntl(int fd, int cmd, long arg, long *ret);

/* poll(2), where one of fds is of ours. */
bool vt_hidden_poll(struct pollfd *fds, nfds_t n, long *ret);

/* What comes by syscall(). */
bool vt_hidden_call(long number, const long a[6], long *ret);

/* close_range(2), leaving ours open. The kernel's result. */
long vt_call_close_range(unsigned first, unsigned last, unsigned flags);

#endif
