#include "io.h"

#include "bound.h"
#include "chaos.h"
#include "handoff.h"
#include "park.h"
#include "place.h"
#include "putoff.h"
#include "ring.h"
#include "sys.h"

#include <errno.h>
#include <linux/io_uring.h>

bool vt_io_has_ring(void)
{
    return vt_ring_backend() == VT_IO_URING;
}

/* For who looks from outside. */
static void waits_for(struct vt_thread *t, enum vt_wait_kind kind, const void *on, uint32_t detail)
{
    t->wait_kind = kind;
    t->wait_on = on;
    t->wait_detail = detail;
}

bool vt_io_can(uint8_t opcode)
{
    return vt_ring_can(opcode);
}

static bool is_done(struct vt_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire);
}

/* --- requests -------------------------------------------------------------------------------------------------------- */

/* What lies on a stack while the kernel may write to it is safe as long as nobody leaves that stack: so from the first
 * request to the end of the last the thread stays in one section, and handlers wait. */

static bool any_done(struct vt_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i].place && is_done(&ops[i]))
            return true;
    return false;
}

static bool is_posted(struct vt_op *op)
{
    return op->mailed && !atomic_load_explicit(&op->mail_done, memory_order_acquire);
}

/* Asks for the end of those that are not done. What has been asked before has been heard. */
static void ask_for_end(struct vt_thread *t, struct vt_op *ops, size_t n)
{
    struct vt_place *mine = vt_need_place(t);
    for (size_t i = 0; i < n; i++)
        if (ops[i].mailed && !is_posted(&ops[i])) {
            ops[i].mailed = false;
            atomic_store_explicit(&ops[i].mail_done, 0, memory_order_relaxed);
        }
    vt_chaos();
    vt_ring_cancel(mine, ops, n);
}

/* ns until it is asked again for the end of a request. The kernel does not find one that is on its way from waiting for its
 * descriptor to a worker, where it may then wait for ever (connect in the local domain). */
#define ASK_AGAIN_FIRST UINT64_C(5000000)
#define ASK_AGAIN_LAST  UINT64_C(1000000000)

/* Waits for the last access to the ops, having asked for their end. In a section. */
static void settle(struct vt_thread *t, struct vt_op *ops, size_t n)
{
    if (n == 1 && (!ops->place || is_done(ops)) && !ops->mailed)
        return;
    ask_for_end(t, ops, n);
    t->settling = true;
    uint64_t patience = ASK_AGAIN_FIRST, due = VT_NEVER;
    for (size_t i = 0; i < n; i++) {
        struct vt_op *op = &ops[i];
        if (!op->place)
            continue;
        while (!is_done(op) || is_posted(op)) {
            uint64_t now = vt_now();
            if (due == VT_NEVER) {
                due = now + patience;
            } else if (now >= due) {
                ask_for_end(t, ops, n);
                patience = patience < ASK_AGAIN_LAST ? 2 * patience : patience;
                due = now + patience;
                continue; /* it may be done by now */
            }
            vt_block(due);
        }
    }
    t->settling = false;
}

#define VT_HANDLERS (-1) /* no errno: a handler wants to run */

/* Parks until one of the ops is done, then ends the others. 0, or why the ops were cancelled: ETIMEDOUT, EINTR (*stop, too),
 * VT_HANDLERS. In a section. */
static int await(struct vt_thread *t, struct vt_op *ops, size_t n, uint64_t deadline, unsigned flags, const _Atomic bool *stop)
{
    int why = 0;
    /* A wait that nothing interrupts lets handlers wait as long as it takes, as the kernel does. */
    t->settling = (flags & VT_PARK_INTERRUPTIBLE) == 0;
    while (!any_done(ops, n)) {
        if (!t->settling && atomic_load_explicit(&t->deferred, memory_order_relaxed))
            why = VT_HANDLERS;
        else if (stop && atomic_load_explicit(stop, memory_order_acquire))
            why = EINTR;
        else if (vt_interrupted(t, flags))
            why = EINTR;
        else if (deadline != VT_NEVER && vt_now() >= deadline)
            why = ETIMEDOUT;
        vt_chaos();
        if (why)
            break;
        vt_block(deadline);
    }
    t->settling = false;
    settle(t, ops, n);
    return why;
}

/* Whether a request has been ended without having done anything: by our cancellation, or by the kernel, which may end requests
 * of a kernel thread that goes away or of its workers. */
static bool is_void(int32_t res)
{
    return res == -ECANCELED || res == -EINTR;
}

/* Whether a wait of one request that ended with why is over, with this result; otherwise handlers have run, or nobody has
 * asked for the end, and it goes on. Out of the section. */
static bool is_over(struct vt_thread *t, const struct vt_op *op, int why, unsigned flags, int32_t *result)
{
    *result = op->res;
    if (!is_void(op->res))
        return true; /* what it did counts */
    if ((why == VT_HANDLERS || why == 0) && !vt_interrupted(t, flags))
        return false;
    *result = why == ETIMEDOUT ? -ETIMEDOUT : -EINTR;
    return true;
}

/* Whether ECANCELED may be the call's own: who reads a timer's descriptor gets it (timerfd_create(2),
 * TFD_TIMER_CANCEL_ON_SET). */
static bool own_cancellation(const struct vt_io_req *req, const struct vt_op *op)
{
    return op->res == -ECANCELED && (req->opcode == IORING_OP_READ || req->opcode == IORING_OP_READV);
}

int32_t vt_io_do(const struct vt_io_req *req, uint64_t deadline, unsigned flags)
{
    struct vt_thread *t = vt_enter();
    int32_t result;
    vt_wait_begins(t);
    vt_bind_waits(t);
    waits_for(t, VT_WAIT_RING, (const void *)(intptr_t)req->fd, req->opcode);
    for (;;) {
        struct vt_op op = {.thread = t};
        if (__builtin_expect(t->kind != VT_VIRTUAL, 0)) { /* no longer, see vt_io_handed */
            vt_leave(t);
            return -EAGAIN;
        }
        vt_ring_queue(vt_need_place(t), &op, req);
        int why = await(t, &op, 1, deadline, flags, NULL);
        vt_leave(t);
        if (why == 0 && own_cancellation(req, &op))
            return op.res;
        if (is_over(t, &op, why, flags, &result))
            return result;
        vt_enter();
    }
}

/* --- in the kernel --------------------------------------------------------------------------------------------------- */

#define VT_BIT(sig) (UINT64_C(1) << ((sig)-1))

/* By one that was virtual when its call began: a handler has forked, and this is the child. */
static long call_as_kernel_thread(struct vt_thread *t, long (*call)(void *arg, const uint64_t *mask), void *arg, unsigned flags,
                                  const uint64_t *mask)
{
    uint64_t own = 0;
    long ret;
    vt_sys4(SYS_rt_sigprocmask, 0, 0, (long)&own, sizeof own);
    do {
        vt_wait_begins(t);
        ret = call(arg, mask ? mask : &own);
    } while (ret == -EINTR && !vt_interrupted(t, flags));
    return ret;
}

long vt_io_handed(const char *what, long (*call)(void *arg, const uint64_t *mask), void *arg, unsigned flags,
                  const uint64_t *mask)
{
    struct vt_thread *t = vt_self;
    long ret = -EINTR;
    bool over;
    if (t->kind == VT_KERNEL)
        return call_as_kernel_thread(t, call, arg, flags, mask);
    const uint64_t own = t->sigmask;
    vt_handoff_begin(what);
    vt_wait_begins(t);
    do {
        vt_enter();
        vt_mask_lend(t, mask ? *mask : own);
        uint64_t during = t->sigmask & ~VT_BIT(VT_SIGCANCEL);
        vt_leave(t); /* what is pending for the thread runs here */
        /* libc's signal of a cancellation comes in only within the call: it is not missed. */
        vt_sys_sigmask(own | VT_BIT(VT_SIGCANCEL));
        over = vt_interrupted(t, flags);
        if (!over) {
            ret = call(arg, &during);
            /* Completions of requests end the call too, without any signal. */
            over = ret != -EINTR || vt_interrupted(t, flags);
        }
        t->lent = false;
        vt_sys_sigmask(own);
        vt_signal_mask_is(own);
    } while (!over);
    vt_handoff_end();
    return ret;
}

struct handed_poll {
    struct pollfd *fds;
    nfds_t n;
    uint64_t deadline;
};

static long handed_poll(void *arg, const uint64_t *mask)
{
    const struct handed_poll *p = arg;
    struct timespec left = {0, 0};
    if (p->deadline != VT_NEVER) {
        uint64_t now = vt_now(), ns = p->deadline > now ? p->deadline - now : 0;
        left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    }
    return vt_sys6(SYS_ppoll, (long)p->fds, (long)p->n, p->deadline == VT_NEVER ? 0 : (long)&left, (long)mask, sizeof *mask, 0);
}

static int poll_handed_off(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags, const uint64_t *mask)
{
    struct handed_poll poll = {fds, n, deadline};
    return (int)vt_io_handed("poll", handed_poll, &poll, flags, mask);
}

/* --- readiness ------------------------------------------------------------------------------------------------------- */

/* Whether a completed watch says something that was asked for. io_uring also reports that the peer has shut down its side to
 * those who did not ask (POLLRDHUP), and would do so for ever. */
static bool asked_for(const struct vt_op *op, short events)
{
    return op->res < 0 || (op->res & (events | POLLERR | POLLHUP | POLLNVAL));
}

/* Whether the kernel could not watch: it has no memory for it. */
static bool not_watched(const struct vt_op *op)
{
    return op->res < 0 && !is_void(op->res) && op->res != -EBADF && op->res != -EPERM;
}

static int poll_now(struct pollfd *fds, nfds_t n)
{
    struct timespec zero = {0, 0};
    return (int)vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)&zero, 0, 0, 0);
}

int32_t vt_io_ready(int fd, short events, uint64_t deadline, unsigned flags)
{
    return vt_io_ready_unless(fd, events, deadline, flags, NULL);
}

int32_t vt_io_ready_unless(int fd, short events, uint64_t deadline, unsigned flags, const _Atomic bool *stop)
{
    struct vt_thread *t = vt_enter();
    int32_t result;
    vt_wait_begins(t);
    vt_bind_waits(t);
    waits_for(t, VT_WAIT_READY, (const void *)(intptr_t)fd, (unsigned short)events);
    for (;;) {
        struct vt_op op = {.thread = t};
        int err = ENOMEM, why = 0;
        if (__builtin_expect(t->kind == VT_VIRTUAL, 1)) /* still, see vt_io_handed */
            err = vt_ring_watch(vt_need_place(t), &op, fd, (uint32_t)(unsigned short)events, false);
        if (!err)
            why = await(t, &op, 1, deadline, flags, stop);
        vt_leave(t);
        if (err == EBADF || err == EPERM)
            return -err;
        if (err || (why == 0 && (!asked_for(&op, events) || not_watched(&op)))) {
            if (stop)
                return -EAGAIN;
            struct pollfd one = {.fd = fd, .events = events};
            int n = poll_handed_off(&one, 1, deadline, flags, NULL);
            return n > 0 ? one.revents : n == 0 ? -ETIMEDOUT : n;
        }
        if (is_over(t, &op, why, flags, &result)) {
            if (result != -ETIMEDOUT)
                return result;
            /* What came at the last moment counts; the carrier may have been too busy to report it. */
            struct pollfd one = {.fd = fd, .events = events};
            return poll_now(&one, 1) > 0 && !(one.revents & POLLNVAL) ? one.revents : -ETIMEDOUT;
        }
        vt_enter();
    }
}

/* On the stack, for so many; more have memory of their own. */
#define VT_POLL_FEW 32

/* After so many reports that a signal has come for the process which then did not come here the kernel is to wait: the
 * report is about something else. */
#define VT_POLL_VAIN 8

struct poll {
    struct pollfd *fds;
    nfds_t n;
    struct vt_op *ops; /* one for each, and one for signals */
    const uint64_t *mask;
    unsigned vain;
    bool looked; /* nothing was ready a moment ago */
};

/* Watches all. 0, or an errno where only the kernel can. In a section. */
static int poll_watch(struct vt_thread *t, struct poll *p)
{
    struct vt_place *place = vt_need_place(t);
    int err = 0;
    for (nfds_t i = 0; i <= p->n; i++)
        p->ops[i] = (struct vt_op){.thread = t};
    for (nfds_t i = 0; i < p->n && !err; i++) {
        if (p->fds[i].fd >= 0)
            err =
                vt_ring_watch(place, &p->ops[i], p->fds[i].fd, (uint32_t)(unsigned short)p->fds[i].events, p->n > VT_POLL_FEW);
    }
    /* Signals to the process that only this mask lets in come to no carrier while the thread is parked. */
    uint64_t opened = p->mask ? t->sigmask & ~*p->mask : 0;
    struct vt_own *own = NULL;
    if (!err && opened && !(own = vt_ring_signal_fd(opened)))
        err = EMFILE;
    if (own) {
        int fd = atomic_load_explicit(&own->fd, memory_order_seq_cst);
        err = vt_ring_watch(place, &p->ops[p->n], fd, POLLIN, false);
        vt_ring_submit(place);
        /* If it has not moved it has not been closed either, and is what the kernel has found by the number. */
        if (!err && atomic_load_explicit(&own->fd, memory_order_seq_cst) != fd)
            err = EAGAIN;
    }
    return err;
}

/* One round of a wait: 0 or what await gives. *left_to: an errno where the kernel is to wait. Handlers have run if they were
 * to, and the mask is the thread's own again. */
static int poll_round(struct vt_thread *t, struct poll *p, uint64_t deadline, unsigned flags, int *left_to)
{
    vt_enter();
    int why = 0;
    if (t->kind == VT_VIRTUAL)
        vt_bind_waits(t);
    if (t->kind != VT_VIRTUAL) { /* no longer, see vt_io_handed */
        vt_leave(t);
        *left_to = EAGAIN;
        return 0;
    }
    if ((*left_to = poll_watch(t, p)) == 0) {
        if (p->mask)
            vt_mask_lend(t, *p->mask);
        why = await(t, p->ops, p->n + 1, deadline, flags, NULL);
    } else {
        settle(t, p->ops, p->n + 1);
    }
    const struct vt_op *signal = &p->ops[p->n];
    if (why == 0 && signal->place && signal->res > 0) {
        bool alone = true;
        for (nfds_t i = 0; i < p->n; i++)
            alone &= !p->ops[i].place || p->ops[i].res == -ECANCELED;
        if (alone) { /* let it in */
            atomic_store_explicit(&t->deferred, 1, memory_order_relaxed);
            why = VT_HANDLERS;
            if (++p->vain > VT_POLL_VAIN)
                *left_to = EAGAIN;
        }
    }
    if (why == VT_HANDLERS) {
        vt_leave(t);
        vt_enter();
    }
    while (!vt_mask_return(t)) {
        vt_leave(t);
        vt_enter();
    }
    vt_leave(t);
    return why;
}

static int poll_park(struct vt_thread *t, struct poll *p, uint64_t deadline, unsigned flags)
{
    vt_wait_begins(t);
    waits_for(t, p->n ? VT_WAIT_POLL : VT_WAIT_SLEEP, p->fds, (uint32_t)p->n);
    for (;;) {
        int left_to, ready = p->looked ? 0 : poll_now(p->fds, p->n);
        if (ready)
            return ready;
        p->looked = false;
        int why = poll_round(t, p, deadline, flags, &left_to);
        bool over = why == EINTR || (why == VT_HANDLERS && vt_interrupted(t, flags));
        if (!over && why == VT_HANDLERS && !left_to)
            continue;
        if (!over && !left_to && why == 0) {
            for (nfds_t i = 0; i < p->n && !left_to; i++)
                if (p->ops[i].place && (!asked_for(&p->ops[i], p->fds[i].events) || not_watched(&p->ops[i])))
                    left_to = EAGAIN;
            if (!left_to && !not_watched(&p->ops[p->n]))
                continue; /* what there is poll says */
            left_to = EAGAIN;
        }
        if (!over && left_to)
            return poll_handed_off(p->fds, p->n, deadline, flags, p->mask);
        /* Events that came at the last moment count. */
        ready = poll_now(p->fds, p->n);
        return ready ? ready : over ? -EINTR : 0;
    }
}

static __attribute__((noinline)) int poll_few(struct poll *p, uint64_t deadline, unsigned flags)
{
    struct vt_op ops[p->n + 1];
    p->ops = ops;
    return poll_park(vt_current(), p, deadline, flags);
}

int vt_io_poll(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags, const uint64_t *mask)
{
    struct poll p = {.fds = fds, .n = n, .mask = mask};
    if (n <= VT_POLL_FEW)
        return poll_few(&p, deadline, flags);
    /* The kernel takes no more than there may be descriptors (EINVAL): asked first. */
    int ready = poll_now(fds, n);
    if (ready)
        return ready;
    p.looked = true;
    size_t size = (n + 1) * sizeof(struct vt_op);
    if (!(p.ops = vt_sys_map(size)))
        return -ENOMEM;
    int ret = poll_park(vt_current(), &p, deadline, flags);
    vt_sys2(SYS_munmap, (long)p.ops, (long)size);
    return ret;
}
