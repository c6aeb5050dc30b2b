/* Deadlines of condition variables on both clocks: past, near, far, and values that are not times. */
#include "check.h"
#include <limits.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t as_ns(struct timespec t)
{
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void check_times_out(pthread_cond_t *cond, clockid_t clock, int by_clockwait)
{
    for (int ms = -10; ms <= 20; ms += 10) {
        struct timespec at = in_ms(clock, ms);
        int error;

        ZERO(pthread_mutex_lock(&lock));
        while ((error = by_clockwait ? pthread_cond_clockwait(cond, &lock, clock, &at)
                                     : pthread_cond_timedwait(cond, &lock, &at)) == 0)
            ;
        EXPECT_ERROR(error, ETIMEDOUT);
        CHECK(now_ns(clock) >= as_ns(at));
        /* The mutex is held again. */
        EXPECT_ERROR(pthread_mutex_trylock(&lock), EBUSY);
        ZERO(pthread_mutex_unlock(&lock));
    }
}

struct far {
    pthread_cond_t *cond;
    struct timespec at;
    struct gate ready;
    int done;
};

static void *wait_far(void *arg)
{
    struct far *f = arg;

    ZERO(pthread_mutex_lock(&lock));
    f->ready.count = 1;
    while (!f->done)
        ZERO(pthread_cond_timedwait(f->cond, &lock, &f->at));
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void check_far(pthread_cond_t *cond, struct timespec at)
{
    struct far f = {cond, at, GATE, 0};
    pthread_t t = start(wait_far, &f);

    for (int in = 0; !in;) {
        ZERO(pthread_mutex_lock(&lock));
        in = f.ready.count == 1;
        ZERO(pthread_mutex_unlock(&lock));
        sched_yield();
    }
    ZERO(pthread_mutex_lock(&lock));
    f.done = 1;
    ZERO(pthread_cond_signal(cond));
    ZERO(pthread_mutex_unlock(&lock));
    join(t);
}

static void *run(void *arg)
{
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
    pthread_condattr_t attr;
    pthread_cond_t cond;
    clockid_t got;

    for (int i = 0; i < 2; i++) {
        ZERO(pthread_condattr_init(&attr));
        ZERO(pthread_condattr_setclock(&attr, clocks[i]));
        ZERO(pthread_condattr_getclock(&attr, &got));
        EXPECT(got, clocks[i]);
        ZERO(pthread_cond_init(&cond, &attr));
        ZERO(pthread_condattr_destroy(&attr));
        check_times_out(&cond, clocks[i], 0);
        check_times_out(&cond, clocks[0], 1);
        check_times_out(&cond, clocks[1], 1);
        check_far(&cond, in_ms(clocks[i], 1000000));
        check_far(&cond, (struct timespec){INT32_MAX, 999999999});
        check_far(&cond, (struct timespec){LONG_MAX / 2, 0});
        check_far(&cond, (struct timespec){LONG_MAX, 999999999});

        struct timespec bad = {1, 1000000000}, negative = {1, -1}, ancient = {-5, 0};
        ZERO(pthread_mutex_lock(&lock));
        EXPECT_ERROR(pthread_cond_timedwait(&cond, &lock, &bad), EINVAL);
        EXPECT_ERROR(pthread_cond_timedwait(&cond, &lock, &negative), EINVAL);
        EXPECT_ERROR(pthread_cond_timedwait(&cond, &lock, &ancient), ETIMEDOUT);
        EXPECT_ERROR(pthread_cond_clockwait(&cond, &lock, CLOCK_PROCESS_CPUTIME_ID, &bad), EINVAL);
        EXPECT_ERROR(pthread_mutex_trylock(&lock), EBUSY);
        ZERO(pthread_mutex_unlock(&lock));
        ZERO(pthread_cond_destroy(&cond));
        puts(i ? "monotonic" : "realtime");
    }
    return arg;
}

static sem_t never;
static pthread_cond_t quiet = PTHREAD_COND_INITIALIZER;

/* Many deadlines at once, each kept and none early. */
static void *many(void *arg)
{
    long id = (intptr_t)arg;
    struct timespec at = in_ms(CLOCK_MONOTONIC, id * 7 % 50);
    int error;

    if (id % 2) {
        while ((error = sem_clockwait(&never, CLOCK_MONOTONIC, &at)) == 0)
            ;
        EXPECT(errno, ETIMEDOUT);
    } else {
        ZERO(pthread_mutex_lock(&lock));
        while ((error = pthread_cond_clockwait(&quiet, &lock, CLOCK_MONOTONIC, &at)) == 0)
            ;
        ZERO(pthread_mutex_unlock(&lock));
        EXPECT_ERROR(error, ETIMEDOUT);
    }
    CHECK(now_ns(CLOCK_MONOTONIC) >= as_ns(at));
    return arg;
}

int main(void)
{
    pthread_condattr_t attr;

    begin(20);
    ZERO(pthread_condattr_init(&attr));
    EXPECT_ERROR(pthread_condattr_setclock(&attr, CLOCK_PROCESS_CPUTIME_ID), EINVAL);
    EXPECT_ERROR(pthread_condattr_setclock(&attr, 99), EINVAL);
    puts("main");
    run(NULL);
    puts("thread");
    join(start(run, NULL));
    ZERO(sem_init(&never, 0, 0));
    in_threads(200, many);
    puts("many");
    return finish();
}
