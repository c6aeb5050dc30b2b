/* sigsuspend and pause return when a handler has run on the thread, and for nothing else: not for signals that
 * others get, that came before, or that are ignored. */
#include "check.h"

#include <signal.h>

enum { WAITERS = 6, ROUNDS = 300 };

static __thread volatile sig_atomic_t handled;
static _Atomic int finished;

static void on_signal(int sig)
{
    (void)sig;
    handled++;
}

static void *waits(void *arg)
{
    sigset_t user, none;
    int kind = (int)(intptr_t)arg % 3; /* sigsuspend with the signal let in or blocked before, and pause */

    sigemptyset(&none);
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    if (kind == 1)
        ZERO(pthread_sigmask(SIG_BLOCK, &user, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        int before = handled;
        EXPECT_ERRNO(kind == 2 ? pause() : sigsuspend(&none), EINTR);
        if (handled == before)
            FAIL("wait %d of kind %d returned, and no handler has run", round, kind);
    }
    finished++;
    return NULL;
}

/* To one that may have ended: an error before glibc 2.34. */
static void send(pthread_t thread, int sig)
{
    int err = pthread_kill(thread, sig);
    CHECK(err == 0 || err == ESRCH);
}

int main(void)
{
    struct sigaction act = {.sa_handler = on_signal};
    pthread_t threads[WAITERS];

    begin(60);
    ZERO(sigaction(SIGUSR1, &act, NULL));
    act.sa_flags = SA_RESTART;
    ZERO(sigaction(SIGUSR2, &act, NULL));
    signal(SIGURG, SIG_IGN);
    for (long i = 0; i < WAITERS; i++)
        threads[i] = start_number(waits, i);
    for (unsigned turn = 0; finished < WAITERS; turn++) {
        for (int i = 0; i < WAITERS; i++) {
            send(threads[i], SIGURG);
            send(threads[i], turn % 2 ? SIGUSR2 : SIGUSR1);
        }
        if (turn % 4 == 0)
            sleep_us(100);
    }
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
    return finish();
}
