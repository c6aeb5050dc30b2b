/* pthread_once whose routine is left by a cancellation or pthread_exit, in a program without unwind tables: libc then jumps
 * from one registered cleanup to the next, and the routine has not run. */
#include "check.h"

static pthread_once_t once;
static sem_t never;
static struct gate inside = GATE;
static int cleaned, ran; /* by one thread at a time */

static void waits(void)
{
    gate_add(&inside, 1);
    sem_wait(&never);
    FAIL("the wait is over");
}

static void leaves(void)
{
    pthread_exit((void *)7);
}

static void runs(void)
{
    ran++;
}

static void clean(void *arg)
{
    (void)arg;
    cleaned++;
}

static void *cancelled(void *arg)
{
    pthread_cleanup_push(clean, NULL);
    pthread_once(&once, waits);
    pthread_cleanup_pop(0);
    FAIL("the thread goes on");
    return arg;
}

static void *exits(void *arg)
{
    pthread_cleanup_push(clean, NULL);
    pthread_once(&once, leaves);
    pthread_cleanup_pop(0);
    FAIL("the thread goes on");
    return arg;
}

/* Waits for another's routine, which will not have run. */
static void *next(void *arg)
{
    ZERO(pthread_once(&once, runs));
    return arg;
}

int main(void)
{
    begin(30);
    ZERO(sem_init(&never, 0, 0));
    for (int lap = 1; lap <= 20; lap++) {
        pthread_t others[4];
        once = PTHREAD_ONCE_INIT;
        ran = 0;
        pthread_t first = start(cancelled, NULL);
        gate_wait(&inside, lap);
        for (int i = 0; i < 4; i++)
            others[i] = start(next, NULL);
        ZERO(pthread_cancel(first));
        CHECK(join(first) == PTHREAD_CANCELED);
        for (int i = 0; i < 4; i++)
            join(others[i]);
        EXPECT(ran, 1);
        once = PTHREAD_ONCE_INIT;
        ran = 0;
        CHECK(join(start(exits, NULL)) == (void *)7);
        next(NULL);
        EXPECT(ran, 1);
        EXPECT(cleaned, 2 * lap);
    }
    return finish();
}
