/* What ends a receive although a call that does not wait finds nothing: shutdown of a datagram socket. And what does not: a
 * message in the error queue, with which the socket is ready all the time. */
#include "check.h"
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { RECV, RECVFROM, RECVMSG, RECVMMSG, RECVMMSG_ONE, READ, READV, ALL, ALL_MSG, PEEK, LIMITED, FORMS };
enum { ROUNDS = 8, RECEIVERS = 2 };

static struct gate blocked = GATE;
static int in;

/* --- shutdown --------------------------------------------------------------------------------------- */

static int udp(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = SYS(socket(AF_INET, SOCK_DGRAM, 0));

    SYS(bind(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

static int udp_connected(void)
{
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    int fd = udp();

    SYS(getsockname(fd, (struct sockaddr *)&at, &length));
    SYS(connect(fd, (struct sockaddr *)&at, length));
    return fd;
}

static int local(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = SYS(socket(AF_UNIX, SOCK_DGRAM, 0));

    SYS(bind(fd, (struct sockaddr *)&at, sizeof at.sun_family));
    return fd;
}

static void *receive_end(void *arg)
{
    char c[2][4];
    struct iovec iov[2] = {{c[0], 1}, {c[1], 3}};
    struct sockaddr_storage from;
    socklen_t length = sizeof from;
    struct msghdr msg = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = iov, .msg_iovlen = 2};
    struct mmsghdr several[2] = {{.msg_hdr = msg, .msg_len = 7}, {.msg_hdr = msg, .msg_len = 7}};

    gate_add(&blocked, 1);
    switch ((int)(intptr_t)arg) {
    case RECV:
    case LIMITED:
        EXPECT(recv(in, c, 4, 0), 0);
        break;
    case RECVFROM:
        EXPECT(recvfrom(in, c, 4, 0, (struct sockaddr *)&from, &length), 0);
        break;
    case RECVMSG:
        EXPECT(recvmsg(in, &msg, 0), 0);
        break;
    case RECVMMSG:
        EXPECT(recvmmsg(in, several, 2, 0, NULL), 2);
        EXPECT(several[0].msg_len, 0);
        EXPECT(several[1].msg_len, 0);
        break;
    case RECVMMSG_ONE:
        EXPECT(recvmmsg(in, several, 2, MSG_WAITFORONE, NULL), 1);
        EXPECT(several[0].msg_len, 0);
        break;
    case READ:
        EXPECT(read(in, c, 4), 0);
        break;
    case READV:
        EXPECT(readv(in, iov, 2), 0);
        break;
    case ALL:
        EXPECT(recv(in, c, 4, MSG_WAITALL), 0);
        break;
    case ALL_MSG:
        EXPECT(recvmsg(in, &msg, MSG_WAITALL), 0);
        break;
    case PEEK:
        EXPECT(recv(in, c, 4, MSG_PEEK), 0);
        break;
    }
    return NULL;
}

static void shut(const char *name, int (*make)(void))
{
    for (int i = 0; i < ROUNDS * FORMS; i++) {
        int form = i % FORMS, round = i / FORMS;
        struct timeval limit = {100, 0};
        pthread_t receivers[RECEIVERS];
        in = make();
        if (form == LIMITED)
            SYS(setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
        blocked.count = 0;
        for (int r = 0; r < RECEIVERS; r++)
            receivers[r] = start_number(receive_end, form);
        gate_wait(&blocked, RECEIVERS);
        if (round % 2)
            sched_yield();
        if (round % 4 == 3)
            sleep_us(2000);
        if (shutdown(in, round % 4 < 2 ? SHUT_RDWR : SHUT_RD) == -1) /* which does its work all the same */
            EXPECT(errno, ENOTCONN);
        for (int r = 0; r < RECEIVERS; r++)
            join(receivers[r]);
        SYS(close(in));
    }
    puts(name);
}

/* --- the error queue -------------------------------------------------------------------------------- */

static struct sockaddr_in in_at;
static _Atomic int handled, ended;

static void handle(int number)
{
    (void)number;
    handled++;
}

static void limit_in(int fd, int ms)
{
    struct timeval limit = {ms / 1000, ms % 1000 * 1000};

    SYS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

/* A socket that reports an error that has been told already. */
static int refused(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK | (uint32_t)getpid() % 60000 << 8 | 2)};
    socklen_t length = sizeof at;
    int gone = SYS(socket(AF_INET, SOCK_DGRAM, 0)), fd = udp(), on = 1;
    char c;

    SYS(bind(gone, (struct sockaddr *)&at, sizeof at)); /* an address that nobody else uses */
    SYS(getsockname(gone, (struct sockaddr *)&at, &length));
    SYS(close(gone));
    SYS(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
    EXPECT(sendto(fd, "x", 1, 0, (struct sockaddr *)&at, sizeof at), 1);
    EXPECT_ERRNO(recv(fd, &c, 1, 0), ECONNREFUSED);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    EXPECT(poll(&p, 1, 0), 1);
    EXPECT(p.revents, POLLERR);
    length = sizeof in_at;
    SYS(getsockname(fd, (struct sockaddr *)&in_at, &length));
    return fd;
}

static void *receive_one(void *arg)
{
    char c = 0;

    gate_add(&blocked, 1);
    if (arg) {
        struct iovec iov = {&c, 1};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        EXPECT(recvmsg(in, &msg, 0), 1);
    } else {
        EXPECT(recv(in, &c, 1, 0), 1);
    }
    EXPECT(c, 'x');
    return NULL;
}

static void *receive_never(void *arg)
{
    char c;

    gate_add(&blocked, 1);
    recv(in, &c, 1, 0);
    FAIL("received");
    return arg;
}

static void *receive_interrupted(void *arg)
{
    char c;

    gate_add(&blocked, 1);
    EXPECT_ERRNO(recv(in, &c, 1, 0), EINTR);
    CHECK(handled > 0);
    ended = 1;
    return arg;
}

static void *errors(void *arg)
{
    struct mmsghdr none = {.msg_len = 0};
    char c;

    in = refused();
    limit_in(in, 20);
    EXPECT_ERRNO(recv(in, &c, 1, 0), EAGAIN);
    EXPECT_ERRNO(read(in, &c, 1), EAGAIN);
    EXPECT_ERRNO(recvmsg(in, &none.msg_hdr, 0), EAGAIN);
    EXPECT_ERRNO(recvmmsg(in, &none, 1, 0, NULL), EAGAIN);
    limit_in(in, 100000);
    for (int i = 0; i < 20; i++) {
        int fd = SYS(socket(AF_INET, SOCK_DGRAM, 0));
        if (i == 10)
            limit_in(in, 0);
        blocked.count = 0;
        pthread_t a = start(receive_one, NULL), b = start_number(receive_one, 1);
        gate_wait(&blocked, 2);
        if (i % 2)
            sleep_us(1000);
        EXPECT(sendto(fd, "x", 1, 0, (struct sockaddr *)&in_at, sizeof in_at), 1);
        EXPECT(sendto(fd, "x", 1, 0, (struct sockaddr *)&in_at, sizeof in_at), 1);
        join(a);
        join(b);
        SYS(close(fd));
    }
    SYS(close(in));
    puts("datagrams past errors");
    return arg;
}

static void *interrupted(void *arg)
{
    struct sigaction action = {.sa_handler = handle};

    SYS(sigaction(SIGUSR1, &action, NULL));
    in = refused();
    for (int i = 0; i < 20; i++) {
        limit_in(in, i % 4 < 2 ? 0 : 100000);
        blocked.count = 0;
        handled = ended = 0;
        pthread_t a = start(receive_never, NULL);
        gate_wait(&blocked, 1);
        if (i % 2)
            sleep_us(1000);
        ZERO(pthread_cancel(a));
        CHECK(join(a) == PTHREAD_CANCELED);
        a = start(receive_interrupted, NULL);
        gate_wait(&blocked, 2);
        while (!ended) {
            ZERO(pthread_kill(a, SIGUSR1));
            sleep_us(500); /* the signal may come before the call */
        }
        join(a);
    }
    SYS(close(in));
    puts("cancelled and interrupted");
    return arg;
}

/* --- all of it -------------------------------------------------------------------------------------- */

static void *receive_all(void *arg)
{
    char page[7] = "";

    gate_add(&blocked, 1);
    EXPECT(recv(in, page, 6, MSG_WAITALL), 6);
    EXPECT_STR(page, "abcdef");
    return arg;
}

/* A stream with the time of a byte sent in its error queue. */
static void *stream(void *arg)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = SYS(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    int times = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    char page[6];

    SYS(bind(listener, (struct sockaddr *)&at, sizeof at));
    SYS(listen(listener, 1));
    SYS(getsockname(listener, (struct sockaddr *)&at, &length));
    in = SYS(socket(AF_INET, SOCK_STREAM, 0));
    SYS(connect(in, (struct sockaddr *)&at, length));
    int out = SYS(accept(listener, NULL, NULL));
    SYS(setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    SYS(setsockopt(in, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof times));
    EXPECT(send(in, "x", 1, 0), 1);
    struct pollfd p = {.fd = in};
    EXPECT(poll(&p, 1, -1), 1);
    EXPECT(p.revents, POLLERR);
    for (int i = 0; i < 20; i++) {
        blocked.count = 0;
        pthread_t a = start(receive_all, NULL);
        gate_wait(&blocked, 1);
        for (int part = 0; part < 3; part++) {
            if (i % 2)
                sleep_us(1000);
            write_all(out, "abcdef" + 2 * part, 2);
        }
        join(a);
    }
    limit_in(in, 20);
    write_all(out, "abc", 3);
    EXPECT(recv(in, page, 6, MSG_WAITALL), 3);
    SYS(close(in)), SYS(close(out)), SYS(close(listener));
    puts("all of a stream past errors");
    return arg;
}

int main(int argc, char **argv)
{
    begin(30);
    if (argc > 1 && strcmp(argv[1], "interrupted") == 0) {
        join(start(interrupted, NULL));
        return finish();
    }
    shut("UDP", udp);
    shut("UDP, connected", udp_connected);
    shut("the local domain", local);
    join(start(errors, NULL));
    join(start(stream, NULL));
    return finish();
}
