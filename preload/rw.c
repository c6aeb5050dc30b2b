/* read, write and their relatives.
 *
 * A read is tried without blocking first (RWF_NOWAIT, or MSG_DONTWAIT on a socket), unless the descriptor had
 * to wait lately; then the ring makes it. A write is tried without blocking and goes on when there is room,
 * so that SIGPIPE comes from a call of the thread itself. Files: reads that the page cache serves are direct,
 * others go by the ring; writes are direct. */
#include "call.h"
#include "fd.h"
#include "io.h"
#include "lock.h"
#include "park.h"
#include "sys.h"

#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* --- waiting ---------------------------------------------------------------------------------------- */

__attribute__((noinline)) void vt_cancel_now(void)
{
    vt_real(pthread_testcancel)();
}

__attribute__((noinline)) bool vt_io_interrupted(unsigned *flags)
{
    if (!(*flags & VT_PARK_CANCELLABLE) ||
        !(atomic_load_explicit(&vt_self->interrupt, memory_order_acquire) & VT_CANCELLED))
        return true; /* a handler */
    vt_cancel_now();
    *flags &= ~(unsigned)VT_PARK_CANCELLABLE; /* it is disabled */
    return false;
}

bool vt_poll_now(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    return vt_sys3(SYS_poll, (long)&p, 1, 0) != 0;
}

long vt_wait_for(int fd, const struct vt_io_req *req, short events, uint64_t deadline)
{
    bool ring = req && vt_io_has_ring();
    unsigned flags = vt_restartable(deadline);
    for (;;) {
        long ret;
        if (ring) {
            ret = vt_io_do(req, deadline, flags);
            if (ret == -EAGAIN) { /* the kernel does not wait here */
                ring = false;
                continue;
            }
        } else {
            ret = vt_io_ready(fd, events, deadline, flags);
            if (ret > 0 || ret == -EPERM)
                return VT_RETRY;
        }
        if (ret == -EINTR && !vt_io_interrupted(&flags))
            continue;
        /* A connection's own ETIMEDOUT is not ours. */
        if (ret == -ETIMEDOUT && deadline != VT_NEVER && vt_now() >= deadline)
            return -EAGAIN;
        return ret;
    }
}

__attribute__((noinline)) long vt_broken_pipe(void)
{
    struct vt_thread *t = vt_self;
    const uint64_t bit = UINT64_C(1) << (SIGPIPE - 1);
    const struct timespec none = {0, 0};
    if ((t->sigmask & bit) && vt_sys4(SYS_rt_sigtimedwait, (long)&bit, 0, (long)&none, sizeof bit) == SIGPIPE)
        atomic_fetch_or_explicit(&t->pending, bit, memory_order_relaxed);
    return -EPIPE;
}

/* Transfers that wait for room, by descriptor. */
#define OUT_LISTS 64

static struct {
    struct vt_lock lock;
    struct vt_out *first;
} out_lists[OUT_LISTS];

static void out_link(struct vt_out *out)
{
    struct vt_thread *t = vt_enter();
    unsigned i = (unsigned)out->fd % OUT_LISTS;
    vt_lock(&out_lists[i].lock);
    out->thread = t;
    out->nudged = false;
    out->next = out_lists[i].first;
    out->link = &out_lists[i].first;
    if (out->next)
        out->next->link = &out->next;
    out_lists[i].first = out;
    vt_unlock(&out_lists[i].lock);
    vt_leave(t);
}

static void out_unlink(struct vt_out *out)
{
    struct vt_thread *t = vt_enter();
    unsigned i = (unsigned)out->fd % OUT_LISTS;
    vt_lock(&out_lists[i].lock);
    *out->link = out->next;
    if (out->next)
        out->next->link = out->link;
    vt_unlock(&out_lists[i].lock);
    vt_leave(t);
}

_Atomic unsigned vt_shutdowns;

void vt_out_nudge(int fd)
{
    /* Who finds the old count after it has joined the list is found there. */
    atomic_fetch_add(&vt_shutdowns, 1);
    bool all = vt_fd_bits(fd) & VT_FD_SHARED; /* they may wait by another number */
    for (unsigned i = 0; i < OUT_LISTS; i++) {
        if (!all && i != (unsigned)fd % OUT_LISTS)
            continue;
        struct vt_thread *t = vt_enter();
        vt_lock(&out_lists[i].lock);
        for (struct vt_out *out = out_lists[i].first; out; out = out->next) {
            if (!all && out->fd != fd)
                continue;
            out->nudged = true;
            atomic_fetch_or_explicit(&out->thread->interrupt, VT_SIGNALLED | VT_NORESTART,
                                     memory_order_release);
            vt_unblock(out->thread);
        }
        vt_unlock(&out_lists[i].lock);
        vt_leave(t);
    }
}

void vt_out_fork_child(void)
{
    memset(out_lists, 0, sizeof out_lists);
}

long vt_out_wait(struct vt_out *out, long done)
{
    if (!out->asked) {
        if (vt_fd_nonblocking(out->fd))
            return done ? done : -EAGAIN;
        out->deadline = vt_fd_deadline(out->fd, SO_SNDTIMEO);
        out->asked = true;
    }
    /* Some sockets (a datagram socket whose peer is full) are always ready. Elsewhere others were faster. */
    if (++out->futile > ((vt_fd_bits(out->fd) & VT_FD_KIND) == VT_FD_SOCKET ? 4 : 64))
        return VT_RETRY;
    bool socket = (vt_fd_bits(out->fd) & VT_FD_KIND) == VT_FD_SOCKET;
    unsigned flags = vt_restartable(out->deadline);
    for (;;) {
        if (socket)
            out_link(out);
        bool nudged = out->shutdowns != vt_shutdowns;
        int32_t events = nudged ? -EINTR : vt_io_ready(out->fd, POLLOUT, out->deadline, flags);
        if (socket)
            out_unlink(out);
        if (events == -EPERM)
            return VT_RETRY;
        if (events == -EINTR && !(nudged |= out->nudged) && !vt_io_interrupted(&flags))
            continue;
        if (events < 0 && !nudged)
            return done ? done : events == -ETIMEDOUT ? -EAGAIN : events;
        /* The connection has broken: the next call is to find its error, as it would natively. */
        if (done && events > 0 && (events & POLLHUP))
            return done;
        /* The number stands for something else by now, which must not get these bytes. */
        if (vt_fd_generation(out->fd) != out->generation)
            return done ? done : -EBADF;
        if (nudged) {
            out->shutdowns = vt_shutdowns;
            out->futile--;
        }
        return 0;
    }
}

/* --- without waiting -------------------------------------------------------------------------------- */

static long readv_now(int fd, const struct iovec *iov, int count, int flags)
{
    if (!(vt_fd_bits(fd) & VT_FD_NO_NOWAIT_IN)) {
        long ret = vt_sys6(SYS_preadv2, fd, (long)iov, count, -1, -1, flags | RWF_NOWAIT);
        if (ret != -EOPNOTSUPP || flags)
            return ret;
        vt_fd_set(fd, VT_FD_NO_NOWAIT_IN);
    }
    /* Another reader may come in between; then the monitor will see to it. */
    return vt_poll_now(fd, POLLIN) ? vt_sys3(SYS_readv, fd, (long)iov, count) : -EAGAIN;
}

static long writev_now(int fd, const struct iovec *iov, int count, int flags)
{
    if (!(vt_fd_bits(fd) & VT_FD_NO_NOWAIT_OUT)) {
        long ret = vt_sys6(SYS_pwritev2, fd, (long)iov, count, -1, -1, flags | RWF_NOWAIT);
        if (ret != -EOPNOTSUPP || flags)
            return ret;
        vt_fd_set(fd, VT_FD_NO_NOWAIT_OUT);
    }
    if (!vt_poll_now(fd, POLLOUT))
        return -EAGAIN;
    /* A pipe that is ready takes PIPE_BUF bytes without blocking. */
    size_t n = iov->iov_len;
    if (count > 1 || (vt_fd_bits(fd) & VT_FD_KIND) != VT_FD_PIPE)
        return vt_sys3(SYS_writev, fd, (long)iov, count);
    return vt_sys3(SYS_write, fd, (long)iov->iov_base, (long)(n < 4096 ? n : 4096));
}

/* --- streams ---------------------------------------------------------------------------------------- */

static long stream_readv(int fd, const struct iovec *iov, int count, int flags)
{
    bool first = !vt_io_has_ring() || vt_fd_try_first(fd, VT_FD_READS);
    for (;;) {
        if (first) {
            long ret = readv_now(fd, iov, count, flags);
            if (ret != -EAGAIN)
                return ret;
            vt_fd_waited(fd, VT_FD_READS);
        }
        if (vt_fd_nonblocking(fd))
            return vt_sys3(SYS_readv, fd, (long)iov, count);
        struct vt_io_req req = {.opcode = IORING_OP_READV,
                                .fd = fd,
                                .addr = iov,
                                .len = (uint32_t)count,
                                .off = UINT64_MAX,
                                .op_flags = (uint32_t)flags};
        if (count == 1) {
            req.opcode = IORING_OP_READ;
            req.addr = iov->iov_base;
            req.len = (uint32_t)(iov->iov_len < VT_RW_MAX ? iov->iov_len : VT_RW_MAX);
        }
        long ret = vt_wait_for(fd, &req, POLLIN, VT_NEVER);
        if (count == 1 && ret == (long)req.len)
            vt_fd_plenty(fd);
        if (ret != VT_RETRY)
            return ret;
        first = true;
    }
}

/* Moves *iov and *count on by n bytes; returns the bytes by which the first one is begun. */
static size_t advance(const struct iovec **iov, int *count, size_t begun, size_t n)
{
    begun += n;
    while (*count > 0 && begun >= (*iov)->iov_len) {
        begun -= (*iov)->iov_len;
        ++*iov;
        --*count;
    }
    return begun;
}

static long stream_writev(int fd, const struct iovec *iov, int count, int flags)
{
    struct vt_out out;
    vt_out_start(&out, fd, vt_fd_generation(fd));
    long done = 0;
    size_t begun = 0;
    for (;;) {
        long ret;
        if (begun) { /* the rest of one that was cut */
            struct iovec rest = {(char *)iov->iov_base + begun, iov->iov_len - begun};
            ret = writev_now(fd, &rest, 1, flags);
        } else {
            ret = writev_now(fd, iov, count, flags);
        }
        if (ret >= 0) {
            done += ret;
            begun = advance(&iov, &count, begun, (size_t)ret);
            if (count == 0 || ret == 0 || (size_t)done >= VT_RW_MAX)
                return done;
            out.futile = 0;
            continue;
        }
        if (ret != -EAGAIN)
            return done ? done : ret;
        ret = vt_out_wait(&out, done);
        if (ret == VT_RETRY) {
            struct iovec rest = {(char *)iov->iov_base + begun, iov->iov_len - begun};
            ret = VT_HANDED_CALL("write", begun ? vt_sys3(SYS_writev, fd, (long)&rest, 1)
                                                : vt_sys3(SYS_writev, fd, (long)iov, count));
            if (ret < 0)
                return done ? done : ret;
            done += ret;
            begun = advance(&iov, &count, begun, (size_t)ret);
            if (count == 0 || !vt_handed_in_vain()) /* or a handler has cut it short */
                return done;
            out.futile = 0;
        } else if (ret != 0) {
            return ret;
        }
    }
}

/* --- files ------------------------------------------------------------------------------------------ */

/* offset -1: from the current position. Reading stops short only at the end of the file. */
static long file_read(int fd, void *buf, size_t n, off_t offset)
{
    size_t got = 0;
    if (n > VT_RW_MAX)
        n = VT_RW_MAX;
    while (got < n) {
        off_t at = offset < 0 ? -1 : offset + (off_t)got;
        struct iovec iov = {(char *)buf + got, n - got};
        long ret = -EOPNOTSUPP;
        if (!(vt_fd_bits(fd) & VT_FD_NO_NOWAIT_IN)) {
            ret = vt_sys6(SYS_preadv2, fd, (long)&iov, 1, at, at, RWF_NOWAIT);
            if (ret == -EOPNOTSUPP)
                vt_fd_set(fd, VT_FD_NO_NOWAIT_IN);
        }
        if (ret == -EAGAIN && got == 0 && offset < 0 && vt_fd_learn(fd) != VT_FD_FILE)
            return stream_readv(fd, &iov, 1, 0);
        if (ret == -EAGAIN && vt_io_has_ring()) {
            struct vt_io_req req = {.opcode = IORING_OP_READ,
                                    .fd = fd,
                                    .addr = iov.iov_base,
                                    .len = (uint32_t)iov.iov_len,
                                    .off = (uint64_t)at};
            ret = vt_io_do(&req, VT_NEVER, 0); /* a file's read is not interrupted */
        }
        if (ret == -EAGAIN || ret == -EOPNOTSUPP) {
            ret = at < 0 ? vt_sys3(SYS_read, fd, (long)iov.iov_base, (long)iov.iov_len)
                         : vt_sys4(SYS_pread64, fd, (long)iov.iov_base, (long)iov.iov_len, at);
            if (ret < 0)
                return got ? (long)got : ret;
            return (long)got + ret; /* blocking, so short only at the end */
        }
        if (ret <= 0)
            return got ? (long)got : ret;
        got += (size_t)ret;
    }
    return (long)got;
}

static long file_readv(int fd, const struct iovec *iov, int count, off_t offset)
{
    long done = 0;
    size_t begun = 0;
    if (!(vt_fd_bits(fd) & VT_FD_NO_NOWAIT_IN)) {
        done = vt_sys6(SYS_preadv2, fd, (long)iov, count, offset, offset, RWF_NOWAIT);
        if (done == -EAGAIN && offset < 0 && vt_fd_learn(fd) != VT_FD_FILE)
            return stream_readv(fd, iov, count, 0);
        if (done == -EAGAIN)
            done = 0;
        else if (done == -EOPNOTSUPP)
            vt_fd_set(fd, VT_FD_NO_NOWAIT_IN);
        else if (done <= 0)
            return done;
    }
    if (vt_fd_bits(fd) & VT_FD_NO_NOWAIT_IN)
        return vt_sys6(SYS_preadv2, fd, (long)iov, count, offset, offset, 0);
    begun = advance(&iov, &count, begun, (size_t)done);
    while (count > 0) {
        size_t rest = iov->iov_len - begun;
        long ret = file_read(fd, (char *)iov->iov_base + begun, rest, offset < 0 ? -1 : offset + done);
        if (ret < 0)
            return done ? done : ret;
        done += ret;
        if ((size_t)ret < rest)
            break;
        begun = advance(&iov, &count, begun, (size_t)ret);
    }
    return done;
}

/* --- the calls -------------------------------------------------------------------------------------- */

long vt_call_read(int fd, void *buf, size_t n)
{
    if (n == 0 || VT_AS_IS(fd))
        return vt_sys3(SYS_read, fd, (long)buf, (long)n);
    switch (vt_fd_kind(fd)) {
    case VT_FD_SOCKET: {
        long ret = vt_call_recvfrom(fd, buf, n, 0, NULL, NULL);
        if (ret == -ENOTSOCK) {
            vt_fd_learn(fd);
            return vt_call_read(fd, buf, n);
        }
        return ret;
    }
    case VT_FD_FILE:
        return file_read(fd, buf, n, -1);
    case VT_FD_UNKNOWN:
        return vt_sys3(SYS_read, fd, (long)buf, (long)n);
    default: {
        struct iovec iov = {buf, n};
        return stream_readv(fd, &iov, 1, 0);
    }
    }
}

static long write_call(int fd, const void *buf, size_t n)
{
    if (VT_AS_IS(fd))
        return vt_sys3(SYS_write, fd, (long)buf, (long)n);
    switch (vt_fd_kind(fd)) {
    case VT_FD_SOCKET: {
        long ret = vt_call_sendto(fd, buf, n, 0, NULL, 0);
        if (ret == -ENOTSOCK) {
            vt_fd_learn(fd);
            return write_call(fd, buf, n);
        }
        return ret;
    }
    case VT_FD_FILE:
    case VT_FD_UNKNOWN:
        return vt_sys3(SYS_write, fd, (long)buf, (long)n);
    default: {
        if (n == 0)
            return vt_sys3(SYS_write, fd, (long)buf, 0);
        struct iovec iov = {(void *)buf, n < VT_RW_MAX ? n : VT_RW_MAX};
        return stream_writev(fd, &iov, 1, 0);
    }
    }
}

long vt_call_write(int fd, const void *buf, size_t n)
{
    long ret = write_call(fd, buf, n);
    return ret == -EPIPE ? vt_broken_pipe() : ret;
}

/* Whether the kernel is to judge the arguments: it would refuse them, or there is nothing to move. */
static bool odd_vector(const struct iovec *iov, int count)
{
    if (count <= 0 || count > 1024 /* UIO_MAXIOV */)
        return true;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len != 0)
            return false;
    }
    return true;
}

long vt_call_readv(int fd, const struct iovec *iov, int count)
{
    if (VT_AS_IS(fd))
        return vt_sys3(SYS_readv, fd, (long)iov, count);
    enum vt_fd_kind kind = vt_fd_kind(fd);
    if (kind == VT_FD_UNKNOWN || odd_vector(iov, count))
        return vt_sys3(SYS_readv, fd, (long)iov, count);
    if (kind == VT_FD_FILE)
        return file_readv(fd, iov, count, -1);
    if (kind != VT_FD_SOCKET)
        return stream_readv(fd, iov, count, 0);
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    return vt_call_recvmsg(fd, &msg, 0);
}

static long writev_call(int fd, const struct iovec *iov, int count)
{
    if (VT_AS_IS(fd))
        return vt_sys3(SYS_writev, fd, (long)iov, count);
    enum vt_fd_kind kind = vt_fd_kind(fd);
    if (kind == VT_FD_UNKNOWN || kind == VT_FD_FILE || odd_vector(iov, count))
        return vt_sys3(SYS_writev, fd, (long)iov, count);
    if (kind != VT_FD_SOCKET)
        return stream_writev(fd, iov, count, 0);
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    return vt_call_sendmsg(fd, &msg, 0);
}

long vt_call_writev(int fd, const struct iovec *iov, int count)
{
    long ret = writev_call(fd, iov, count);
    return ret == -EPIPE ? vt_broken_pipe() : ret;
}

long vt_call_pread(int fd, void *buf, size_t n, off_t offset)
{
    if (n == 0 || offset < 0 || vt_fd_kind(fd) != VT_FD_FILE)
        return vt_sys4(SYS_pread64, fd, (long)buf, (long)n, offset);
    return file_read(fd, buf, n, offset);
}

long vt_call_pwrite(int fd, const void *buf, size_t n, off_t offset)
{
    return vt_sys4(SYS_pwrite64, fd, (long)buf, (long)n, offset);
}

long vt_call_preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if (flags == 0 && offset == -1)
        return vt_call_readv(fd, iov, count);
    if (offset == -1 && !(flags & RWF_NOWAIT) && !VT_AS_IS(fd) && !odd_vector(iov, count)) {
        enum vt_fd_kind kind = vt_fd_kind(fd);
        if (kind != VT_FD_FILE && kind != VT_FD_UNKNOWN)
            return stream_readv(fd, iov, count, flags);
    }
    if (flags == 0 && offset >= 0 && !odd_vector(iov, count) && vt_fd_kind(fd) == VT_FD_FILE)
        return file_readv(fd, iov, count, offset);
    return vt_sys6(SYS_preadv2, fd, (long)iov, count, offset, offset, flags);
}

long vt_call_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if (flags == 0 && offset == -1)
        return vt_call_writev(fd, iov, count);
    if (offset == -1 && !(flags & RWF_NOWAIT) && !VT_AS_IS(fd) && !odd_vector(iov, count)) {
        enum vt_fd_kind kind = vt_fd_kind(fd);
        if (kind != VT_FD_FILE && kind != VT_FD_UNKNOWN)
            return stream_writev(fd, iov, count, flags);
    }
    return vt_sys6(SYS_pwritev2, fd, (long)iov, count, offset, offset, flags);
}

/* --- the names -------------------------------------------------------------------------------------- */

#define VIRTUAL_CALL(type, name, parameters, arguments, call)                                                \
    VT_EXPORT type name parameters                                                                           \
    {                                                                                                        \
        if (!vt_on() || !vt_is_virtual())                                                                    \
            return vt_real(name) arguments;                                                                  \
        vt_cancel_point();                                                                                   \
        return (type)vt_result(call arguments);                                                              \
    }

VIRTUAL_CALL(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), vt_call_read)
VT_ALIAS(read, __read);
VIRTUAL_CALL(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), vt_call_write)
VT_ALIAS(write, __write);
VIRTUAL_CALL(ssize_t, readv, (int fd, const struct iovec *iov, int count), (fd, iov, count), vt_call_readv)
VIRTUAL_CALL(ssize_t, writev, (int fd, const struct iovec *iov, int count), (fd, iov, count), vt_call_writev)
VIRTUAL_CALL(ssize_t, pread, (int fd, void *buf, size_t n, off_t offset), (fd, buf, n, offset), vt_call_pread)
VT_ALIAS(pread, pread64);
VT_ALIAS(pread, __pread64);
VIRTUAL_CALL(ssize_t, pwrite, (int fd, const void *buf, size_t n, off_t offset), (fd, buf, n, offset),
             vt_call_pwrite)
VT_ALIAS(pwrite, pwrite64);
VT_ALIAS(pwrite, __pwrite64);
VIRTUAL_CALL(ssize_t, preadv2, (int fd, const struct iovec *iov, int count, off_t offset, int flags),
             (fd, iov, count, offset, flags), vt_call_preadv2)
VT_ALIAS(preadv2, preadv64v2);
VIRTUAL_CALL(ssize_t, pwritev2, (int fd, const struct iovec *iov, int count, off_t offset, int flags),
             (fd, iov, count, offset, flags), vt_call_pwritev2)
VT_ALIAS(pwritev2, pwritev64v2);

VT_EXPORT ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(preadv)(fd, iov, count, offset);
    vt_cancel_point();
    if (offset < 0) /* which preadv2 would take for the current position */
        return vt_result(vt_sys6(SYS_preadv, fd, (long)iov, count, offset, offset, 0));
    return vt_result(vt_call_preadv2(fd, iov, count, offset, 0));
}
VT_ALIAS(preadv, preadv64);

VT_EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(pwritev)(fd, iov, count, offset);
    vt_cancel_point();
    return vt_result(vt_sys6(SYS_pwritev, fd, (long)iov, count, offset, offset, 0));
}
VT_ALIAS(pwritev, pwritev64);

VT_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
    if (n > size)
        __chk_fail();
    return read(fd, buf, n);
}

VT_EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t size)
{
    if (n > size)
        __chk_fail();
    return pread(fd, buf, n, offset);
}
VT_ALIAS(__pread_chk, __pread64_chk);

VT_EXPORT int eventfd_read(int fd, uint64_t *value)
{
    return read(fd, value, sizeof *value) == (ssize_t)sizeof *value ? 0 : -1;
}

VT_EXPORT int eventfd_write(int fd, uint64_t value)
{
    return write(fd, &value, sizeof value) == (ssize_t)sizeof value ? 0 : -1;
}
