/* poll, ppoll, select, pselect and epoll by many threads: readiness, time-outs never early, hang-up, errors.
 */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { THREADS = 40, LAPS = 20, WAYS = 6 };

static int ring[THREADS][2];

/* Waits until `fd` can be read, in one of the ways. */
static void wait_readable(int fd, int way)
{
    struct pollfd p[2] = {{fd, POLLIN, 0}, {-1, POLLIN, 0}};
    struct timespec t = {50, 0};
    struct timeval tv = {50, 0};
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    fd_set set;
    int poller;

    FD_ZERO(&set);
    FD_SET(fd, &set);
    switch (way % WAYS) {
    case 0:
        EXPECT(poll(p, 2, -1), 1);
        EXPECT(p[0].revents, POLLIN);
        EXPECT(p[1].revents, 0);
        break;
    case 1:
        EXPECT(poll(p, 2, 50000), 1);
        break;
    case 2:
        EXPECT(ppoll(p, 2, &t, NULL), 1);
        EXPECT(t.tv_sec, 50); /* the caller's time is left alone */
        break;
    case 3:
        EXPECT(select(fd + 1, &set, NULL, NULL, &tv), 1);
        CHECK(FD_ISSET(fd, &set));
        break;
    case 4:
        EXPECT(pselect(fd + 1, &set, NULL, NULL, &t, NULL), 1);
        CHECK(FD_ISSET(fd, &set));
        break;
    default:
        poller = SYS(epoll_create1(EPOLL_CLOEXEC));
        SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
        e.data.fd = -1;
        EXPECT(epoll_wait(poller, &e, 1, -1), 1);
        EXPECT(e.data.fd, fd);
        EXPECT(e.events, EPOLLIN);
        SYS(close(poller));
    }
}

static void *pass(void *arg)
{
    int id = (int)(intptr_t)arg;
    char byte;

    for (int i = 0; i < LAPS; i++) {
        wait_readable(ring[id][0], id + i);
        EXPECT(read(ring[id][0], &byte, 1), 1);
        EXPECT(byte, i);
        byte = (char)(i + (id == THREADS - 1));
        if (id < THREADS - 1 || i < LAPS - 1)
            write_all(ring[(id + 1) % THREADS][1], &byte, 1);
    }
    return NULL;
}

static void *time_out(void *arg)
{
    int fd = ring[0][0];

    for (int ms = 0; ms <= 12; ms += 4) {
        for (int way = 0; way < WAYS; way++) {
            struct pollfd p = {fd, POLLIN, 0};
            struct timespec t = {0, ms * 1000000};
            struct timeval tv = {0, ms * 1000};
            struct epoll_event e = {.events = EPOLLIN};
            fd_set set;
            int poller;
            int64_t before = now_us();

            FD_ZERO(&set);
            FD_SET(fd, &set);
            switch (way) {
            case 0:
                ZERO(poll(&p, 1, ms));
                break;
            case 1:
                ZERO(poll(NULL, 0, ms));
                break;
            case 2:
                ZERO(ppoll(&p, 1, &t, NULL));
                break;
            case 3:
                ZERO(select(fd + 1, &set, NULL, NULL, &tv));
                CHECK(!FD_ISSET(fd, &set));
                break;
            case 4:
                ZERO(pselect(fd + 1, &set, NULL, NULL, &t, NULL));
                break;
            default:
                poller = SYS(epoll_create1(0));
                SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
                ZERO(epoll_wait(poller, &e, 1, ms));
                SYS(close(poller));
            }
            if (now_us() - before < ms * 1000)
                FAIL("way %d came back early from %d ms", way, ms);
        }
    }
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec short_time = {0, 50}, bad = {0, 1000000000}, negative = {-1, 0};
    ZERO(ppoll(&p, 1, &short_time, NULL));
    EXPECT_ERRNO(ppoll(&p, 1, &bad, NULL), EINVAL);
    EXPECT_ERRNO(ppoll(&p, 1, &negative, NULL), EINVAL);
    EXPECT_ERRNO(epoll_wait(-1, (struct epoll_event[1]){{0}}, 1, 0), EBADF);
    return arg;
}

static void *states(void *arg)
{
    int pipes[2], sockets[2];

    SYS(pipe(pipes));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    struct pollfd p[5] = {{pipes[0], POLLIN, 0},
                          {pipes[1], POLLOUT, 0},
                          {sockets[0], POLLIN | POLLOUT, 0},
                          {12345, POLLIN, 0},
                          {STDIN_FILENO, POLLIN, 0}};
    EXPECT(poll(p, 5, -1), 4);
    EXPECT(p[0].revents, 0);
    EXPECT(p[1].revents, POLLOUT);
    EXPECT(p[2].revents, POLLOUT);
    EXPECT(p[3].revents, POLLNVAL);
    EXPECT(p[4].revents, POLLIN); /* /dev/null or a file: always ready */
    SYS(close(pipes[1]));
    p[0].revents = 0;
    EXPECT(poll(p, 1, -1), 1);
    EXPECT(p[0].revents, POLLHUP);
    SYS(close(sockets[1]));
    EXPECT(poll(p + 2, 1, -1), 1);
    EXPECT(p[2].revents, POLLIN | POLLOUT | POLLHUP);
    SYS(close(pipes[0]));
    SYS(close(sockets[0]));
    return arg;
}

/* One epoll set, waited on by many threads. Each byte is announced to one of them. */
static int poller, shared[2];
static int got;

static void *take_events(void *arg)
{
    struct epoll_event e;
    char byte;

    for (;;) {
        EXPECT(epoll_wait(poller, &e, 1, -1), 1);
        EXPECT(read(shared[0], &byte, 1), 1);
        if (byte == 'q')
            write_all(shared[1], "q", 1); /* for the next thread */
        else
            __atomic_add_fetch(&got, 1, __ATOMIC_RELAXED);
        e = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT};
        SYS(epoll_ctl(poller, EPOLL_CTL_MOD, shared[0], &e));
        if (byte == 'q')
            return arg;
    }
}

static void share(void)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT};
    pthread_t threads[10];

    poller = SYS(epoll_create1(0));
    SYS(pipe(shared));
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, shared[0], &e));
    for (int i = 0; i < 10; i++)
        threads[i] = start(take_events, NULL);
    for (int i = 0; i < 200; i++)
        write_all(shared[1], "x", 1);
    write_all(shared[1], "q", 1);
    for (int i = 0; i < 10; i++)
        join(threads[i]);
    EXPECT(got, 200);
}

/* A file is always ready, but who asks for something else waits for the time to pass. */
static void *files(void *arg)
{
    struct pollfd p = {.fd = SYS(open("/", O_RDONLY)), .events = POLLPRI};
    struct timespec before, now;

    for (int i = 0; i < 3; i++) {
        SYS(clock_gettime(CLOCK_MONOTONIC, &before));
        EXPECT(poll(&p, 1, 20), 0);
        EXPECT(p.revents, 0);
        SYS(clock_gettime(CLOCK_MONOTONIC, &now));
        CHECK((now.tv_sec - before.tv_sec) * 1000000000 + now.tv_nsec - before.tv_nsec >= 20000000);
        p.events = i ? 0 : POLLRDHUP;
    }
    p.events = POLLIN;
    EXPECT(poll(&p, 1, -1), 1);
    EXPECT(p.revents, POLLIN);
    SYS(close(p.fd));
    return arg;
}

int main(void)
{
    begin(20);
    for (int i = 0; i < THREADS; i++)
        SYS(pipe(ring[i]));
    write_all(ring[0][1], "\0", 1);
    in_threads(THREADS, pass);
    puts("ring");
    in_threads(8, time_out);
    puts("time-outs");
    join(start(states, NULL));
    puts("states");
    share();
    puts("a shared epoll set");
    join(start(files, NULL));
    puts("files");
    return finish();
}
