/* A thread for each connection, with every form of send and receive; accept, connect, datagrams, flags and
 * errors. */
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { CLIENTS = 48, MESSAGES = 24, MAX_SIZE = 3000 };

static int listener;
static struct sockaddr_in address = {.sin_family = AF_INET};

static ssize_t send_some(int fd, char *data, size_t n, int form)
{
    struct iovec v[2] = {{data, n / 2}, {data + n / 2, n - n / 2}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    struct mmsghdr mm = {.msg_hdr = m};

    switch (form % 6) {
    case 0:
        return write(fd, data, n);
    case 1:
        return send(fd, data, n, MSG_NOSIGNAL);
    case 2:
        return sendto(fd, data, n, 0, NULL, 0);
    case 3:
        return sendmsg(fd, &m, 0);
    case 4:
        return SYS(sendmmsg(fd, &mm, 1, 0)) == 1 ? (ssize_t)mm.msg_len : -1;
    default:
        return writev(fd, v, 2);
    }
}

static ssize_t receive_some(int fd, char *data, size_t n, int form)
{
    struct iovec v[2] = {{data, n / 2}, {data + n / 2, n - n / 2}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    struct mmsghdr mm = {.msg_hdr = m};

    switch (form % 6) {
    case 0:
        return read(fd, data, n);
    case 1:
        return recv(fd, data, n, 0);
    case 2:
        return recvfrom(fd, data, n, 0, NULL, NULL);
    case 3:
        return recvmsg(fd, &m, 0);
    case 4:
        return SYS(recvmmsg(fd, &mm, 1, 0, NULL)) == 1 ? (ssize_t)mm.msg_len : -1;
    default:
        return readv(fd, v, 2);
    }
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg, form = 0;
    char data[1000];
    ssize_t n;

    while ((n = SYS(receive_some(fd, data, sizeof data, form))) > 0)
        for (ssize_t at = 0, m; at < n; at += m)
            m = SYS(send_some(fd, data + at, (size_t)(n - at), ++form));
    SYS(close(fd));
    return NULL;
}

static void *accept_all(void *arg)
{
    pthread_t servers[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        int fd;
        if (i % 2) {
            fd = SYS(accept(listener, (struct sockaddr *)&peer, &size));
            EXPECT(fcntl(fd, F_GETFD), 0);
        } else {
            fd = SYS(accept4(listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC));
            EXPECT(fcntl(fd, F_GETFD), FD_CLOEXEC);
        }
        EXPECT(fcntl(fd, F_GETFL), O_RDWR);
        EXPECT(size, sizeof peer);
        EXPECT(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
        servers[i] = start_number(serve, fd);
    }
    for (int i = 0; i < CLIENTS; i++)
        join(servers[i]);
    return arg;
}

static void *call(void *arg)
{
    int id = (int)(intptr_t)arg, fd = SYS(socket(AF_INET, SOCK_STREAM, 0));
    char out[MAX_SIZE], in[MAX_SIZE];

    SYS(connect(fd, (struct sockaddr *)&address, sizeof address));
    EXPECT_ERRNO(connect(fd, (struct sockaddr *)&address, sizeof address), EISCONN);
    for (int i = 0; i < MESSAGES; i++) {
        size_t n = (size_t)(1 + (id * 97 + i * 389) % MAX_SIZE), at = 0;
        for (size_t j = 0; j < n; j++)
            out[j] = (char)(id + i + (int)j);
        EXPECT(send_some(fd, out, n, id + i), (long)n);
        while (at < n) {
            ssize_t m = SYS(receive_some(fd, in + at, n - at, id + i + (int)at));
            CHECK(m > 0);
            at += (size_t)m;
        }
        EXPECT(memcmp(in, out, n), 0);
    }
    SYS(shutdown(fd, SHUT_WR));
    EXPECT(recv(fd, in, 1, 0), 0);
    SYS(close(fd));
    return NULL;
}

static int listen_here(struct sockaddr_in *at)
{
    socklen_t size = sizeof *at;
    int fd = SYS(socket(AF_INET, SOCK_STREAM, 0));

    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at->sin_port = 0;
    SYS(bind(fd, (struct sockaddr *)at, sizeof *at));
    SYS(listen(fd, CLIENTS));
    SYS(getsockname(fd, (struct sockaddr *)at, &size));
    return fd;
}

static int pair[2];

static void *send_parts(void *arg)
{
    for (int i = 0; i < 10; i++) {
        write_all(pair[1], "0123456789", 10);
        sched_yield();
    }
    return arg;
}

static void *flags(void *arg)
{
    char data[200];
    int n;

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    EXPECT_ERRNO(recv(pair[0], data, 1, MSG_DONTWAIT), EAGAIN);
    pthread_t t = start(send_parts, NULL);
    EXPECT(recv(pair[0], data, 1, MSG_PEEK), 1);
    EXPECT(data[0], '0');
    EXPECT(recv(pair[0], data, 100, MSG_WAITALL), 100);
    for (int i = 0; i < 100; i++)
        EXPECT(data[i], '0' + i % 10);
    join(t);
    write_all(pair[1], "abc", 3);
    EXPECT(recv(pair[0], data, 10, MSG_PEEK), 3);
    SYS(ioctl(pair[0], FIONREAD, &n));
    EXPECT(n, 3);
    int copy = SYS(dup(pair[0]));
    EXPECT(read(copy, data, 10), 3);
    EXPECT_ERRNO(recv(pair[0], data, 1, MSG_DONTWAIT), EAGAIN);
    SYS(close(copy));
    SYS(close(pair[1]));
    EXPECT(recv(pair[0], data, 1, 0), 0);
    EXPECT_ERRNO(send(pair[0], data, 1, MSG_NOSIGNAL), EPIPE);
    SYS(close(pair[0]));
    EXPECT_ERRNO(recv(pair[0], data, 1, 0), EBADF);
    EXPECT_ERRNO(recv(STDIN_FILENO, data, 1, 0), ENOTSOCK);
    return arg;
}

static void *refused(void *arg)
{
    struct sockaddr_in nobody = address;
    int gone = listen_here(&nobody), fd = SYS(socket(AF_INET, SOCK_STREAM, 0));

    SYS(close(gone));
    EXPECT_ERRNO(connect(fd, (struct sockaddr *)&nobody, sizeof nobody), ECONNREFUSED);
    SYS(close(fd));
    EXPECT_ERRNO(accept(fd, NULL, NULL), EBADF);
    return arg;
}

/* What does not listen accepts nothing, and says so at once. */
static void *not_listening(void *arg)
{
    int pairs[2][2], fresh = SYS(socket(AF_INET, SOCK_STREAM, 0)), udp = SYS(socket(AF_INET, SOCK_DGRAM, 0));
    int local = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), pipes[2];

    EXPECT_ERRNO(accept(fresh, NULL, NULL), EINVAL);
    EXPECT_ERRNO(accept(local, NULL, NULL), EINVAL);
    EXPECT_ERRNO(accept(udp, NULL, NULL), EOPNOTSUPP);
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[0]));
    EXPECT_ERRNO(accept4(pairs[0][0], NULL, NULL, SOCK_CLOEXEC), EINVAL);
    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pairs[1]));
    EXPECT_ERRNO(accept(pairs[1][0], NULL, NULL), EOPNOTSUPP);
    SYS(pipe(pipes));
    EXPECT_ERRNO(accept(pipes[0], NULL, NULL), ENOTSOCK);
    int connected = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in at = {.sin_family = AF_INET};
    int other = listen_here(&at);
    SYS(connect(connected, (struct sockaddr *)&at, sizeof at));
    EXPECT_ERRNO(accept(connected, NULL, NULL), EINVAL);
    int accepted = SYS(accept(other, NULL, NULL));
    EXPECT_ERRNO(accept(accepted, NULL, NULL), EINVAL);
    SYS(close(accepted)), SYS(close(connected)), SYS(close(other)), SYS(close(fresh)), SYS(close(udp)), SYS(close(local));
    for (int i = 0; i < 2; i++)
        SYS(close(pairs[0][i])), SYS(close(pairs[1][i])), SYS(close(pipes[i]));
    return arg;
}

static int datagrams[2];

static void *send_datagrams(void *arg)
{
    char data[100];

    for (int i = 0; i < 50; i++) {
        memset(data, i, sizeof data);
        EXPECT(send_some(datagrams[1], data, (size_t)i + 1, i), i + 1);
    }
    return arg;
}

static void *datagram(void *arg)
{
    char data[4][100];
    struct iovec v[4];
    struct mmsghdr m[4];

    SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
    pthread_t t = start(send_datagrams, NULL);
    for (int i = 0; i < 38; i++) {
        /* Each keeps its bounds; what does not fit is cut off. */
        ssize_t n = SYS(receive_some(datagrams[0], data[0], i % 6 == 1 ? 1 : 100, i));
        EXPECT(n, i % 6 == 1 ? 1 : i + 1);
        EXPECT(data[0][0], i);
    }
    for (int left = 12; left > 0;) {
        for (int j = 0; j < 4; j++) {
            v[j] = (struct iovec){data[j], 100};
            m[j] = (struct mmsghdr){.msg_hdr = {.msg_iov = &v[j], .msg_iovlen = 1}};
        }
        int n = SYS(recvmmsg(datagrams[0], m, 4, MSG_WAITFORONE, NULL));
        CHECK(n > 0 && n <= 4);
        for (int j = 0; j < n; j++, left--)
            EXPECT(m[j].msg_len, 50 - left + 1);
    }
    join(t);
    SYS(close(datagrams[0]));
    SYS(close(datagrams[1]));
    return arg;
}

int main(void)
{
    begin(20);
    listener = listen_here(&address);
    pthread_t acceptor = start(accept_all, NULL);
    in_threads(CLIENTS, call);
    join(acceptor);
    puts("connections");
    join(start(flags, NULL));
    puts("flags");
    join(start(refused, NULL));
    puts("refused");
    join(start(not_listening, NULL));
    puts("nothing listens");
    join(start(datagram, NULL));
    puts("datagrams");
    return finish();
}
