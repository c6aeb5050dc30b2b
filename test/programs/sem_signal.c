/* sem_post from signal handlers: of signals to the process, to a thread, and of a timer. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 8, SIGNALS = 200, TICKS = 50 };

static sem_t posted, acknowledged, ticks;
static int woken;

static void on_signal(int signal)
{
    int saved = errno;

    sem_post(signal == SIGALRM ? &ticks : &posted);
    errno = saved;
}

static void wait_sem(sem_t *s)
{
    while (sem_wait(s) == -1)
        EXPECT(errno, EINTR);
}

static void *wait_posts(void *arg)
{
    for (int i = 0; i < SIGNALS / THREADS; i++) {
        wait_sem(&posted);
        __atomic_add_fetch(&woken, 1, __ATOMIC_RELAXED);
        ZERO(sem_post(&acknowledged));
    }
    return arg;
}

static void *wait_ticks(void *arg)
{
    for (int i = 0; i < TICKS; i++)
        wait_sem(&ticks);
    return arg;
}

static void *raise_here(void *arg)
{
    for (int i = 0; i < 20; i++) {
        if (i % 2)
            ZERO(raise(SIGUSR1));
        else
            ZERO(pthread_kill(pthread_self(), SIGUSR1));
        wait_sem(&posted);
    }
    return arg;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    pthread_t threads[THREADS];

    begin(0);
    ZERO(sem_init(&posted, 0, 0));
    ZERO(sem_init(&acknowledged, 0, 0));
    ZERO(sem_init(&ticks, 0, 0));
    SYS(sigaction(SIGUSR1, &action, NULL));
    SYS(sigaction(SIGALRM, &action, NULL));
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(wait_posts, NULL);
    for (int i = 0; i < SIGNALS; i++) {
        /* One at a time: two that are pending at once count as one. */
        SYS(kill(getpid(), SIGUSR1));
        wait_sem(&acknowledged);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    EXPECT(woken, SIGNALS);
    puts("process");
    join(start(raise_here, NULL));
    puts("self");
    pthread_t waiter = start(wait_ticks, NULL);
    SYS(setitimer(ITIMER_REAL, &timer, NULL));
    join(waiter);
    SYS(setitimer(ITIMER_REAL, &off, NULL));
    puts("timer");
    return finish();
}
