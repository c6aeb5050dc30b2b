/* Many messages in one call, messages in pieces, and how a connection begins: sendmmsg and recvmmsg,
 * MSG_WAITALL with every form, SO_RCVLOWAT, connect to a full backlog, refused, and interrupted. */
#include "check.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { BATCH = 40, MESSAGE = 1000 };

static struct sockaddr_in loopback(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int udp(struct sockaddr_in *at)
{
    socklen_t size = sizeof *at;
    int fd = SYS(socket(AF_INET, SOCK_DGRAM, 0));

    *at = loopback();
    SYS(bind(fd, (struct sockaddr *)at, sizeof *at));
    SYS(getsockname(fd, (struct sockaddr *)at, &size));
    return fd;
}

struct batch {
    struct mmsghdr m[BATCH];
    struct iovec v[BATCH][2];
    char data[BATCH][MESSAGE];
};

static struct batch *batch(int fill)
{
    struct batch *b = calloc(1, sizeof *b);

    CHECK(b != NULL);
    for (int i = 0; i < BATCH; i++) {
        memset(b->data[i], fill ? 'a' + i % 26 : 0, MESSAGE);
        b->v[i][0] = (struct iovec){b->data[i], MESSAGE / 2};
        b->v[i][1] = (struct iovec){b->data[i] + MESSAGE / 2, fill ? (size_t)(MESSAGE / 2 - i) : MESSAGE / 2};
        b->m[i].msg_hdr.msg_iov = b->v[i];
        b->m[i].msg_hdr.msg_iovlen = 2;
    }
    return b;
}

static int ends[2];

static void *send_batch(void *arg)
{
    struct batch *b = batch(1);

    for (int i = 0; i < BATCH; i += 10) {
        sleep_us(500);
        EXPECT(sendmmsg(ends[1], b->m + i, 10, 0), 10);
        for (int j = i; j < i + 10; j++)
            EXPECT(b->m[j].msg_len, MESSAGE - j);
    }
    free(b);
    return arg;
}

static void *many_at_once(void *arg)
{
    struct sockaddr_in at, from;
    struct batch *b = batch(0);
    struct timespec time = {0, 20000000};

    ends[0] = udp(&at);
    ends[1] = udp(&from);
    SYS(connect(ends[1], (struct sockaddr *)&at, sizeof at));
    pthread_t t = start(send_batch, NULL);
    EXPECT(recvmmsg(ends[0], b->m, 1, MSG_WAITFORONE, NULL), 1);
    EXPECT(recvmmsg(ends[0], b->m + 1, BATCH - 1, 0, NULL), BATCH - 1);
    for (int i = 0; i < BATCH; i++) {
        EXPECT(b->m[i].msg_len, MESSAGE - i);
        EXPECT(b->data[i][MESSAGE - i - 1], 'a' + i % 26);
    }
    join(t);
    EXPECT(send(ends[1], "a", 1, 0), 1);
    EXPECT(send(ends[1], "b", 1, 0), 1);
    EXPECT(recvmmsg(ends[0], b->m, BATCH, MSG_WAITFORONE, NULL), 2);
    EXPECT_ERRNO(recvmmsg(ends[0], b->m, BATCH, MSG_DONTWAIT, NULL), EAGAIN);
    /* The time-out is looked at after a message only. */
    EXPECT(send(ends[1], "c", 1, 0), 1);
    SYS(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 30000}, sizeof(struct timeval)));
    EXPECT(recvmmsg(ends[0], b->m, BATCH, 0, &time), 1);
    SYS(close(ends[0])), SYS(close(ends[1]));
    free(b);
    return arg;
}

static void *send_pieces(void *arg)
{
    int fd = (int)(intptr_t)arg;

    for (int i = 0; i < 100; i++) {
        write_all(fd, "0123456789", 10);
        if (i % 10 == 0)
            sleep_us(100);
    }
    return NULL;
}

static void *all_of_it(void *arg)
{
    int form = (int)(intptr_t)arg, pair[2];
    char data[1000] = {0};
    struct iovec v[3] = {{data, 1}, {data + 1, 500}, {data + 501, 499}};
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 3};

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t t = start_number(send_pieces, pair[1]);
    switch (form % 4) {
    case 0:
        EXPECT(recv(pair[0], data, 1000, MSG_WAITALL), 1000);
        break;
    case 1:
        EXPECT(recvmsg(pair[0], &m, MSG_WAITALL), 1000);
        break;
    case 2:
        EXPECT(recvfrom(pair[0], data, 1000, MSG_WAITALL, NULL, NULL), 1000);
        break;
    default: { /* not before there is enough, unless it asks for less */
        int low = 900;
        SYS(setsockopt(pair[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
        ssize_t n = SYS(recv(pair[0], data, 1000, 0));
        CHECK(n > 0);
        while (n < 1000) {
            ssize_t more = SYS(recv(pair[0], data + n, (size_t)(1000 - n < 3 ? 1000 - n : 3), 0));
            CHECK(more > 0);
            n += more;
        }
    }
    }
    for (int i = 0; i < 1000; i++)
        EXPECT(data[i], '0' + i % 10);
    join(t);
    write_all(pair[1], "end", 3);
    SYS(close(pair[1]));
    EXPECT(recv(pair[0], data, 1000, MSG_WAITALL), 3);
    EXPECT(recv(pair[0], data, 1000, MSG_WAITALL), 0);
    SYS(close(pair[0]));
    return NULL;
}

/* --- connections --- */

static struct sockaddr_un local;
static socklen_t local_size;
static int listener;

static void *connect_local(void *arg)
{
    int fd = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    char c;

    SYS(connect(fd, (struct sockaddr *)&local, local_size));
    EXPECT(read(fd, &c, 1), 1);
    SYS(close(fd));
    return arg;
}

static void *full_backlog(void *arg)
{
    enum { CLIENTS = 12 };
    pthread_t clients[CLIENTS];

    listener = SYS(socket(AF_UNIX, SOCK_STREAM, 0));
    local.sun_family = AF_UNIX;
    SYS(bind(listener, (struct sockaddr *)&local, sizeof(sa_family_t))); /* a name that the kernel chooses */
    local_size = sizeof local;
    SYS(getsockname(listener, (struct sockaddr *)&local, &local_size));
    SYS(listen(listener, 1));
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = start(connect_local, NULL);
    sleep_us(20000);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = SYS(accept(listener, NULL, NULL));
        write_all(fd, "x", 1);
        SYS(close(fd));
    }
    for (int i = 0; i < CLIENTS; i++)
        join(clients[i]);
    SYS(close(listener));
    return arg;
}

/* A listener of the network whose queue is full answers nothing: connect waits. */
static int silent(struct sockaddr_in *at, int *others, int n)
{
    socklen_t size = sizeof *at;
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0));

    *at = loopback();
    SYS(bind(l, (struct sockaddr *)at, sizeof *at));
    SYS(getsockname(l, (struct sockaddr *)at, &size));
    SYS(listen(l, 0));
    for (int i = 0; i < n; i++) {
        others[i] = SYS(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        connect(others[i], (struct sockaddr *)at, sizeof *at);
    }
    sleep_us(20000);
    return l;
}

static __thread volatile int handled;

static void on_signal(int signal)
{
    (void)signal;
    handled = 1;
}

static struct sockaddr_in slow_address;
static volatile int answered;

static void *connect_interrupted(void *arg)
{
    int fd = SYS(socket(AF_INET, SOCK_STREAM, 0)), error;
    socklen_t size = sizeof error;

    EXPECT_ERRNO(connect(fd, (struct sockaddr *)&slow_address, sizeof slow_address), EINTR);
    CHECK(handled);
    answered = 1;
    /* It goes on meanwhile, and another call waits for its end. */
    while (connect(fd, (struct sockaddr *)&slow_address, sizeof slow_address) == -1)
        EXPECT(errno, EINTR);
    SYS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
    EXPECT(error, 0);
    EXPECT(send(fd, "x", 1, 0), 1);
    SYS(close(fd));
    return arg;
}

static void *slow_connections(void *arg)
{
    int others[4], l = silent(&slow_address, others, 4), fd = SYS(socket(AF_INET, SOCK_STREAM, 0));
    struct timeval time = {0, 50000};
    struct sigaction action = {.sa_handler = on_signal};

    SYS(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    int64_t before = now_us();
    EXPECT_ERRNO(connect(fd, (struct sockaddr *)&slow_address, sizeof slow_address), EINPROGRESS);
    CHECK(now_us() - before >= 40000);
    SYS(close(fd));
    SYS(sigaction(SIGUSR1, &action, NULL));
    pthread_t t = start(connect_interrupted, NULL);
    while (!answered) {
        sleep_us(2000);
        ZERO(pthread_kill(t, SIGUSR1));
    }
    for (int i = 0; i < 4; i++)
        SYS(close(others[i]));
    /* Room again: what is left of the queue is taken until the slow one has come. */
    for (char c = 0; c != 'x';) {
        int a = SYS(accept(l, NULL, NULL));
        if (recv(a, &c, 1, 0) != 1)
            c = 0;
        SYS(close(a));
    }
    join(t);
    SYS(close(l));
    return arg;
}

static void *fast_open(void *arg)
{
    struct sockaddr_in at = loopback();
    socklen_t size = sizeof at;
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0)), fd = SYS(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    char data[4];

    SYS(bind(l, (struct sockaddr *)&at, sizeof at));
    SYS(getsockname(l, (struct sockaddr *)&at, &size));
    SYS(listen(l, 5));
    if (setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) == 0) {
        SYS(connect(fd, (struct sockaddr *)&at, sizeof at));
        EXPECT(send(fd, "fast", 4, 0), 4);
        int a = SYS(accept(l, NULL, NULL));
        read_all(a, data, 4);
        EXPECT(memcmp(data, "fast", 4), 0);
        SYS(close(a));
    }
    SYS(close(fd)), SYS(close(l));
    return arg;
}

int main(void)
{
    begin(40);
    join(start(many_at_once, NULL));
    puts("many at once");
    in_threads(16, all_of_it);
    puts("all of it");
    join(start(full_backlog, NULL));
    puts("a full backlog");
    in_threads(4, fast_open);
    puts("fast open");
    join(start(slow_connections, NULL));
    puts("slow connections");
    return finish();
}
