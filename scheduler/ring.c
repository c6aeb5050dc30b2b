#include "ring.h"

#include "chaos.h"
#include "config.h"
#include "io.h"
#include "park.h"
#include "place.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* What completions carry instead of an op. */
#define TAG_IGNORE UINT64_C(0) /* of a cancellation: the op's own completion says it all */
#define TAG_WAKE   UINT64_C(1) /* the wake-up descriptor was written to */

#define VT_SQ_ENTRIES 256
#define VT_CQ_ENTRIES 4096
/* Submit in between when so many wait: the rest of the batch gains little more. */
#define VT_SQ_BATCH   64

struct vt_ring {
    struct io_uring uring;
    uint64_t wake_count; /* where the read of wake_fd goes */
    unsigned inflight;   /* ops not completed */
    unsigned queued;     /* not yet submitted */
    int wake_fd;         /* an eventfd */
    int epoll_fd;        /* back end epoll */
    bool armed;          /* the read of wake_fd is under way */
    struct vt_lock mail_lock;
    struct vt_op *_Atomic mail; /* ops of this ring that others want cancelled */
};

static enum vt_io_backend backend;
static int lowest = INT_MAX; /* of our descriptors */

enum vt_io_backend vt_ring_backend(void)
{
    return backend;
}

/* --- descriptors ------------------------------------------------------------------------------------------------------ */

/* A duplicate of fd with a high number, out of the way of what open() gives the program; or -errno. */
static int dup_high(int fd)
{
    long limit[2] = {1024, 1024}, high = -EMFILE;
    vt_sys4(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, (long)limit);
    long top = limit[0] < 65536 ? limit[0] : 65536, at = top - (top < 256 ? top / 4 : 64);
    for (; at > 3 && high == -EMFILE; at = at * 3 / 4)
        high = vt_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, at);
    return (int)high;
}

static int move_high(int fd)
{
    int high = dup_high(fd);
    if (high < 0)
        return fd;
    vt_sys1(SYS_close, fd);
    return high;
}

/* --- set-up ------------------------------------------------------------------------------------------------------------ */

static int uring_setup(struct io_uring *uring, unsigned entries)
{
    /* Completions are posted when a kernel thread enters the kernel for any reason, at the latest at the next timer
     * tick, also by one that computes or has lost the place: requests never hang on a carrier that is stuck. That is why
     * DEFER_TASKRUN, cheaper still, is out of the question. */
    static const unsigned flags[] = {
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
        IORING_SETUP_SUBMIT_ALL,
        0,
    };
    int err = 0;
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct io_uring_params params = {.flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
                                         .cq_entries = entries * (VT_CQ_ENTRIES / VT_SQ_ENTRIES)};
        err = -io_uring_queue_init_params(entries, uring, &params);
        if (err != EINVAL)
            break;
    }
    /* EXT_ARG brings the timed wait, NODROP that no completion is lost: Linux 5.11. */
    if (!err && (!(uring->features & IORING_FEAT_EXT_ARG) || !(uring->features & IORING_FEAT_NODROP))) {
        io_uring_queue_exit(uring);
        err = ENOSYS;
    }
    return err;
}

int vt_ring_choose(enum vt_io_backend wanted)
{
    backend = VT_IO_EPOLL;
    if (wanted == VT_IO_EPOLL)
        return 0;
    struct io_uring probe;
    int err = uring_setup(&probe, 4);
    if (!err) {
        io_uring_queue_exit(&probe);
        backend = VT_IO_URING;
    } else if (wanted == VT_IO_URING) {
        vt_say("VTHREAD_IO=io_uring: the kernel refuses (error %d); epoll is used", err);
    }
    return 0;
}

int vt_ring_open(struct vt_place *p)
{
    struct vt_ring *r = vt_sys_map(sizeof *r);
    if (!r)
        return ENOMEM;
    r->epoll_fd = -1;
    long fd = vt_sys2(SYS_eventfd2, 0, EFD_CLOEXEC | (backend == VT_IO_EPOLL ? EFD_NONBLOCK : 0));
    int err = fd < 0 ? (int)-fd : 0;
    if (!err) {
        r->wake_fd = move_high((int)fd);
        if (backend == VT_IO_URING) {
            err = uring_setup(&r->uring, VT_SQ_ENTRIES);
            if (!err) {
                io_uring_ring_dontfork(&r->uring);
                r->uring.ring_fd = r->uring.enter_ring_fd = move_high(r->uring.ring_fd);
            }
        } else {
            struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_WAKE};
            fd = vt_sys1(SYS_epoll_create1, EPOLL_CLOEXEC);
            r->epoll_fd = fd < 0 ? -1 : move_high((int)fd);
            err = fd < 0 ? (int)-fd : (int)-vt_sys4(SYS_epoll_ctl, r->epoll_fd, EPOLL_CTL_ADD, r->wake_fd, (long)&ev);
        }
        if (err)
            vt_sys1(SYS_close, r->wake_fd);
    }
    if (err) {
        vt_sys2(SYS_munmap, (long)r, sizeof *r);
        return err;
    }
    int other = backend == VT_IO_URING ? r->uring.ring_fd : r->epoll_fd;
    int low = other < r->wake_fd ? other : r->wake_fd;
    if (low < lowest)
        lowest = low;
    p->ring = r;
    return 0;
}

void vt_ring_abandon(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    if (!r)
        return;
    vt_sys1(SYS_close, r->wake_fd);
    vt_sys1(SYS_close, backend == VT_IO_URING ? r->uring.ring_fd : r->epoll_fd);
}

/* --- completions -------------------------------------------------------------------------------------------------------- */

static void complete(struct vt_ring *r, struct vt_op *op, int32_t res)
{
    struct vt_thread *t = op->thread;
    op->res = res;
    r->inflight--;
    atomic_store_explicit(&op->done, 1, memory_order_release); /* op is gone */
    vt_chaos();
    vt_unblock(t);
}

static void unwatch(struct vt_ring *r, struct vt_op *op)
{
    struct epoll_event none = {0};
    vt_sys4(SYS_epoll_ctl, r->epoll_fd, EPOLL_CTL_DEL, op->fd, (long)&none);
    if (!op->borrowed)
        vt_sys1(SYS_close, op->fd);
}

static void reap_epoll(struct vt_place *p, int timeout_ms, const struct timespec *timeout)
{
    struct vt_ring *r = p->ring;
    struct epoll_event events[64];
    uint64_t all = VT_ALL_SIGNALS;
    long n = timeout_ms == 0 ? vt_sys6(SYS_epoll_pwait, r->epoll_fd, (long)events, 64, 0, 0, 0)
                             : vt_sys6(SYS_epoll_pwait2, r->epoll_fd, (long)events, 64, (long)timeout, (long)&all, 8);
    if (n == -ENOSYS) { /* before Linux 5.11: milliseconds, rounded up */
        int ms = timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000) : -1;
        n = vt_sys6(SYS_epoll_pwait, r->epoll_fd, (long)events, 64, ms, (long)&all, 8);
    }
    for (long i = 0; i < n; i++) {
        if (events[i].data.u64 == TAG_WAKE) {
            uint64_t count;
            vt_sys3(SYS_read, r->wake_fd, (long)&count, sizeof count);
            continue;
        }
        struct vt_op *op = events[i].data.ptr;
        unwatch(r, op);
        complete(r, op, (int32_t)events[i].events);
    }
}

/* Takes what is in the completion ring. */
static void reap_uring(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&r->uring, head, cqe) {
        n++;
        if (cqe->user_data == TAG_WAKE)
            r->armed = false;
        else if (cqe->user_data != TAG_IGNORE)
            complete(r, (struct vt_op *)(uintptr_t)cqe->user_data, cqe->res);
    }
    if (n)
        io_uring_cq_advance(&r->uring, n);
}

/* --- requests ------------------------------------------------------------------------------------------------------------ */

static void enter(struct vt_place *p)
{
    p->stats.submissions++;
    io_uring_submit(&p->ring->uring);
    p->ring->queued = io_uring_sq_ready(&p->ring->uring); /* some stay when the kernel has no room for completions */
}

static struct io_uring_sqe *get_sqe(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    struct io_uring_sqe *sqe;
    while (!(sqe = io_uring_get_sqe(&r->uring))) {
        enter(p);
        /* EBUSY: completions must be taken first. */
        reap_uring(p);
    }
    r->queued++;
    return sqe;
}

static void queued(struct vt_place *p)
{
    p->stats.requests++;
    p->ring->inflight++;
    if (p->ring->queued >= VT_SQ_BATCH)
        enter(p);
}

void vt_ring_queue(struct vt_place *p, struct vt_op *op, const struct vt_io_req *req)
{
    struct io_uring_sqe *sqe = get_sqe(p);
    io_uring_prep_rw(req->opcode, sqe, req->fd, req->addr, req->len, req->off);
    sqe->rw_flags = (int)req->op_flags;
    io_uring_sqe_set_data(sqe, op);
    op->place = p;
    queued(p);
}

int vt_ring_watch(struct vt_place *p, struct vt_op *op, int fd, uint32_t events)
{
    op->place = p;
    if (backend == VT_IO_URING) {
        struct io_uring_sqe *sqe = get_sqe(p);
        io_uring_prep_poll_add(sqe, fd, events);
        io_uring_sqe_set_data(sqe, op);
        queued(p);
        return 0;
    }
    /* By a number of our own: the set knows a number once, and several threads may wait for it; and what has been put there
     * can only be taken out by its number, which the program may close, or give to something else, in the meantime. */
    int high = dup_high(fd);
    if (high == -EBADF)
        return EBADF;
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.ptr = op};
    op->borrowed = high < 0; /* no number is left */
    op->fd = op->borrowed ? fd : high;
    long err = vt_sys4(SYS_epoll_ctl, p->ring->epoll_fd, EPOLL_CTL_ADD, op->fd, (long)&ev);
    if (err && !op->borrowed)
        vt_sys1(SYS_close, op->fd);
    if (err)
        return (int)-err;
    p->stats.requests++;
    p->ring->inflight++;
    return 0;
}

static void cancel_own(struct vt_place *p, struct vt_op *op)
{
    if (atomic_load_explicit(&op->done, memory_order_relaxed))
        return;
    if (backend == VT_IO_URING) {
        struct io_uring_sqe *sqe = get_sqe(p);
        io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)op, 0);
        io_uring_sqe_set_data64(sqe, TAG_IGNORE);
        enter(p);
        return;
    }
    unwatch(p->ring, op);
    complete(p->ring, op, -ECANCELED);
}

void vt_ring_cancel(struct vt_place *mine, struct vt_op *op)
{
    struct vt_place *p = op->place;
    if (p == mine) {
        cancel_own(p, op);
        return;
    }
    /* It stays on its stack until done: the owner of its ring completes it, by this or because it is done. */
    struct vt_ring *r = p->ring;
    vt_lock(&r->mail_lock);
    if (!op->mailed) {
        op->mailed = true;
        op->mail_next = atomic_load_explicit(&r->mail, memory_order_relaxed);
        atomic_store_explicit(&r->mail, op, memory_order_release);
    }
    vt_unlock(&r->mail_lock);
    vt_chaos();
    vt_wake_place(p);
}

static void read_mail(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    vt_lock(&r->mail_lock);
    struct vt_op *op = atomic_load_explicit(&r->mail, memory_order_relaxed);
    atomic_store_explicit(&r->mail, NULL, memory_order_relaxed);
    vt_unlock(&r->mail_lock);
    while (op) {
        struct vt_op *next = op->mail_next;
        struct vt_thread *t = op->thread;
        cancel_own(p, op);
        vt_chaos();
        /* Last access: whoever waits for op waits for this too. */
        atomic_store_explicit(&op->mail_done, 1, memory_order_release);
        vt_chaos();
        vt_unblock(t);
        op = next;
    }
}

void vt_ring_submit(struct vt_place *p)
{
    if (p->ring->queued)
        enter(p);
}

bool vt_ring_stirs(const struct vt_place *p)
{
    const struct vt_ring *r = p->ring;
    if (!r)
        return false;
    if (atomic_load_explicit(&r->mail, memory_order_relaxed))
        return true;
    if (backend == VT_IO_EPOLL)
        return r->inflight != 0;
    return r->queued || io_uring_cq_ready(&r->uring) ||
           (IO_URING_READ_ONCE(*r->uring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW));
}

bool vt_ring_ready(const struct vt_place *p)
{
    const struct vt_ring *r = p->ring;
    return atomic_load_explicit(&r->mail, memory_order_relaxed) ||
           (backend == VT_IO_URING &&
            (io_uring_cq_ready(&r->uring) || (IO_URING_READ_ONCE(*r->uring.sq.kflags) & IORING_SQ_TASKRUN)));
}

unsigned vt_ring_inflight(const struct vt_place *p)
{
    return p->ring ? p->ring->inflight : 0;
}

void vt_ring_reap(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    if (atomic_load_explicit(&r->mail, memory_order_relaxed))
        read_mail(p);
    if (backend == VT_IO_EPOLL) {
        if (r->inflight)
            reap_epoll(p, 0, NULL);
        return;
    }
    if (IO_URING_READ_ONCE(*r->uring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) {
        p->stats.submissions++;
        io_uring_get_events(&r->uring);
    }
    reap_uring(p);
}

void vt_ring_wait(struct vt_place *p, uint64_t deadline)
{
    struct vt_ring *r = p->ring;
    struct timespec timeout = {0, 0};
    if (deadline != VT_NEVER) {
        uint64_t now = vt_now(), left = deadline > now ? deadline - now : 0;
        timeout = (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
    }
    if (backend == VT_IO_EPOLL) {
        reap_epoll(p, 1, deadline == VT_NEVER ? NULL : &timeout);
        if (atomic_load_explicit(&r->mail, memory_order_relaxed))
            read_mail(p);
        return;
    }
    if (!r->armed) {
        struct io_uring_sqe *sqe = get_sqe(p);
        io_uring_prep_read(sqe, r->wake_fd, &r->wake_count, sizeof r->wake_count, 0);
        io_uring_sqe_set_data64(sqe, TAG_WAKE);
        r->armed = true;
    }
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = {timeout.tv_sec, timeout.tv_nsec};
    uint64_t all = VT_ALL_SIGNALS;
    p->stats.submissions++;
    /* With all signals blocked while asleep: a handler needs a thread to run on. */
    io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, deadline == VT_NEVER ? NULL : &ts, (sigset_t *)(void *)&all);
    r->queued = io_uring_sq_ready(&r->uring);
    reap_uring(p);
    if (atomic_load_explicit(&r->mail, memory_order_relaxed))
        read_mail(p);
}

void vt_ring_wake(struct vt_place *p)
{
    uint64_t one = 1;
    vt_sys3(SYS_write, p->ring->wake_fd, (long)&one, sizeof one);
}

int vt_ring_wake_fd(const struct vt_place *p)
{
    return p->ring->wake_fd;
}

bool vt_ring_owns(int fd)
{
    return fd >= lowest && vt_ring_next_fd(fd) == fd;
}

int vt_ring_next_fd(int from)
{
    int next = -1;
    for (unsigned i = 0; i < vt_sched.nplaces; i++) {
        const struct vt_ring *r = vt_sched.places[i].ring;
        if (!r)
            continue;
        int fds[2] = {r->wake_fd, backend == VT_IO_URING ? r->uring.ring_fd : r->epoll_fd};
        for (int k = 0; k < 2; k++)
            if (fds[k] >= from && (next < 0 || fds[k] < next))
                next = fds[k];
    }
    return next;
}
