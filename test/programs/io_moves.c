/* splice, tee, vmsplice and sendfile: what does not wait (SPLICE_F_NONBLOCK, O_NONBLOCK at an end, nothing to move, what the
 * kernel refuses), what waits until there is something, and what a shutdown ends. */
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ROUNDS = 20 };

static int from[2], to[2], pair[2];
static struct gate blocked = GATE, closed = GATE;
static int closed_first;

static void nonblocking(int fd, int on)
{
    SYS(fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0));
}

static void fill(int fd)
{
    static char zero[4096];

    nonblocking(fd, 1);
    while (write(fd, zero, sizeof zero) > 0 || write(fd, zero, 1) > 0)
        ;
    EXPECT(errno, EAGAIN);
    nonblocking(fd, 0);
}

static void drain(int fd)
{
    static char buf[1 << 16];

    nonblocking(fd, 1);
    while (read(fd, buf, sizeof buf) > 0)
        ;
    nonblocking(fd, 0);
}

static void *write_later(void *arg)
{
    gate_wait(&blocked, 1);
    sleep_us(500);
    EXPECT(write((int)(intptr_t)arg, "hello", 5), 5);
    return NULL;
}

/* Nothing of this waits, though an end is blocking and empty, or full. */
static void *at_once(void *arg)
{
    char c[8];
    struct iovec iov = {c, sizeof c}, none = {c, 0};
    off64_t at = 0;

    EXPECT_ERRNO(splice(from[0], NULL, to[1], NULL, 8, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT_ERRNO(tee(from[0], to[1], 8, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT_ERRNO(vmsplice(from[0], &iov, 1, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT_ERRNO(splice(pair[0], NULL, to[1], NULL, 8, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT(splice(from[0], NULL, to[1], NULL, 0, 0), 0);
    EXPECT(tee(from[0], to[1], 0, 0), 0);
    EXPECT(vmsplice(from[0], &none, 0, 0), 0);
    EXPECT_ERRNO(splice(from[0], NULL, to[1], NULL, 8, ~0u), EINVAL);
    EXPECT_ERRNO(splice(from[0], &at, to[1], NULL, 8, 0), ESPIPE);
    EXPECT_ERRNO(splice(from[0], NULL, from[1], NULL, 8, 0), EINVAL);
    EXPECT_ERRNO(tee(from[0], from[1], 8, 0), EINVAL);
    EXPECT_ERRNO(sendfile(pair[1], pair[0], NULL, 8), EINVAL);

    nonblocking(from[0], 1);
    EXPECT_ERRNO(splice(from[0], NULL, to[1], NULL, 8, 0), EAGAIN);
    fill(pair[1]);
    EXPECT_ERRNO(splice(from[0], NULL, pair[1], NULL, 8, 0), EAGAIN);
    drain(pair[0]);
    nonblocking(from[0], 0);
    nonblocking(to[1], 1);
    EXPECT_ERRNO(splice(from[0], NULL, to[1], NULL, 8, 0), EAGAIN);
    nonblocking(to[1], 0);
    fill(to[1]);
    EXPECT_ERRNO(vmsplice(to[1], &iov, 1, SPLICE_F_NONBLOCK), EAGAIN);
    EXPECT_ERRNO(splice(pair[0], NULL, to[1], NULL, 8, SPLICE_F_NONBLOCK), EAGAIN);
    drain(to[0]);
    return arg;
}

static void *in_time(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        char c[8];
        struct iovec iov = {c, sizeof c};
        int in = i % 4 == 3 ? pair[0] : from[0];
        blocked.count = 0;
        pthread_t writer = start_number(write_later, i % 4 == 3 ? pair[1] : from[1]);
        gate_add(&blocked, 1);
        if (i % 4 == 0) {
            EXPECT(tee(in, to[1], 8, 0), 5);
            EXPECT(read(in, c, sizeof c), 5);
        } else if (i % 4 == 1) {
            EXPECT(vmsplice(in, &iov, 1, 0), 5);
        } else {
            EXPECT(splice(in, NULL, to[1], NULL, 8, 0), 5);
        }
        if (i % 4 != 1)
            EXPECT(read(to[0], c, sizeof c), 5);
        CHECK(memcmp(c, "hello", 5) == 0);
        join(writer);
    }
    return arg;
}

static void *send_until_shut(void *arg)
{
    int file = SYS(open("/proc/self/exe", O_RDONLY));
    off_t at = 0;

    fill(pair[1]);
    if (arg)
        EXPECT(write(from[1], "x", 1), 1);
    gate_add(&blocked, 1);
    if (closed_first)
        gate_wait(&closed, 1);
    if (arg)
        EXPECT_ERRNO(splice(from[0], NULL, pair[1], NULL, 1, 0), EPIPE);
    else
        EXPECT_ERRNO(sendfile(pair[1], file, &at, 4096), EPIPE);
    SYS(close(file));
    return NULL;
}

static void shut(int how, int end)
{
    for (int i = 0; i < ROUNDS; i++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        blocked.count = closed.count = 0;
        closed_first = i % 8 > 5;
        pthread_t sender = start_number(send_until_shut, i % 2);
        gate_wait(&blocked, 1);
        if (i % 4 > 1)
            sleep_us(2000);
        SYS(shutdown(pair[end], how));
        gate_add(&closed, 1);
        join(sender);
        drain(from[0]);
        SYS(close(pair[0]));
        SYS(close(pair[1]));
    }
}

int main(void)
{
    begin(30);
    signal(SIGPIPE, SIG_IGN);
    SYS(pipe(from));
    SYS(pipe(to));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    join(start(at_once, NULL));
    puts("at once");
    join(start(in_time, NULL));
    puts("in time");
    SYS(close(pair[0]));
    SYS(close(pair[1]));
    shut(SHUT_WR, 1);
    puts("shut by this side");
    shut(SHUT_RD, 0);
    puts("shut by the peer");
    return finish();
}
