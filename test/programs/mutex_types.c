/* Every kind of mutex, statically and dynamically made: owner rules by thread, try, timed and clock locks,
 * exclusion. */
#include "check.h"

enum { THREADS = 8, ROUNDS = 200 };

static pthread_mutex_t statics[] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                                    PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP};
static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
static const char *const names[] = {"normal", "recursive", "errorcheck", "adaptive"};

static pthread_mutex_t *mutex;
static int type, shared_value;
static long counter;

static void *exclude(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        ZERO(pthread_mutex_lock(mutex));
        int held = shared_value;
        if (type == PTHREAD_MUTEX_RECURSIVE) {
            ZERO(pthread_mutex_lock(mutex));
            ZERO(pthread_mutex_trylock(mutex));
            ZERO(pthread_mutex_unlock(mutex));
        }
        if (i % 10 == 0)
            sched_yield();
        if (i % 100 == 50)
            sleep_us(10);
        /* Perhaps on another processor by now, and still the owner. */
        if (type == PTHREAD_MUTEX_ERRORCHECK)
            EXPECT_ERROR(pthread_mutex_lock(mutex), EDEADLK);
        else if (type != PTHREAD_MUTEX_RECURSIVE)
            EXPECT_ERROR(pthread_mutex_trylock(mutex), EBUSY);
        EXPECT(shared_value, held);
        shared_value = held + 1;
        counter++;
        if (type == PTHREAD_MUTEX_RECURSIVE)
            ZERO(pthread_mutex_unlock(mutex));
        ZERO(pthread_mutex_unlock(mutex));
        if (type == PTHREAD_MUTEX_ERRORCHECK || type == PTHREAD_MUTEX_RECURSIVE)
            EXPECT_ERROR(pthread_mutex_unlock(mutex), EPERM);
    }
    return arg;
}

static void *stranger(void *arg)
{
    struct timespec past = {1, 0}, bad = {1, 1000000000};
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);

    EXPECT_ERROR(pthread_mutex_trylock(mutex), EBUSY);
    if (type == PTHREAD_MUTEX_ERRORCHECK || type == PTHREAD_MUTEX_RECURSIVE)
        EXPECT_ERROR(pthread_mutex_unlock(mutex), EPERM);
    EXPECT_ERROR(pthread_mutex_timedlock(mutex, &past), ETIMEDOUT);
    EXPECT_ERROR(pthread_mutex_timedlock(mutex, &bad), EINVAL);
    EXPECT_ERROR(pthread_mutex_timedlock(mutex, &soon), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= soon.tv_sec * INT64_C(1000000000) + soon.tv_nsec);
    soon = in_ms(CLOCK_MONOTONIC, 5);
    EXPECT_ERROR(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= soon.tv_sec * INT64_C(1000000000) + soon.tv_nsec);
    EXPECT_ERROR(pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    return arg;
}

static void *timed_winner(void *arg)
{
    struct timespec far = in_ms(CLOCK_REALTIME, 20000);

    gate_add(arg, 1);
    ZERO(pthread_mutex_timedlock(mutex, &far));
    ZERO(pthread_mutex_unlock(mutex));
    return arg;
}

static void *owner(void *arg)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 5);
    struct gate ready = GATE;

    ZERO(pthread_mutex_lock(mutex));
    join(start(stranger, NULL));
    sched_yield();
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        ZERO(pthread_mutex_timedlock(mutex, &soon));
        ZERO(pthread_mutex_unlock(mutex));
    } else {
        EXPECT_ERROR(pthread_mutex_timedlock(mutex, &soon), type == PTHREAD_MUTEX_ERRORCHECK ? EDEADLK : ETIMEDOUT);
    }
    EXPECT_ERROR(pthread_mutex_destroy(mutex), EBUSY);
    pthread_t t = start(timed_winner, &ready);
    gate_wait(&ready, 1);
    sched_yield();
    ZERO(pthread_mutex_unlock(mutex));
    join(t);
    return arg;
}

static void try_all(const char *name, pthread_mutex_t *m)
{
    mutex = m;
    counter = 0;
    shared_value = 0;
    in_threads(THREADS, exclude);
    EXPECT(counter, THREADS * ROUNDS);
    EXPECT(shared_value, THREADS * ROUNDS);
    join(start(owner, NULL));
    owner(NULL);
    printf("%s\n", name);
}

int main(void)
{
    begin(20);
    for (int i = 0; i < 4; i++) {
        pthread_mutexattr_t attr;
        pthread_mutex_t made;
        int got;

        type = types[i];
        try_all(names[i], &statics[i]);
        ZERO(pthread_mutexattr_init(&attr));
        ZERO(pthread_mutexattr_settype(&attr, type));
        ZERO(pthread_mutexattr_gettype(&attr, &got));
        EXPECT(got, type);
        ZERO(pthread_mutex_init(&made, &attr));
        ZERO(pthread_mutexattr_destroy(&attr));
        try_all(names[i], &made);
        ZERO(pthread_mutex_destroy(&made));
    }
    pthread_mutexattr_t attr;
    ZERO(pthread_mutexattr_init(&attr));
    EXPECT_ERROR(pthread_mutexattr_settype(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_mutexattr_setpshared(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_mutexattr_setprotocol(&attr, 99), EINVAL);
    EXPECT_ERROR(pthread_mutexattr_setrobust(&attr, 99), EINVAL);
    return finish();
}
