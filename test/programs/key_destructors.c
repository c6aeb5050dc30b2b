/* Destructors of keys: that set the key again, lock contended mutexes, block, and run for every way a thread
 * ends. */
#include "check.h"
#include <limits.h>

enum { THREADS = 20 };

static pthread_key_t again, locks, blocks, deleted, plain[100];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int locked, plain_count, again_count[THREADS];
static int wait_pipe[2];
static struct gate blocked = GATE, over = GATE;

static void on_again(void *p)
{
    EXPECT((intptr_t)pthread_getspecific(again), 0);
    ++*(int *)p;
    ZERO(pthread_setspecific(again, p));
}

static void on_locks(void *p)
{
    (void)p;
    for (int i = 0; i < 20; i++) {
        ZERO(pthread_mutex_lock(&lock));
        locked++;
        if (i % 5 == 0)
            sched_yield();
        ZERO(pthread_mutex_unlock(&lock));
    }
}

static void on_blocks(void *p)
{
    char byte;

    (void)p;
    gate_add(&blocked, 1);
    EXPECT(read(wait_pipe[0], &byte, 1), 1);
    gate_add(&over, 1);
}

static void on_deleted(void *p)
{
    FAIL("the destructor of a deleted key ran with %p", p);
}

static void on_plain(void *p)
{
    CHECK(*(int *)p == 5);
    __atomic_add_fetch(&plain_count, 1, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
    static int five = 5;
    long id = (intptr_t)arg;

    for (int i = 0; i < 100; i++) {
        CHECK(pthread_getspecific(plain[i]) == NULL);
        ZERO(pthread_setspecific(plain[i], &five));
    }
    CHECK(pthread_getspecific(again) == NULL);
    ZERO(pthread_setspecific(again, &again_count[id]));
    ZERO(pthread_setspecific(locks, &five));
    ZERO(pthread_setspecific(blocks, &five));
    sched_yield();
    CHECK(pthread_getspecific(again) == &again_count[id]);
    CHECK(pthread_getspecific(plain[99]) == &five);
    if (id % 3 == 1)
        pthread_exit(arg);
    if (id % 3 == 2)
        pthread_detach(pthread_self());
    return arg;
}

static void *leave_deleted(void *arg)
{
    ZERO(pthread_setspecific(deleted, arg));
    ZERO(pthread_key_delete(deleted));
    return NULL;
}

static void exhaust(void)
{
    static pthread_key_t all[PTHREAD_KEYS_MAX + 1];
    int n = 0, error;

    while (n <= PTHREAD_KEYS_MAX && (error = pthread_key_create(&all[n], NULL)) == 0)
        n++;
    CHECK(n > PTHREAD_KEYS_MAX / 2);
    printf("too many keys: %s\n", error_name(error));
    while (n > 0)
        ZERO(pthread_key_delete(all[--n]));
}

int main(void)
{
    pthread_t threads[THREADS];

    begin(20);
    ZERO(pthread_key_create(&again, on_again));
    ZERO(pthread_key_create(&locks, on_locks));
    ZERO(pthread_key_create(&blocks, on_blocks));
    ZERO(pthread_key_create(&deleted, on_deleted));
    for (int i = 0; i < 100; i++)
        ZERO(pthread_key_create(&plain[i], on_plain));
    SYS(pipe(wait_pipe));
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(run, i);
    gate_wait(&blocked, THREADS);
    for (int i = 0; i < THREADS; i++)
        write_all(wait_pipe[1], "x", 1);
    gate_wait(&over, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (i % 3 != 2)
            EXPECT((intptr_t)join(threads[i]), i);
    for (int i = 0; i < THREADS; i++) {
        /* A detached thread says nothing when its last round is over. */
        while (i % 3 == 2 && __atomic_load_n(&again_count[i], __ATOMIC_ACQUIRE) < PTHREAD_DESTRUCTOR_ITERATIONS)
            sched_yield();
        EXPECT(again_count[i], PTHREAD_DESTRUCTOR_ITERATIONS);
    }
    EXPECT(locked, THREADS * 20);
    EXPECT(plain_count, THREADS * 100);
    join(start(leave_deleted, threads));
    EXPECT_ERROR(pthread_setspecific(deleted, threads), EINVAL);
    EXPECT_ERROR(pthread_key_delete(deleted), EINVAL);
    CHECK(pthread_getspecific(deleted) == NULL);
    exhaust();
    return finish();
}
