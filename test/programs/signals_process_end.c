/* Signals that threads send to their own process, which other threads let in that come and go. One sent while a thread lets it
 * in has come before that thread ends, or goes to another: each sender waits for the handler. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static const int sigs[2] = {SIGUSR1, SIGUSR2};
static sem_t came[2];
static _Atomic bool stop, gone;
static _Atomic long sent;

static void handler(int sig)
{
    sem_post(&came[sig == SIGUSR2]);
}

static void mask(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    ZERO(pthread_sigmask(how, &set, NULL));
}

/* Not that it is late, but that it does not come. */
static void await(sem_t *sem)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    while (sem_timedwait(sem, &end) != 0)
        CHECK(errno == EINTR);
}

static void *sends(void *arg)
{
    int i = *(int *)arg;
    while (!stop) {
        await(&came[i]);
        ZERO(kill(getpid(), sigs[i]));
        sent++;
    }
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *waits(void *arg)
{
    mask(SIG_UNBLOCK);
    pthread_mutex_lock(&mutex);
    while (!stop)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    sched_yield(); /* natively it has come at the end of a system call at the latest */
    gone = true;
    return arg;
}

static void *wakes(void *arg)
{
    while (!gone) {
        struct timespec t = {0, 700};
        nanosleep(&t, NULL);
        pthread_cond_signal(&cond);
    }
    return arg;
}

/* What its end finds sent before has come: else a sender waits for ever. */
static void the_last_one_ends(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        stop = gone = false;
        sent = 0;
        int which[2] = {0, 1};
        for (int k = 0; k < 2; k++)
            ZERO(sem_init(&came[k], 0, 1));
        pthread_t waiter = start(waits, NULL), waker = start(wakes, NULL);
        pthread_t sender[2] = {start(sends, &which[0]), start(sends, &which[1])};
        while (sent < 20 + i % 50)
            sched_yield();
        stop = true;
        join(sender[0]);
        join(sender[1]);
        join(waiter);
        join(waker);
    }
    puts("before its end");
}

static void *stays(void *arg)
{
    mask(SIG_UNBLOCK);
    pthread_mutex_lock(&mutex);
    while (!stop)
        pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
    return arg;
}

static void *ends(void *arg)
{
    mask(SIG_UNBLOCK);
    sched_yield();
    return arg;
}

static void *comes_and_goes(void *arg)
{
    while (!stop)
        join(start(ends, NULL));
    return arg;
}

static void *blocks_and_not(void *arg)
{
    while (!stop) {
        mask(SIG_UNBLOCK);
        sched_yield();
        mask(SIG_BLOCK);
        sched_yield();
    }
    return arg;
}

static void *sends_some(void *arg)
{
    int i = *(int *)arg;
    for (int n = 0; n < 500; n++) {
        if (n % 2)
            ZERO(kill(getpid(), sigs[i]));
        else
            ZERO(sigqueue(getpid(), sigs[i], (union sigval){.sival_int = n}));
        await(&came[i]);
    }
    return NULL;
}

/* One stays that lets it in: it comes there, if it has not come to one that ends or blocks it. */
static void others_end(void)
{
    int which[2] = {0, 1};
    stop = false;
    for (int k = 0; k < 2; k++)
        ZERO(sem_init(&came[k], 0, 0));
    pthread_t others[3] = {start(stays, NULL), start(comes_and_goes, NULL), start(blocks_and_not, NULL)};
    pthread_t sender[2] = {start(sends_some, &which[0]), start(sends_some, &which[1])};
    join(sender[0]);
    join(sender[1]);
    pthread_mutex_lock(&mutex);
    stop = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 3; i++)
        join(others[i]);
    puts("or to another");
}

static _Atomic pthread_t handled_by;

static void notes(int sig)
{
    (void)sig;
    handled_by = pthread_self();
}

static void *sends_to_itself(void *arg)
{
    mask(SIG_UNBLOCK);
    for (int i = 0; i < 1000; i++) {
        handled_by = 0;
        if (i % 2)
            ZERO(kill(getpid(), SIGUSR1));
        else
            ZERO(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = i}));
        CHECK(pthread_equal(handled_by, pthread_self()));
        if (i % 10 == 0)
            sched_yield();
    }
    return arg;
}

/* Nobody else lets it in: it has come when kill returns. */
static void the_sender_itself(void)
{
    join(start(sends_to_itself, NULL));
    puts("to who sends it");
}

static void *sends_until_gone(void *arg)
{
    while (!gone) {
        ZERO(kill(getpid(), SIGUSR1));
        sched_yield();
    }
    return arg;
}

/* Main, which lets it in only while it waits, has it then, although another does, too. */
static void main_waits(void)
{
    sigset_t set;
    stop = gone = false;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    sigdelset(&set, SIGUSR1);
    pthread_t other = start(stays, NULL), sender = start(sends_until_gone, NULL);
    do
        EXPECT(sigsuspend(&set), -1);
    while (!pthread_equal(handled_by, pthread_self()));
    gone = true;
    join(sender);
    pthread_mutex_lock(&mutex);
    stop = true;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    join(other);
    puts("main, while it waits");
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_flags = SA_RESTART};
    act.sa_handler = handler;
    mask(SIG_BLOCK);
    ZERO(sigaction(SIGUSR1, &act, NULL));
    ZERO(sigaction(SIGUSR2, &act, NULL));
    the_last_one_ends(argc > 1 ? atoi(argv[1]) : 60);
    others_end();
    act.sa_handler = notes;
    ZERO(sigaction(SIGUSR1, &act, NULL));
    the_sender_itself();
    main_waits();
    puts("ok");
    return 0;
}
