/* poll, select and epoll: in terms of vt_io_poll and vt_io_ready, which wait. */
#include "call.h"
#include "clock.h"
#include "fd.h"
#include "hide.h"
#include "io.h"
#include "park.h"
#include "start.h"
#include "sys.h"
#include "undo.h"

#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>

#define FEW 32 /* more members of select's sets than that do not go on the stack */

static bool valid(const struct timespec *t)
{
    return t->tv_sec >= 0 && vt_nsec_valid(t);
}

/* The deadline of a valid time-out, NULL for none. */
static uint64_t deadline_of(const struct timespec *t)
{
    return t ? vt_deadline_in(vt_timespec_ns(t)) : VT_NEVER;
}

static bool zero(const struct timespec *t)
{
    return t && t->tv_sec == 0 && t->tv_nsec == 0;
}

/* The mask that a call is to wait with, in *bits; NULL if it has none. */
static const uint64_t *mask_of(const sigset_t *mask, uint64_t *bits)
{
    if (!mask)
        return NULL;
    __builtin_memcpy(bits, mask, sizeof *bits);
    return bits;
}

/* Whether a call that does not wait can be left to the kernel: it does not know what is pending for the thread alone. */
static bool at_once(const struct timespec *timeout, const uint64_t *mask)
{
    return zero(timeout) && !(mask && (atomic_load_explicit(&vt_self->pending, memory_order_seq_cst) & ~*mask));
}

/* --- poll ------------------------------------------------------------------------------------------- */

/* Events that the ring reports where there are none: it says what the wake-up said, and sockets announce all kinds of data
 * (sock_def_readable in net/core/sock.c), and of room, at once. */
#define UNSURE (POLLPRI | POLLRDBAND | POLLWRBAND)

/* The commonest case, without a second look when the event has come. */
static long poll_one(struct pollfd *p, uint64_t deadline, unsigned flags)
{
    if (vt_fd_try_first(p->fd, VT_FD_POLLS)) {
        long ret = vt_sys3(SYS_poll, (long)p, 1, 0);
        if (ret != 0)
            return ret;
        vt_fd_waited(p->fd, VT_FD_POLLS);
    }
    for (;;) {
        int32_t events = vt_io_ready(p->fd, p->events, deadline, flags);
        p->revents = 0;
        if (events > 0) {
            p->revents = (short)(events & (p->events | POLLERR | POLLHUP | POLLNVAL));
            long ret = p->revents & UNSURE ? vt_sys3(SYS_poll, (long)p, 1, 0) : p->revents != 0;
            if (ret)
                return ret;
            continue;
        }
        if (events == -ETIMEDOUT)
            return 0;
        if (events == -EINTR)
            return -EINTR;
        /* A bad descriptor, or one that is always ready, if that was asked for; else only the time ends the wait. */
        long ret = vt_sys3(SYS_poll, (long)p, 1, 0);
        return ret || events != -EPERM ? ret : vt_io_poll(p, 1, deadline, flags, NULL);
    }
}

/* -EINTR also for a cancellation, which is the caller's to act upon. */
static long poll_once(struct pollfd *fds, nfds_t n, uint64_t deadline, unsigned flags, const uint64_t *mask)
{
    if (n == 1 && fds->fd >= 0 && !mask)
        return poll_one(fds, deadline, flags);
    return vt_io_poll(fds, n, deadline, flags, mask);
}

long vt_call_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
    struct timespec left;
    uint64_t bits;
    if (timeout && !valid(timeout))
        return -EINVAL;
    if (mask && size != sizeof bits)
        return -EINVAL;
    const uint64_t *during = mask_of(mask, &bits);
    if (at_once(timeout, during)) {
        left = *timeout; /* the kernel's call writes it */
        return vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)&left, (long)during, sizeof bits, 0);
    }
    uint64_t deadline = deadline_of(timeout);
    unsigned flags = VT_PARK_INTERRUPTIBLE;
    for (;;) {
        long ret = poll_once(fds, n, deadline, flags, during);
        if (ret != -EINTR || vt_io_interrupted(&flags))
            return ret;
    }
}

VT_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    long at_once;
    if (vt_hidden_poll(fds, n, &at_once))
        return (int)vt_result(at_once);
    if (!vt_on() || !vt_is_virtual())
        return vt_real(poll)(fds, n, timeout);
    vt_cancel_point();
    struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)vt_result(vt_call_ppoll(fds, n, timeout < 0 ? NULL : &t, NULL, 0));
}
VT_ALIAS(poll, __poll);

VT_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
    long at_once;
    if (vt_hidden_poll(fds, n, &at_once))
        return (int)vt_result(at_once);
    if (!vt_on() || !vt_is_virtual()) {
        vt_signal_waits_with(mask);
        return vt_real(ppoll)(fds, n, timeout, mask);
    }
    vt_cancel_point();
    return (int)vt_result(vt_call_ppoll(fds, n, timeout, mask, mask ? sizeof(uint64_t) : 0));
}

VT_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
    if (size / sizeof *fds < n)
        vt_real(__chk_fail)();
    return poll(fds, n, timeout);
}

VT_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
    if (size / sizeof *fds < n)
        vt_real(__chk_fail)();
    return ppoll(fds, n, timeout, mask);
}

/* --- select ----------------------------------------------------------------------------------------- */

/* What the kernel's select asks of a descriptor for each set, in terms of poll (fs/select.c). */
#define IN_SET     (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define OUT_SET    (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define EXCEPT_SET POLLPRI

typedef unsigned long word_t; /* of an fd_set, which may be longer than its type says */
#define WORD_BITS (8 * (int)sizeof(word_t))

static word_t word(const fd_set *set, int i)
{
    return set ? ((const word_t *)(const void *)set)[i] : 0;
}

static word_t valid_bits(int n, int i)
{
    int left = n - i * WORD_BITS;
    return left >= WORD_BITS ? ~(word_t)0 : ((word_t)1 << left) - 1;
}

static int members(int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
    int count = 0;
    for (int i = 0; i * WORD_BITS < n; i++)
        count += __builtin_popcountl((word(in, i) | word(out, i) | word(except, i)) & valid_bits(n, i));
    return count;
}

static void to_poll(struct pollfd *fds, int n, const fd_set *in, const fd_set *out, const fd_set *except)
{
    for (int i = 0; i * WORD_BITS < n; i++) {
        word_t all = (word(in, i) | word(out, i) | word(except, i)) & valid_bits(n, i);
        for (; all; all &= all - 1, fds++) {
            int bit = __builtin_ctzl(all);
            word_t one = (word_t)1 << bit;
            fds->fd = i * WORD_BITS + bit;
            fds->events = 0;
            fds->revents = 0;
            if (word(in, i) & one)
                fds->events |= POLLRDNORM | POLLRDBAND | POLLIN;
            if (word(out, i) & one)
                fds->events |= POLLWRBAND | POLLWRNORM | POLLOUT;
            if (word(except, i) & one)
                fds->events |= POLLPRI;
        }
    }
}

/* Keeps in *set those of its members among fds that have an event of mask; returns how many. */
static int keep(fd_set *set, const struct pollfd *fds, int count, short mask)
{
    int kept = 0;
    if (!set)
        return 0;
    for (int i = 0; i < count; i++) {
        word_t *w = &((word_t *)(void *)set)[fds[i].fd / WORD_BITS], one = (word_t)1 << fds[i].fd % WORD_BITS;
        if (!(*w & one))
            continue;
        if (fds[i].revents & mask)
            kept++;
        else
            *w &= ~one;
    }
    return kept;
}

static bool any_bad(const struct pollfd *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i].revents & POLLNVAL)
            return true;
    }
    return false;
}

struct select {
    int n;
    fd_set *in, *out, *except;
    uint64_t deadline;
    unsigned flags;
    const uint64_t *mask;
};

/* The kernel waits. */
static long select_handed(void *arg, const uint64_t *mask)
{
    const struct select *s = arg;
    const struct {
        const uint64_t *mask;
        size_t size;
    } with = {mask, sizeof *mask};
    struct timespec left;
    return vt_sys6(SYS_pselect6, s->n, (long)s->in, (long)s->out, (long)s->except, (long)vt_timespec_left(s->deadline, &left),
                   (long)&with);
}

/* Waits for the members of the sets as fds, of which there are count. -EINTR as poll_once. */
static long select_once(const struct select *s, struct pollfd *fds, int count)
{
    to_poll(fds, s->n, s->in, s->out, s->except);
    long ret = poll_once(fds, (nfds_t)count, s->deadline, s->flags, s->mask);
    if (ret < 0)
        return ret;
    if (any_bad(fds, count))
        return -EBADF;
    int found = 0;
    for (int i = 0; i < count; i++) {
        short r = fds[i].revents;
        found += ((fds[i].events & POLLIN) && (r & IN_SET)) || ((fds[i].events & POLLOUT) && (r & OUT_SET)) ||
                 ((fds[i].events & POLLPRI) && (r & EXCEPT_SET));
    }
    /* Ready only in a way that the sets do not ask for (POLLHUP of one that is in *out alone) does not count in select,
     * but ends every poll. */
    if (ret > 0 && !found)
        return vt_io_handed("select", select_handed, (void *)s, s->flags, s->mask);
    return keep(s->in, fds, count, IN_SET) + keep(s->out, fds, count, OUT_SET) + keep(s->except, fds, count, EXCEPT_SET);
}

/* In a frame of its own, as large as it must be. */
static __attribute__((noinline)) long select_few(const struct select *s, int count)
{
    struct pollfd fds[count > 0 ? count : 1];
    return select_once(s, fds, count);
}

static long select_many(const struct select *s, int count)
{
    size_t size = (size_t)count * sizeof(struct pollfd);
    struct pollfd *fds = vt_sys_map(size);
    if (!fds)
        return -ENOMEM;
    long ret = select_once(s, fds, count);
    vt_sys2(SYS_munmap, (long)fds, (long)size);
    return ret;
}

/* The kernel looks at no more of the sets than the table of descriptors is long (fs/select.c), and programs rely on it:
 * they say getdtablesize() of sets that are shorter. The library's own descriptors have made the table longer. */
static int as_large(int n)
{
    int table = n > FD_SETSIZE ? vt_fd_table() : n;
    return n < table ? n : table;
}

long vt_call_pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask,
                     size_t size)
{
    uint64_t bits;
    if (n < 0 || (timeout && !valid(timeout)) || (mask && size != sizeof bits))
        return -EINVAL;
    struct select s = {
        .n = as_large(n), .in = in, .out = out, .except = except, .flags = VT_PARK_INTERRUPTIBLE, .mask = mask_of(mask, &bits)};
    if (at_once(timeout, s.mask))
        return select_handed(&s, s.mask); /* a deadline of 0: it does not wait */
    s.deadline = deadline_of(timeout);
    int count = members(s.n, in, out, except);
    for (;;) {
        long ret = count <= FEW ? select_few(&s, count) : select_many(&s, count);
        if (ret != -EINTR || vt_io_interrupted(&s.flags))
            return ret;
    }
}

VT_EXPORT int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
                     struct timeval *restrict timeout)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(select)(vt_on() ? as_large(n) : n, in, out, except, timeout);
    vt_cancel_point();
    if (!timeout)
        return (int)vt_result(vt_call_pselect(n, in, out, except, NULL, NULL, 0));
    if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
        errno = EINVAL;
        return -1;
    }
    /* More than a million microseconds are taken as well. */
    struct timespec t = {.tv_nsec = timeout->tv_usec % 1000000 * 1000};
    if (__builtin_add_overflow(timeout->tv_sec, timeout->tv_usec / 1000000, &t.tv_sec))
        t = (struct timespec){.tv_sec = INT64_MAX, .tv_nsec = 999999999};
    uint64_t deadline = deadline_of(&t);
    long ret = vt_call_pselect(n, in, out, except, &t, NULL, 0);
    if (deadline != VT_NEVER) { /* what is left, as the kernel says it */
        struct timespec left;
        vt_timespec_left(deadline, &left);
        *timeout = (struct timeval){.tv_sec = left.tv_sec, .tv_usec = left.tv_nsec / 1000};
    }
    return (int)vt_result(ret);
}
VT_ALIAS(select, __select);

VT_EXPORT int pselect(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
                      const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
    if (!vt_on() || !vt_is_virtual()) {
        vt_signal_waits_with(mask);
        return vt_real(pselect)(vt_on() ? as_large(n) : n, in, out, except, timeout, mask);
    }
    vt_cancel_point();
    return (int)vt_result(vt_call_pselect(n, in, out, except, timeout, mask, mask ? sizeof(uint64_t) : 0));
}

/* --- epoll ------------------------------------------------------------------------------------------ */

/* Of the threads that wait for one set, by one number, one leads: it waits for the set to report. The others wait in the
 * order in which they came for their turn to lead. Who leads and is done with it, for whatever reason, lets the next one
 * try; which takes what is left there, or leads. So an event wakes the leader and one more, and not all; and what stays
 * ready goes from one to the next, as in the kernel, where the waiters are exclusive.
 *
 * Where some follow, one leads or has just been woken to. */
struct turn {
    struct vt_undo undo; /* first */
    _Atomic uint16_t *leader;
    uint16_t tag; /* what *leader is while one of this generation of the number leads */
    uint32_t bits;
    bool leads;
    bool owes; /* woken to lead, and has not yet */
};

static void turn_undo(struct vt_undo *undo);

static void turn_begin(struct turn *turn, int fd, unsigned generation)
{
    *turn = (struct turn){.leader = &vt_fds[fd].leader,
                          .tag = (uint16_t)(0x8000 | (generation & 0x7fff)),
                          .bits = UINT32_C(1) << generation % 32};
    vt_undo_push(&turn->undo, turn_undo);
}

/* The bucket's lock is held; the word changes before it is taken. */
static bool turn_taken(void *arg)
{
    const struct turn *turn = arg;
    return atomic_load_explicit(turn->leader, memory_order_seq_cst) == turn->tag;
}

static bool turn_take(struct turn *turn)
{
    uint16_t old = atomic_load_explicit(turn->leader, memory_order_relaxed);
    while (old != turn->tag) {
        /* One of an older generation leads nobody of this. */
        if (atomic_compare_exchange_weak_explicit(turn->leader, &old, turn->tag, memory_order_seq_cst, memory_order_relaxed)) {
            turn->leads = true;
            turn->owes = false;
            return true;
        }
    }
    return false;
}

static void turn_end(struct turn *turn)
{
    uint16_t mine = turn->tag;
    if (!turn->leads && !turn->owes)
        return;
    if (turn->leads)
        atomic_compare_exchange_strong_explicit(turn->leader, &mine, 0, memory_order_seq_cst, memory_order_relaxed);
    turn->leads = turn->owes = false;
    vt_unpark(turn->leader, 1, turn->bits);
}

/* It may have been woken to lead, or be about to. */
static void turn_undo(struct vt_undo *undo)
{
    struct turn *turn = (struct turn *)undo;
    turn->owes |= !turn->leads;
    turn_end(turn);
}

/* Waits until the set may have something to report: 1, or as vt_io_ready. */
static int32_t turn_wait(struct turn *turn, int fd, uint64_t deadline, unsigned flags)
{
    if (turn->leads || turn_take(turn))
        return vt_io_ready(fd, POLLIN, deadline, flags);
    turn->owes = false;
    int err = vt_park_on(turn->leader, turn_taken, NULL, turn, deadline, turn->bits, flags | VT_PARK_FOR(VT_WAIT_READY));
    turn->owes = err == 0;
    return err == 0 || err == EAGAIN ? 1 : -err;
}

/* The number has been closed, and may be another's: the set reports nothing any more that could be had. */
static long epoll_gone(uint64_t deadline, unsigned flags)
{
    for (;;) {
        int ret = vt_io_poll(NULL, 0, deadline, flags, NULL);
        if (ret != -EINTR || vt_io_interrupted(&flags))
            return ret;
    }
}

static long epoll_until(int fd, struct epoll_event *events, int max, uint64_t deadline, const uint64_t *during,
                        struct turn *turn)
{
    unsigned flags = VT_PARK_INTERRUPTIBLE, generation = vt_fd_generation(fd);
    bool first = max <= 0 || during || vt_fd_try_first(fd, VT_FD_POLLS);
    bool share = !during && (unsigned)fd < VT_FD_MAX;
    if (share)
        turn_begin(turn, fd, generation);
    for (;;) {
        if (first) {
            long ret = vt_sys6(SYS_epoll_pwait, fd, (long)events, max, 0, 0, 0);
            if (ret != 0) {
                turn_end(turn);
                return ret;
            }
            vt_fd_waited(fd, VT_FD_POLLS);
        }
        int32_t ret;
        if (share) {
            ret = turn_wait(turn, fd, deadline, flags);
        } else {
            struct pollfd one = {.fd = fd, .events = POLLIN};
            ret = vt_io_poll(&one, 1, deadline, flags, during);
            if (ret == 0)
                ret = -ETIMEDOUT;
        }
        if (ret <= 0)
            turn_end(turn);
        if (ret == -EINTR && vt_io_interrupted(&flags))
            return -EINTR;
        if (ret == -EBADF)
            return ret;
        if (vt_fd_generation(fd) != generation) {
            turn_end(turn);
            return ret == -ETIMEDOUT ? 0 : epoll_gone(deadline, flags);
        }
        if (ret < 0 && ret != -EINTR)
            return vt_sys6(SYS_epoll_pwait, fd, (long)events, max, 0, 0, 0);
        first = true;
    }
}

long vt_call_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask,
                          size_t size)
{
    uint64_t bits;
    if (timeout && !valid(timeout))
        return -EINVAL;
    if (mask && size != sizeof bits)
        return -EINVAL;
    const uint64_t *during = mask_of(mask, &bits);
    if (at_once(timeout, during))
        return vt_sys6(SYS_epoll_pwait, fd, (long)events, max, 0, (long)during, sizeof bits);
    struct turn turn = {.leads = false};
    long ret = epoll_until(fd, events, max, deadline_of(timeout), during, &turn);
    if (turn.leader)
        vt_undo_pop(&turn.undo);
    return ret;
}

VT_EXPORT int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(epoll_wait)(fd, events, max, timeout);
    vt_cancel_point();
    struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)vt_result(vt_call_epoll_pwait2(fd, events, max, timeout < 0 ? NULL : &t, NULL, 0));
}

VT_EXPORT int epoll_pwait(int fd, struct epoll_event *events, int max, int timeout, const sigset_t *mask)
{
    if (!vt_on() || !vt_is_virtual()) {
        vt_signal_waits_with(mask);
        return vt_real(epoll_pwait)(fd, events, max, timeout, mask);
    }
    vt_cancel_point();
    struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)vt_result(vt_call_epoll_pwait2(fd, events, max, timeout < 0 ? NULL : &t, mask, mask ? sizeof(uint64_t) : 0));
}

VT_EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask)
{
    if (!vt_on() || !vt_is_virtual()) {
        vt_signal_waits_with(mask);
        return vt_real(epoll_pwait2)(fd, events, max, timeout, mask);
    }
    vt_cancel_point();
    return (int)vt_result(vt_call_epoll_pwait2(fd, events, max, timeout, mask, mask ? sizeof(uint64_t) : 0));
}
