/* The threads of C11. */
#include "check.h"
#include <threads.h>

static mtx_t plain, recursive, timed;
static cnd_t changed;
static tss_t storage;
static once_flag flag = ONCE_FLAG_INIT;
static _Thread_local int local = 3;
static int counter, once_count, ended;

static void once(void)
{
    once_count++;
}

static void end(void *p)
{
    CHECK(p == &ended);
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
}

static int count(void *arg)
{
    EXPECT(local++, 3);
    call_once(&flag, once);
    EXPECT(tss_set(storage, &ended), thrd_success);
    for (int i = 0; i < 200; i++) {
        EXPECT(mtx_lock(&plain), thrd_success);
        int held = counter;
        if (i % 10 == 0)
            thrd_yield();
        counter = held + 1;
        EXPECT(mtx_unlock(&plain), thrd_success);
        EXPECT(mtx_lock(&recursive), thrd_success);
        EXPECT(mtx_trylock(&recursive), thrd_success);
        EXPECT(mtx_unlock(&recursive), thrd_success);
        EXPECT(mtx_unlock(&recursive), thrd_success);
    }
    CHECK(tss_get(storage) == &ended);
    EXPECT(local, 4);
    return (int)(intptr_t)arg;
}

static int leave(void *arg)
{
    (void)arg;
    thrd_exit(77);
}

static int wait_changed(void *arg)
{
    mtx_lock(&plain);
    ++*(int *)arg;
    while (*(int *)arg >= 0)
        cnd_wait(&changed, &plain);
    mtx_unlock(&plain);
    return 0;
}

static int signal_detached(void *arg)
{
    EXPECT(mtx_lock(&plain), thrd_success);
    *(int *)arg = 1;
    EXPECT(cnd_signal(&changed), thrd_success);
    EXPECT(mtx_unlock(&plain), thrd_success);
    return 0;
}

static void not_called(void *p)
{
    (void)p;
    FAIL("the destructor of a key that has been deleted");
}

static int keep_deleted(void *arg)
{
    tss_t key;

    EXPECT(tss_create(&key, not_called), thrd_success);
    EXPECT(tss_set(key, &ended), thrd_success);
    tss_delete(key);
    EXPECT(tss_create(&key, not_called), thrd_success); /* most likely the same one: it is empty */
    CHECK(tss_get(key) == NULL);
    tss_delete(key);
    return (int)(intptr_t)arg;
}

static int try_timed(void *arg)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 3);

    (void)arg;
    EXPECT(mtx_timedlock(&timed, &at), thrd_timedout);
    EXPECT(mtx_trylock(&timed), thrd_busy);
    return 0;
}

int main(void)
{
    thrd_t threads[16];
    int result, waiting = 0;

    begin(20);
    EXPECT(mtx_init(&plain, mtx_plain), thrd_success);
    EXPECT(mtx_init(&recursive, mtx_plain | mtx_recursive), thrd_success);
    EXPECT(mtx_init(&timed, mtx_timed), thrd_success);
    EXPECT(cnd_init(&changed), thrd_success);
    EXPECT(tss_create(&storage, end), thrd_success);
    for (int i = 0; i < 16; i++)
        EXPECT(thrd_create(&threads[i], count, (void *)(intptr_t)i), thrd_success);
    for (int i = 0; i < 16; i++) {
        EXPECT(thrd_join(threads[i], &result), thrd_success);
        EXPECT(result, i);
    }
    EXPECT(counter, 3200);
    EXPECT(once_count, 1);
    EXPECT(ended, 16);
    EXPECT(thrd_create(&threads[0], leave, NULL), thrd_success);
    EXPECT(thrd_join(threads[0], &result), thrd_success);
    EXPECT(result, 77);
    CHECK(thrd_equal(thrd_current(), thrd_current()));

    for (int i = 0; i < 8; i++)
        EXPECT(thrd_create(&threads[i], wait_changed, &waiting), thrd_success);
    for (int in = 0; in < 8; thrd_yield()) {
        mtx_lock(&plain);
        in = waiting;
        mtx_unlock(&plain);
    }
    mtx_lock(&plain);
    waiting = -1;
    EXPECT(cnd_broadcast(&changed), thrd_success);
    mtx_unlock(&plain);
    for (int i = 0; i < 8; i++)
        EXPECT(thrd_join(threads[i], NULL), thrd_success);

    int said = 0;
    EXPECT(thrd_create(&threads[0], signal_detached, &said), thrd_success);
    EXPECT(thrd_detach(threads[0]), thrd_success);
    mtx_lock(&plain);
    while (!said)
        EXPECT(cnd_wait(&changed, &plain), thrd_success);
    mtx_unlock(&plain);
    EXPECT(thrd_create(&threads[0], keep_deleted, (void *)5), thrd_success);
    EXPECT(thrd_join(threads[0], &result), thrd_success);
    EXPECT(result, 5);

    mtx_lock(&timed);
    EXPECT(thrd_create(&threads[0], try_timed, NULL), thrd_success);
    EXPECT(thrd_join(threads[0], NULL), thrd_success);
    mtx_unlock(&timed);
    struct timespec at = in_ms(CLOCK_REALTIME, 3), little = {0, 1000000};
    mtx_lock(&plain);
    while ((result = cnd_timedwait(&changed, &plain, &at)) == thrd_success)
        ;
    EXPECT(result, thrd_timedout);
    mtx_unlock(&plain);
    EXPECT(thrd_sleep(&little, NULL), 0);
    cnd_destroy(&changed);
    mtx_destroy(&plain);
    return finish();
}
