/* What a libc lacks that is older than the programs. */
#ifndef OLDER_H
#define OLDER_H

#include <linux/close_range.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

#if !__GLIBC_PREREQ(2, 32)
#define strerrorname_np strerror
#endif
#if !__GLIBC_PREREQ(2, 34)
#define close_range(first, last, flags) ((int)syscall(SYS_close_range, first, last, flags))
#define closefrom(first)                ((void)close_range(first, ~0U, 0))
#define _Fork()                         ((pid_t)syscall(SYS_fork))
#endif
#if !__GLIBC_PREREQ(2, 35)
#define epoll_pwait2(set, events, n, timeout, mask) ((int)syscall(441, set, events, n, timeout, mask, 8))
#endif

#endif
