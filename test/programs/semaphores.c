/* Semaphores, unnamed and named: counts, try, timed and clock forms, many waiters, errors. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>

enum { THREADS = 20, ROUNDS = 200 };

static sem_t items, places, *chain[2];
static int in_use;

static void *use_place(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        ZERO(sem_wait(&places));
        CHECK(__atomic_add_fetch(&in_use, 1, __ATOMIC_SEQ_CST) <= 3);
        if (i % 8 == 0)
            sched_yield();
        __atomic_sub_fetch(&in_use, 1, __ATOMIC_SEQ_CST);
        ZERO(sem_post(&places));
    }
    return arg;
}

static void *give_or_take(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        if ((intptr_t)arg % 2) {
            ZERO(sem_post(&items));
        } else {
            struct timespec at = in_ms(i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC, 10000);
            ZERO(i % 3 == 0 ? sem_wait(&items)
                 : i % 2    ? sem_timedwait(&items, &at)
                            : sem_clockwait(&items, CLOCK_MONOTONIC, &at));
        }
    }
    return arg;
}

static void *errors(void *arg)
{
    sem_t s;
    int value;
    struct timespec at = in_ms(CLOCK_REALTIME, 3), past = {1, 0}, bad = {1, 1000000000};

    ZERO(sem_init(&s, 0, 2));
    ZERO(sem_getvalue(&s, &value));
    EXPECT(value, 2);
    ZERO(sem_trywait(&s));
    ZERO(sem_timedwait(&s, &past)); /* no waiting, so no time-out */
    EXPECT_ERRNO(sem_trywait(&s), EAGAIN);
    EXPECT_ERRNO(sem_timedwait(&s, &at), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
    EXPECT_ERRNO(sem_timedwait(&s, &past), ETIMEDOUT);
    EXPECT_ERRNO(sem_timedwait(&s, &bad), EINVAL);
    at = in_ms(CLOCK_MONOTONIC, 3);
    EXPECT_ERRNO(sem_clockwait(&s, CLOCK_MONOTONIC, &at), ETIMEDOUT);
    EXPECT_ERRNO(sem_clockwait(&s, CLOCK_PROCESS_CPUTIME_ID, &at), EINVAL);
    ZERO(sem_getvalue(&s, &value));
    EXPECT(value, 0);
    ZERO(sem_destroy(&s));
    EXPECT_ERRNO(sem_init(&s, 0, (unsigned)INT_MAX + 1), EINVAL);
    ZERO(sem_init(&s, 0, INT_MAX));
    EXPECT_ERRNO(sem_post(&s), EOVERFLOW);
    ZERO(sem_destroy(&s));
    return arg;
}

static void *pass_on(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        ZERO(sem_wait(chain[(intptr_t)arg]));
        ZERO(sem_post(chain[!(intptr_t)arg]));
    }
    return arg;
}

int main(void)
{
    char names[2][64];

    begin(20);
    for (int shared = 0; shared < 2; shared++) {
        int value;
        ZERO(sem_init(&places, shared, 3));
        ZERO(sem_init(&items, shared, 0));
        in_threads(THREADS, use_place);
        in_threads(THREADS, give_or_take);
        ZERO(sem_getvalue(&items, &value));
        EXPECT(value, 0);
        ZERO(sem_getvalue(&places, &value));
        EXPECT(value, 3);
        puts(shared ? "shared" : "private");
    }
    errors(NULL);
    join(start(errors, NULL));
    puts("errors");
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "/semaphores-%d-%d", (int)getpid(), i);
        chain[i] = sem_open(names[i], O_CREAT | O_EXCL, 0600, i == 0);
        CHECK(chain[i] != SEM_FAILED);
        SYS(sem_unlink(names[i]));
    }
    in_threads(2, pass_on);
    ZERO(sem_close(chain[0]));
    ZERO(sem_close(chain[1]));
    puts("named");
    return finish();
}
