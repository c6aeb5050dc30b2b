/* Robust and priority-inheriting mutexes within one process, also process-shared ones. */
#include "check.h"
#include <stdbool.h>

static pthread_mutex_t mutex;
static long counter;

static void *die_holding(void *arg)
{
    ZERO(pthread_mutex_lock(&mutex));
    if (arg)
        pthread_exit(NULL);
    return NULL;
}

static void *exclude(void *arg)
{
    for (int i = 0; i < 200; i++) {
        ZERO(pthread_mutex_lock(&mutex));
        long held = counter;
        if (i % 20 == 0)
            sched_yield();
        counter = held + 1;
        ZERO(pthread_mutex_unlock(&mutex));
    }
    return arg;
}

static void *try_busy(void *arg)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);

    EXPECT_ERROR(pthread_mutex_trylock(&mutex), EBUSY);
    EXPECT_ERROR(pthread_mutex_timedlock(&mutex, &soon), ETIMEDOUT);
    return arg;
}

static void make(int robust, int protocol, int shared, int type)
{
    pthread_mutexattr_t attr;

    ZERO(pthread_mutexattr_init(&attr));
    ZERO(pthread_mutexattr_setrobust(&attr, robust));
    ZERO(pthread_mutexattr_setprotocol(&attr, protocol));
    ZERO(pthread_mutexattr_setpshared(&attr, shared));
    ZERO(pthread_mutexattr_settype(&attr, type));
    ZERO(pthread_mutex_init(&mutex, &attr));
    ZERO(pthread_mutexattr_destroy(&attr));
}

static void dead_owner(void)
{
    for (int by_exit = 0; by_exit < 2; by_exit++) {
        join(start(die_holding, by_exit ? &mutex : NULL));
        EXPECT_ERROR(pthread_mutex_lock(&mutex), EOWNERDEAD);
        ZERO(pthread_mutex_consistent(&mutex));
        ZERO(pthread_mutex_unlock(&mutex));
        in_threads(4, exclude);
    }
    join(start(die_holding, NULL));
    EXPECT_ERROR(pthread_mutex_trylock(&mutex), EOWNERDEAD);
    ZERO(pthread_mutex_unlock(&mutex));
    EXPECT_ERROR(pthread_mutex_lock(&mutex), ENOTRECOVERABLE);
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool waits, go;

static void *wait_for_go(void *arg)
{
    ZERO(pthread_mutex_lock(&mutex));
    waits = true;
    while (!go)
        ZERO(pthread_cond_wait(&changed, &mutex));
    ZERO(pthread_mutex_unlock(&mutex));
    return arg;
}

/* Who waits on a condition is one of the mutex's users. */
static void busy_while_waited_with(void)
{
    bool there = false;

    waits = go = false;
    pthread_t t = start(wait_for_go, NULL);
    while (!there) {
        ZERO(pthread_mutex_lock(&mutex));
        there = waits;
        ZERO(pthread_mutex_unlock(&mutex));
        sched_yield();
    }
    EXPECT_ERROR(pthread_mutex_destroy(&mutex), EBUSY);
    ZERO(pthread_mutex_lock(&mutex));
    go = true;
    ZERO(pthread_cond_signal(&changed));
    ZERO(pthread_mutex_unlock(&mutex));
    join(t);
}

int main(void)
{
    static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};

    begin(20);
    for (int p = 0; p < 2; p++) {
        for (int shared = 0; shared < 2; shared++) {
            for (int robust = 0; robust < 2; robust++) {
                make(robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED, protocols[p],
                     shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE, PTHREAD_MUTEX_ERRORCHECK);
                counter = 0;
                in_threads(6, exclude);
                EXPECT(counter, 1200);
                ZERO(pthread_mutex_lock(&mutex));
                EXPECT_ERROR(pthread_mutex_lock(&mutex), EDEADLK);
                join(start(try_busy, NULL));
                ZERO(pthread_mutex_unlock(&mutex));
                EXPECT_ERROR(pthread_mutex_unlock(&mutex), EPERM);
                if (robust)
                    dead_owner();
                else
                    busy_while_waited_with();
                ZERO(pthread_mutex_destroy(&mutex));
                printf("%s %s %s\n", p ? "inherit" : "none", shared ? "shared" : "private", robust ? "robust" : "stalled");
            }
        }
    }
    return finish();
}
