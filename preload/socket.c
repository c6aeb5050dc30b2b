/* Sockets: transfers, accept, connect; and the making of sockets, for the hints. */
#include "call.h"
#include "clock.h"
#include "fd.h"
#include "io.h"
#include "park.h"
#include "sys.h"

#include <linux/io_uring.h>
#include <netinet/in.h>

/* --- receiving -------------------------------------------------------------------------------------- */

/* Flags with which a call never waits. */
#define IN_AS_IS (MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB)

static bool is_stream(int fd)
{
    int type = 0;
    socklen_t length = sizeof type;
    vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&length, 0);
    return type == SOCK_STREAM;
}

bool vt_socket_is_local(int fd)
{
    int domain = 0;
    socklen_t length = sizeof domain;
    vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, (long)&domain, (long)&length, 0);
    return domain == AF_UNIX;
}

bool vt_socket_may_be_shut(int fd)
{
    return vt_socket_is_local(fd) &&
           (!is_stream(fd) || vt_sys6(SYS_sendto, fd, (long)"", 0, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) < 0);
}

/* Receives by the ring, with the sender's address. */
static long recv_with_address(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *length,
                              uint64_t deadline, unsigned *vain)
{
    struct iovec iov = {buf, n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_name = addr, .msg_namelen = length ? *length : 0};
    struct vt_io_req req = {.opcode = IORING_OP_RECVMSG, .fd = fd, .addr = &msg, .len = 1, .op_flags = (uint32_t)flags};
    long ret = vt_wait_in(fd, &req, deadline, vain);
    if (ret >= 0 && length)
        *length = msg.msg_namelen;
    return ret;
}

/* How many bytes of n the call waits for. */
static size_t recv_least(int fd, size_t n, int flags)
{
    int low = 1;
    socklen_t length = sizeof low;
    if (!(flags & MSG_WAITALL)) {
        if (!(vt_fd_bits(fd) & VT_FD_LOWAT))
            return 1;
        vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVLOWAT, (long)&low, (long)&length, 0);
    }
    if (!is_stream(fd) || ((flags & MSG_PEEK) && vt_socket_is_local(fd))) /* looks at what there is */
        return 1;
    return (flags & MSG_WAITALL) || (size_t)low > n ? n : (size_t)low;
}

/* MSG_PEEK for more than what comes first: the kernel waits. */
static long peek_all(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *length)
{
    for (;;) {
        if (vt_fd_nonblocking(fd))
            return vt_sys6(SYS_recvfrom, fd, (long)buf, (long)n, flags, (long)addr, (long)length);
        long ret = VT_HANDED_POINT("recv", vt_sys6(SYS_recvfrom, fd, (long)buf, (long)n, flags, (long)addr, (long)length));
        /* Short at the end, for a handler, when the time is over; or because of our own requests. */
        if (ret <= 0 || (size_t)ret >= n || !vt_handed_in_vain() || vt_poll_now(fd, POLLRDHUP) ||
            vt_fd_deadline(fd, SO_RCVTIMEO) != VT_NEVER)
            return ret;
    }
}

long vt_call_recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *addr, socklen_t *length)
{
    if ((flags & IN_AS_IS) || VT_AS_IS(fd))
        return vt_sys6(SYS_recvfrom, fd, (long)buf, (long)n, flags, (long)addr, (long)length);
    if (n > VT_RW_MAX)
        n = VT_RW_MAX;
    size_t done = 0, least = 1;
    if (__builtin_expect((flags & MSG_WAITALL) || (vt_fd_bits(fd) & VT_FD_LOWAT), 0)) {
        least = recv_least(fd, n, flags);
        if (least > 1 && (flags & MSG_PEEK))
            return peek_all(fd, buf, n, flags, addr, length);
    }
    int once = flags & ~MSG_WAITALL;
    unsigned vain = 0;
    bool first = n == 0 || !vt_io_has_ring() || vt_fd_try_first(fd, VT_FD_READS), asked = false;
    uint64_t deadline = VT_NEVER;
    /* Where the number is closed meanwhile the limit may be of nothing, or of another socket: then again from the start. */
    unsigned generation = vt_fd_generation(fd);
    for (;;) {
        long ret = -EAGAIN;
        char *at = (char *)buf + done;
        if (first) {
            ret = vt_sys6(SYS_recvfrom, fd, (long)at, (long)(n - done), once | MSG_DONTWAIT, (long)addr, (long)length);
            if (ret == -EAGAIN)
                vt_fd_waited(fd, VT_FD_READS);
        }
        if (ret == -EAGAIN) {
            if (!asked) {
                if (vt_fd_nonblocking(fd))
                    return done ? (long)done : vt_sys6(SYS_recvfrom, fd, (long)buf, (long)n, flags, (long)addr, (long)length);
                deadline = vt_fd_deadline_of(fd, SO_RCVTIMEO);
                if (deadline == VT_FD_GONE || vt_fd_generation(fd) != generation) {
                    if (done)
                        return (long)done;
                    generation = vt_fd_generation(fd);
                    first = true;
                    continue;
                }
                asked = true;
            }
            if (addr) {
                ret = recv_with_address(fd, at, n - done, once, addr, length, deadline, &vain);
            } else {
                struct vt_io_req req = {
                    .opcode = IORING_OP_RECV, .fd = fd, .addr = at, .len = (uint32_t)(n - done), .op_flags = (uint32_t)once};
                ret = vt_wait_in(fd, n ? &req : NULL, deadline, &vain);
            }
            if (ret == VT_RETRY) {
                first = true;
                continue;
            }
            if (ret == VT_BLOCK)
                ret = VT_HANDED_POINT("recv",
                                      vt_sys6(SYS_recvfrom, fd, (long)at, (long)(n - done), once, (long)addr, (long)length));
        }
        if (ret <= 0)
            return done ? (long)done : ret;
        vain = 0;
        done += (size_t)ret;
        if (done >= least)
            return (long)done;
        first = true;
    }
}

/* Descriptors that came with a message may be anything, and the sender may be this process. */
static void note_received(const struct msghdr *msg)
{
    if (!msg->msg_control || msg->msg_controllen < sizeof(struct cmsghdr))
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const int *fds = (const int *)(const void *)CMSG_DATA(c);
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            vt_fd_forget(fds[i]);
            vt_fd_set(fds[i], VT_FD_SHARED);
        }
    }
}

static void note_sent(const struct msghdr *msg)
{
    if (!msg->msg_control || msg->msg_controllen < sizeof(struct cmsghdr))
        return;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const int *fds = (const int *)(const void *)CMSG_DATA(c);
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
            vt_fd_set(fds[i], VT_FD_SHARED);
    }
}

static long recvmsg_call(int fd, struct msghdr *msg, int flags);

/* MSG_WAITALL into several pieces. */
static long recv_pieces(int fd, struct msghdr *msg, int flags)
{
    size_t done = 0, begun;
    long ret = recvmsg_call(fd, msg, flags & ~MSG_WAITALL);
    if (ret <= 0 || (msg->msg_flags & MSG_TRUNC) || !is_stream(fd))
        return ret;
    done = begun = (size_t)ret;
    for (size_t i = 0; i < msg->msg_iovlen; i++) {
        const struct iovec *v = &msg->msg_iov[i];
        if (begun >= v->iov_len) {
            begun -= v->iov_len;
            continue;
        }
        ret = vt_call_recvfrom(fd, (char *)v->iov_base + begun, v->iov_len - begun, flags, NULL, NULL);
        if (ret > 0)
            done += (size_t)ret;
        if (ret < 0 || (size_t)ret < v->iov_len - begun)
            break;
        begun = 0;
    }
    return (long)done;
}

static long recvmsg_call(int fd, struct msghdr *msg, int flags)
{
    if ((flags & IN_AS_IS) || VT_AS_IS(fd))
        return vt_sys3(SYS_recvmsg, fd, (long)msg, flags);
    if ((vt_fd_bits(fd) & VT_FD_LOWAT) || (flags & MSG_WAITALL)) {
        /* Ancillary data parts what is received: which, the kernel knows. */
        if (msg->msg_controllen || (flags & MSG_PEEK))
            return VT_HANDED_POINT("recvmsg", vt_sys3(SYS_recvmsg, fd, (long)msg, flags));
        if (flags & MSG_WAITALL)
            return recv_pieces(fd, msg, flags);
        return VT_HANDED_POINT("recvmsg",
                               vt_sys3(SYS_recvmsg, fd, (long)msg, flags)); /* of how many pieces, the kernel knows */
    }
    bool first = !vt_io_has_ring() || vt_fd_try_first(fd, VT_FD_READS), asked = false;
    unsigned vain = 0;
    uint64_t deadline = VT_NEVER;
    unsigned generation = vt_fd_generation(fd);
    for (;;) {
        if (first) {
            long ret = vt_sys3(SYS_recvmsg, fd, (long)msg, flags | MSG_DONTWAIT);
            if (ret != -EAGAIN)
                return ret;
            vt_fd_waited(fd, VT_FD_READS);
        }
        if (!asked) {
            if (vt_fd_nonblocking(fd))
                return vt_sys3(SYS_recvmsg, fd, (long)msg, flags);
            deadline = vt_fd_deadline_of(fd, SO_RCVTIMEO);
            if (deadline == VT_FD_GONE || vt_fd_generation(fd) != generation) { /* as in vt_call_recvfrom */
                generation = vt_fd_generation(fd);
                first = true;
                continue;
            }
            asked = true;
        }
        struct vt_io_req req = {.opcode = IORING_OP_RECVMSG, .fd = fd, .addr = msg, .len = 1, .op_flags = (uint32_t)flags};
        /* A try in vain on a local stream leaves credentials of nobody (SO_PASSCRED) where the control data begins, and the
         * ring's second try puts the right ones behind them, where they are not seen. */
        bool ring = !msg->msg_controllen || !vt_socket_is_local(fd);
        long ret = vt_wait_in(fd, ring ? &req : NULL, deadline, &vain);
        if (ret == VT_BLOCK)
            return VT_HANDED_POINT("recvmsg", vt_sys3(SYS_recvmsg, fd, (long)msg, flags));
        if (ret != VT_RETRY)
            return ret;
        first = true;
    }
}

long vt_call_recvmsg(int fd, struct msghdr *msg, int flags)
{
    long ret = recvmsg_call(fd, msg, flags);
    if (ret >= 0)
        note_received(msg);
    return ret;
}

long vt_call_recvmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags, struct timespec *timeout)
{
    if ((flags & IN_AS_IS) || VT_AS_IS(fd) || count == 0 || (timeout && (timeout->tv_sec < 0 || !vt_nsec_valid(timeout))))
        return vt_sys6(SYS_recvmmsg, fd, (long)msgs, count, flags, (long)timeout, 0);
    if (count > 1024)
        count = 1024; /* as the kernel does */
    /* The kernel looks at the time-out only after each message (recvmmsg(2), BUGS). */
    uint64_t end = timeout ? vt_deadline_in(vt_timespec_ns(timeout)) : VT_NEVER, now = 0;
    unsigned done = 0;
    long ret = 0;
    while (done < count) {
        ret = vt_sys6(SYS_recvmmsg, fd, (long)(msgs + done), count - done, flags | MSG_DONTWAIT, 0, 0);
        if (ret > 0) {
            done += (unsigned)ret;
        } else if (ret == -EAGAIN && !(done && (flags & MSG_WAITFORONE))) {
            ret = vt_call_recvmsg(fd, &msgs[done].msg_hdr, flags & ~MSG_WAITFORONE);
            if (ret < 0)
                break;
            msgs[done++].msg_len = (unsigned)ret;
            if (!timeout || (now = vt_now()) < end)
                continue; /* for what came with it */
        } else {
            break;
        }
        if ((flags & MSG_WAITFORONE) || (timeout && (now = vt_now()) >= end))
            break;
    }
    if (done == 0)
        return ret;
    if (timeout) {
        uint64_t left = now < end ? end - (now ? now : vt_now()) : 0;
        timeout->tv_sec = (time_t)(left / 1000000000u);
        timeout->tv_nsec = (long)(left % 1000000000u);
    }
    for (unsigned i = 0; i < done; i++)
        note_received(&msgs[i].msg_hdr);
    return done;
}

/* --- sending ---------------------------------------------------------------------------------------- */

/* EINPROGRESS: a connection that is opened by the first transfer (TCP_FASTOPEN_CONNECT) is on its way. */
static bool would_block(long ret)
{
    return ret == -EAGAIN || ret == -EINPROGRESS;
}

/* Sends the rest of one piece of which done bytes are out, in a transfer that has sent before bytes. Returns
 * the bytes of this piece that are out, or an error if before and they are 0. */
static long send_piece(struct vt_out *out, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t length,
                       long before)
{
    size_t done = 0;
    if (n > VT_RW_MAX)
        n = VT_RW_MAX;
    for (;;) {
        bool some = before || done;
        long ret = vt_sys6(SYS_sendto, out->fd, (long)((const char *)buf + done), (long)(n - done),
                           flags | MSG_DONTWAIT | (some || out->quiet ? MSG_NOSIGNAL : 0), (long)addr, length);
        if (ret >= 0) {
            done += (size_t)ret;
            if (done >= n || ret == 0)
                return (long)done;
            out->futile = 0;
            continue;
        }
        if (!would_block(ret) || (ret == -EINPROGRESS && vt_fd_nonblocking(out->fd)))
            return some ? (long)done : ret;
        ret = vt_out_wait(out, some ? 1 : 0);
        if (ret == VT_RETRY) {
            ret = VT_HANDED_POINT("send", vt_sys6(SYS_sendto, out->fd, (long)((const char *)buf + done), (long)(n - done),
                                                  flags | (some ? MSG_NOSIGNAL : 0), (long)addr, length));
            if (ret < 0)
                return some ? (long)done : ret;
            done += (size_t)ret;
            if (done >= n || !vt_handed_in_vain()) /* or a handler has cut it short */
                return (long)done;
            out->futile = 0;
            continue;
        }
        if (ret != 0)
            return some ? (long)done : ret;
    }
}

static long sendto_call(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t length)
{
    if ((flags & MSG_DONTWAIT) || VT_AS_IS(fd))
        return vt_sys6(SYS_sendto, fd, (long)buf, (long)n, flags, (long)addr, length);
    if (flags & MSG_FASTOPEN) /* connects */
        return VT_HANDED_POINT("send", vt_sys6(SYS_sendto, fd, (long)buf, (long)n, flags, (long)addr, length));
    struct vt_out out;
    vt_out_start(&out, fd, vt_fd_generation(fd));
    return send_piece(&out, buf, n, flags, addr, length, 0);
}

long vt_call_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *addr, socklen_t length)
{
    return vt_moved(sendto_call(fd, buf, n, flags, addr, length));
}

/* Sends what is left of msg, of which done bytes (more than 0) are out: its control data with them. */
static long send_rest(struct vt_out *out, const struct msghdr *msg, int flags, long done)
{
    const struct iovec *iov = msg->msg_iov;
    size_t count = msg->msg_iovlen, begun = (size_t)done;
    for (;;) {
        while (count && begun >= iov->iov_len) {
            begun -= iov->iov_len;
            iov++;
            count--;
        }
        if (count == 0)
            return done;
        size_t rest = iov->iov_len - begun;
        long ret;
        if (begun || rest >= 16384) {
            ret = send_piece(out, (char *)iov->iov_base + begun, rest, flags, msg->msg_name, msg->msg_namelen, done);
            if (ret <= 0 || (size_t)ret < rest)
                return done + (ret > 0 ? ret : 0);
        } else {
            struct msghdr next = {.msg_iov = (struct iovec *)iov,
                                  .msg_iovlen = count,
                                  .msg_name = msg->msg_name,
                                  .msg_namelen = msg->msg_namelen};
            ret = vt_sys3(SYS_sendmsg, out->fd, (long)&next, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
            if (ret == -EAGAIN) { /* one piece, which waits */
                ret = send_piece(out, iov->iov_base, rest, flags, msg->msg_name, msg->msg_namelen, done);
                if (ret <= 0 || (size_t)ret < rest)
                    return done + (ret > 0 ? ret : 0);
            } else if (ret <= 0) {
                return done;
            }
        }
        done += ret;
        begun += (size_t)ret;
    }
}

static bool complete(const struct msghdr *msg, long done)
{
    size_t total = 0;
    for (size_t i = 0; i < msg->msg_iovlen; i++)
        total += msg->msg_iov[i].iov_len;
    return (size_t)done >= total || (size_t)done >= VT_RW_MAX;
}

static long sendmsg_call(int fd, const struct msghdr *msg, int flags)
{
    if ((flags & MSG_DONTWAIT) || VT_AS_IS(fd))
        return vt_sys3(SYS_sendmsg, fd, (long)msg, flags);
    if (flags & MSG_FASTOPEN)
        return VT_HANDED_POINT("sendmsg", vt_sys3(SYS_sendmsg, fd, (long)msg, flags));
    struct vt_out out;
    vt_out_start(&out, fd, vt_fd_generation(fd));
    for (;;) {
        long ret = vt_sys3(SYS_sendmsg, fd, (long)msg, flags | MSG_DONTWAIT | (out.quiet ? MSG_NOSIGNAL : 0));
        if (ret > 0 && !complete(msg, ret)) {
            out.futile = 0;
            ret = send_rest(&out, msg, flags, ret);
        } else if (would_block(ret) && !(ret == -EINPROGRESS && vt_fd_nonblocking(fd))) {
            ret = vt_out_wait(&out, 0);
            if (ret == 0)
                continue;
            if (ret == VT_RETRY)
                ret = VT_HANDED_POINT("sendmsg", vt_sys3(SYS_sendmsg, fd, (long)msg, flags));
        }
        if (ret >= 0)
            note_sent(msg);
        return ret;
    }
}

long vt_call_sendmsg(int fd, const struct msghdr *msg, int flags)
{
    return vt_moved(sendmsg_call(fd, msg, flags));
}

long vt_call_sendmmsg(int fd, struct mmsghdr *msgs, unsigned count, int flags)
{
    if ((flags & MSG_DONTWAIT) || VT_AS_IS(fd) || count == 0)
        return vt_moved(vt_sys4(SYS_sendmmsg, fd, (long)msgs, count, flags));
    if (count > 1024)
        count = 1024; /* as the kernel does */
    unsigned done = 0;
    while (done < count) {
        long ret = vt_sys4(SYS_sendmmsg, fd, (long)(msgs + done), count - done, flags | MSG_DONTWAIT);
        if (ret > 0) {
            done += (unsigned)ret;
            struct mmsghdr *last = &msgs[done - 1];
            if (!complete(&last->msg_hdr, last->msg_len)) {
                struct vt_out out;
                vt_out_start(&out, fd, vt_fd_generation(fd));
                if (vt_fd_nonblocking(fd))
                    return done;
                last->msg_len = (unsigned)send_rest(&out, &last->msg_hdr, flags, last->msg_len);
                if (!complete(&last->msg_hdr, last->msg_len))
                    return done;
            }
            continue;
        }
        if (!would_block(ret)) {
            vt_moved(ret);
            return done ? (long)done : ret;
        }
        ret = vt_call_sendmsg(fd, &msgs[done].msg_hdr, flags);
        if (ret < 0)
            return done ? (long)done : ret;
        msgs[done++].msg_len = (unsigned)ret;
    }
    return done;
}

/* --- connections ------------------------------------------------------------------------------------ */

static int accepted(int listener, int fd, int flags)
{
    /* The time-outs of the listening socket are inherited. */
    vt_fd_born(fd, VT_FD_SOCKET, flags & SOCK_NONBLOCK, vt_fd_bits(listener) & VT_FD_NO_TIMEO);
    return fd;
}

/* Where there is no ring: whether accept would wait for what readiness shows. Else it fails at once, mostly. */
static bool is_listening(int fd)
{
    int on = 0;
    socklen_t length = sizeof on;
    return vt_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, (long)&on, (long)&length, 0) == 0 && on;
}

/* So many accepts wait without a look first where the last look was in vain. A look costs little beside a connection; a wait
 * that was not needed costs a turn behind all that can run, and connections are refused when they wait for long. */
#define ACCEPTS_UNLOOKED 3

static bool accept_is_ready(int fd)
{
    if (vt_io_has_ring() && !vt_fd_try_first(fd, VT_FD_READS))
        return false;
    if (vt_poll_now(fd, POLLIN))
        return true;
    vt_fd_vain(fd, VT_FD_READS, ACCEPTS_UNLOOKED);
    return false;
}

static long wait_to_accept(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
    if (!vt_io_has_ring() && !is_listening(fd))
        return VT_HANDED_POINT("accept", vt_sys4(SYS_accept4, fd, (long)addr, (long)length, flags));
    struct vt_io_req req = {
        .opcode = IORING_OP_ACCEPT, .fd = fd, .addr = addr, .off = (uint64_t)(uintptr_t)length, .op_flags = (uint32_t)flags};
    uint64_t deadline = vt_fd_deadline(fd, SO_RCVTIMEO);
    long ret;
    do
        ret = vt_wait_for(fd, &req, POLLIN, deadline);
    while (ret == VT_RETRY && !vt_poll_now(fd, POLLIN)); /* others were faster */
    return ret;
}

long vt_call_accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
    long ret = VT_RETRY;
    bool valid = !(flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (valid && !VT_AS_IS(fd) && vt_fd_kind(fd) == VT_FD_SOCKET && !vt_fd_nonblocking(fd) && !accept_is_ready(fd))
        ret = wait_to_accept(fd, addr, length, flags);
    /* Another may take the connection in between. */
    if (ret == VT_RETRY)
        ret = VT_SEEN_POINT("accept", vt_sys4(SYS_accept4, fd, (long)addr, (long)length, flags));
    return ret < 0 ? ret : accepted(fd, (int)ret, flags);
}

long vt_call_connect(int fd, const struct sockaddr *addr, socklen_t length)
{
    if (VT_AS_IS(fd) || vt_fd_kind(fd) != VT_FD_SOCKET || vt_fd_nonblocking(fd))
        return vt_sys3(SYS_connect, fd, (long)addr, length);
    if (!vt_io_has_ring())
        return VT_HANDED_POINT("connect", vt_sys3(SYS_connect, fd, (long)addr, length));
    uint64_t deadline = vt_fd_deadline(fd, SO_SNDTIMEO);
    unsigned flags = vt_restartable(deadline);
    for (;;) {
        struct vt_io_req req = {.opcode = IORING_OP_CONNECT, .fd = fd, .addr = addr, .off = length};
        long ret = vt_io_do(&req, deadline, flags);
        if (ret == -EINTR && !vt_io_interrupted(&flags))
            continue; /* the connection is being made meanwhile: EALREADY comes next */
        if (ret == -ETIMEDOUT && deadline != VT_NEVER && vt_now() >= deadline)
            return vt_socket_is_local(fd) ? -EAGAIN : -EINPROGRESS;
        /* An earlier call that was interrupted has begun it. A blocking one waits for its end, and the next
         * one finds it. */
        if (ret == -EALREADY || ret == -EINPROGRESS || ret == -EAGAIN) {
            if (ret == -EAGAIN) /* a full backlog in the local domain */
                return VT_HANDED_POINT("connect", vt_sys3(SYS_connect, fd, (long)addr, length));
            ret = vt_wait_for(fd, NULL, POLLOUT, deadline);
            if (ret == VT_RETRY)
                continue;
            return ret == -EAGAIN ? -EINPROGRESS : ret;
        }
        return ret;
    }
}

/* --- the names -------------------------------------------------------------------------------------- */

#define VIRTUAL_CALL(type, name, parameters, arguments, call)                                                                  \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        if (!vt_on() || !vt_is_virtual())                                                                                      \
            return vt_real(name) arguments;                                                                                    \
        vt_cancel_point();                                                                                                     \
        return (type)vt_result(call);                                                                                          \
    }

VIRTUAL_CALL(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags),
             vt_call_recvfrom(fd, buf, n, flags, NULL, NULL))
VT_ALIAS(recv, __recv);

/* glibc's headers give addresses as a union that C code converts to; the parameter is a pointer all the same.
 */
VIRTUAL_CALL(ssize_t, recvfrom,
             (int fd, void *restrict buf, size_t n, int flags, __SOCKADDR_ARG addr, socklen_t *restrict length),
             (fd, buf, n, flags, addr, length), vt_call_recvfrom(fd, buf, n, flags, addr.__sockaddr__, length))
VIRTUAL_CALL(int, connect, (int fd, __CONST_SOCKADDR_ARG addr, socklen_t length), (fd, addr, length),
             vt_call_connect(fd, addr.__sockaddr__, length))
VT_ALIAS(connect, __connect);
VIRTUAL_CALL(ssize_t, send, (int fd, const void *buf, size_t n, int flags), (fd, buf, n, flags),
             vt_call_sendto(fd, buf, n, flags, NULL, 0))
VT_ALIAS(send, __send);
VIRTUAL_CALL(ssize_t, sendto, (int fd, const void *buf, size_t n, int flags, __CONST_SOCKADDR_ARG addr, socklen_t length),
             (fd, buf, n, flags, addr, length), vt_call_sendto(fd, buf, n, flags, addr.__sockaddr__, length))
VIRTUAL_CALL(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned count, int flags, struct timespec *timeout),
             (fd, msgs, count, flags, timeout), vt_call_recvmmsg(fd, msgs, count, flags, timeout))

VT_EXPORT ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    if (!vt_on())
        return vt_real(sendmsg)(fd, msg, flags);
    if (!vt_is_virtual()) {
        ssize_t ret = vt_real(sendmsg)(fd, msg, flags);
        if (ret >= 0)
            note_sent(msg);
        return ret;
    }
    vt_cancel_point();
    return vt_result(vt_call_sendmsg(fd, msg, flags));
}

VT_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    if (!vt_on())
        return vt_real(recvmsg)(fd, msg, flags);
    if (!vt_is_virtual()) {
        ssize_t ret = vt_real(recvmsg)(fd, msg, flags);
        if (ret >= 0)
            note_received(msg);
        return ret;
    }
    vt_cancel_point();
    return vt_result(vt_call_recvmsg(fd, msg, flags));
}

VIRTUAL_CALL(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned count, int flags), (fd, msgs, count, flags),
             vt_call_sendmmsg(fd, msgs, count, flags))
VT_ALIAS(sendmmsg, __sendmmsg);

VT_EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t size, int flags)
{
    if (n > size)
        vt_real(__chk_fail)();
    return recv(fd, buf, n, flags);
}

VT_EXPORT ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t n, size_t size, int flags, __SOCKADDR_ARG addr,
                                 socklen_t *restrict length)
{
    if (n > size)
        vt_real(__chk_fail)();
    return recvfrom(fd, buf, n, flags, addr, length);
}

VT_EXPORT int accept(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length)
{
    if (!vt_on())
        return vt_real(accept)(fd, addr, length);
    if (!vt_is_virtual())
        return accepted(fd, vt_real(accept)(fd, addr, length), 0);
    vt_cancel_point();
    return (int)vt_result(vt_call_accept4(fd, addr.__sockaddr__, length, 0));
}

VT_EXPORT int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length, int flags)
{
    if (!vt_on())
        return vt_real(accept4)(fd, addr, length, flags);
    if (!vt_is_virtual())
        return accepted(fd, vt_real(accept4)(fd, addr, length, flags), flags);
    vt_cancel_point();
    return (int)vt_result(vt_call_accept4(fd, addr.__sockaddr__, length, flags));
}

VT_EXPORT int socket(int domain, int type, int protocol)
{
    int fd = vt_real(socket)(domain, type, protocol);
    if (vt_on())
        vt_fd_born(fd, VT_FD_SOCKET, type & SOCK_NONBLOCK, VT_FD_NO_TIMEO);
    return fd;
}
VT_ALIAS(socket, __socket);

VT_EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
    int ret = vt_real(socketpair)(domain, type, protocol, fds);
    if (ret == 0 && vt_on()) {
        vt_fd_born(fds[0], VT_FD_SOCKET, type & SOCK_NONBLOCK, VT_FD_NO_TIMEO);
        vt_fd_born(fds[1], VT_FD_SOCKET, type & SOCK_NONBLOCK, VT_FD_NO_TIMEO);
    }
    return ret;
}

VT_EXPORT int shutdown(int fd, int how)
{
    int ret = vt_real(shutdown)(fd, how);
    if (ret == 0 && vt_on()) {
        bool peers = how != SHUT_WR && vt_socket_is_local(fd); /* what the peer sends is refused from now on */
        if (peers || how != SHUT_RD)
            vt_out_nudge(fd, peers);
    }
    return ret;
}

VT_EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    int ret = vt_real(setsockopt)(fd, level, option, value, length);
    if (ret == 0 && level == SOL_SOCKET && vt_on())
        vt_fd_mark_sockopt(fd, option, value, length);
    return ret;
}
