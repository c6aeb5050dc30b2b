/* O_NONBLOCK set in every way gives EAGAIN at once; F_GETFL shows what the program set, also while others
 * block. */
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static char page[65536];

static void expect_again(int reader, int writer)
{
    char byte;
    struct iovec v = {&byte, 1};

    EXPECT_ERRNO(read(reader, &byte, 1), EAGAIN);
    EXPECT_ERRNO(readv(reader, &v, 1), EAGAIN);
    if (writer >= 0) {
        while (write(writer, page, sizeof page) > 0)
            ;
        while (write(writer, page, 1) > 0)
            ;
        EXPECT(errno, EAGAIN);
        EXPECT_ERRNO(write(writer, page, 1), EAGAIN);
        EXPECT_ERRNO(writev(writer, &v, 1), EAGAIN);
    }
}

static void *pipes(void *arg)
{
    int p[2], on = 1;

    SYS(pipe2(p, O_NONBLOCK));
    EXPECT(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK);
    expect_again(p[0], p[1]);
    SYS(close(p[0])), SYS(close(p[1]));

    SYS(pipe(p));
    EXPECT(fcntl(p[0], F_GETFL), O_RDONLY);
    SYS(fcntl(p[0], F_SETFL, O_NONBLOCK));
    SYS(ioctl(p[1], FIONBIO, &on));
    EXPECT(fcntl(p[1], F_GETFL), O_WRONLY | O_NONBLOCK);
    expect_again(p[0], p[1]);
    SYS(close(p[0])), SYS(close(p[1]));

    /* The flag is the description's: set by a duplicate it counts for all. */
    SYS(pipe(p));
    int copy = SYS(dup(p[0]));
    SYS(fcntl(copy, F_SETFL, O_NONBLOCK));
    EXPECT(fcntl(p[0], F_GETFL), O_RDONLY | O_NONBLOCK);
    expect_again(p[0], -1);
    SYS(fcntl(p[0], F_SETFL, 0));
    EXPECT(fcntl(copy, F_GETFL), O_RDONLY);
    SYS(close(copy)), SYS(close(p[0])), SYS(close(p[1]));
    return arg;
}

static void *sockets(void *arg)
{
    int s[2];
    char byte;

    SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    EXPECT(fcntl(s[0], F_GETFL), O_RDWR | O_NONBLOCK);
    expect_again(s[0], s[1]);
    EXPECT_ERRNO(recv(s[1], &byte, 1, MSG_WAITALL), EAGAIN);
    SYS(close(s[0])), SYS(close(s[1]));
    return arg;
}

static void *tcp(void *arg)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char byte;
    int error;

    int l = SYS(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    SYS(bind(l, (struct sockaddr *)&at, sizeof at));
    SYS(listen(l, 5));
    SYS(getsockname(l, (struct sockaddr *)&at, &size));
    EXPECT_ERRNO(accept(l, NULL, NULL), EAGAIN);
    EXPECT_ERRNO(accept4(l, NULL, NULL, SOCK_NONBLOCK), EAGAIN);

    int c = SYS(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    EXPECT_ERRNO(connect(c, (struct sockaddr *)&at, sizeof at), EINPROGRESS);
    int a;
    while ((a = accept4(l, NULL, NULL, SOCK_NONBLOCK)) == -1) {
        EXPECT(errno, EAGAIN);
        sched_yield();
    }
    EXPECT(fcntl(a, F_GETFL), O_RDWR | O_NONBLOCK);
    EXPECT_ERRNO(recv(a, &byte, 1, 0), EAGAIN);
    size = sizeof error;
    SYS(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &size));
    EXPECT(error, 0);
    EXPECT_ERRNO(recv(c, &byte, 1, 0), EAGAIN);

    /* Blocking again: waits for what is sent. */
    SYS(fcntl(a, F_SETFL, 0));
    EXPECT(send(c, "x", 1, 0), 1);
    EXPECT(recv(a, &byte, 1, 0), 1);
    SYS(close(a)), SYS(close(c)), SYS(close(l));
    return arg;
}

static int watched[2];
static struct gate reading = GATE;

static void *read_blocking(void *arg)
{
    char byte;

    gate_add(&reading, 1);
    for (int i = 0; i < 50; i++)
        EXPECT(read(watched[0], &byte, 1), 1);
    return arg;
}

static void *watch(void *arg)
{
    gate_wait(&reading, 4);
    for (int i = 0; i < 200; i++) {
        EXPECT(fcntl(watched[0], F_GETFL), O_RDONLY);
        EXPECT(fcntl(watched[1], F_GETFL), O_WRONLY);
        write_all(watched[1], "x", 1);
        if (i % 4 == 0)
            sched_yield();
    }
    return arg;
}

static void *watch_flags(void *arg)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        threads[i] = start(read_blocking, NULL);
    watch(NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    return arg;
}

int main(void)
{
    begin(20);
    in_threads(8, pipes);
    puts("pipes");
    in_threads(8, sockets);
    puts("sockets");
    in_threads(8, tcp);
    puts("TCP");
    SYS(pipe(watched));
    join(start(watch_flags, NULL));
    puts("flags");
    return finish();
}
