/* What is known about descriptors.
 *
 * For each descriptor number a few hints, gathered where descriptors are made, duplicated, changed and
 * closed. They are only ever hints: libc closes and opens descriptors by itself, other processes share
 * descriptions, and the program may make system calls that nobody sees. So each hint is used in a way that a
 * wrong one costs time and not correctness, or is checked where it would matter. All functions may be called
 * by any thread, and in signal handlers. */
#ifndef VT_FD_H
#define VT_FD_H

#include "thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum vt_fd_kind {
    VT_FD_UNKNOWN,
    VT_FD_FILE, /* regular file, directory, block device: never waited for by readiness */
    VT_FD_SOCKET,
    VT_FD_PIPE,
    VT_FD_CHAR,  /* terminal or another device */
    VT_FD_EVENT, /* eventfd, timerfd, signalfd, inotify, epoll, pidfd ... */
};

enum vt_fd_bits {
    VT_FD_KIND = 7,
    VT_FD_TRACKED = 8,       /* made in our sight: O_NONBLOCK is as VT_FD_NONBLOCK says */
    VT_FD_SHARED = 16,       /* another descriptor of this process may be on the same description: do not rely on it */
    VT_FD_NONBLOCK = 32,     /* O_NONBLOCK is on: calls are made as they are */
    VT_FD_NO_NOWAIT_IN = 64, /* preadv2 does not know RWF_NOWAIT here */
    VT_FD_NO_NOWAIT_OUT = 128,
    VT_FD_NO_TIMEO = 256,   /* SO_RCVTIMEO and SO_SNDTIMEO are zero */
    VT_FD_LOWAT = 512,      /* SO_RCVLOWAT has been set */
    VT_FD_LINGER = 1024,    /* close may block */
    VT_FD_PIECEMEAL = 2048, /* what libc or the kernel wants of it in one go comes in pieces that take their time; a file: its
                               calls block */
    VT_FD_DIRECT = 16384,   /* O_DIRECT: the page cache has no part in it */
};

struct vt_fd {
    _Atomic uint16_t bits;
    _Atomic uint16_t generation; /* changes when the number is closed or given away */
    _Atomic uint8_t waits[2];    /* calls of each kind still to come that wait without a first try */
    _Atomic uint8_t guess;       /* see vt_fd_plenty */
    _Atomic uint16_t leader;     /* of an epoll set: 0, or whose turn it is to wait for it (poll.c) */
};

#define VT_FD_MAX (1 << 20) /* beyond this nothing is remembered */

extern struct vt_fd vt_fds[VT_FD_MAX];

static inline unsigned vt_fd_bits(int fd)
{
    return (unsigned)fd < VT_FD_MAX ? atomic_load_explicit(&vt_fds[fd].bits, memory_order_relaxed) : 0;
}

static inline unsigned vt_fd_generation(int fd)
{
    return (unsigned)fd < VT_FD_MAX ? atomic_load_explicit(&vt_fds[fd].generation, memory_order_relaxed) : 0;
}

static inline void vt_fd_set(int fd, unsigned bits)
{
    if ((unsigned)fd < VT_FD_MAX && (vt_fd_bits(fd) & bits) != bits)
        atomic_fetch_or_explicit(&vt_fds[fd].bits, (uint16_t)bits, memory_order_relaxed);
}

static inline void vt_fd_clear(int fd, unsigned bits)
{
    if ((unsigned)fd < VT_FD_MAX && (vt_fd_bits(fd) & bits) != 0)
        atomic_fetch_and_explicit(&vt_fds[fd].bits, (uint16_t)~bits, memory_order_relaxed);
}

/* Asks the kernel what fd is, and remembers it. VT_FD_UNKNOWN for a bad descriptor. */
enum vt_fd_kind vt_fd_learn(int fd);

static inline enum vt_fd_kind vt_fd_kind(int fd)
{
    enum vt_fd_kind kind = vt_fd_bits(fd) & VT_FD_KIND;
    return kind != VT_FD_UNKNOWN ? kind : vt_fd_learn(fd);
}

/* fd (if it is >= 0) has just been made: of this kind, or unknown, blocking or not; bits: further ones. */
void vt_fd_born(int fd, enum vt_fd_kind kind, bool nonblock, unsigned bits);

/* Nothing is known about fd any more. */
void vt_fd_forget(int fd);
void vt_fd_forget_range(unsigned first, unsigned last);

/* The process is about to fork: from now on a child has the same descriptions. */
void vt_fd_share_all(void);

/* In a forked child: nobody waits for an epoll set. */
void vt_fd_fork_child(void);

/* How large the process's table of descriptors is, as far as the program's own need it: what select is limited to. */
int vt_fd_table(void);

/* to (if it is >= 0) is a duplicate of fd. */
void vt_fd_dup(int fd, int to);

/* The program has set or cleared O_NONBLOCK. */
void vt_fd_mark_nonblock(int fd, bool nonblock);

/* The flags (F_GETFL) of fd, a file, are these: whether its calls reach the disk each time. */
void vt_fd_mark_flags(int fd, int flags);

/* A call on fd would have to wait: whether the descriptor is non-blocking, so that the program gets EAGAIN.
 * Asks the kernel where the hint is not reliable. */
bool vt_fd_nonblocking(int fd);

/* The program has set this option of level SOL_SOCKET. */
void vt_fd_mark_sockopt(int fd, int option, const void *value, unsigned length);

/* When a call on fd that waits from now on has to give up, by SO_RCVTIMEO or SO_SNDTIMEO. */
uint64_t vt_fd_deadline(int fd, int option);

/* The same, but VT_FD_GONE where the number was not open when the kernel was asked: by now it may be again, with a limit. */
#define VT_FD_GONE UINT64_C(0)
uint64_t vt_fd_deadline_of(int fd, int option);

enum vt_fd_use {
    VT_FD_READS,
    VT_FD_POLLS, /* poll, epoll_wait; they say nothing about the reads that follow */
};

/* Whether to try a call without blocking before waiting for it; vt_fd_waited and vt_fd_vain say that the last one was in vain.
 * After some that wait, one is tried in any case, to notice that data has become plentiful. */
static inline bool vt_fd_try_first(int fd, enum vt_fd_use use)
{
    if ((unsigned)fd >= VT_FD_MAX)
        return true;
    uint8_t waits = atomic_load_explicit(&vt_fds[fd].waits[use], memory_order_relaxed);
    if (waits == 0)
        return true;
    atomic_store_explicit(&vt_fds[fd].waits[use], waits - 1, memory_order_relaxed);
    return false;
}

/* The next calls, as many as given, had better wait without a try. */
static inline void vt_fd_vain(int fd, enum vt_fd_use use, uint8_t calls)
{
    if ((unsigned)fd < VT_FD_MAX)
        atomic_store_explicit(&vt_fds[fd].waits[use], calls, memory_order_relaxed);
}

#define VT_FD_GUESSED     255 /* that the next read need not wait; it has not been tried yet */
#define VT_FD_GUESS_AFTER 64  /* so many times after the last wrong guess */

static inline void vt_fd_waited(int fd, enum vt_fd_use use)
{
    if ((unsigned)fd >= VT_FD_MAX)
        return;
    vt_fd_vain(fd, use, 15);
    if (use == VT_FD_READS && atomic_load_explicit(&vt_fds[fd].guess, memory_order_relaxed) == VT_FD_GUESSED)
        atomic_store_explicit(&vt_fds[fd].guess, VT_FD_GUESS_AFTER, memory_order_relaxed);
}

/* A read that waited has filled its buffer: there is probably more, and the next one need not wait. Where that was wrong,
 * as with messages of one size, it is not guessed again for a while. */
static inline void vt_fd_plenty(int fd)
{
    if ((unsigned)fd >= VT_FD_MAX)
        return;
    uint8_t guess = atomic_load_explicit(&vt_fds[fd].guess, memory_order_relaxed);
    if (guess == 0 || guess == VT_FD_GUESSED) {
        guess = VT_FD_GUESSED;
        atomic_store_explicit(&vt_fds[fd].waits[VT_FD_READS], 0, memory_order_relaxed);
    } else {
        guess--;
    }
    atomic_store_explicit(&vt_fds[fd].guess, guess, memory_order_relaxed);
}

/* A first try of a read has found something. */
static inline void vt_fd_found(int fd)
{
    if ((unsigned)fd < VT_FD_MAX && atomic_load_explicit(&vt_fds[fd].guess, memory_order_relaxed) == VT_FD_GUESSED)
        atomic_store_explicit(&vt_fds[fd].guess, 0, memory_order_relaxed);
}

#endif
