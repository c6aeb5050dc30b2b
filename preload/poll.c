/* poll, select and epoll.
 *
 * The scheduler waits for a few descriptors; many of them, or a signal mask to be set meanwhile, are left to
 * the kernel's call with the place handed over. */
#include "call.h"
#include "clock.h"
#include "fd.h"
#include "io.h"
#include "park.h"
#include "sys.h"

#include <signal.h>
#include <sys/time.h>

#define FEW 32 /* more members of select's sets are not worth translating */

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

/* Whether the mask is another than that which the thread has. */
static bool mask_differs(const sigset_t *mask, size_t size)
{
    if (!mask || size != sizeof(uint64_t))
        return mask != NULL;
    uint64_t now;
    if (vt_sys4(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&now, sizeof now) < 0)
        return true;
    return __builtin_memcmp(&now, mask, sizeof now) != 0;
}

/* --- poll ------------------------------------------------------------------------------------------- */

/* Nothing to wait for but the time: 0 or -EINTR. */
static long poll_nothing(uint64_t deadline)
{
    _Atomic uint32_t word = 0;
    unsigned flags = VT_PARK_INTERRUPTIBLE;
    for (;;) {
        int ret = vt_park(&word, 0, deadline, VT_BITS_ALL, flags);
        if (ret == ETIMEDOUT)
            return 0;
        if (ret == EINTR && vt_io_interrupted(&flags))
            return -EINTR;
    }
}

/* The commonest case, without a second look when the event has come. */
static long poll_one(struct pollfd *p, uint64_t deadline)
{
    unsigned flags = VT_PARK_INTERRUPTIBLE;
    if (vt_fd_try_first(p->fd, VT_FD_POLLS)) {
        long ret = vt_sys3(SYS_poll, (long)p, 1, 0);
        if (ret != 0)
            return ret;
        vt_fd_waited(p->fd, VT_FD_POLLS);
    }
    for (;;) {
        int32_t events = vt_io_ready(p->fd, p->events, deadline, flags);
        if (events == -EINTR && !vt_io_interrupted(&flags))
            continue;
        if (events > 0) {
            p->revents = (short)(events & (p->events | POLLERR | POLLHUP | POLLNVAL));
            if (p->revents)
                return 1;
            continue;
        }
        p->revents = 0;
        if (events == -ETIMEDOUT)
            return 0;
        if (events == -EINTR)
            return -EINTR;
        return vt_sys3(SYS_poll, (long)p, 1, 0); /* a bad descriptor, or one that is always ready */
    }
}

static long poll_wait(struct pollfd *fds, nfds_t n, uint64_t deadline)
{
    unsigned flags = VT_PARK_INTERRUPTIBLE;
    if (n == 0)
        return poll_nothing(deadline);
    if (n == 1 && fds->fd >= 0)
        return poll_one(fds, deadline);
    for (;;) {
        int ret = vt_io_poll(fds, n, deadline, flags);
        if (ret != -EINTR || vt_io_interrupted(&flags))
            return ret;
    }
}

long vt_call_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                   size_t size)
{
    struct timespec left;
    if (timeout && !valid(timeout))
        return -EINVAL;
    uint64_t deadline = deadline_of(timeout);
    if (zero(timeout)) {
        left = *timeout; /* the kernel's call writes it */
        return vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)&left, (long)mask, (long)size, 0);
    }
    if (mask_differs(mask, size))
        return VT_HANDED_CALL("ppoll",
                              vt_sys6(SYS_ppoll, (long)fds, (long)n, (long)vt_timespec_left(deadline, &left),
                                      (long)mask, (long)size, 0));
    return poll_wait(fds, n, deadline);
}

VT_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(poll)(fds, n, timeout);
    vt_cancel_point();
    struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)vt_result(vt_call_ppoll(fds, n, timeout < 0 ? NULL : &t, NULL, 0));
}
VT_ALIAS(poll, __poll);

VT_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(ppoll)(fds, n, timeout, mask);
    vt_cancel_point();
    return (int)vt_result(vt_call_ppoll(fds, n, timeout, mask, mask ? sizeof(uint64_t) : 0));
}

VT_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
    if (size / sizeof *fds < n)
        __chk_fail();
    return poll(fds, n, timeout);
}

VT_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                          size_t size)
{
    if (size / sizeof *fds < n)
        __chk_fail();
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

/* Waits for fds. Ready only in ways that the sets do not ask for (POLLHUP of one that is in *out alone) does
 * not count, as in select. VT_RETRY: leave it to the kernel. */
static long select_wait(struct pollfd *fds, int count, int n, fd_set *in, fd_set *out, fd_set *except,
                        uint64_t deadline)
{
    to_poll(fds, n, in, out, except);
    long ret = poll_wait(fds, (nfds_t)count, deadline);
    if (ret < 0)
        return ret;
    if (any_bad(fds, count))
        return VT_RETRY;
    int found = 0;
    for (int i = 0; i < count; i++) {
        short r = fds[i].revents;
        found += ((fds[i].events & POLLIN) && (r & IN_SET)) || ((fds[i].events & POLLOUT) && (r & OUT_SET)) ||
                 ((fds[i].events & POLLPRI) && (r & EXCEPT_SET));
    }
    if (ret > 0 && !found)
        return VT_RETRY;
    return keep(in, fds, count, IN_SET) + keep(out, fds, count, OUT_SET) +
           keep(except, fds, count, EXCEPT_SET);
}

/* In a frame of its own, as large as it must be. */
static __attribute__((noinline)) long select_few(int count, int n, fd_set *in, fd_set *out, fd_set *except,
                                                 uint64_t deadline)
{
    struct pollfd fds[count > 0 ? count : 1];
    return select_wait(fds, count, n, in, out, except, deadline);
}

long vt_call_pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,
                     const sigset_t *mask, size_t size)
{
    struct {
        const sigset_t *mask;
        size_t size;
    } with = {mask, size};
    struct timespec left;
    if (n < 0 || (timeout && !valid(timeout)))
        return -EINVAL;
    uint64_t deadline = deadline_of(timeout);
    bool differs = mask_differs(mask, size);
    if (!differs && !zero(timeout)) {
        int count = n > 0 ? members(n, in, out, except) : 0;
        if (count <= FEW) {
            long ret = select_few(count, n, in, out, except, deadline);
            if (ret != VT_RETRY)
                return ret;
        }
    }
    const struct timespec *t = vt_timespec_left(deadline, &left);
    if (zero(timeout) && !differs)
        return vt_sys6(SYS_pselect6, n, (long)in, (long)out, (long)except, (long)t, 0);
    return VT_HANDED_CALL("select", vt_sys6(SYS_pselect6, n, (long)in, (long)out, (long)except, (long)t,
                                            mask ? (long)&with : 0));
}

VT_EXPORT int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
                     struct timeval *restrict timeout)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(select)(n, in, out, except, timeout);
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
    if (!vt_on() || !vt_is_virtual())
        return vt_real(pselect)(n, in, out, except, timeout, mask);
    vt_cancel_point();
    return (int)vt_result(vt_call_pselect(n, in, out, except, timeout, mask, mask ? sizeof(uint64_t) : 0));
}

/* --- epoll ------------------------------------------------------------------------------------------ */

long vt_call_epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout,
                          const sigset_t *mask, size_t size)
{
    if (timeout && !valid(timeout))
        return -EINVAL;
    uint64_t deadline = deadline_of(timeout);
    if (!zero(timeout) && mask_differs(mask, size)) {
        struct timespec left;
        long ret = VT_HANDED_CALL("epoll_pwait",
                                  vt_sys6(SYS_epoll_pwait2, fd, (long)events, max,
                                          (long)vt_timespec_left(deadline, &left), (long)mask, (long)size));
        if (ret != -ENOSYS)
            return ret;
        const struct timespec *t = vt_timespec_left(deadline, &left);
        int ms =
            t ? (int)((t->tv_sec > 2000000 ? 2000000 : t->tv_sec) * 1000 + (t->tv_nsec + 999999) / 1000000)
              : -1;
        return VT_HANDED_CALL("epoll_pwait",
                              vt_sys6(SYS_epoll_pwait, fd, (long)events, max, ms, (long)mask, (long)size));
    }
    unsigned flags = VT_PARK_INTERRUPTIBLE;
    bool first = zero(timeout) || max <= 0 || vt_fd_try_first(fd, VT_FD_POLLS);
    for (;;) {
        if (first) {
            long ret = vt_sys4(SYS_epoll_wait, fd, (long)events, max, 0);
            if (ret != 0 || zero(timeout))
                return ret;
            vt_fd_waited(fd, VT_FD_POLLS);
        }
        /* Whoever comes first takes the event; the others wait again. */
        int32_t ret = vt_io_ready(fd, POLLIN, deadline, flags);
        if (ret == -EINTR && vt_io_interrupted(&flags))
            return -EINTR;
        if (ret == -ETIMEDOUT || ret == -EBADF || ret == -EPERM)
            return vt_sys4(SYS_epoll_wait, fd, (long)events, max, 0);
        first = ret != -EINTR;
    }
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
    if (!vt_on() || !vt_is_virtual())
        return vt_real(epoll_pwait)(fd, events, max, timeout, mask);
    vt_cancel_point();
    struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)vt_result(
        vt_call_epoll_pwait2(fd, events, max, timeout < 0 ? NULL : &t, mask, mask ? sizeof(uint64_t) : 0));
}

VT_EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int max, const struct timespec *timeout,
                           const sigset_t *mask)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(epoll_pwait2)(fd, events, max, timeout, mask);
    vt_cancel_point();
    return (int)vt_result(vt_call_epoll_pwait2(fd, events, max, timeout, mask, mask ? sizeof(uint64_t) : 0));
}
