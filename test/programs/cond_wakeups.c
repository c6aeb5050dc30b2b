/* No wake-up is lost between a waiter's unlock and its sleep: signal and broadcast, tight queues, turns,
 * cancellation. */
#include "check.h"

enum { SIDES = 8, ITEMS = 1000, RING = 16, LAPS = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static long item = -1, sum;
static int turn;

static void *produce(void *arg)
{
    for (long i = 0; i < ITEMS; i++) {
        ZERO(pthread_mutex_lock(&lock));
        while (item >= 0)
            ZERO(pthread_cond_wait(&emptied, &lock));
        item = i;
        if (i % 2) {
            ZERO(pthread_mutex_unlock(&lock));
            ZERO(pthread_cond_signal(&filled));
        } else {
            ZERO(pthread_cond_signal(&filled));
            ZERO(pthread_mutex_unlock(&lock));
        }
    }
    return arg;
}

static void *consume(void *arg)
{
    for (long i = 0; i < ITEMS; i++) {
        ZERO(pthread_mutex_lock(&lock));
        while (item < 0)
            ZERO(pthread_cond_wait(&filled, &lock));
        sum += item;
        item = -1;
        ZERO(pthread_cond_signal(&emptied));
        ZERO(pthread_mutex_unlock(&lock));
    }
    return arg;
}

static void *take_side(void *arg)
{
    return (intptr_t)arg < SIDES ? produce(arg) : consume(arg);
}

static void *take_turns(void *arg)
{
    int id = (int)(intptr_t)arg;

    for (int i = 0; i < LAPS; i++) {
        ZERO(pthread_mutex_lock(&lock));
        while (turn != id)
            ZERO(pthread_cond_wait(&turned, &lock));
        turn = (turn + 1) % RING;
        ZERO(pthread_cond_broadcast(&turned));
        ZERO(pthread_mutex_unlock(&lock));
    }
    return arg;
}

/* Each signal must release one of those that waited before it, not a later comer. */
static sem_t released;
static int waiting;

static void *wait_once(void *arg)
{
    ZERO(pthread_mutex_lock(&lock));
    waiting++;
    ZERO(pthread_cond_wait(&turned, &lock));
    ZERO(pthread_mutex_unlock(&lock));
    ZERO(sem_post(&released));
    return arg;
}

static void one_a_signal(void)
{
    pthread_t threads[20];

    ZERO(sem_init(&released, 0, 0));
    for (int i = 0; i < 20; i++)
        threads[i] = start(wait_once, NULL);
    for (int in = 0; in < 20;) {
        ZERO(pthread_mutex_lock(&lock));
        in = waiting;
        ZERO(pthread_mutex_unlock(&lock));
        sched_yield();
    }
    for (int i = 0; i < 20; i++) {
        ZERO(pthread_cond_signal(&turned));
        ZERO(sem_wait(&released));
    }
    for (int i = 0; i < 20; i++)
        join(threads[i]);
}

int main(void)
{
    begin(30);
    in_threads(2 * SIDES, take_side);
    EXPECT(sum, (long)SIDES * ITEMS * (ITEMS - 1) / 2);
    puts("queue");
    in_threads(RING, take_turns);
    EXPECT(turn, 0);
    puts("turns");
    one_a_signal();
    puts("one a signal");
    /* Nobody waits: a signal is forgotten. */
    ZERO(pthread_cond_signal(&turned));
    ZERO(pthread_cond_broadcast(&turned));
    struct timespec soon = in_ms(CLOCK_REALTIME, 2);
    ZERO(pthread_mutex_lock(&lock));
    int error;
    while ((error = pthread_cond_timedwait(&turned, &lock, &soon)) == 0)
        ;
    EXPECT_ERROR(error, ETIMEDOUT);
    ZERO(pthread_mutex_unlock(&lock));
    return finish();
}
