/* I/O that parks the calling virtual thread. To be called by virtual threads only.
 *
 * Two ways. Readiness: wait until a descriptor reports events, then make the call without blocking; nothing is lost when
 * the wait ends early. Operation: give the call itself to the ring of the thread's place and park until its completion;
 * fewer system calls, but an operation that is interrupted may have moved bytes already, so its result counts. Either
 * way every request has completed when the function returns: its memory may lie on the caller's stack.
 *
 * An interruption (VT_PARK_INTERRUPTIBLE in flags, see park.h) or the deadline cancels the request; if it had completed
 * meanwhile its result wins. */
#ifndef VT_IO_H
#define VT_IO_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An operation in io_uring's own terms; field names as in struct io_uring_sqe. */
struct vt_io_req {
    uint8_t opcode;    /* IORING_OP_* */
    int32_t fd;
    const void *addr;
    uint32_t len;
    uint64_t off;      /* or addr2 */
    uint32_t op_flags; /* msg_flags, accept_flags, rw_flags ... */
};

/* Whether vt_io_do works (a ring is there); else only vt_io_ready and vt_io_poll do. */
bool vt_io_has_ring(void);

/* Submits, parks, and returns the completion's result: >= 0, or -errno; -ETIMEDOUT at the deadline; -EINTR. */
int32_t vt_io_do(const struct vt_io_req *req, uint64_t deadline, unsigned flags);

/* Waits until fd reports any of events (POLLIN, POLLOUT, POLLPRI ...), an error or hang-up. Returns the events > 0, or
 * -ETIMEDOUT, -EINTR, -EBADF; -EPERM where the descriptor cannot be waited for (a regular file: always ready). */
int32_t vt_io_ready(int fd, short events, uint64_t deadline, unsigned flags);

/* As poll(2) by a virtual thread: number of descriptors with events, 0 at the deadline, -EINTR. revents filled in. */
int vt_io_poll(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags);

#endif
