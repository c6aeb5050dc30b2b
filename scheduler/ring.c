#include "ring.h"

#include "chaos.h"
#include "config.h"
#include "faults.h"
#include "io.h"
#include "own.h"
#include "park.h"
#include "place.h"
#include "sys.h"
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* What completions carry instead of an op. */
#define TAG_IGNORE UINT64_C(0) /* of a cancellation: the op's own completion says it all */
#define TAG_WAKE   UINT64_C(1) /* the wake-up descriptor was written to */

#define VT_SQ_ENTRIES 256
#define VT_CQ_ENTRIES 4096
/* Submit in between when so many wait: the rest of the batch gains little more. */
#define VT_SQ_BATCH 64

/* What the kernel cannot do without blocking (fsync, reads on some file systems) it has done by workers, kernel threads of
 * the process, for each thread that submits: so many at most, about VT_WORKERS in all. The rest waits its turn. */
#define VT_WORKERS      64
#define VT_WORKERS_LOW  4
#define VT_WORKERS_HIGH 16

struct vt_ring {
    struct io_uring uring;
    uint64_t wake_count; /* where the read of wake_fd goes */
    unsigned inflight;   /* ops not completed */
    unsigned queued;     /* not yet submitted */
    struct vt_own wake;  /* an eventfd */
    struct vt_own set;   /* the ring's, or the epoll set's, descriptor */
    bool armed;          /* the read of wake_fd is under way */
    struct vt_lock mail_lock;
    struct vt_op *_Atomic mail; /* ops of this ring that others want cancelled */
    struct vt_watches watches;  /* back end epoll */
};

static enum vt_io_backend backend;
static uint64_t operations; /* those of the first 64 that the kernel knows */

/* Few programs use more than one mask for all their waits. Entries are never taken back. */
#define VT_SIGNAL_FDS 8
static struct {
    struct vt_lock lock;
    unsigned n;
    struct {
        uint64_t set;
        struct vt_own own;
    } entry[VT_SIGNAL_FDS];
} signal_fds;

/* In a kernel thread with a descriptor table of its own: the numbers of the places' wake there. */
static __thread int *apart __attribute__((tls_model("initial-exec")));

enum vt_io_backend vt_ring_backend(void)
{
    return backend;
}

/* --- descriptors ------------------------------------------------------------------------------------------------------ */

static void ring_moved(struct vt_own *own, int from, int to)
{
    struct vt_ring *r = (struct vt_ring *)((char *)own - offsetof(struct vt_ring, set));
    (void)from;
    /* The owner of the place may have read the old number and not be in the kernel yet. Then its call fails (EBADF, or
     * EOPNOTSUPP when the number has become another file), nothing has left the queue, and it comes again. */
    __atomic_store_n(&r->uring.enter_ring_fd, to, __ATOMIC_SEQ_CST);
    __atomic_store_n(&r->uring.ring_fd, to, __ATOMIC_SEQ_CST);
}

static int set_number(const struct vt_ring *r)
{
    return atomic_load_explicit(&r->set.fd, memory_order_relaxed);
}

struct vt_own *vt_ring_signal_fd(uint64_t set)
{
    struct vt_own *found = NULL;
    unsigned i = 0;
    vt_lock(&signal_fds.lock);
    while (i < signal_fds.n && signal_fds.entry[i].set != set)
        i++;
    if (i < signal_fds.n) {
        found = &signal_fds.entry[i].own;
    } else if (i < VT_SIGNAL_FDS) {
        long fd = vt_sys4(SYS_signalfd4, -1, (long)&set, sizeof set, O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0) {
            found = &signal_fds.entry[i].own;
            signal_fds.entry[i].set = set;
            vt_own_keep(found, (int)fd);
            signal_fds.n++;
        }
    }
    vt_unlock(&signal_fds.lock);
    return found;
}

struct vt_watches *vt_ring_watches(struct vt_place *p)
{
    return &p->ring->watches;
}

void vt_ring_fork_child(void)
{
    vt_watch_fork_child();
    memset(&signal_fds, 0, sizeof signal_fds);
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

static void learn_operations(struct io_uring *uring)
{
    enum { MOST = 64 };
    struct {
        struct io_uring_probe probe;
        struct io_uring_probe_op ops[MOST];
    } known;
    memset(&known, 0, sizeof known);
    operations = 0;
    if (io_uring_register_probe(uring, &known.probe, MOST) < 0)
        return;
    for (unsigned i = 0; i < MOST && i < known.probe.ops_len; i++)
        if (known.probe.ops[i].flags & IO_URING_OP_SUPPORTED)
            operations |= UINT64_C(1) << i;
}

bool vt_ring_can(uint8_t opcode)
{
    return backend == VT_IO_URING && opcode < 64 && operations >> opcode & 1;
}

int vt_ring_choose(enum vt_io_backend wanted)
{
    backend = VT_IO_EPOLL;
    if (wanted == VT_IO_EPOLL)
        return 0;
    struct io_uring probe;
    int err = uring_setup(&probe, 4);
    if (!err) {
        learn_operations(&probe);
        io_uring_queue_exit(&probe);
        backend = VT_IO_URING;
    } else if (wanted == VT_IO_URING) {
        vt_say("VTHREAD_IO=io_uring: the kernel refuses (error %d); epoll is used", err);
    }
    return 0;
}

/* Those for files, which end by themselves; not those for anything else, which may wait for one another. */
static void limit_workers(struct io_uring *uring)
{
    unsigned each = VT_WORKERS / vt_sched.nplaces;
    unsigned limits[2] = {each < VT_WORKERS_LOW ? VT_WORKERS_LOW : each > VT_WORKERS_HIGH ? VT_WORKERS_HIGH : each, 0};
    io_uring_register_iowq_max_workers(uring, limits); /* Linux 5.15; before, four for each processor */
}

int vt_ring_open(struct vt_place *p)
{
    struct vt_ring *r = vt_sys_map(sizeof *r);
    if (!r)
        return ENOMEM;
    int wake = -1, set = -1, err = 0;
    long fd = vt_sys2(SYS_eventfd2, 0, EFD_CLOEXEC | (backend == VT_IO_EPOLL ? EFD_NONBLOCK : 0));
    if (fd < 0)
        err = (int)-fd;
    else
        wake = (int)fd;
    if (!err && backend == VT_IO_URING) {
        err = uring_setup(&r->uring, VT_SQ_ENTRIES);
        if (!err) {
            set = r->uring.ring_fd;
            io_uring_ring_dontfork(&r->uring);
            limit_workers(&r->uring);
            /* The ring reads it by its index here: its number may change before a request has been seen. */
            err = -io_uring_register_files(&r->uring, &wake, 1);
        }
    } else if (!err) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_WAKE};
        fd = vt_sys1(SYS_epoll_create1, EPOLL_CLOEXEC);
        set = (int)fd;
        err = fd < 0 ? (int)-fd : (int)-vt_sys4(SYS_epoll_ctl, set, EPOLL_CTL_ADD, wake, (long)&ev);
    }
    if (err) {
        if (set >= 0 && backend == VT_IO_URING)
            io_uring_queue_exit(&r->uring);
        else if (set >= 0)
            vt_sys1(SYS_close, set);
        if (wake >= 0)
            vt_sys1(SYS_close, wake);
        vt_sys2(SYS_munmap, (long)r, sizeof *r);
        return err;
    }
    vt_own_keep(&r->wake, wake);
    vt_own_keep(&r->set, set);
    r->watches.set = &r->set;
    r->watches.place = p->index;
    if (backend == VT_IO_URING) {
        ring_moved(&r->set, set, set_number(r));
        r->set.moved = ring_moved;
    }
    p->ring = r;
    return 0;
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

static void reap_epoll(struct vt_place *p, int timeout_ms, const struct timespec *timeout)
{
    struct vt_ring *r = p->ring;
    struct epoll_event events[64];
    uint64_t all = VT_ALL_SIGNALS;
    long n = timeout_ms == 0 ? vt_sys6(SYS_epoll_pwait, set_number(r), (long)events, 64, 0, 0, 0)
                             : vt_sys6(SYS_epoll_pwait2, set_number(r), (long)events, 64, (long)timeout, (long)&all, 8);
    if (n == -ENOSYS) { /* before Linux 5.11: milliseconds, rounded up */
        int ms = timeout ? (int)(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000) : -1;
        n = vt_sys6(SYS_epoll_pwait, set_number(r), (long)events, 64, ms, (long)&all, 8);
    }
    for (long i = 0; i < n; i++) {
        if (events[i].data.u64 == TAG_WAKE) {
            uint64_t count;
            vt_sys3(SYS_read, vt_own_use(&r->wake), (long)&count, sizeof count);
            vt_own_done(&r->wake);
            continue;
        }
        struct vt_op *op = vt_watch_op(&r->watches, events[i].data.u64);
        if (!op)
            continue;
        vt_watch_end(&r->watches, op, true);
        complete(r, op, (int32_t)events[i].events);
    }
}

/* Takes what is in the completion ring. */
static void reap_uring(struct vt_place *p)
{
    struct vt_ring *r = p->ring;
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        n++;
        if (cqe->user_data == TAG_WAKE)
            r->armed = false;
        else if (cqe->user_data != TAG_IGNORE)
            complete(r, vt_fault_op(cqe->user_data), vt_fault_res(cqe->user_data, cqe->res));
    }
    if (n)
        io_uring_cq_advance(&r->uring, n);
}

/* --- requests ------------------------------------------------------------------------------------------------------------ */

/* A system call is about to bring the kernel n requests. */
static void count_batch(struct vt_place *p, unsigned n)
{
    p->stats.submissions++;
    if (!n)
        return;
    p->stats.batches++;
    if (n > p->stats.batch_most)
        p->stats.batch_most = n;
}

static void enter(struct vt_place *p)
{
    count_batch(p, p->ring->queued);
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
    int fault = vt_fault(req->opcode);
    if (fault) {
        io_uring_prep_nop(sqe);
    } else {
        io_uring_prep_rw(req->opcode, sqe, req->fd, req->addr, vt_fault_length(req), req->off);
        sqe->rw_flags = (int)req->op_flags;
        sqe->file_index = req->index;
    }
    io_uring_sqe_set_data64(sqe, vt_fault_tag(op, fault));
    op->place = p;
    queued(p);
}

int vt_ring_watch(struct vt_place *p, struct vt_op *op, int fd, uint32_t events, bool many)
{
    if (backend == VT_IO_URING) {
        struct io_uring_sqe *sqe = get_sqe(p);
        int fault = vt_fault(IORING_OP_POLL_ADD);
        if (fault)
            io_uring_prep_nop(sqe);
        else
            io_uring_prep_poll_add(sqe, fd, events);
        io_uring_sqe_set_data64(sqe, vt_fault_tag(op, fault));
        op->place = p;
        queued(p);
        return 0;
    }
    struct vt_ring *r = p->ring;
    op->place = p;
    int err = vt_watch_begin(&r->watches, op, fd, events, many);
    if (err) {
        op->place = NULL;
        return err;
    }
    p->stats.requests++;
    r->inflight++;
    return 0;
}

/* Leaves with the next submission: before whatever may come to lie where op is. */
static void cancel_own(struct vt_place *p, struct vt_op *op)
{
    if (atomic_load_explicit(&op->done, memory_order_relaxed))
        return;
    if (backend == VT_IO_URING) {
        struct io_uring_sqe *sqe = get_sqe(p);
        io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)op, 0);
        io_uring_sqe_set_data64(sqe, TAG_IGNORE);
        if (p->ring->queued >= VT_SQ_BATCH)
            enter(p);
        return;
    }
    vt_watch_end(&p->ring->watches, op, false);
    complete(p->ring, op, -ECANCELED);
}

static bool under_way(const struct vt_op *op)
{
    return op->place && !atomic_load_explicit(&op->done, memory_order_relaxed);
}

void vt_ring_cancel(struct vt_place *mine, struct vt_op *ops, size_t n)
{
    size_t first = 0;
    while (first < n && !under_way(&ops[first]))
        first++;
    if (first == n)
        return;
    struct vt_place *p = ops[first].place;
    if (p == mine) {
        for (size_t i = first; i < n; i++)
            if (under_way(&ops[i]))
                cancel_own(p, &ops[i]);
        vt_ring_submit(p);
        vt_ring_reap(p); /* mostly they are done by now */
        return;
    }
    /* They stay on their stack until done: the owner of the ring completes them, by this or because they are done. */
    struct vt_ring *r = p->ring;
    vt_lock(&r->mail_lock);
    for (size_t i = first; i < n; i++) {
        struct vt_op *op = &ops[i];
        if (!under_way(op) || op->mailed)
            continue;
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
    vt_ring_submit(p);
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
    unsigned batch = r->queued;
    if (!r->armed) {
        struct io_uring_sqe *sqe = get_sqe(p);
        io_uring_prep_read(sqe, 0, &r->wake_count, sizeof r->wake_count, 0);
        sqe->flags |= IOSQE_FIXED_FILE;
        io_uring_sqe_set_data64(sqe, TAG_WAKE);
        r->armed = true;
    }
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = {timeout.tv_sec, timeout.tv_nsec};
    uint64_t all = VT_ALL_SIGNALS;
    count_batch(p, batch);
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
    if (apart) {
        vt_sys3(SYS_write, apart[p->index], (long)&one, sizeof one);
        return;
    }
    vt_sys3(SYS_write, vt_own_use(&p->ring->wake), (long)&one, sizeof one);
    vt_own_done(&p->ring->wake);
}

int vt_ring_own_table(void)
{
    int *mine = vt_sys_map(sizeof *mine * vt_sched.nplaces);
    if (!mine)
        return ENOMEM;
    vt_own_lock(); /* so that the numbers are those of the table that is copied */
    long from = 0, ret = vt_sys1(SYS_unshare, CLONE_FILES);
    for (unsigned i = 0; i < vt_sched.nplaces; i++)
        mine[i] = atomic_load_explicit(&vt_sched.places[i].ring->wake.fd, memory_order_relaxed);
    vt_own_unlock();
    if (ret != 0) {
        vt_sys2(SYS_munmap, (long)mine, (long)(sizeof *mine * vt_sched.nplaces));
        return (int)-ret;
    }
    apart = mine;
    vt_chaos();
    while (from <= INT_MAX) {
        long keep = (long)INT_MAX + 1;
        for (unsigned i = 0; i < vt_sched.nplaces; i++)
            if (mine[i] >= from && mine[i] < keep)
                keep = mine[i];
        if (keep > from)
            vt_sys_close_range(from, keep - 1);
        from = keep + 1;
    }
    return 0;
}
