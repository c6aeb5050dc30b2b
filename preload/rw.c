/* read, write and their relatives.
 *
 * A read is tried without blocking first (RWF_NOWAIT, or MSG_DONTWAIT on a socket), unless the descriptor had
 * to wait lately; then the ring makes it. A write is tried without blocking and goes on when there is room,
 * so that SIGPIPE comes from a call of the thread itself. Files: reads that the page cache serves are direct,
 * others go by the ring or a helper; writes are direct. */
#include "call.h"
#include "clock.h"
#include "fd.h"
#include "helper.h"
#include "io.h"
#include "lock.h"
#include "own.h"
#include "park.h"
#include "sys.h"
#include "undo.h"

#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

/* --- waiting ---------------------------------------------------------------------------------------- */

__attribute__((noinline)) void vt_cancel_now(void)
{
    vt_undo_all(); /* a handler may have interrupted another call */
    vt_real(pthread_testcancel)();
}

__attribute__((noinline)) bool vt_io_interrupted(unsigned *flags)
{
    if (!(*flags & VT_PARK_CANCELLABLE) || !(atomic_load_explicit(&vt_self->interrupt, memory_order_acquire) & VT_CANCELLED))
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
    unsigned flags = vt_restartable(deadline), generation = vt_fd_generation(fd);
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
            /* Closed meanwhile: what the number stands for now is not for this call. */
            if (ret > 0 || ret == -EPERM)
                return vt_fd_generation(fd) == generation ? VT_RETRY : -EBADF;
        }
        if (ret == -EINTR && !vt_io_interrupted(&flags))
            continue;
        /* A connection's own ETIMEDOUT is not ours. */
        if (ret == -ETIMEDOUT && deadline != VT_NEVER && vt_now() >= deadline)
            return -EAGAIN;
        return ret;
    }
}

/* Wake-ups in vain, as others were faster, are nothing strange up to so many in a row, and even later if there is nothing
 * but something to read. */
#define VAIN_FEW  4
#define VAIN_MANY 64

/* How often to look where fd is ready for ever and only the kernel could wait, but by a time limit that began before. */
#define VAIN_NAP_NS UINT64_C(1000000)

/* After a wake-up in vain: 0 to wait again. */
static long woken_in_vain(int fd, uint64_t deadline, unsigned *vain)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    if (vt_sys3(SYS_poll, (long)&p, 1, 0) <= 0) { /* the usual case */
        *vain = 0;
        return 0;
    }
    /* A datagram socket that has been shut down: calls that do not wait get EAGAIN, those that do the end. */
    if (p.revents & POLLRDHUP)
        return VT_BLOCK;
    /* Something else than data, as a message in the error queue; or data that is not for this call (SO_PEEK_OFF). */
    if (p.revents == POLLIN && *vain <= VAIN_MANY)
        return 0;
    if (deadline == VT_NEVER)
        return VT_BLOCK;
    unsigned flags = vt_restartable(deadline);
    uint64_t now = vt_now(), end = now + VAIN_NAP_NS < deadline ? now + VAIN_NAP_NS : deadline;
    if (now >= deadline)
        return -EAGAIN;
    while (vt_io_poll(NULL, 0, end, flags, NULL) == -EINTR) {
        if (vt_io_interrupted(&flags))
            return -EINTR;
    }
    return 0;
}

long vt_wait_in(int fd, const struct vt_io_req *req, uint64_t deadline, unsigned *vain)
{
    if (__builtin_expect(*vain > VAIN_FEW, 0)) {
        long ret = woken_in_vain(fd, deadline, vain);
        if (ret != 0)
            return ret;
    }
    long ret = vt_wait_for(fd, req, POLLIN, deadline);
    if (ret == VT_RETRY)
        ++*vain;
    return ret;
}

__attribute__((noinline)) void vt_raised(int sig)
{
    struct vt_thread *t = vt_self;
    const uint64_t bit = UINT64_C(1) << (sig - 1);
    const struct timespec none = {0, 0};
    if ((t->sigmask & bit) && vt_sys4(SYS_rt_sigtimedwait, (long)&bit, 0, (long)&none, sizeof bit) == sig)
        atomic_fetch_or_explicit(&t->pending, bit, memory_order_relaxed);
}

/* Transfers that wait for room, by descriptor. */
#define OUT_LISTS 64

static struct {
    struct vt_lock lock;
    struct vt_out *first;
} out_lists[OUT_LISTS];

static void out_unlink(struct vt_out *out);

static void out_undo(struct vt_undo *undo)
{
    out_unlink((struct vt_out *)undo);
}

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
    vt_undo_push(&out->undo, out_undo);
    vt_leave(t);
}

static void out_unlink(struct vt_out *out)
{
    struct vt_thread *t = vt_enter();
    unsigned i = (unsigned)out->fd % OUT_LISTS;
    vt_lock(&out_lists[i].lock);
    if (out->link) {
        *out->link = out->next;
        if (out->next)
            out->next->link = out->link;
        out->link = NULL;
    }
    vt_unlock(&out_lists[i].lock);
    vt_undo_pop(&out->undo);
    vt_leave(t);
}

_Atomic unsigned vt_shutdowns;

void vt_out_nudge(int fd, bool peers)
{
    /* Who finds the old count after it has joined the list is found there. */
    atomic_fetch_add(&vt_shutdowns, 1);
    bool all = vt_fd_bits(fd) & VT_FD_SHARED; /* they may wait by another number */
    for (unsigned i = 0; i < OUT_LISTS; i++) {
        if (!all && !peers && i != (unsigned)fd % OUT_LISTS)
            continue;
        struct vt_thread *t = vt_enter();
        vt_lock(&out_lists[i].lock);
        for (struct vt_out *out = out_lists[i].first; out; out = out->next) {
            if (!all && out->fd != fd && !(peers && out->local))
                continue;
            atomic_store_explicit(&out->nudged, true, memory_order_release);
            vt_unblock(out->thread);
        }
        vt_unlock(&out_lists[i].lock);
        vt_leave(t);
    }
}

void vt_out_fork_child(void)
{
    for (unsigned i = 0; i < OUT_LISTS; i++) {
        struct vt_out *mine = NULL;
        if (!out_lists[i].first && !vt_lock_held(&out_lists[i].lock))
            continue;
        /* A handler of the calling thread may have forked while that waits. */
        for (struct vt_out *out = out_lists[i].first; out; out = out->next)
            if (out->thread == vt_self)
                mine = out;
        out_lists[i].first = mine;
        if (mine) {
            mine->next = NULL;
            mine->link = &out_lists[i].first;
        }
        out_lists[i].lock = (struct vt_lock)VT_LOCK_INIT;
    }
}

static long socket_error(int fd)
{
    int err = 0;
    socklen_t length = sizeof err;
    vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, (long)&err, (long)&length, 0);
    return err ? -err : -EPIPE;
}

long vt_out_wait(struct vt_out *out, long done)
{
    if (!out->asked) {
        if (vt_fd_nonblocking(out->fd))
            return done ? done : -EAGAIN;
        out->deadline = vt_fd_deadline(out->fd, SO_SNDTIMEO);
        out->local = (vt_fd_bits(out->fd) & VT_FD_KIND) == VT_FD_SOCKET && vt_socket_is_local(out->fd);
        out->asked = true;
    }
    /* Some sockets (a datagram socket whose peer is full) are always ready. Elsewhere others were faster. */
    if (++out->futile > ((vt_fd_bits(out->fd) & VT_FD_KIND) == VT_FD_SOCKET ? 4 : 64))
        return VT_RETRY;
    bool socket = (vt_fd_bits(out->fd) & VT_FD_KIND) == VT_FD_SOCKET;
    unsigned flags = vt_restartable(out->deadline);
    out->quiet = out->local;
    for (;;) {
        if (socket)
            out_link(out);
        bool nudged = out->shutdowns != vt_shutdowns;
        int32_t events =
            nudged ? -EINTR : vt_io_ready_unless(out->fd, POLLOUT, out->deadline, flags, socket ? &out->nudged : NULL);
        if (socket)
            out_unlink(out);
        if (events == -EPERM || (socket && events == -EAGAIN))
            return VT_RETRY;
        if (events == -EINTR && !(nudged = nudged || out->nudged) && !vt_io_interrupted(&flags))
            continue;
        if (events < 0 && !nudged)
            return done ? done : events == -ETIMEDOUT ? -EAGAIN : events;
        /* The connection has broken: the next call is to find its error, as it would natively. A call on a local socket that
         * has waited finds why, and raises no SIGPIPE. */
        if (events > 0 && (events & POLLHUP) && (done || out->local))
            return done ? done : socket_error(out->fd);
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

long vt_wait_room(int fd)
{
    struct vt_out out;
    vt_out_start(&out, fd, vt_fd_generation(fd)); /* before the looks: a shutdown after them is noticed */
    if (vt_poll_now(fd, POLLOUT))
        return 0;
    if (vt_socket_may_be_shut(fd))
        return VT_BLOCK;
    long ret = vt_out_wait(&out, 0);
    if (ret == VT_RETRY || (ret == 0 && !vt_poll_now(fd, POLLOUT)))
        return VT_BLOCK;
    return ret;
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
    /* Another reader may come in between. */
    return vt_poll_now(fd, POLLIN) ? VT_SEEN_POINT("read", vt_sys3(SYS_readv, fd, (long)iov, count)) : -EAGAIN;
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
        return VT_SEEN_POINT("write", vt_sys3(SYS_writev, fd, (long)iov, count));
    return VT_SEEN_POINT("write", vt_sys3(SYS_write, fd, (long)iov->iov_base, (long)(n < 4096 ? n : 4096)));
}

bool vt_read_is_timed(int fd)
{
    struct { /* the kernel's termios, which is not libc's */
        uint32_t iflag, oflag, cflag, lflag;
        uint8_t line, cc[19];
    } t;
    return vt_sys3(SYS_ioctl, fd, TCGETS, (long)&t) == 0 && !(t.lflag & ICANON) && (t.cc[VTIME] != 0 || t.cc[VMIN] == 0);
}

/* --- streams ---------------------------------------------------------------------------------------- */

static long stream_readv(int fd, const struct iovec *iov, int count, int flags)
{
    bool first = !vt_io_has_ring() || vt_fd_try_first(fd, VT_FD_READS);
    unsigned vain = 0;
    for (;;) {
        if (first) {
            long ret = readv_now(fd, iov, count, flags);
            if (ret != -EAGAIN) {
                vt_fd_found(fd);
                return ret;
            }
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
        bool timed = (vt_fd_bits(fd) & VT_FD_KIND) == VT_FD_CHAR && vt_read_is_timed(fd);
        long ret = timed ? VT_BLOCK : vt_wait_in(fd, &req, VT_NEVER, &vain);
        if (count == 1 && ret == (long)req.len)
            vt_fd_plenty(fd);
        if (ret == VT_BLOCK)
            return VT_HANDED_POINT("read", flags ? vt_sys6(SYS_preadv2, fd, (long)iov, count, -1, -1, flags)
                                                 : vt_sys3(SYS_readv, fd, (long)iov, count));
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
        if (ret != -EAGAIN) {
            vt_moved(ret); /* a pipe raises SIGPIPE although some bytes are out */
            return done ? done : ret;
        }
        ret = vt_out_wait(&out, done);
        if (ret == -EAGAIN && !out.asked) /* non-blocking: the kernel knows whether that is the error */
            return vt_sys3(SYS_writev, fd, (long)iov, count);
        if (ret == VT_RETRY) {
            struct iovec rest = {(char *)iov->iov_base + begun, iov->iov_len - begun};
            ret = VT_HANDED_POINT("write",
                                  begun ? vt_sys3(SYS_writev, fd, (long)&rest, 1) : vt_sys3(SYS_writev, fd, (long)iov, count));
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

/* A call on a file that is the kernel's, as it is: it may block for as long as the disk takes, or a server. Where it did
 * lately, or is known to each time, the place is handed over; else the monitor does that, by which it is noticed. */
#define FILE_QUICK_NS UINT64_C(50000)

#define FILE_CALL(what, fd, call)                                                                                              \
    __extension__({                                                                                                            \
        long ret_;                                                                                                             \
        if (vt_fd_bits(fd) & VT_FD_PIECEMEAL) {                                                                                \
            uint64_t start_ = 0, took_ = 0;                                                                                    \
            ret_ = VT_HANDED_CALL(what, (start_ = vt_now(), ret_ = (call), took_ = vt_now() - start_, ret_));                  \
            if (took_ < FILE_QUICK_NS)                                                                                         \
                vt_fd_clear(fd, VT_FD_PIECEMEAL);                                                                              \
        } else {                                                                                                               \
            bool before_ = vt_handed_off();                                                                                    \
            ret_ = (call);                                                                                                     \
            if (__builtin_expect(!before_ && vt_handed_off(), 0))                                                              \
                vt_fd_set(fd, VT_FD_PIECEMEAL);                                                                                \
        }                                                                                                                      \
        ret_;                                                                                                                  \
    })

/* Reads at the current position of a file, which move it on, and may take several calls here: one at a time for each
 * descriptor, as the kernel makes them. Zero pages until used. */
enum { FREE, TAKEN, WANTED };
static _Atomic uint32_t positions[VT_FD_MAX];
/* How often one for whom others waited has ended its read. */
static _Atomic uint32_t position_turns[VT_FD_MAX];

/* Where nobody's read has ended for so long others do without: disks and servers are slow, but seldom as slow as that. */
#define POSITION_WAIT_NS (60 * VT_SECOND_NS)

struct position {
    struct vt_undo undo; /* first */
    int fd;
    bool begun, held;
};

static void position_unlock(struct position *p)
{
    if (!p->begun)
        return;
    p->begun = false;
    if (p->held && atomic_exchange_explicit(&positions[p->fd], FREE, memory_order_release) == WANTED) {
        atomic_fetch_add_explicit(&position_turns[p->fd], 1, memory_order_relaxed);
        vt_unpark(&positions[p->fd], 1, VT_BITS_ALL);
    }
    vt_self->in_position = false;
    vt_undo_pop(&p->undo);
}

static void position_undo(struct vt_undo *undo)
{
    position_unlock((struct position *)undo);
}

/* Of no effect when there is none, or this is a handler that has interrupted a read. */
static void position_lock(struct position *p, int fd)
{
    uint32_t none = FREE;
    struct vt_thread *t = vt_current();
    *p = (struct position){.fd = fd};
    if ((unsigned)fd >= VT_FD_MAX || t->in_position)
        return;
    p->begun = t->in_position = true;
    vt_undo_push(&p->undo, position_undo);
    if (atomic_compare_exchange_strong_explicit(&positions[fd], &none, TAKEN, memory_order_acquire, memory_order_relaxed)) {
        p->held = true;
        return;
    }
    uint32_t turn = atomic_load_explicit(&position_turns[fd], memory_order_relaxed), last;
    uint64_t deadline = vt_now() + POSITION_WAIT_NS;
    while (atomic_exchange_explicit(&positions[fd], WANTED, memory_order_acquire) != FREE) {
        if (vt_park(&positions[fd], WANTED, deadline, VT_BITS_ALL, 0) != ETIMEDOUT)
            continue;
        last = turn;
        turn = atomic_load_explicit(&position_turns[fd], memory_order_relaxed);
        if (turn == last)
            break;
        deadline = vt_now() + POSITION_WAIT_NS;
    }
    p->held = true;
}

struct read_job {
    int fd;
    void *buf;
    size_t n;
    off_t at;
};

static long read_job(void *arg)
{
    const struct read_job *j = arg;
    return j->at < 0 ? vt_sys3(SYS_read, j->fd, (long)j->buf, (long)j->n)
                     : vt_sys4(SYS_pread64, j->fd, (long)j->buf, (long)j->n, j->at);
}

/* Reads what is not in memory: by the ring or a helper. As the kernel's call, but -EAGAIN when it has to be made as it is. */
static long read_cold(int fd, void *buf, size_t n, off_t at)
{
    if (!vt_io_has_ring()) {
        struct read_job job = {fd, buf, n, at};
        long ret;
        return vt_help(read_job, &job, &ret) ? ret : -EAGAIN;
    }
    struct vt_io_req req = {.opcode = IORING_OP_READ, .fd = fd, .addr = buf, .len = (uint32_t)n, .off = (uint64_t)at};
    if (at >= 0)
        return vt_io_do(&req, VT_NEVER, 0); /* a file's read is not interrupted */
    /* The ring does not keep others from the position meanwhile, as read does (the kernel's f_pos_lock). So it only brings
     * in what is there now; then the call itself is made, which will find it. */
    long here = vt_sys3(SYS_lseek, fd, 0, SEEK_CUR);
    if (here < 0 || (vt_fd_bits(fd) & VT_FD_DIRECT))
        return -EAGAIN;
    req.off = (uint64_t)here;
    long ret = vt_io_do(&req, VT_NEVER, 0);
    if (ret < 0)
        return -EAGAIN;
    struct iovec iov = {buf, n};
    return vt_sys6(SYS_preadv2, fd, (long)&iov, 1, -1, -1, RWF_NOWAIT);
}

/* offset -1: from the current position. Reading stops short only at the end of the file. VT_RETRY: it is no file. */
static long file_read(int fd, void *buf, size_t n, off_t offset)
{
    size_t got = 0;
    if (n > VT_RW_MAX)
        n = VT_RW_MAX;
    while (got < n) {
        off_t at = offset < 0 ? -1 : offset + (off_t)got;
        struct iovec iov = {(char *)buf + got, n - got};
        unsigned bits = vt_fd_bits(fd);
        long ret = bits & VT_FD_DIRECT ? -EAGAIN : -EOPNOTSUPP; /* O_DIRECT waits for the disk, RWF_NOWAIT or not */
        if (!(bits & (VT_FD_NO_NOWAIT_IN | VT_FD_DIRECT))) {
            ret = vt_sys6(SYS_preadv2, fd, (long)&iov, 1, at, at, RWF_NOWAIT);
            if (ret == -EOPNOTSUPP)
                vt_fd_set(fd, VT_FD_NO_NOWAIT_IN);
        }
        if (ret == -EAGAIN && got == 0 && offset < 0 && vt_fd_learn(fd) != VT_FD_FILE)
            return VT_RETRY;
        if (ret == -EAGAIN)
            ret = read_cold(fd, iov.iov_base, iov.iov_len, at);
        if (ret == -EAGAIN || ret == -EOPNOTSUPP) {
            struct read_job job = {fd, iov.iov_base, iov.iov_len, at};
            ret = FILE_CALL("read of a file", fd, read_job(&job));
            if (ret < 0)
                return got ? (long)got : ret;
            return (long)got + ret; /* blocking, so short only at the end */
        }
        if (ret <= 0)
            return got ? (long)got : ret;
        got += (size_t)ret;
        if (bits & VT_FD_DIRECT) /* the rest would not be of the size that it asks for */
            break;
    }
    return (long)got;
}

static long file_readv(int fd, const struct iovec *iov, int count, off_t offset)
{
    long done = 0;
    size_t begun = 0;
    if (!(vt_fd_bits(fd) & (VT_FD_NO_NOWAIT_IN | VT_FD_DIRECT))) {
        done = vt_sys6(SYS_preadv2, fd, (long)iov, count, offset, offset, RWF_NOWAIT);
        if (done == -EAGAIN && offset < 0 && vt_fd_learn(fd) != VT_FD_FILE)
            return VT_RETRY;
        if (done == -EAGAIN)
            done = 0;
        else if (done == -EOPNOTSUPP)
            vt_fd_set(fd, VT_FD_NO_NOWAIT_IN);
        else if (done <= 0)
            return done;
    }
    /* O_DIRECT: the pieces may not be of the size that it asks for, the whole is. */
    if (vt_fd_bits(fd) & (VT_FD_NO_NOWAIT_IN | VT_FD_DIRECT))
        return FILE_CALL("read of a file", fd, vt_sys6(SYS_preadv2, fd, (long)iov, count, offset, offset, 0));
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

static long file_read_here(int fd, void *buf, size_t n)
{
    struct position position;
    position_lock(&position, fd);
    long ret = file_read(fd, buf, n, -1);
    position_unlock(&position);
    struct iovec iov = {buf, n};
    return ret == VT_RETRY ? stream_readv(fd, &iov, 1, 0) : ret;
}

static long file_readv_here(int fd, const struct iovec *iov, int count)
{
    struct position position;
    position_lock(&position, fd);
    long ret = file_readv(fd, iov, count, -1);
    position_unlock(&position);
    return ret == VT_RETRY ? stream_readv(fd, iov, count, 0) : ret;
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
        return file_read_here(fd, buf, n);
    case VT_FD_UNKNOWN:
        return VT_SEEN_POINT("read", vt_sys3(SYS_read, fd, (long)buf, (long)n));
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
        return FILE_CALL("write to a file", fd, vt_sys3(SYS_write, fd, (long)buf, (long)n));
    case VT_FD_UNKNOWN:
        return VT_SEEN_POINT("write", vt_sys3(SYS_write, fd, (long)buf, (long)n));
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
    return vt_moved(write_call(fd, buf, n));
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
        return file_readv_here(fd, iov, count);
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
    if (kind == VT_FD_FILE)
        return FILE_CALL("write to a file", fd, vt_sys3(SYS_writev, fd, (long)iov, count));
    if (kind == VT_FD_UNKNOWN || odd_vector(iov, count))
        return vt_sys3(SYS_writev, fd, (long)iov, count);
    if (kind != VT_FD_SOCKET)
        return stream_writev(fd, iov, count, 0);
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    return vt_call_sendmsg(fd, &msg, 0);
}

long vt_call_writev(int fd, const struct iovec *iov, int count)
{
    return vt_moved(writev_call(fd, iov, count));
}

long vt_call_pread(int fd, void *buf, size_t n, off_t offset)
{
    if (n == 0 || offset < 0 || vt_fd_kind(fd) != VT_FD_FILE)
        return vt_sys4(SYS_pread64, fd, (long)buf, (long)n, offset);
    return file_read(fd, buf, n, offset);
}

/* Whether a write up to there is within the limit: beyond, the thread is to get SIGXFSZ, and a worker of the ring would. */
static bool within_limit(off_t end)
{
    uint64_t limit[2];
    return vt_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)limit) == 0 && (uint64_t)end <= limit[0];
}

static long pwrite_call(int fd, const void *buf, size_t n, off_t offset)
{
    if (vt_fd_kind(fd) != VT_FD_FILE)
        return vt_sys4(SYS_pwrite64, fd, (long)buf, (long)n, offset);
    /* The ring waits for the disk without a kernel thread where the page cache has no part in it. */
    if ((vt_fd_bits(fd) & (VT_FD_DIRECT | VT_FD_PIECEMEAL)) == (VT_FD_DIRECT | VT_FD_PIECEMEAL) && vt_io_has_ring() && n > 0 &&
        n <= VT_RW_MAX && offset >= 0 && within_limit(offset + (off_t)n)) {
        struct vt_io_req req = {.opcode = IORING_OP_WRITE, .fd = fd, .addr = buf, .len = (uint32_t)n, .off = (uint64_t)offset};
        long ret = vt_io_do(&req, VT_NEVER, 0);
        if (ret != -EAGAIN)
            return ret;
    }
    return FILE_CALL("write to a file", fd, vt_sys4(SYS_pwrite64, fd, (long)buf, (long)n, offset));
}

long vt_call_pwrite(int fd, const void *buf, size_t n, off_t offset)
{
    return vt_moved(pwrite_call(fd, buf, n, offset));
}

static long file_pwritev2_call(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    if ((flags & RWF_NOWAIT) || vt_fd_kind(fd) != VT_FD_FILE)
        return vt_sys6(SYS_pwritev2, fd, (long)iov, count, offset, offset, flags);
    if (flags & (RWF_DSYNC | RWF_SYNC))
        return VT_HANDED_CALL("write to a file", vt_sys6(SYS_pwritev2, fd, (long)iov, count, offset, offset, flags));
    return FILE_CALL("write to a file", fd, vt_sys6(SYS_pwritev2, fd, (long)iov, count, offset, offset, flags));
}

static long file_pwritev2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    return vt_moved(file_pwritev2_call(fd, iov, count, offset, flags));
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
            return vt_moved(stream_writev(fd, iov, count, flags));
    }
    return file_pwritev2(fd, iov, count, offset, flags);
}

/* --- the names -------------------------------------------------------------------------------------- */

#define VIRTUAL_CALL(type, name, parameters, arguments, call)                                                                  \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        if (vt_own_has(fd))                                                                                                    \
            return (type)vt_result(-EBADF);                                                                                    \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return vt_real(name) arguments;                                                                                    \
        vt_cancel_point();                                                                                                     \
        return (type)vt_result(call arguments);                                                                                \
    }

/* Calls that read at the current position of a file. Who makes them as they are, a kernel or bound thread, must not come in
 * between the pieces of a virtual one's either. */
#define VIRTUAL_READ(name, parameters, arguments, call)                                                                        \
    VT_EXPORT ssize_t name parameters                                                                                          \
    {                                                                                                                          \
        if (vt_own_has(fd))                                                                                                    \
            return vt_result(-EBADF);                                                                                          \
        if (!vt_on())                                                                                                          \
            return vt_real(name) arguments;                                                                                    \
        if (!vt_is_virtual()) {                                                                                                \
            struct position position = {.begun = false};                                                                       \
            if ((vt_fd_bits(fd) & VT_FD_KIND) == VT_FD_FILE)                                                                   \
                position_lock(&position, fd);                                                                                  \
            ssize_t ret = vt_real(name) arguments;                                                                             \
            position_unlock(&position);                                                                                        \
            return ret;                                                                                                        \
        }                                                                                                                      \
        vt_cancel_point();                                                                                                     \
        return vt_result(call arguments);                                                                                      \
    }

VIRTUAL_READ(read, (int fd, void *buf, size_t n), (fd, buf, n), vt_call_read)
VT_ALIAS(read, __read);
VIRTUAL_CALL(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), vt_call_write)
VT_ALIAS(write, __write);
VIRTUAL_READ(readv, (int fd, const struct iovec *iov, int count), (fd, iov, count), vt_call_readv)
VIRTUAL_CALL(ssize_t, writev, (int fd, const struct iovec *iov, int count), (fd, iov, count), vt_call_writev)
VIRTUAL_CALL(ssize_t, pread, (int fd, void *buf, size_t n, off_t offset), (fd, buf, n, offset), vt_call_pread)
VT_ALIAS(pread, pread64);
VT_ALIAS(pread, __pread64);
VIRTUAL_CALL(ssize_t, pwrite, (int fd, const void *buf, size_t n, off_t offset), (fd, buf, n, offset), vt_call_pwrite)
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
    if (offset < 0)
        return vt_result(vt_sys6(SYS_pwritev, fd, (long)iov, count, offset, offset, 0));
    return vt_result(file_pwritev2(fd, iov, count, offset, 0));
}
VT_ALIAS(pwritev, pwritev64);

VT_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t size)
{
    if (n > size)
        vt_real(__chk_fail)();
    return read(fd, buf, n);
}

VT_EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t size)
{
    if (n > size)
        vt_real(__chk_fail)();
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
