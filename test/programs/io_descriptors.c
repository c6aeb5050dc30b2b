/* What is known about a descriptor stays right: numbers that are used again for something else, flags that a
 * duplicate or another process changes, descriptors that come with a message, sockets by standard input. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { ROUNDS = 60 };

static int channel[2]; /* to the helper process and back */

/* A process that shares our descriptions and does to them what it is told. */
static void help(void)
{
    char what;

    while (recv(channel[1], &what, 1, 0) == 1) {
        char control[CMSG_SPACE(sizeof(int))];
        struct iovec v = {&what, 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        int fd, flags;

        CHECK(recvmsg(channel[1], &m, 0) == 1);
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
        flags = fcntl(fd, F_GETFL);
        fcntl(fd, F_SETFL, what == 'n' ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
        close(fd);
        if (send(channel[1], &what, 1, 0) != 1)
            break;
    }
    _exit(0);
}

static pthread_mutex_t helper = PTHREAD_MUTEX_INITIALIZER;

static void send_fd(int to, char byte, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    EXPECT(sendmsg(to, &m, 0), 1);
}

static int receive_fd(int from)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int fd;

    EXPECT(recvmsg(from, &m, 0), 1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void elsewhere(int fd, char what)
{
    char byte;

    ZERO(pthread_mutex_lock(&helper));
    write_all(channel[0], &what, 1);
    send_fd(channel[0], what, fd);
    read_all(channel[0], &byte, 1);
    ZERO(pthread_mutex_unlock(&helper));
}

static void *write_later(void *arg)
{
    sleep_us(300);
    EXPECT(write((int)(intptr_t)arg, "12345678", 8), 8);
    return NULL;
}

/* Blocks, and gives what comes. */
static void expect_blocking(int in, int out)
{
    char data[8];
    pthread_t t = start_number(write_later, out);

    EXPECT(read(in, data, sizeof data), 8);
    join(t);
}

static void expect_nonblocking(int in)
{
    char data[8];

    EXPECT_ERRNO(read(in, data, sizeof data), EAGAIN);
}

/* One number after another kind: each behaves as its own. */
static void *reuse(void *arg)
{
    char name[] = "/tmp/io_descriptors-XXXXXX", data[8];
    int file = SYS(mkstemp(name)), pair[2];

    SYS(unlink(name));
    write_all(file, "abcdefgh", 8);
    for (int i = 0; i < ROUNDS; i++) {
        /* A place of its own for each thread: dup2 and dup3 make the number, so that no other thread takes
         * it. */
        int at = SYS(dup(file));
        EXPECT(pread(at, data, 8, 0), 8);
        SYS(pipe(pair));
        SYS(dup2(pair[0], at));
        expect_blocking(at, pair[1]);
        SYS(fcntl(at, F_SETFL, O_NONBLOCK));
        expect_nonblocking(at);
        expect_nonblocking(pair[0]);
        SYS(close(pair[0])), SYS(close(pair[1]));
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        SYS(dup3(pair[0], at, O_CLOEXEC));
        expect_blocking(at, pair[1]);
        EXPECT(send(at, "x", 1, 0), 1);
        SYS(close(pair[0])), SYS(close(pair[1]));
        int e = SYS(eventfd(0, i % 2 ? EFD_NONBLOCK : 0));
        SYS(dup2(e, at));
        if (i % 2)
            expect_nonblocking(at);
        else
            expect_blocking(at, e);
        SYS(close(e));
        SYS(dup2(file, at));
        EXPECT(lseek(at, 4, SEEK_SET), 4);
        EXPECT(read(at, data, 8), 4);
        EXPECT(read(at, data, 8), 0);
        EXPECT_ERRNO(recv(at, data, 8, 0), ENOTSOCK);
        SYS(close(at));
    }
    SYS(close(file));
    return arg;
}

/* By system calls that no library sees. */
static void *unseen(void *arg)
{
    int pair[2], on = 1;

    for (int i = 0; i < ROUNDS; i++) {
        SYS(syscall(SYS_pipe2, pair, 0));
        expect_blocking(pair[0], pair[1]);
        SYS(syscall(SYS_fcntl, pair[0], F_SETFL, O_NONBLOCK));
        expect_nonblocking(pair[0]);
        SYS(syscall(SYS_close, pair[0]));
        SYS(syscall(SYS_close, pair[1]));
        SYS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM | (i % 2 ? SOCK_NONBLOCK : 0), 0, pair));
        if (i % 2)
            expect_nonblocking(pair[0]);
        else
            expect_blocking(pair[0], pair[1]);
        on = !(i % 2);
        SYS(syscall(SYS_ioctl, pair[0], 0x5421 /* FIONBIO */, &on));
        if (on)
            expect_nonblocking(pair[0]);
        else
            expect_blocking(pair[0], pair[1]);
        SYS(close(pair[0])), SYS(close(pair[1]));
    }
    return arg;
}

static void *other_process(void *arg)
{
    int pair[2];

    for (int i = 0; i < 8; i++) {
        if (i % 2)
            SYS(pipe(pair));
        else
            SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        expect_blocking(pair[0], pair[1]);
        elsewhere(pair[0], 'n');
        expect_nonblocking(pair[0]);
        elsewhere(pair[0], 'b');
        expect_blocking(pair[0], pair[1]);
        SYS(close(pair[0])), SYS(close(pair[1]));
    }
    return arg;
}

/* What was sent to another thread is the same description under another number. */
static void *passed(void *arg)
{
    int way[2], pair[2];

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, way));
    for (int i = 0; i < ROUNDS; i++) {
        struct timeval time = {0, 20000};
        char byte;
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        send_fd(way[0], 'f', pair[0]);
        int copy = receive_fd(way[1]);
        expect_blocking(copy, pair[1]);
        expect_blocking(pair[0], pair[1]);
        if (i % 8 == 0) {
            SYS(setsockopt(copy, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
            EXPECT_ERRNO(recv(pair[0], &byte, 1, 0), EAGAIN);
        }
        SYS(fcntl(copy, F_SETFL, O_NONBLOCK));
        expect_nonblocking(pair[0]);
        SYS(close(copy)), SYS(close(pair[0])), SYS(close(pair[1]));
    }
    SYS(close(way[0])), SYS(close(way[1]));
    return arg;
}

/* A timer, which has neither end nor peer. */
static void *timer(void *arg)
{
    struct itimerspec in_a_while = {.it_value = {0, 3000000}};
    uint64_t count;
    int fd = SYS(timerfd_create(CLOCK_MONOTONIC, 0));

    for (int i = 0; i < 10; i++) {
        struct pollfd p = {fd, POLLIN, 0};
        SYS(timerfd_settime(fd, 0, &in_a_while, NULL));
        if (i % 2)
            EXPECT(poll(&p, 1, -1), 1);
        EXPECT(read(fd, &count, sizeof count), sizeof count);
        EXPECT(count, 1);
    }
    SYS(close(fd));
    return arg;
}

/* The lowest free numbers are those that they would be natively. */
static void *numbers(void *arg)
{
    int first = SYS(open("/dev/null", O_RDONLY)), second = SYS(dup(first)), pair[2];

    EXPECT(second, first + 1);
    SYS(pipe(pair));
    EXPECT(pair[0], first + 2);
    EXPECT(pair[1], first + 3);
    expect_blocking(pair[0], pair[1]);
    EXPECT(SYS(socket(AF_UNIX, SOCK_STREAM, 0)), first + 4);
    SYS(close_range((unsigned)first, (unsigned)first + 4, 0));
    EXPECT_ERRNO(fcntl(first + 1, F_GETFD), EBADF);
    EXPECT(SYS(open("/dev/null", O_RDONLY)), first);
    SYS(close(first));
    return arg;
}

int main(void)
{
    begin(40);
    SYS(close_range(3, ~0U, 0)); /* what was inherited would be in the way of `numbers` */
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, channel));
    pid_t pid = SYS(fork());
    if (pid == 0) {
        close(channel[0]);
        help();
    }
    SYS(close(channel[1]));
    join(start(numbers, NULL));
    puts("numbers");
    in_threads(12, reuse);
    puts("reuse");
    in_threads(6, unseen);
    puts("unseen");
    in_threads(6, other_process);
    puts("another process");
    in_threads(12, passed);
    puts("passed");
    in_threads(32, timer);
    puts("timers");
    SYS(close(channel[0]));
    EXPECT(waitpid(pid, NULL, 0), pid);
    return finish();
}
