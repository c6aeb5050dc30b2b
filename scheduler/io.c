#include "io.h"

#include "chaos.h"
#include "handoff.h"
#include "park.h"
#include "ring.h"
#include "place.h"
#include "sys.h"

#include <errno.h>

bool vt_io_has_ring(void)
{
    return vt_ring_backend() == VT_IO_URING;
}

static bool is_done(struct vt_op *op)
{
    return atomic_load_explicit(&op->done, memory_order_acquire);
}

static void cancel(struct vt_thread *t, struct vt_op *op)
{
    vt_enter();
    struct vt_place *mine = vt_need_place(t);
    vt_chaos();
    if (!is_done(op))
        vt_ring_cancel(mine, op);
    vt_leave(t);
}

/* Waits for the last access to op. */
static void settle(struct vt_op *op)
{
    while (!is_done(op) || (op->mailed && !atomic_load_explicit(&op->mail_done, memory_order_acquire)))
        vt_block(VT_NEVER);
}

/* Parks until op is done. 0, or ETIMEDOUT or EINTR when it was cancelled for that reason; op is done in any case. */
static int await(struct vt_thread *t, struct vt_op *op, uint64_t deadline, unsigned flags)
{
    int why = 0;
    while (!is_done(op)) {
        if (vt_interrupted(t, flags))
            why = EINTR;
        else if (deadline != VT_NEVER && vt_now() >= deadline)
            why = ETIMEDOUT;
        vt_chaos();
        if (why) {
            cancel(t, op);
            settle(op);
            break;
        }
        vt_block(deadline);
    }
    return why;
}

/* The result of a request that may have been cancelled: what it did counts. */
static int32_t outcome(const struct vt_op *op, int why)
{
    if (why && (op->res == -ECANCELED || op->res == -EINTR))
        return -why;
    return op->res;
}

int32_t vt_io_do(const struct vt_io_req *req, uint64_t deadline, unsigned flags)
{
    struct vt_thread *t = vt_enter();
    struct vt_op op = {.thread = t};
    vt_wait_begins(t);
    struct vt_place *p = vt_need_place(t);
    vt_ring_queue(p, &op, req);
    vt_leave(t);
    return outcome(&op, await(t, &op, deadline, flags));
}

/* Waits in the kernel, on a carrier of its own. */
static int poll_handed_off(struct pollfd *fds, nfds_t n, uint64_t deadline)
{
    struct timespec left = {0, 0};
    if (deadline != VT_NEVER) {
        uint64_t now = vt_now(), ns = deadline > now ? deadline - now : 0;
        left = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    }
    vt_handoff_begin("poll");
    long ret = vt_sys6(SYS_ppoll, (long)fds, (long)n, deadline == VT_NEVER ? 0 : (long)&left, 0, 0, 0);
    vt_handoff_end();
    return (int)ret;
}

int32_t vt_io_ready(int fd, short events, uint64_t deadline, unsigned flags)
{
    struct vt_thread *t = vt_enter();
    struct vt_op op = {.thread = t};
    vt_wait_begins(t);
    struct vt_place *p = vt_need_place(t);
    int err = vt_ring_watch(p, &op, fd, (uint32_t)(unsigned short)events);
    vt_leave(t);
    if (err && err != EBADF && err != EPERM) {
        /* epoll without a number for it, while another thread waits for it here, or without memory. */
        struct pollfd one = {.fd = fd, .events = events};
        int n = poll_handed_off(&one, 1, deadline);
        return n > 0 ? one.revents : n == 0 ? -ETIMEDOUT : n;
    }
    return err ? -err : outcome(&op, await(t, &op, deadline, flags));
}

#define VT_POLL_MAX 32

int vt_io_poll(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags)
{
    struct timespec zero = {0, 0};
    if (n > VT_POLL_MAX)
        return poll_handed_off(fds, n, deadline);
    struct vt_op ops[n ? n : 1];
    struct vt_thread *t = vt_current();
    vt_wait_begins(t);
    for (;;) {
        long ret = vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)&zero, 0, 0, 0);
        if (ret != 0)
            return (int)ret;
        int err = 0;
        nfds_t armed = 0, i;
        vt_enter();
        struct vt_place *p = vt_need_place(t);
        for (i = 0; i < n && !err; i++) {
            ops[i] = (struct vt_op){.thread = t};
            if (fds[i].fd < 0)
                atomic_init(&ops[i].done, 1);
            else if ((err = vt_ring_watch(p, &ops[i], fds[i].fd, (uint32_t)(unsigned short)fds[i].events)) == 0)
                armed++;
            else
                atomic_init(&ops[i].done, 1);
        }
        nfds_t made = i;
        vt_leave(t);
        bool over = err != 0;
        int why = 0;
        while (!over && !why) {
            for (i = 0; i < made && !over; i++)
                over = fds[i].fd >= 0 && is_done(&ops[i]);
            if (over)
                break;
            if (vt_interrupted(t, flags))
                why = EINTR;
            else if (deadline != VT_NEVER && vt_now() >= deadline)
                why = ETIMEDOUT;
            else
                vt_block(deadline);
        }
        for (i = 0; i < made; i++)
            if (!is_done(&ops[i]))
                cancel(t, &ops[i]);
        for (i = 0; i < made; i++)
            settle(&ops[i]);
        if (err) /* epoll: known there already, or not to be waited for: ask the kernel in one go */
            return poll_handed_off(fds, n, deadline);
        if (why) {
            /* Events that came at the last moment count. */
            ret = vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)&zero, 0, 0, 0);
            return ret ? (int)ret : why == ETIMEDOUT ? 0 : -why;
        }
    }
}
