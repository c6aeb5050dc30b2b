/* Cancellation at each kind of cancellation point, pending and while blocked; disabled, deferred and
 * asynchronous. */
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

static int empty[2], full[2], sockets[2], listener, poller;
static sem_t never;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t parked[2];
static unsigned joiners;
static struct timespec day = {86400, 0};

static void at_read(void)
{
    char c;
    SYS(read(empty[0], &c, 1));
}

static void at_write(void)
{
    char c = 0;
    SYS(write(full[1], &c, 1));
}

static void at_readv(void)
{
    char c;
    struct iovec v = {&c, 1};
    SYS(readv(empty[0], &v, 1));
}

static void at_writev(void)
{
    char c = 0;
    struct iovec v = {&c, 1};
    SYS(writev(full[1], &v, 1));
}

static void at_recv(void)
{
    char c;
    SYS(recv(sockets[0], &c, 1, 0));
}

static void at_recvfrom(void)
{
    char c;
    SYS(recvfrom(sockets[0], &c, 1, 0, NULL, NULL));
}

static void at_recvmsg(void)
{
    char c;
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    SYS(recvmsg(sockets[0], &m, 0));
}

static void at_accept(void)
{
    SYS(accept(listener, NULL, NULL));
}

static void at_poll(void)
{
    struct pollfd p = {empty[0], POLLIN, 0};
    SYS(poll(&p, 1, -1));
}

static void at_ppoll(void)
{
    struct pollfd p = {empty[0], POLLIN, 0};
    SYS(ppoll(&p, 1, &day, NULL));
}

static void at_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty[0], &set);
    SYS(select(empty[0] + 1, &set, NULL, NULL, NULL));
}

static void at_epoll(void)
{
    struct epoll_event e;
    SYS(epoll_wait(poller, &e, 1, -1));
}

static void at_sem(void)
{
    SYS(sem_wait(&never));
}

static void at_sem_timed(void)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 100000);
    SYS(sem_timedwait(&never, &at));
}

static void unlock(void *arg)
{
    ZERO(pthread_mutex_unlock(arg));
}

static void at_cond(void)
{
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, &lock);
    for (;;)
        ZERO(pthread_cond_wait(&cond, &lock));
    pthread_cleanup_pop(1);
}

static void at_cond_timed(void)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 100000);
    ZERO(pthread_mutex_lock(&lock));
    pthread_cleanup_push(unlock, &lock);
    for (;;)
        ZERO(pthread_cond_timedwait(&cond, &lock, &at));
    pthread_cleanup_pop(1);
}

static void at_join(void)
{
    /* One joiner for each; two come here in a round. */
    ZERO(pthread_join(parked[__atomic_fetch_add(&joiners, 1, __ATOMIC_RELAXED) % 2], NULL));
}

static void at_sleep(void)
{
    sleep(86400);
}

static void at_usleep(void)
{
    usleep(900000000);
}

static void at_nanosleep(void)
{
    nanosleep(&day, NULL);
}

static void at_clock_nanosleep(void)
{
    struct timespec at = in_ms(CLOCK_MONOTONIC, 100000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void at_pause(void)
{
    pause();
}

static void at_sigwait(void)
{
    sigset_t set;
    int s;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigwait(&set, &s);
}

static void at_sigsuspend(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigsuspend(&set);
}

static void at_testcancel(void)
{
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
}

static const struct point {
    const char *name;
    void (*block)(void);
} points[] = {
    {"read", at_read},
    {"write", at_write},
    {"readv", at_readv},
    {"writev", at_writev},
    {"recv", at_recv},
    {"recvfrom", at_recvfrom},
    {"recvmsg", at_recvmsg},
    {"accept", at_accept},
    {"poll", at_poll},
    {"ppoll", at_ppoll},
    {"select", at_select},
    {"epoll_wait", at_epoll},
    {"sem_wait", at_sem},
    {"sem_timedwait", at_sem_timed},
    {"pthread_cond_wait", at_cond},
    {"pthread_cond_timedwait", at_cond_timed},
    {"pthread_join", at_join},
    {"sleep", at_sleep},
    {"usleep", at_usleep},
    {"nanosleep", at_nanosleep},
    {"clock_nanosleep", at_clock_nanosleep},
    {"pause", at_pause},
    {"sigwait", at_sigwait},
    {"sigsuspend", at_sigsuspend},
    {"pthread_testcancel", at_testcancel},
};

enum { POINTS = sizeof points / sizeof *points };

static struct gate started = GATE, go = GATE;
static int cleaned;

static void clean(void *arg)
{
    (void)arg;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_RELAXED);
}

static void *blocked(void *arg)
{
    const struct point *p = arg;

    pthread_cleanup_push(clean, NULL);
    gate_add(&started, 1);
    p->block();
    FAIL("%s returned in a thread that was cancelled", p->name);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Cancelled before it gets to the point: acts there, and not before. */
static void *pending(void *arg)
{
    const struct point *p = arg;

    pthread_cleanup_push(clean, NULL);
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    gate_add(&started, 1);
    gate_wait(&go, 1);
    pthread_testcancel();
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_mutex_unlock(&lock));
    p->block();
    FAIL("%s returned in a thread that was cancelled", p->name);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *spin_for_ever(void *arg)
{
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    gate_add(&started, 1);
    for (volatile long i = 0;; i++)
        ;
    return arg;
}

static void *park(void *arg)
{
    gate_wait(&go, 2);
    return arg;
}

static void cancel_all(const char *name, void *(*run)(void *))
{
    pthread_t threads[2 * POINTS];

    started.count = cleaned = 0;
    for (int i = 0; i < 2 * POINTS; i++)
        threads[i] = start(run, (void *)&points[i % POINTS]);
    gate_wait(&started, 2 * POINTS);
    for (int i = 0; i < 2 * POINTS; i++)
        ZERO(pthread_cancel(threads[i]));
    if (run == pending)
        gate_add(&go, 1);
    for (int i = 0; i < 2 * POINTS; i++)
        CHECK(join(threads[i]) == PTHREAD_CANCELED);
    EXPECT(cleaned, 2 * POINTS);
    puts(name);
}

int main(int argc, char **argv)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t usr2;
    char page[4096] = {0};

    begin(20);
    if (argc > 1 && strcmp(argv[1], "asynchronous") == 0) {
        pthread_t threads[6];
        for (int i = 0; i < 6; i++)
            threads[i] = start(spin_for_ever, NULL);
        gate_wait(&started, 6);
        for (int i = 0; i < 6; i++)
            ZERO(pthread_cancel(threads[i]));
        for (int i = 0; i < 6; i++)
            CHECK(join(threads[i]) == PTHREAD_CANCELED);
        return finish();
    }
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    ZERO(pthread_sigmask(SIG_BLOCK, &usr2, NULL));
    SYS(pipe(empty));
    SYS(pipe(full));
    SYS(fcntl(full[1], F_SETFL, O_NONBLOCK));
    while (write(full[1], page, sizeof page) > 0)
        ;
    SYS(fcntl(full[1], F_SETFL, 0));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    listener = SYS(socket(AF_INET, SOCK_STREAM, 0));
    SYS(bind(listener, (struct sockaddr *)&any, sizeof any));
    SYS(listen(listener, 5));
    poller = SYS(epoll_create1(0));
    ZERO(sem_init(&never, 0, 0));
    parked[0] = start(park, NULL);
    parked[1] = start(park, NULL);
    cancel_all("blocked", blocked);
    cancel_all("pending", pending);
    gate_add(&go, 1);
    join(parked[0]);
    join(parked[1]);
    return finish();
}
