/* I/O that parks the calling virtual thread. To be called by virtual threads only.
 *
 * Two ways. Readiness: wait until a descriptor reports events, then make the call without blocking; nothing is lost when
 * the wait ends early. Operation: give the call itself to the ring of the thread's place and park until its completion;
 * fewer system calls, but an operation that is interrupted may have moved bytes already, so its result counts. Either
 * way every request has completed when the function returns: its memory may lie on the caller's stack.
 *
 * An interruption (VT_PARK_INTERRUPTIBLE in flags, see park.h) or the deadline cancels the request; if it had completed
 * meanwhile its result wins. No handler of the program runs while a request is under way: one that has something to run
 * ends the request first, so it may leave by longjmp or an exception; if it does not and flags do not ask for it, the wait
 * goes on. */
#ifndef VT_IO_H
#define VT_IO_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An operation in io_uring's own terms; field names as in struct io_uring_sqe. */
struct vt_io_req {
    uint8_t opcode; /* IORING_OP_* */
    int32_t fd;
    const void *addr;
    uint32_t len;
    uint64_t off;      /* or addr2 */
    uint32_t op_flags; /* msg_flags, accept_flags, rw_flags ... */
    uint32_t index;    /* file_index, splice_fd_in */
};

/* Whether vt_io_do works (a ring is there); else only vt_io_ready and vt_io_poll do. */
bool vt_io_has_ring(void);

/* Waits for children as waitid; Linux 6.7. len: idtype, fd: id, off: where the siginfo goes or 0, index: options. */
#define VT_IO_WAITID 50

/* Whether the kernel knows the operation. */
bool vt_io_can(uint8_t opcode);

/* Submits, parks, and returns the completion's result: >= 0, or -errno; -ETIMEDOUT at the deadline; -EINTR. -EAGAIN also
 * in a child that a handler has forked during the call: it is to be made in another way. */
int32_t vt_io_do(const struct vt_io_req *req, uint64_t deadline, unsigned flags);

/* Waits until fd reports any of events (POLLIN, POLLOUT, POLLPRI ...), an error or hang-up. Returns the events > 0, or
 * -ETIMEDOUT, -EINTR, -EBADF; -EPERM where the descriptor cannot be waited for (a regular file: always ready). */
int32_t vt_io_ready(int fd, short events, uint64_t deadline, unsigned flags);

/* Ends also, with -EINTR, when *stop is true: who sets it calls vt_unblock after that, and no wait before this one or of a
 * handler in its midst can take it for its own. -EAGAIN where only the kernel could wait, which does not look at *stop. */
int32_t vt_io_ready_unless(int fd, short events, uint64_t deadline, unsigned flags, const _Atomic bool *stop);

/* As poll(2) by a virtual thread, of any number: how many descriptors have events, 0 at the deadline, -EINTR. revents are
 * filled in. mask, if not NULL, is the thread's signal mask during the wait: a signal that it lets in is taken only if
 * nothing else has ended the wait. */
int vt_io_poll(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags, const uint64_t *mask);

/* For what only the kernel can wait for: call(arg, mask) blocks in the kernel with *mask in force, as ppoll does, with the
 * place handed over under the name of what; again after an interruption that flags do not ask for. mask as above. */
long vt_io_handed(const char *what, long (*call)(void *arg, const uint64_t *mask), void *arg, unsigned flags,
                  const uint64_t *mask);

#endif
