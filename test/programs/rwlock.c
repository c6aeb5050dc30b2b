/* Read-write locks: exclusion, preference of readers or writers, try, timed and clock forms, errors. */
#include "check.h"

enum { READERS = 10, WRITERS = 4, ROUNDS = 150 };

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t writers_first = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static int first, second, readers_in;
static pthread_rwlock_t *shared_lock;

static void *work(void *arg)
{
    int writer = (intptr_t)arg < WRITERS;

    for (int i = 0; i < ROUNDS; i++) {
        if (writer) {
            ZERO(pthread_rwlock_wrlock(shared_lock));
            EXPECT(readers_in, 0);
            first++;
            if (i % 10 == 0)
                sched_yield();
            second++;
        } else {
            ZERO(pthread_rwlock_rdlock(shared_lock));
            __atomic_add_fetch(&readers_in, 1, __ATOMIC_SEQ_CST);
            EXPECT(first, second);
            sched_yield();
            EXPECT(first, second);
            __atomic_sub_fetch(&readers_in, 1, __ATOMIC_SEQ_CST);
        }
        ZERO(pthread_rwlock_unlock(shared_lock));
    }
    return arg;
}

/* All readers are in at once: none leaves before the last has come. */
static pthread_barrier_t all_in;

static void *read_together(void *arg)
{
    ZERO(pthread_rwlock_rdlock(&rwlock));
    pthread_barrier_wait(&all_in);
    ZERO(pthread_rwlock_unlock(&rwlock));
    return arg;
}

static void *while_read(void *arg)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 3), mono = in_ms(CLOCK_MONOTONIC, 3), past = {1, 0}, bad = {1, -1};

    EXPECT_ERROR(pthread_rwlock_trywrlock(&rwlock), EBUSY);
    ZERO(pthread_rwlock_tryrdlock(&rwlock));
    ZERO(pthread_rwlock_unlock(&rwlock));
    EXPECT_ERROR(pthread_rwlock_timedwrlock(&rwlock, &at), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
    EXPECT_ERROR(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &mono), ETIMEDOUT);
    EXPECT_ERROR(pthread_rwlock_timedwrlock(&rwlock, &past), ETIMEDOUT);
    EXPECT_ERROR(pthread_rwlock_timedwrlock(&rwlock, &bad), EINVAL);
    EXPECT_ERROR(pthread_rwlock_clockwrlock(&rwlock, CLOCK_PROCESS_CPUTIME_ID, &mono), EINVAL);
    /* Timed-out writers have left nothing behind that keeps readers out. */
    at = in_ms(CLOCK_REALTIME, 10000);
    ZERO(pthread_rwlock_timedrdlock(&rwlock, &at));
    ZERO(pthread_rwlock_unlock(&rwlock));
    return arg;
}

static void *while_written(void *arg)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 3), mono = in_ms(CLOCK_MONOTONIC, 3);

    EXPECT_ERROR(pthread_rwlock_tryrdlock(&rwlock), EBUSY);
    EXPECT_ERROR(pthread_rwlock_trywrlock(&rwlock), EBUSY);
    EXPECT_ERROR(pthread_rwlock_timedrdlock(&rwlock, &at), ETIMEDOUT);
    EXPECT_ERROR(pthread_rwlock_clockrdlock(&rwlock, CLOCK_MONOTONIC, &mono), ETIMEDOUT);
    EXPECT_ERROR(pthread_rwlock_timedwrlock(&rwlock, &at), ETIMEDOUT);
    return arg;
}

static struct gate trying = GATE;
static int writer_done;

static void *write_once(void *arg)
{
    gate_add(&trying, 1);
    ZERO(pthread_rwlock_wrlock(arg));
    writer_done = 1;
    ZERO(pthread_rwlock_unlock(arg));
    return NULL;
}

/* With preference to writers, a reader is kept out from when a writer waits. */
static void prefer_writers(void)
{
    ZERO(pthread_rwlock_rdlock(&writers_first));
    pthread_t t = start(write_once, &writers_first);
    int error;
    gate_wait(&trying, 1);
    while ((error = pthread_rwlock_tryrdlock(&writers_first)) == 0) {
        ZERO(pthread_rwlock_unlock(&writers_first));
        sched_yield();
    }
    EXPECT_ERROR(error, EBUSY);
    EXPECT(writer_done, 0);
    ZERO(pthread_rwlock_unlock(&writers_first));
    join(t);
    EXPECT(writer_done, 1);
}

/* With preference to readers, as is the default, a reader gets in while a writer waits, also for a second
 * time. */
static void prefer_readers(void)
{
    ZERO(pthread_rwlock_rdlock(&rwlock));
    writer_done = 0;
    pthread_t t = start(write_once, &rwlock);
    gate_wait(&trying, 2);
    for (int i = 0; i < 100; i++) {
        ZERO(pthread_rwlock_rdlock(&rwlock));
        sched_yield();
        ZERO(pthread_rwlock_unlock(&rwlock));
    }
    EXPECT(writer_done, 0);
    ZERO(pthread_rwlock_unlock(&rwlock));
    join(t);
}

static void *run(void *arg)
{
    ZERO(pthread_rwlock_rdlock(&rwlock));
    join(start(while_read, NULL));
    ZERO(pthread_rwlock_unlock(&rwlock));
    ZERO(pthread_rwlock_wrlock(&rwlock));
    join(start(while_written, NULL));
    EXPECT_ERROR(pthread_rwlock_rdlock(&rwlock), EDEADLK);
    EXPECT_ERROR(pthread_rwlock_wrlock(&rwlock), EDEADLK);
    ZERO(pthread_rwlock_unlock(&rwlock));
    return arg;
}

int main(void)
{
    static const int kinds[] = {PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_RWLOCK_PREFER_WRITER_NP,
                                PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP};
    pthread_rwlockattr_t attr;

    begin(20);
    for (int shared = 0; shared < 2; shared++) {
        for (int i = 0; i < 3; i++) {
            pthread_rwlock_t made;
            int got;

            ZERO(pthread_rwlockattr_init(&attr));
            ZERO(pthread_rwlockattr_setkind_np(&attr, kinds[i]));
            ZERO(pthread_rwlockattr_getkind_np(&attr, &got));
            EXPECT(got, kinds[i]);
            ZERO(pthread_rwlockattr_setpshared(&attr, shared));
            ZERO(pthread_rwlock_init(&made, &attr));
            ZERO(pthread_rwlockattr_destroy(&attr));
            shared_lock = &made;
            first = second = 0;
            in_threads(READERS + WRITERS, work);
            EXPECT(first, WRITERS * ROUNDS);
            EXPECT(second, WRITERS * ROUNDS);
            ZERO(pthread_rwlock_destroy(&made));
        }
        puts(shared ? "shared" : "private");
    }
    EXPECT_ERROR(pthread_rwlockattr_setkind_np(&attr, 99), EINVAL);
    ZERO(pthread_barrier_init(&all_in, NULL, 50));
    in_threads(50, read_together);
    puts("together");
    run(NULL);
    join(start(run, NULL));
    puts("timed");
    prefer_writers();
    prefer_readers();
    puts("preference");
    return finish();
}
