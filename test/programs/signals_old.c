/* The older functions for signals: what they say of handlers, and that the mask they set is the thread's,
 * wherever it runs. */
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static volatile int handled;
static struct gate held, sent;

static void handler(int sig)
{
    (void)sig;
    handled++;
}

static void *old_handlers(void *arg)
{
    struct sigaction act = {.sa_flags = 0};
    act.sa_handler = handler;
    ZERO(sigaction(SIGUSR1, &act, NULL));
    CHECK(sigset(SIGUSR1, SIG_IGN) == handler);
    CHECK(sigset(SIGUSR1, handler) == SIG_IGN);
    CHECK(sigset(SIGUSR1, SIG_HOLD) == handler);
    CHECK(sigset(SIGUSR1, SIG_HOLD) == SIG_HOLD);
    handled = 0;
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 0);
    CHECK(sigset(SIGUSR1, handler) == SIG_HOLD); /* lets it in */
    EXPECT(handled, 1);
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 2);
    ZERO(sigignore(SIGUSR1));
    ZERO(raise(SIGUSR1));
    EXPECT(handled, 2);
    CHECK(sigset(SIGUSR1, SIG_DFL) == SIG_IGN);
    CHECK(sigset(0, SIG_DFL) == SIG_ERR);
    CHECK(sighold(0) == -1 && sigrelse(65) == -1 && sigignore(0) == -1);
    return arg;
}

/* Another thread sends the signal while this one waits. */
static void *holds(void *arg)
{
    sigset_t pending;
    struct sigaction act = {.sa_flags = 0};
    act.sa_handler = handler;
    handled = 0;
    ZERO(sigaction(SIGUSR2, &act, NULL));
    ZERO(sighold(SIGUSR2));
    gate_add(&held, 1);
    gate_wait(&sent, 1);
    usleep(1000);
    ZERO(sigpending(&pending));
    CHECK(sigismember(&pending, SIGUSR2));
    EXPECT(handled, 0);
    CHECK(sigpause(SIGUSR2) == -1);
    EXPECT(errno, EINTR);
    EXPECT(handled, 1);
    ZERO(raise(SIGUSR2)); /* held again */
    EXPECT(handled, 1);
    ZERO(sigrelse(SIGUSR2));
    EXPECT(handled, 2);
    EXPECT(sigblock((1 << (SIGUSR2 - 1))), 0);
    EXPECT(sigblock(0), (1 << (SIGUSR2 - 1)));
    usleep(1000);
    ZERO(raise(SIGUSR2));
    EXPECT(handled, 2);
    EXPECT(sigsetmask(0), (1 << (SIGUSR2 - 1)));
    EXPECT(handled, 3);
    return arg;
}

static void both(void)
{
    pthread_t t;
    held.count = sent.count = 0;
    join(start(old_handlers, NULL));
    t = start(holds, NULL);
    gate_wait(&held, 1);
    ZERO(pthread_kill(t, SIGUSR2));
    gate_add(&sent, 1);
    join(t);
}

int main(void)
{
    begin(20);
    old_handlers(NULL);
    puts("main");
    both();
    both();
    puts("thread");
    return finish();
}
