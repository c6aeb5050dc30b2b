/* EPIPE and SIGPIPE go to the thread that wrote. With an argument, SIGPIPE ends the process. */
#include "check.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

static __thread volatile int signals;

static void on_pipe(int signal)
{
    (void)signal;
    signals++;
}

static void *write_to_nobody(void *arg)
{
    int p[2], s[2];
    char c = 'x';
    struct iovec v = {&c, 1};
    int ignored = arg != NULL;

    for (int i = 0; i < 20; i++) {
        SYS(pipe(p));
        SYS(close(p[0]));
        signals = 0;
        EXPECT_ERRNO(write(p[1], &c, 1), EPIPE);
        EXPECT(signals, ignored ? 0 : 1);
        EXPECT_ERRNO(writev(p[1], &v, 1), EPIPE);
        EXPECT(signals, ignored ? 0 : 2);
        SYS(close(p[1]));
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
        SYS(close(s[0]));
        signals = 0;
        EXPECT_ERRNO(send(s[1], &c, 1, 0), EPIPE);
        EXPECT(signals, ignored ? 0 : 1);
        EXPECT_ERRNO(send(s[1], &c, 1, MSG_NOSIGNAL), EPIPE);
        EXPECT(signals, ignored ? 0 : 1);
        EXPECT_ERRNO(write(s[1], &c, 1), EPIPE);
        EXPECT(signals, ignored ? 0 : 2);
        SYS(close(s[1]));
        sched_yield();
    }
    return arg;
}

/* A writer that is blocked when the reader goes. */
static int full[2];

static void *write_until_broken(void *arg)
{
    static char page[4096];
    ssize_t n;

    signals = 0;
    while ((n = write(full[1], page, sizeof page)) > 0)
        ;
    EXPECT(n, -1);
    EXPECT(errno, EPIPE);
    EXPECT(signals, 1);
    return arg;
}

/* Blocked: the signal stays pending for this thread. */
static void *pending(void *arg)
{
    struct timespec now = {0, 0};
    sigset_t set;
    int p[2];

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    SYS(pipe(p));
    SYS(close(p[0]));
    signals = 0;
    EXPECT_ERRNO(sigtimedwait(&set, NULL, &now), EAGAIN);
    EXPECT_ERRNO(write(p[1], "x", 1), EPIPE);
    sched_yield();
    EXPECT(sigtimedwait(&set, NULL, &now), SIGPIPE);
    EXPECT_ERRNO(sigtimedwait(&set, NULL, &now), EAGAIN);
    EXPECT(signals, 0);
    SYS(close(p[1]));
    return arg;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_pipe};

    (void)argv;
    begin(20);
    if (argc > 1) {
        puts("by the signal");
        join(start(write_to_nobody, NULL));
        FAIL("SIGPIPE has done nothing");
    }
    SYS(sigaction(SIGPIPE, &action, NULL));
    write_to_nobody(NULL);
    EXPECT(signals, 2);
    in_threads(16, pending);
    pthread_t threads[16];
    for (int i = 0; i < 16; i++)
        threads[i] = start(write_to_nobody, NULL);
    for (int i = 0; i < 16; i++)
        join(threads[i]);
    EXPECT(signals, 2); /* nothing came here */
    puts("handler");
    SYS(pipe(full));
    for (int i = 0; i < 4; i++)
        threads[i] = start(write_until_broken, NULL);
    char byte;
    EXPECT(read(full[0], &byte, 1), 1);
    SYS(close(full[0]));
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    puts("blocked writer");
    action.sa_handler = SIG_IGN;
    SYS(sigaction(SIGPIPE, &action, NULL));
    for (int i = 0; i < 16; i++)
        threads[i] = start(write_to_nobody, &action);
    for (int i = 0; i < 16; i++)
        join(threads[i]);
    puts("ignored");
    return finish();
}
