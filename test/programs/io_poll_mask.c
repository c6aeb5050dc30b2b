/* ppoll, pselect, epoll_pwait and epoll_pwait2 with a signal mask: in force during the wait and not a moment longer;
 * and handlers that leave a blocked call by longjmp.
 */
#include "check.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <ucontext.h>

enum { WAYS = 5, MANY = 60, LAPS = 15 };

static sigset_t none, usr1, usr2;
static __thread volatile int handled;
static _Atomic int handled_anywhere;
static __thread volatile int returns_blocked; /* SIGUSR1 in the mask that the handler returns to */
static _Atomic int sender;

static void on_signal(int sig, siginfo_t *info, void *context)
{
    const ucontext_t *u = context;

    handled += sig == SIGUSR1 ? 1 : 100;
    returns_blocked = sigismember(&u->uc_sigmask, SIGUSR1);
    sender = info->si_pid;
    handled_anywhere++;
}

/* Waits for fd with the mask: the number of events, or -1. */
static int wait_masked(int fd, int way, const sigset_t *mask, const struct timespec *time)
{
    struct pollfd p[MANY];
    struct epoll_event e = {.events = EPOLLIN};
    fd_set set;
    int poller, ret, error;

    FD_ZERO(&set);
    FD_SET(fd, &set);
    for (int i = 0; i < MANY; i++)
        p[i] = (struct pollfd){i == MANY / 2 ? fd : -1, POLLIN, 0};
    switch (way % WAYS) {
    case 0:
        return ppoll(p + MANY / 2, 1, time, mask);
    case 1:
        return ppoll(p, MANY, time, mask);
    case 2:
        return pselect(fd + 1, &set, NULL, NULL, time, mask);
    default:
        poller = SYS(epoll_create1(0));
        SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
        if (way % WAYS == 3)
            ret = epoll_pwait(poller, &e, 1, time ? (int)(time->tv_sec * 1000 + time->tv_nsec / 1000000) : -1, mask);
        else
            ret = epoll_pwait2(poller, &e, 1, time, mask);
        error = errno;
        SYS(close(poller));
        errno = error;
        return ret;
    }
}

static void expect_blocked(const char *when)
{
    sigset_t now;

    ZERO(pthread_sigmask(SIG_SETMASK, NULL, &now));
    if (!sigismember(&now, SIGUSR1) || sigismember(&now, SIGUSR2))
        FAIL("the mask is another %s", when);
}

static struct gate ready = GATE, done = GATE;
static int quiet;

/* SIGUSR1 comes for this thread, before or during each wait. */
static void *directed(void *arg)
{
    int way = (int)(intptr_t)arg;

    for (int i = 0; i < LAPS; i++) {
        handled = 0;
        gate_add(&ready, 1);
        EXPECT_ERRNO(wait_masked(quiet, way + i, &none, NULL), EINTR);
        EXPECT(handled, 1);
        EXPECT(returns_blocked, 1);
        expect_blocked("after the wait");
        gate_add(&done, 1);
    }
    return NULL;
}

/* SIGUSR1 comes for the process, of whose threads only this one takes it, and only in its waits. */
static void *for_process(void *arg)
{
    for (int i = 0; i < LAPS; i++) {
        handled = 0;
        gate_add(&ready, 1);
        if (i % 2)
            EXPECT_ERRNO(wait_masked(quiet, i / 2, &none, NULL), EINTR);
        else
            EXPECT_ERRNO(wait_masked(quiet, i / 2, &none, (struct timespec[1]){{50, 0}}), EINTR);
        EXPECT(handled, 1);
        EXPECT(sender, getpid());
        expect_blocked("after a signal for the process");
        gate_add(&done, 1);
    }
    return arg;
}

static void *precedence(void *arg)
{
    uint64_t one = 1;
    const struct timespec nothing = {0, 0}, short_time = {0, 2000000};
    sigset_t pending;
    int fd = SYS(eventfd(0, 0));

    for (int way = 0; way < WAYS; way++) {
        handled = 0;
        /* Sent to the thread, or to the process. */
        if (way % 2)
            ZERO(pthread_kill(pthread_self(), SIGUSR1));
        else
            SYS(kill(getpid(), SIGUSR1));
        write_all(fd, &one, sizeof one);
        /* What is ready comes first, and the signal stays. */
        EXPECT(wait_masked(fd, way, &none, NULL), 1);
        EXPECT(handled, 0);
        SYS(sigpending(&pending));
        CHECK(sigismember(&pending, SIGUSR1));
        EXPECT(read(fd, &one, sizeof one), sizeof one);
        ZERO(wait_masked(fd, way, NULL, &short_time));
        EXPECT(handled, 0);
        ZERO(wait_masked(fd, way, &usr1, &short_time));
        EXPECT(handled, 0);
        if (way < 3) /* those look at signals also when they do not wait */
            EXPECT_ERRNO(wait_masked(fd, way, &none, &nothing), EINTR);
        else
            EXPECT_ERRNO(wait_masked(fd, way, &none, NULL), EINTR);
        EXPECT(handled, 1);
        EXPECT(returns_blocked, 1);
        expect_blocked("after what was pending");
        ZERO(wait_masked(fd, way, &none, &short_time));
        EXPECT(handled, 1);
    }
    SYS(close(fd));
    return arg;
}

/* A mask that shuts out what the thread lets in. */
static void *shut_out(void *arg)
{
    uint64_t one = 1;
    int way = (int)(intptr_t)arg, fd = SYS(eventfd(0, 0));
    sigset_t both = usr1;
    const struct timespec short_time = {0, 5000000};

    sigaddset(&both, SIGUSR2);
    handled = 0;
    ZERO(wait_masked(fd, way, &both, &short_time));
    ZERO(pthread_sigmask(SIG_BLOCK, &usr2, NULL));
    ZERO(pthread_kill(pthread_self(), SIGUSR2));
    ZERO(wait_masked(fd, way, NULL, &short_time));
    ZERO(wait_masked(fd, way, &both, &short_time));
    write_all(fd, &one, sizeof one);
    EXPECT(wait_masked(fd, way, &both, NULL), 1);
    EXPECT(handled, 0);
    ZERO(pthread_sigmask(SIG_UNBLOCK, &usr2, NULL));
    EXPECT(handled, 100);
    SYS(close(fd));
    return NULL;
}

static void *cancelled(void *arg)
{
    wait_masked(quiet, (int)(intptr_t)arg, &none, NULL);
    return NULL;
}

/* A handler that leaves the blocked call: what comes later is there for the next call, and nowhere else. */
static __thread sigjmp_buf out;
static __thread volatile int may_jump;

_Noreturn void __longjmp_chk(sigjmp_buf env, int value); /* what the others are with _FORTIFY_SOURCE */

static void jump(int sig)
{
    static __thread int jumps;

    (void)sig;
    if (!may_jump)
        return;
    switch (jumps++ / 3 % 4) {
    case 0:
        siglongjmp(out, 1);
    case 1:
        longjmp(out, 1);
    case 2:
        _longjmp(out, 1);
    default:
        __longjmp_chk(out, 1);
    }
}

struct pair {
    int fd[2];
    _Atomic int at; /* 1: about to block; 2: out of the call */
};

static __attribute__((noinline)) void scribble(int i)
{
    volatile char room[4096];

    memset((char *)room, 'a' + i % 26, sizeof room);
    sched_yield();
    for (size_t k = 0; k < sizeof room; k++)
        EXPECT(room[k], 'a' + i % 26);
}

static void *leaver(void *arg)
{
    struct pair *p = arg;
    char byte = 0;

    for (int i = 0; i < 60; i++) {
        struct pollfd f[MANY];
        fd_set set;

        FD_ZERO(&set);
        FD_SET(p->fd[0], &set);
        for (int k = 0; k < MANY; k++)
            f[k] = (struct pollfd){p->fd[0], POLLIN, 0};
        if (sigsetjmp(out, 1) == 0) {
            may_jump = 1;
            p->at = 1;
            switch (i % 4) {
            case 0:
                read(p->fd[0], &byte, 1);
                break;
            case 1:
                recv(p->fd[0], &byte, 1, 0);
                break;
            case 2:
                poll(f, i % 8 == 2 ? 1 : MANY, -1);
                break;
            default:
                select(p->fd[0] + 1, &set, NULL, NULL, NULL);
            }
            FAIL("the call has returned without anything");
        }
        may_jump = 0;
        p->at = 2;
        scribble(i);
        EXPECT(read(p->fd[0], &byte, 1), 1);
        EXPECT(byte, 'a' + i % 26);
        scribble(i);
    }
    return NULL;
}

static void leave(void)
{
    struct sigaction act = {.sa_handler = jump};
    struct pair pairs[6];
    pthread_t threads[6];

    SYS(sigaction(SIGUSR2, &act, NULL));
    for (int i = 0; i < 6; i++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i].fd));
        pairs[i].at = 0;
        threads[i] = start(leaver, &pairs[i]);
    }
    for (int lap = 0; lap < 60; lap++) {
        for (int i = 0; i < 6; i++) {
            while (pairs[i].at != 1)
                sched_yield();
            if (lap % 2)
                sleep_us(200); /* mostly in the call by then */
            pairs[i].at = 0;
            ZERO(pthread_kill(threads[i], SIGUSR2));
        }
        for (int i = 0; i < 6; i++) {
            while (pairs[i].at != 2)
                sched_yield();
            char byte = (char)('a' + lap % 26);
            write_all(pairs[i].fd[1], &byte, 1);
        }
    }
    for (int i = 0; i < 6; i++)
        join(threads[i]);
}

int main(void)
{
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    pthread_t thread[WAYS];

    begin(60);
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigemptyset(&usr2);
    sigaddset(&usr1, SIGUSR1);
    sigaddset(&usr2, SIGUSR2);
    SYS(sigaction(SIGUSR1, &act, NULL));
    SYS(sigaction(SIGUSR2, &act, NULL));
    ZERO(pthread_sigmask(SIG_BLOCK, &usr1, NULL));
    quiet = SYS(eventfd(0, 0));

    for (int i = 0; i < WAYS; i++)
        thread[i] = start_number(directed, i);
    for (int lap = 1; lap <= LAPS; lap++) {
        gate_wait(&ready, lap * WAYS);
        if (lap % 3 == 0)
            sleep_us(1000);
        for (int i = 0; i < WAYS; i++)
            ZERO(pthread_kill(thread[i], SIGUSR1));
        gate_wait(&done, lap * WAYS);
    }
    for (int i = 0; i < WAYS; i++)
        join(thread[i]);
    puts("sent to a thread");

    ready.count = done.count = 0;
    thread[0] = start(for_process, NULL);
    for (int lap = 1; lap <= LAPS; lap++) {
        gate_wait(&ready, lap);
        if (lap % 3 == 0)
            sleep_us(2000);
        SYS(kill(getpid(), SIGUSR1));
        gate_wait(&done, lap);
    }
    join(thread[0]);
    puts("sent to the process");

    join(start(precedence, NULL));
    puts("what is ready comes first");
    in_threads(WAYS, shut_out);
    puts("shut out");
    for (int i = 0; i < WAYS; i++) {
        thread[i] = start_number(cancelled, i);
        if (i % 2)
            sleep_us(2000);
        ZERO(pthread_cancel(thread[i]));
        CHECK(join(thread[i]) == PTHREAD_CANCELED);
    }
    puts("cancelled");
    leave();
    puts("left");
    return finish();
}
