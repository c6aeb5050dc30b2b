/* What is particular to sockets of the local domain: credentials, senders that the peer's shutdown or end stops, a backlog that
 * is full; and, of all kinds, low-water marks of several buffers. */
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { ROUNDS = 20 };

static int pair[2];
static struct gate blocked = GATE;
static volatile sig_atomic_t broken;

static void handle(int number)
{
    (void)number;
    broken++;
}

/* --- credentials ------------------------------------------------------------------------------------ */

static void *send_two(void *arg)
{
    gate_wait(&blocked, 1);
    if (arg)
        sleep_us(2000);
    EXPECT(write(pair[1], "ab", 2), 2);
    return NULL;
}

static void *credentials(void *arg)
{
    int on = 1;

    for (int i = 0; i < ROUNDS; i++) {
        union {
            struct cmsghdr h;
            char space[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        char c[4];
        struct iovec iov = {c, sizeof c};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        struct ucred peer;
        SYS(socketpair(AF_UNIX, i % 3 ? SOCK_STREAM : SOCK_SEQPACKET, 0, pair));
        SYS(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
        blocked.count = 0;
        pthread_t sender = start_number(send_two, i % 2);
        gate_add(&blocked, 1);
        EXPECT(recvmsg(pair[0], &msg, 0), 2);
        EXPECT(msg.msg_flags, 0);
        EXPECT(msg.msg_controllen, CMSG_SPACE(sizeof peer));
        memcpy(&peer, CMSG_DATA(&control.h), sizeof peer);
        EXPECT(peer.pid, getpid());
        EXPECT(peer.uid, getuid());
        join(sender);
        SYS(close(pair[0]));
        SYS(close(pair[1]));
    }
    return arg;
}

/* --- senders ---------------------------------------------------------------------------------------- */

enum { SEND, WRITE, SENDMSG, FORMS };

static int wanted;

static void *send_until_stopped(void *arg)
{
    static char data[8192];
    struct iovec iov = {data, sizeof data};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    while (send(pair[1], data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    EXPECT(errno, EAGAIN);
    while (send(pair[1], data, 1, MSG_DONTWAIT) > 0)
        ;
    gate_add(&blocked, 1);
    switch ((int)(intptr_t)arg) {
    case SEND:
        EXPECT_ERRNO(send(pair[1], data, sizeof data, 0), wanted);
        break;
    case WRITE:
        EXPECT_ERRNO(write(pair[1], data, sizeof data), wanted);
        break;
    case SENDMSG:
        EXPECT_ERRNO(sendmsg(pair[1], &msg, 0), wanted);
        break;
    }
    return NULL;
}

static void stopped(int type, int how, int end)
{
    for (int i = 0; i < ROUNDS; i++) {
        SYS(socketpair(AF_UNIX, type, 0, pair));
        wanted = EPIPE;
        blocked.count = 0;
        pthread_t sender = start_number(send_until_stopped, i % FORMS);
        gate_wait(&blocked, 1);
        if (i % 2)
            sleep_us(2000);
        SYS(shutdown(pair[end], how));
        join(sender);
        SYS(close(pair[0]));
        SYS(close(pair[1]));
    }
}

/* --- a full backlog --------------------------------------------------------------------------------- */

static void *refused(void *arg)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct timeval limit = {0, 20000};
    int listener = SYS(socket(AF_UNIX, SOCK_STREAM, 0)), first = SYS(socket(AF_UNIX, SOCK_STREAM, 0)),
        second = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    socklen_t length = sizeof at;

    SYS(bind(listener, (struct sockaddr *)&at, sizeof at.sun_family));
    SYS(getsockname(listener, (struct sockaddr *)&at, &length));
    SYS(listen(listener, 0));
    EXPECT_ERRNO(accept4(listener, NULL, NULL, 0x1234), EINVAL);
    SYS(connect(first, (struct sockaddr *)&at, length));
    SYS(setsockopt(second, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    EXPECT_ERRNO(connect(second, (struct sockaddr *)&at, length), EAGAIN);
    SYS(close(listener));
    SYS(close(first));
    SYS(close(second));
    return arg;
}

/* --- low-water marks -------------------------------------------------------------------------------- */

static void *send_four(void *arg)
{
    for (int i = 0; i < 4; i++) {
        EXPECT(write(pair[1], "x", 1), 1);
        sleep_us(300);
    }
    return arg;
}

static void *low_water(void *arg)
{
    int low = 4;

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SYS(setsockopt(pair[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    for (int i = 0; i < ROUNDS; i++) {
        char c[2][8];
        struct iovec iov[2] = {{c[0], 3}, {c[1], 8}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        pthread_t sender = start(send_four, NULL);
        EXPECT(i % 2 ? readv(pair[0], iov, 2) : recvmsg(pair[0], &msg, 0), 4);
        join(sender);
    }
    SYS(close(pair[0]));
    SYS(close(pair[1]));
    return arg;
}

int main(void)
{
    begin(30);
    signal(SIGPIPE, handle);
    join(start(credentials, NULL));
    puts("credentials");
    stopped(SOCK_STREAM, SHUT_RD, 0);
    stopped(SOCK_SEQPACKET, SHUT_RD, 0);
    stopped(SOCK_STREAM, SHUT_RDWR, 0);
    stopped(SOCK_STREAM, SHUT_WR, 1);
    puts("stopped");
    join(start(refused, NULL));
    puts("refused");
    join(start(low_water, NULL));
    puts("low water");
    return finish();
}
