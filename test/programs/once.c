/* pthread_once by many threads at once, nested, and its initialiser cancelled, left by pthread_exit and tried
 * again. */
#include "check.h"

static pthread_once_t plain = PTHREAD_ONCE_INIT, outer = PTHREAD_ONCE_INIT, inner = PTHREAD_ONCE_INIT;
static pthread_once_t cancelled = PTHREAD_ONCE_INIT, left = PTHREAD_ONCE_INIT;
static int plain_count, outer_count, inner_count, cancelled_count, left_count;
static int pipes[2];
static struct gate entered = GATE;

static void init_plain(void)
{
    sleep_us(20000);
    plain_count++;
}

static void init_inner(void)
{
    sleep_us(1000);
    inner_count++;
}

static void init_outer(void)
{
    ZERO(pthread_once(&inner, init_inner));
    EXPECT(inner_count, 1);
    outer_count++;
}

static void init_cancelled(void)
{
    char byte;

    if (++cancelled_count < 4) {
        gate_add(&entered, 1);
        SYS(read(pipes[0], &byte, 1));
        FAIL("read returned in a thread that was cancelled");
    }
}

static void init_left(void)
{
    if (++left_count < 4)
        pthread_exit(NULL);
}

static void *once_plain(void *arg)
{
    ZERO(pthread_once(&plain, init_plain));
    EXPECT(plain_count, 1);
    return arg;
}

static void *once_nested(void *arg)
{
    ZERO(pthread_once((intptr_t)arg % 2 ? &outer : &inner, (intptr_t)arg % 2 ? init_outer : init_inner));
    EXPECT(inner_count, 1);
    return arg;
}

static void *once_cancelled(void *arg)
{
    ZERO(pthread_once(&cancelled, init_cancelled));
    return arg;
}

static void *once_left(void *arg)
{
    ZERO(pthread_once(&left, init_left));
    return arg;
}

int main(void)
{
    pthread_t threads[10];
    int ended = 0;

    begin(20);
    in_threads(100, once_plain);
    puts("plain");
    in_threads(50, once_nested);
    EXPECT(outer_count, 1);
    puts("nested");

    SYS(pipe(pipes));
    for (int i = 0; i < 3; i++) {
        pthread_t t = start(once_cancelled, NULL);
        gate_wait(&entered, i + 1);
        /* Others wait for this one and take over when it is gone. */
        if (i == 2)
            for (int j = 0; j < 10; j++)
                threads[j] = start(once_cancelled, NULL);
        ZERO(pthread_cancel(t));
        CHECK(join(t) == PTHREAD_CANCELED);
    }
    for (int j = 0; j < 10; j++)
        CHECK(join(threads[j]) == NULL);
    EXPECT(cancelled_count, 4);
    puts("cancelled");

    for (int j = 0; j < 10; j++)
        threads[j] = start(once_left, &left);
    for (int j = 0; j < 10; j++)
        ended += join(threads[j]) == NULL;
    EXPECT(left_count, 4);
    EXPECT(ended, 3);
    puts("left");
    return finish();
}
