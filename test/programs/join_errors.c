/*
 * The errors of join, its timed and trying forms, and detach. Left out is what glibc may or may not notice:
 * two joiners of one thread, and threads that join each other.
 */
#include "check.h"

static sem_t go;

static void *wait_go(void *arg)
{
    while (sem_wait(&go) == -1)
        ;
    return arg;
}

/* Says that it has been let go: nobody can join it to know. */
static struct gate detached_gone = GATE;

static void *wait_go_detached(void *arg)
{
    wait_go(arg);
    gate_add(&detached_gone, 1);
    return arg;
}

static void *at_once(void *arg)
{
    return arg;
}

static void *self_errors(void *arg)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 100);

    EXPECT_ERROR(pthread_join(pthread_self(), NULL), EDEADLK);
    EXPECT_ERROR(pthread_timedjoin_np(pthread_self(), NULL, &at), EDEADLK);
    EXPECT_ERROR(pthread_tryjoin_np(pthread_self(), NULL), EBUSY);
    ZERO(pthread_detach(pthread_self()));
    EXPECT_ERROR(pthread_detach(pthread_self()), EINVAL);
    /* That it is detached, or itself: glibc 2.43 says the latter. */
    int error = pthread_join(pthread_self(), NULL);
    CHECK(error == EINVAL || error == EDEADLK);
    EXPECT_ERROR(pthread_tryjoin_np(pthread_self(), NULL), EBUSY);
    gate_add(arg, 1);
    return arg;
}

static void *all(void *arg)
{
    pthread_attr_t attr;
    pthread_t t;
    void *value = NULL;
    int here;

    /* Running: busy, timed out; at the end, its value by each of the ways. */
    for (int way = 0; way < 4; way++) {
        t = start(wait_go, &here);
        EXPECT_ERROR(pthread_tryjoin_np(t, &value), EBUSY);
        struct timespec at = in_ms(CLOCK_REALTIME, 3), past = {1, 0};
        EXPECT_ERROR(pthread_timedjoin_np(t, &value, &at), ETIMEDOUT);
        CHECK(now_ns(CLOCK_REALTIME) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
        EXPECT_ERROR(pthread_timedjoin_np(t, &value, &past), ETIMEDOUT);
        at = in_ms(CLOCK_MONOTONIC, 3);
        EXPECT_ERROR(pthread_clockjoin_np(t, &value, CLOCK_MONOTONIC, &at), ETIMEDOUT);
        ZERO(sem_post(&go));
        value = NULL;
        int error;
        switch (way) {
        case 0:
            while ((error = pthread_tryjoin_np(t, &value)) == EBUSY)
                sched_yield();
            ZERO(error);
            break;
        case 1:
            at = in_ms(CLOCK_REALTIME, 10000);
            ZERO(pthread_timedjoin_np(t, &value, &at));
            break;
        case 2:
            at = in_ms(CLOCK_MONOTONIC, 10000);
            ZERO(pthread_clockjoin_np(t, &value, CLOCK_MONOTONIC, &at));
            break;
        default:
            ZERO(pthread_timedjoin_np(t, &value, NULL));
        }
        CHECK(value == &here);
    }
    puts("running");

    /* Detached at its creation and still there. */
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
    ZERO(pthread_create(&t, &attr, wait_go_detached, NULL));
    EXPECT_ERROR(pthread_join(t, NULL), EINVAL);
    EXPECT_ERROR(pthread_tryjoin_np(t, NULL), EBUSY);
    EXPECT_ERROR(pthread_detach(t), EINVAL);
    detached_gone.count = 0;
    ZERO(sem_post(&go));
    gate_wait(&detached_gone, 1);
    /* It has ended, or is about to. */
    for (int i = 0; i < 20; i++) {
        ZERO(pthread_create(&t, &attr, at_once, &here));
        EXPECT_ERROR(pthread_join(t, NULL), EINVAL);
        if (i % 2)
            usleep(1000);
        EXPECT_ERROR(pthread_join(t, NULL), EINVAL);
        EXPECT_ERROR(pthread_detach(t), EINVAL);
    }
    ZERO(pthread_attr_destroy(&attr));
    puts("detached");

    struct gate over = GATE;
    start(self_errors, &over);
    gate_wait(&over, 1);
    puts("self");

    /* Detach and join of one that has ended, or is about to. */
    for (int i = 0; i < 100; i++) {
        t = start(at_once, &here);
        if (i % 2)
            sched_yield();
        if (i % 4 < 2)
            ZERO(pthread_detach(t));
        else
            CHECK(join(t) == &here);
    }
    puts("ended");
    return arg;
}

int main(void)
{
    begin(20);
    ZERO(sem_init(&go, 0, 0));
    puts("main");
    all(NULL);
    puts("thread");
    join(start(all, NULL));
    return finish();
}
