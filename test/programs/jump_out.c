/* siglongjmp from a handler out of calls that wait: nothing is lost, the next call works, and what the call
 * had begun is not in the way of others. */
#include "check.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>

static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t armed;

static void on_signal(int sig)
{
    (void)sig;
    if (armed) {
        armed = 0;
        siglongjmp(back, 1);
    }
}

enum { READ, POLL, RECV, RECVMSG, SELECT, EPOLL, SEND, SLEEP, PAUSE, SUSPEND, KINDS };

struct victim {
    int kind, fd, epoll;
    _Atomic int done, followed;
};

static char data[1 << 16];

static void waits(const struct victim *v)
{
    struct timespec long_time = {1000, 0};
    struct pollfd input = {v->fd, POLLIN, 0};
    struct epoll_event event;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    fd_set set;
    sigset_t none;

    switch (v->kind) {
    case READ:
        EXPECT(read(v->fd, &byte, 1), 1);
        break;
    case POLL:
        poll(&input, 1, -1);
        break;
    case RECV:
        recv(v->fd, &byte, 1, 0);
        break;
    case RECVMSG:
        recvmsg(v->fd, &message, MSG_WAITALL);
        break;
    case SELECT:
        FD_ZERO(&set);
        FD_SET(v->fd, &set);
        select(v->fd + 1, &set, NULL, NULL, NULL);
        break;
    case EPOLL:
        epoll_wait(v->epoll, &event, 1, -1);
        break;
    case SEND:
        for (;;)
            EXPECT(send(v->fd, data, sizeof data, 0), sizeof data);
    case SLEEP:
        nanosleep(&long_time, NULL);
        break;
    case PAUSE:
        pause();
        break;
    case SUSPEND:
        sigemptyset(&none);
        sigsuspend(&none);
        break;
    }
}

static void *is_interrupted(void *arg)
{
    struct victim *v = arg;
    char fill[20000], byte = 0;

    for (volatile int i = 0; i < 20; i++) {
        if (sigsetjmp(back, 1) == 0) {
            armed = 1;
            waits(v);
            FAIL("call %d came back", v->kind);
        }
    }
    v->done = 1;
    /* What the calls have left on this stack is overwritten, and nobody writes to it. */
    memset(fill, 0x55, sizeof fill);
    __asm__ volatile("" : : "r"(fill) : "memory");
    while (v->kind == EPOLL && !v->followed)
        sleep_us(200);
    if (v->kind == SEND)
        while (read(v->fd, &byte, 1) == 1 && byte != 'z')
            ;
    else
        read_all(v->fd, &byte, 1);
    EXPECT(byte, 'z');
    for (unsigned i = 0; i < sizeof fill; i++)
        EXPECT(fill[i], 0x55);
    return NULL;
}

/* Waits for the same set as one that is interrupted, and gets the event. */
static void *follows(void *arg)
{
    struct epoll_event event;

    EXPECT(epoll_wait((int)(intptr_t)arg, &event, 1, 20000), 1);
    return NULL;
}

static void *one(void *arg)
{
    struct victim v = {.kind = (int)((intptr_t)arg % KINDS)};
    int pair[2];
    pthread_t follower = 0;

    ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    v.fd = pair[0];
    v.epoll = SYS(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    ZERO(epoll_ctl(v.epoll, EPOLL_CTL_ADD, pair[0], &event));
    pthread_t thread = start(is_interrupted, &v);
    if (v.kind == EPOLL) {
        sleep_us(500);
        follower = start_number(follows, v.epoll);
    }
    while (!v.done) {
        ZERO(pthread_kill(thread, SIGUSR1));
        sleep_us(150);
    }
    if (v.kind == SEND)
        ZERO(shutdown(pair[0], SHUT_WR)); /* wakes who waits to send */
    write_all(pair[1], "z", 1);
    if (v.kind == EPOLL)
        join(follower);
    v.followed = 1;
    join(thread);
    close(pair[0]);
    close(pair[1]);
    close(v.epoll);
    return NULL;
}

int main(void)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    begin(60);
    signal(SIGPIPE, SIG_IGN);
    ZERO(sigaction(SIGUSR1, &act, NULL));
    in_threads(2 * KINDS, one);
    return finish();
}
