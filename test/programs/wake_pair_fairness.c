/* Two threads that wake each other without end never keep a third, or one that only yields, from running. */
#include "lateness.h"

static sem_t ping, pong;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int stop, with_cond, turn;
static int64_t duration;

static void hand_over(int id)
{
    if (with_cond) {
        ZERO(pthread_mutex_lock(&lock));
        turn = !id;
        ZERO(pthread_cond_signal(&changed));
        while (turn != id && !stop)
            ZERO(pthread_cond_wait(&changed, &lock));
        ZERO(pthread_mutex_unlock(&lock));
    } else {
        ZERO(sem_post(id ? &ping : &pong));
        ZERO(sem_wait(id ? &pong : &ping));
    }
}

static void *one_of_pair(void *arg)
{
    int id = (int)(intptr_t)arg;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        hand_over(id);
    /* The other one may be waiting still. */
    ZERO(sem_post(id ? &ping : &pong));
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_cond_broadcast(&changed));
    ZERO(pthread_mutex_unlock(&lock));
    return NULL;
}

static void *sleep_often(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(duration, 1);
    return NULL;
}

static void *yield_often(void *arg)
{
    int64_t worst = 0, before = now_us();

    for (int64_t end = before + duration, now; before < end; before = now) {
        sched_yield();
        now = now_us();
        if (now - before > worst)
            worst = now - before;
    }
    *(int64_t *)arg = worst;
    return NULL;
}

static int64_t measure(void)
{
    int64_t worst_sleep, worst_yield;

    stop = turn = 0;
    ZERO(sem_init(&ping, 0, 0));
    ZERO(sem_init(&pong, 0, 0));
    pthread_t a = start_number(one_of_pair, 0), b = start_number(one_of_pair, 1);
    pthread_t sleeper = start(sleep_often, &worst_sleep), yielder = start(yield_often, &worst_yield);
    join(sleeper);
    join(yielder);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join(a);
    join(b);
    return worst_sleep > worst_yield ? worst_sleep : worst_yield;
}

int main(int argc, char **argv)
{
    begin(60);
    start_control();
    duration = 1000 * argument(argc, argv, 1, 800);
    expect_punctual("semaphore", measure);
    with_cond = 1;
    expect_punctual("condition", measure);
    return finish();
}
