/* The blocking system calls as a virtual thread makes them: they park it, or hand its place over, and
 * otherwise do what the kernel's call of that name does. The result is the kernel's: >= 0, or -errno; errno
 * is not touched. To be called by virtual threads only. The interposed functions, and syscall(), stand on
 * these. */
#ifndef VT_CALL_H
#define VT_CALL_H

#include "handoff.h"
#include "park.h"
#include "preload.h"
#include "real.h"
#include "thread.h"
#include "undo.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct vt_io_req;

long vt_call_read(int fd, void *buf, size_t n);
long vt_call_write(int fd, const void *buf, size_t n);
long vt_call_readv(int fd, const struct iovec *iov, int count);
long vt_call_writev(int fd, const struct iovec *iov, int count);
long vt_call_pread(int fd, void *buf, size_t n, off_t offset);
long vt_call_pwrite(int fd, const void *buf, size_t n, off_t offset);
/* Offset -1: the current position, as preadv2. */
long vt_call_preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
long vt_call_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags);

long vt_call_openat(int dir, const char *path, int flags, mode_t mode);

long vt_call_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *length);
long vt_call_recvmsg(int fd, struct msghdr *msg, int flags);
long vt_call_recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags, struct timespec *timeout);
long vt_call_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t length);
long vt_call_sendmsg(int fd, const struct msghdr *msg, int flags);
long vt_call_sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags);
long vt_call_accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags);
long vt_call_connect(int fd, const struct sockaddr *addr, socklen_t length);

/* Relative time-outs, NULL for none; a mask of size bytes, or NULL. *timeout is not changed. */
long vt_call_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size);
long vt_call_pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask,
                     size_t size);
long vt_call_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask,
                          size_t size);
long vt_call_clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *remaining);

/* type: idtype_t of waitid(2). usage may be NULL. */
long vt_call_wait4(pid_t pid, int *status, int options, struct rusage *usage);
long vt_call_waitid(int type, id_t id, siginfo_t *info, int options, struct rusage *usage);

/* fork, and clone that makes a process with memory of its own, by the number of the system call. By any
 * thread. */
long vt_call_fork(long number, const long a[6]);

/* A system call by its number, as any thread makes it through syscall(). By any thread. */
long vt_call_number(long number, const long a[6]);

/* One of the system calls about signals, by a virtual thread or for one. */
bool vt_signal_number(long number, const long a[6], long *ret);
/* The kernel has another mask for the calling thread, which the program has set. */
void vt_signal_mask_changed(void);

/* --- for those who implement them ------------------------------------------------------------------- */

#define VT_RW_MAX ((size_t)0x7ffff000) /* the most that the kernel moves in one call (MAX_RW_COUNT) */

/* Acts upon a cancellation that is pending. */
void vt_cancel_now(void);

/* To be called by each cancellation point before it has done anything. */
static inline void vt_cancel_point(void)
{
    if (__builtin_expect(atomic_load_explicit(&vt_self->interrupt, memory_order_relaxed) & VT_CANCELLED, 0))
        vt_cancel_now();
}

/* What ends the waits of calls that SA_RESTART applies to, unless they have a time limit (signal(7)). */
static inline unsigned vt_restartable(uint64_t deadline)
{
    return deadline == VT_NEVER ? VT_PARK_RESTARTABLE : VT_PARK_INTERRUPTIBLE;
}

/* A wait with these flags has ended with -EINTR: whether the call is to fail with EINTR; otherwise it goes on
 * waiting, with the flags as they are then. Does not return when it is a cancellation that is acted upon. */
bool vt_io_interrupted(unsigned *flags);

/* Nothing to wait for any more: make the call again. Not the result of any call. */
#define VT_RETRY INT64_MIN

/* Waits until a call on fd that would have blocked can be made, or has been made: by req where it is given
 * and there is a ring. VT_RETRY, the result of req, -EAGAIN at the deadline, -EINTR. */
long vt_wait_for(int fd, const struct vt_io_req *req, short events, uint64_t deadline);

/* Make the call as a blocking one, with the place handed over. Not the result of any call. */
#define VT_BLOCK (INT64_MIN + 1)

/* The same for POLLIN, by a call that takes something in: also VT_BLOCK, where fd is ready for ever and yet a call that does
 * not wait finds nothing. *vain: how often in a row VT_RETRY was in vain, counted here; 0 before the first time and after
 * each success. */
long vt_wait_in(int fd, const struct vt_io_req *req, uint64_t deadline, unsigned *vain);

/* A transfer out of the process that may take several calls. */
struct vt_out {
    struct vt_undo undo; /* while it waits; first */
    int fd;
    unsigned generation;
    unsigned shutdowns;  /* seen before the last try */
    unsigned futile;     /* how often the descriptor was ready and yet the call would have blocked */
    bool asked;          /* whether fd blocks, and for how long, is known; and local */
    bool local;          /* a socket of the local domain */
    bool quiet;          /* the next try raises no SIGPIPE, as a call on such a socket that has waited does not */
    _Atomic bool nudged; /* to be tried again although not ready */
    uint64_t deadline;
    struct vt_thread *thread;
    struct vt_out *next, **link; /* while it waits, in the list for vt_out_nudge */
};

extern _Atomic unsigned vt_shutdowns; /* counts vt_out_nudge */

/* To be called before the first try. */
static inline void vt_out_start(struct vt_out *out, int fd, unsigned generation)
{
    *out = (struct vt_out){.fd = fd, .generation = generation, .shutdowns = vt_shutdowns};
}

/* The call would have blocked, after done bytes: 0 when it is to be made again; VT_RETRY when it is to be
 * made as a blocking call (with the place handed over); else the result of the whole transfer if done is 0,
 * and done itself otherwise. */
long vt_out_wait(struct vt_out *out, long done);

/* A call on this kernel thread may have raised the signal: where the virtual thread blocks it, it is pending for the kernel
 * thread, and becomes pending for the virtual one alone. */
void vt_raised(int sig);

/* To be told the result of each call that may raise a signal with its error, before the thread can leave the kernel thread:
 * EPIPE comes with SIGPIPE, EFBIG with SIGXFSZ (RLIMIT_FSIZE). Returns ret. */
static inline long vt_moved(long ret)
{
    if (__builtin_expect(ret == -EPIPE || ret == -EFBIG, 0))
        vt_raised(ret == -EPIPE ? SIGPIPE : SIGXFSZ);
    return ret;
}

/* Lets transfers out of fd that wait for room be tried again: shutdown() ends them, which readiness does not
 * show where the socket is of the local domain. peers: those of all sockets of the local domain too, one of which
 * may be fd's peer. Any thread. */
void vt_out_nudge(int fd, bool peers);

/* Parks until there is room in fd, which calls may block on, for one that is made but once: 0, an error, or VT_BLOCK, where a
 * shutdown may have ended such calls. */
long vt_wait_room(int fd);

/* Whether fd is a socket of the local domain (AF_UNIX). */
bool vt_socket_is_local(int fd);
/* Whether it is one whose sending side may have been shut down, which readiness does not show. */
bool vt_socket_may_be_shut(int fd);

/* Whether fd is a terminal whose reads end without input: after a time (VTIME), or at once (VMIN 0). Readiness does not
 * show that, so it is the kernel that has to wait. */
bool vt_read_is_timed(int fd);

/* In a forked child: nobody waits but the calling thread. */
void vt_out_fork_child(void);

/* Whether fd reports any of events, or an error, now. */
bool vt_poll_now(int fd, short events);

/* Whether the descriptor is known to be non-blocking: then calls are made as they are. Where others have the description too
 * they may have changed it, and calls must not wait in the kernel for that, where nothing cancels them. */
#define VT_AS_IS(fd) ((vt_fd_bits(fd) & (VT_FD_TRACKED | VT_FD_SHARED | VT_FD_NONBLOCK)) == (VT_FD_TRACKED | VT_FD_NONBLOCK))

/* A call that was made with the place handed over has failed with EINTR: whether it is to be made again. The
 * kernel thread may still have requests under way in a ring, whose completion interrupts what it waits in as
 * a signal does, without any signal. */
static inline bool vt_handed_in_vain(void)
{
    return !(atomic_load_explicit(&vt_self->interrupt, memory_order_relaxed) & (VT_SIGNALLED | VT_CANCELLED));
}

/* The calling virtual thread, whose wait_what is set, is about to be in a system call of the kernel's that is a cancellation
 * point: until vt_call_ended a cancellation ends it at once, unless the call has its result already. As with libc's own
 * cancellation points. */
static inline void vt_call_begins(void)
{
    vt_self->in_call = true;
    /* Either this sees that it is cancelled, or who cancels it sees wait_what, and sends the signal (vt_cancel). */
    atomic_thread_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&vt_self->interrupt, memory_order_relaxed) & VT_CANCELLED, 0)) {
        vt_self->in_call = false;
        vt_cancel_now();
        vt_self->in_call = true; /* it is disabled, or under way */
    }
}

static inline void vt_call_ended(void)
{
    vt_self->in_call = false;
}

/* A call that is a cancellation point, in a place that has been handed over. */
#define VT_CALL_POINT(call)                                                                                                    \
    __extension__({                                                                                                            \
        long point_;                                                                                                           \
        vt_call_begins();                                                                                                      \
        point_ = (call);                                                                                                       \
        vt_call_ended();                                                                                                       \
        point_;                                                                                                                \
    })
#define VT_HANDED_POINT(what, call) VT_HANDED_CALL(what, VT_CALL_POINT(call))

/* A call that is a cancellation point, made as it is, since it was seen that it would not wait. Where others have been faster,
 * and it waits, the monitor hands the place over. */
#define VT_SEEN_POINT(what, call)                                                                                              \
    __extension__({                                                                                                            \
        long seen_;                                                                                                            \
        vt_self->wait_what = what;                                                                                             \
        do {                                                                                                                   \
            vt_wait_begins(vt_self);                                                                                           \
            seen_ = VT_CALL_POINT(call);                                                                                       \
        } while (seen_ == -EINTR && vt_handed_in_vain());                                                                      \
        vt_self->wait_what = NULL;                                                                                             \
        seen_;                                                                                                                 \
    })

/* call, an expression with the kernel's result, with the place handed over; evaluated again for an EINTR in
 * vain. */
#define VT_HANDED_CALL(what, call)                                                                                             \
    __extension__({                                                                                                            \
        long handed_;                                                                                                          \
        vt_handoff_begin(what);                                                                                                \
        do {                                                                                                                   \
            vt_wait_begins(vt_self);                                                                                           \
            handed_ = (call);                                                                                                  \
        } while (handed_ == -EINTR && vt_handed_in_vain());                                                                    \
        vt_moved(handed_);                                                                                                     \
        vt_handoff_end();                                                                                                      \
        handed_;                                                                                                               \
    })

/* The same for a function of libc's. */
#define VT_HANDED(what, call)                                                                                                  \
    __extension__({                                                                                                            \
        __typeof__(call) handed_;                                                                                              \
        int errno_ = errno;                                                                                                    \
        vt_handoff_begin(what);                                                                                                \
        for (;;) {                                                                                                             \
            vt_wait_begins(vt_self);                                                                                           \
            handed_ = (call);                                                                                                  \
            if (handed_ != (__typeof__(handed_))-1 || errno != EINTR || !vt_handed_in_vain())                                  \
                break;                                                                                                         \
            errno = errno_;                                                                                                    \
        }                                                                                                                      \
        vt_moved(-errno); /* of whatever type the result is */                                                                 \
        vt_handoff_end();                                                                                                      \
        handed_;                                                                                                               \
    })

/* Defines name: libc's function, with the place handed over. */
#define VT_HANDED_FUNCTION(type, name, parameters, arguments)                                                                  \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return vt_real(name) arguments;                                                                                    \
        vt_cancel_point();                                                                                                     \
        return VT_HANDED(#name, vt_real(name) arguments);                                                                      \
    }

/* Defines name as another name of target. */
#define VT_ALIAS(target, name) VT_EXPORT extern __typeof__(target) name __attribute__((alias(#target), copy(target)))

/* A system call's result as libc returns it. */
static inline long vt_result(long ret)
{
    if (__builtin_expect(ret < 0, 0)) {
        errno = (int)-ret;
        return -1;
    }
    return ret;
}

/* libc's end of a fortified function that would overflow its buffer. */
_Noreturn void __chk_fail(void);

#endif
