/* Many descriptors in one poll or select, and many threads in one epoll_wait.
 */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

enum { THREADS = 24, IDLE = 180, MEMBERS = 3 * IDLE, LAPS = 12, WAYS = 6 };

static int idle[IDLE], token[THREADS];

/* Waits for `fd` among many others: negative numbers, duplicates, and descriptors on which nothing happens. */
static void wait_among(int fd, int id, int way)
{
    struct pollfd p[MEMBERS];
    struct timespec t = {50, 0};
    struct timeval tv = {50, 0};
    fd_set in, out, except;
    sigset_t mask;
    int mine = 0, top = fd, ready = 0;

    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    for (int i = 0; i < MEMBERS; i++) {
        p[i] = (struct pollfd){idle[i % IDLE], i % 2 ? POLLIN : POLLIN | POLLPRI, -1};
        if (i % 7 == 3)
            p[i].fd = -1 - i;
        if (i == (id * 17 + way) % MEMBERS || i == MEMBERS - 1 - id) {
            p[i].fd = fd;
            mine++;
        }
        if (p[i].fd >= 0) {
            FD_SET(p[i].fd, &in);
            FD_SET(p[i].fd, &except);
            if (p[i].fd > top)
                top = p[i].fd;
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    sigaddset(&mask, SIGUSR2);
    switch (way % WAYS) {
    case 0:
        ready = poll(p, MEMBERS, -1);
        break;
    case 1:
        ready = ppoll(p, MEMBERS, &t, NULL);
        break;
    case 2:
        ready = ppoll(p, MEMBERS, NULL, &mask);
        break;
    case 3:
        EXPECT(select(top + 1, &in, &out, &except, &tv), 1);
        CHECK(FD_ISSET(fd, &in));
        FD_CLR(fd, &in);
        break;
    case 4:
        EXPECT(pselect(top + 1, &in, NULL, &except, &t, NULL), 1);
        CHECK(FD_ISSET(fd, &in));
        break;
    default:
        EXPECT(pselect(top + 1, &in, NULL, NULL, NULL, &mask), 1);
        CHECK(FD_ISSET(fd, &in));
    }
    if (way % WAYS < 3) {
        /* The kernel looks at one member after the other: what comes in between is seen in the later ones only. */
        CHECK(ready >= 1 && ready <= mine);
        for (int i = 0; i < MEMBERS; i++) {
            CHECK(p[i].revents == 0 || (p[i].fd == fd && p[i].revents == POLLIN));
            ready -= p[i].revents != 0;
        }
        EXPECT(ready, 0);
    } else if (way % WAYS == 3) {
        for (int i = 0; i <= top; i++)
            CHECK(!FD_ISSET(i, &in) && !FD_ISSET(i, &out) && !FD_ISSET(i, &except));
    }
}

static void *pass(void *arg)
{
    int id = (int)(intptr_t)arg;
    uint64_t value;

    for (int i = 0; i < LAPS; i++) {
        wait_among(token[id], id, id + i);
        EXPECT(read(token[id], &value, sizeof value), sizeof value);
        if (id < THREADS - 1 || i < LAPS - 1) {
            value = 1;
            write_all(token[(id + 1) % THREADS], &value, sizeof value);
        }
    }
    return NULL;
}

static void *bounds(void *arg)
{
    struct pollfd p[100];
    struct timespec t = {0, 1500000}, nothing = {0, 0};
    struct timeval tv = {0, 2000};
    fd_set in;
    int64_t before;
    int high;
    struct rlimit limit;

    for (int i = 0; i < 100; i++)
        p[i] = (struct pollfd){idle[i], POLLIN, 0};
    before = now_us();
    ZERO(ppoll(p, 100, &t, NULL));
    CHECK(now_us() - before >= 1500);
    ZERO(poll(p, 100, 0));
    before = now_us();
    ZERO(poll(p, 100, 3));
    CHECK(now_us() - before >= 3000);
    ZERO(ppoll(p, 100, &nothing, NULL));
    p[70].fd = 54321;
    EXPECT(poll(p, 100, -1), 1);
    EXPECT(p[70].revents, POLLNVAL);
    p[71].events = POLLOUT;
    EXPECT(poll(p, 100, 1000), 2);
    EXPECT(p[71].revents, POLLOUT);
    volatile nfds_t far_too_many = 1 << 30;
    EXPECT_ERRNO(poll(p, far_too_many, -1), EINVAL);

    FD_ZERO(&in);
    for (int i = 0; i < 100; i++)
        FD_SET(idle[i], &in);
    ZERO(select(idle[99] + 1, &in, NULL, NULL, &tv));
    EXPECT(tv.tv_sec, 0);
    EXPECT(tv.tv_usec, 0);
    for (int i = 0; i < 100; i++)
        FD_SET(idle[i], &in);
    SYS(close(high = SYS(dup(0))));
    FD_SET(high, &in); /* which is not open */
    EXPECT_ERRNO(select(FD_SETSIZE, &in, NULL, NULL, NULL), EBADF);
    CHECK(FD_ISSET(idle[50], &in));
    EXPECT_ERRNO(select(-1, &in, NULL, NULL, NULL), EINVAL);

    /* No more of the sets is looked at than there are descriptors. */
    getrlimit(RLIMIT_NOFILE, &limit);
    static struct {
        fd_set set;
        unsigned char after[(1 << 20) / 8];
    } guarded;
    memset(&guarded, 0, sizeof guarded);
    memset(guarded.after, 0xa5, sizeof guarded.after);
    FD_SET(idle[5], &guarded.set);
    tv.tv_usec = 1000;
    ZERO(select(limit.rlim_cur < 1 << 20 ? (int)limit.rlim_cur : 1 << 20, &guarded.set, NULL, NULL, &tv));
    for (size_t i = 0; i < sizeof guarded.after; i++)
        EXPECT(guarded.after[i], 0xa5);

    /* Sets longer than an fd_set, where the limit allows them. */
    if (limit.rlim_cur > 1600) {
        static fd_set large[2];
        high = SYS(fcntl(token[0], F_DUPFD, 1500));
        uint64_t one = 1;
        ((unsigned long *)large)[high / 64] |= 1ul << high % 64;
        write_all(token[0], &one, sizeof one);
        EXPECT(select(high + 1, large, NULL, NULL, NULL), 1);
        EXPECT(((unsigned long *)large)[high / 64], 1ul << high % 64);
        EXPECT(read(high, &one, sizeof one), sizeof one);
        tv = (struct timeval){0, 1000};
        ZERO(select(high + 1, large, NULL, NULL, &tv));
        SYS(close(high));
    }
    return arg;
}

/* The peer has shut down its side: which nobody asked for here. */
static void *half_closed(void *arg)
{
    int pair[2];

    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    SYS(shutdown(pair[1], SHUT_WR));
    struct pollfd p[40] = {{pair[0], POLLPRI, 0}};
    for (int i = 1; i < 40; i++)
        p[i].fd = -1;
    int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    ZERO(poll(p, 1, 150));
    ZERO(poll(p, 40, 150));
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu < 200000000);
    p[0].events = POLLPRI | POLLRDHUP;
    EXPECT(poll(p, 1, -1), 1);
    EXPECT(p[0].revents, POLLRDHUP);
    EXPECT(poll(p, 40, -1), 1);
    SYS(close(pair[0]));
    SYS(close(pair[1]));
    return arg;
}

/* Every kind of descriptor that poll knows. */
static void readable(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    struct epoll_event e = {.events = EPOLLIN};
    fd_set set;
    int poller = SYS(epoll_create1(0)), outer = SYS(epoll_create1(0));

    EXPECT(poll(&p, 1, -1), 1);
    EXPECT(p.revents, POLLIN);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    EXPECT(select(fd + 1, &set, NULL, NULL, NULL), 1);
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
    SYS(epoll_ctl(outer, EPOLL_CTL_ADD, poller, &e));
    EXPECT(epoll_wait(outer, &e, 1, -1), 1);
    EXPECT(epoll_pwait2(poller, &e, 1, NULL, NULL), 1);
    p.fd = outer;
    EXPECT(poll(&p, 1, -1), 1);
    SYS(close(outer));
    SYS(close(poller));
}

static void *kinds(void *arg)
{
    struct itimerspec in_a_while = {.it_value = {0, 20000000}};
    char path[4096];
    sigset_t usr2;
    int fd;

    fd = SYS(timerfd_create(CLOCK_MONOTONIC, 0));
    SYS(timerfd_settime(fd, 0, &in_a_while, NULL));
    readable(fd);
    SYS(close(fd));
    puts("timerfd");

    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    fd = SYS(signalfd(-1, &usr2, 0));
    SYS(kill(getpid(), SIGUSR2)); /* which all threads block */
    readable(fd);
    struct signalfd_siginfo info;
    EXPECT(read(fd, &info, sizeof info), sizeof info);
    EXPECT(info.ssi_signo, SIGUSR2);
    SYS(close(fd));
    puts("signalfd");

    fd = SYS(inotify_init());
    beside(path, sizeof path, "io_poll_many.tmp");
    SYS(close(SYS(open(path, O_CREAT | O_WRONLY, 0600))));
    SYS(inotify_add_watch(fd, path, IN_DELETE_SELF | IN_ATTRIB));
    SYS(unlink(path));
    readable(fd);
    SYS(close(fd));
    puts("inotify");

    pid_t child = SYS(fork());
    if (child == 0)
        _exit(3);
    fd = (int)SYS(syscall(SYS_pidfd_open, child, 0));
    readable(fd);
    EXPECT(waitpid(child, NULL, 0), child);
    SYS(close(fd));
    puts("pidfd");
    return arg;
}

/* One set and many threads that wait for it: each byte is for one of them, whatever the others do. */
enum { CROWD = 150, EVENTS = 600 };

static int poller, bytes[2];
static unsigned flags;
static int got;

static void *crowd(void *arg)
{
    struct epoll_event e;
    char byte;
    int id = (int)(intptr_t)arg;

    for (;;) {
        int n = epoll_wait(poller, &e, 1, id % 3 == 0 ? 1 + id % 5 : -1); /* some give up, and come again */
        if (n == 0)
            continue;
        EXPECT(n, 1);
        for (;;) {
            ssize_t ret = read(bytes[0], &byte, 1);
            if (ret < 0) {
                EXPECT(errno, EAGAIN);
                break;
            }
            EXPECT(ret, 1);
            if (byte == 'q') {
                write_all(bytes[1], "q", 1); /* for the next thread */
                if (flags & EPOLLONESHOT) {
                    e.events = flags;
                    SYS(epoll_ctl(poller, EPOLL_CTL_MOD, bytes[0], &e));
                }
                return NULL;
            }
            __atomic_add_fetch(&got, 1, __ATOMIC_RELAXED);
            if (!(flags & EPOLLET))
                break;
        }
        if (flags & EPOLLONESHOT) {
            e.events = flags;
            SYS(epoll_ctl(poller, EPOLL_CTL_MOD, bytes[0], &e));
        }
    }
}

static void *ever(void *arg)
{
    struct epoll_event e;

    for (;;)
        epoll_wait(poller, &e, 1, -1);
    return arg;
}

static void share(unsigned how)
{
    struct epoll_event e = {.events = how};
    pthread_t threads[CROWD], cancelled[10];

    flags = how;
    got = 0;
    poller = SYS(epoll_create1(0));
    SYS(pipe2(bytes, O_NONBLOCK));
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, bytes[0], &e));
    for (int i = 0; i < CROWD; i++) {
        threads[i] = start_number(crowd, i);
        if (how == EPOLLIN && i % 15 == 7)
            cancelled[i / 15] = start(ever, NULL);
    }
    for (int i = 0; i < EVENTS; i++) {
        write_all(bytes[1], "x", 1);
        if (i % 50 == 0)
            sched_yield();
        if (how == EPOLLIN && i % 60 == 30) {
            ZERO(pthread_cancel(cancelled[i / 60]));
            CHECK(join(cancelled[i / 60]) == PTHREAD_CANCELED);
        }
    }
    while (__atomic_load_n(&got, __ATOMIC_RELAXED) < EVENTS)
        sleep_us(1000);
    write_all(bytes[1], "q", 1);
    for (int i = 0; i < CROWD; i++)
        join(threads[i]);
    EXPECT(got, EVENTS);
    SYS(close(poller));
    SYS(close(bytes[0]));
    SYS(close(bytes[1]));
}

/* The number of a set is closed and reused while threads wait for it: it is the new set's from then on. */
static void *impatient(void *arg)
{
    struct epoll_event e;

    gate_add(arg, 1);
    ZERO(epoll_wait(poller, &e, 1, 100));
    return NULL;
}

static void reuse(void)
{
    static struct gate gate = GATE;
    struct epoll_event e = {.events = EPOLLIN};
    pthread_t threads[8];
    uint64_t one = 1;
    int fd = SYS(eventfd(0, 0)), old;

    poller = old = SYS(epoll_create1(0));
    for (int i = 0; i < 8; i++)
        threads[i] = start(impatient, &gate);
    gate_wait(&gate, 8);
    sleep_us(20000);
    SYS(close(poller));
    EXPECT(epoll_create1(0), old);
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
    for (int i = 0; i < 8; i++) /* none of them has what belongs to the new set */
        join(threads[i]);
    write_all(fd, &one, sizeof one);
    EXPECT(epoll_wait(poller, &e, 1, -1), 1);
    SYS(close(poller));
    SYS(close(fd));
}

static void *reuse_in_thread(void *arg)
{
    reuse();
    return arg;
}

static struct gate all_there = GATE;

/* Called with a number: so many threads wait, and there are to be no more kernel threads than that. */
static void *linger(void *arg)
{
    struct pollfd p[40];
    struct epoll_event e;
    sigset_t none;
    fd_set set;
    int id = (int)(intptr_t)arg;

    FD_ZERO(&set);
    for (int i = 0; i < 40; i++) {
        p[i] = (struct pollfd){i == 20 ? bytes[0] : idle[i], POLLIN, 0};
        FD_SET(p[i].fd, &set);
    }
    sigemptyset(&none);
    gate_wait(&all_there, 1);
    __atomic_add_fetch(&got, 1, __ATOMIC_RELAXED);
    switch (id % 5) {
    case 0:
        EXPECT(poll(p, 40, -1), 1);
        break;
    case 1:
        EXPECT(ppoll(p, 40, NULL, &none), 1);
        break;
    case 2:
        EXPECT(pselect(FD_SETSIZE, &set, NULL, NULL, NULL, &none), 1);
        break;
    case 3:
        EXPECT(epoll_pwait(poller, &e, 1, -1, &none), 1);
        break;
    default:
        EXPECT(epoll_wait(poller, &e, 1, -1), 1);
    }
    return NULL;
}

static void few_kernel_threads(int threads, int most)
{
    pthread_t *thread = calloc((size_t)threads, sizeof *thread);
    struct epoll_event e = {.events = EPOLLIN};
    int count = 0;
    char line[256];

    got = 0;
    poller = SYS(epoll_create1(0));
    SYS(pipe(bytes));
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, bytes[0], &e));
    for (int i = 0; i < threads; i++)
        thread[i] = start_number(linger, i);
    gate_add(&all_there, 1);
    while (__atomic_load_n(&got, __ATOMIC_RELAXED) < threads)
        sleep_us(1000);
    sleep_us(50000);
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        sscanf(line, "Threads: %d", &count);
    fclose(status);
    write_all(bytes[1], "x", 1);
    for (int i = 0; i < threads; i++)
        join(thread[i]);
    if (count > most)
        FAIL("%d kernel threads", count);
}

int main(int argc, char **argv)
{
    sigset_t block;

    begin(60);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGUSR2);
    ZERO(pthread_sigmask(SIG_BLOCK, &block, NULL));
    for (int i = 0; i < IDLE; i++)
        idle[i] = SYS(eventfd(0, 0));
    if (argc > 1) {
        few_kernel_threads(200, (int)argument(argc, argv, 1, 20));
        return finish();
    }
    for (int i = 0; i < THREADS; i++)
        token[i] = SYS(eventfd(0, 0));
    write_all(token[0], &(uint64_t){1}, sizeof(uint64_t));
    in_threads(THREADS, pass);
    puts("ring");
    join(start(bounds, NULL));
    puts("bounds");
    join(start(half_closed, NULL));
    puts("half closed");
    join(start(kinds, NULL));
    share(EPOLLIN);
    puts("level");
    share(EPOLLIN | EPOLLET);
    puts("edge");
    share(EPOLLIN | EPOLLONESHOT);
    puts("one shot");
    join(start(reuse_in_thread, NULL));
    puts("reuse");
    return finish();
}
