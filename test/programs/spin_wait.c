/* Threads that spin on a flag, with and without sched_yield, until another thread, started last, acts. */
#include "check.h"

enum { SPINNERS = 6 };

static volatile int flag;
static pthread_spinlock_t spin;
static int counter;
static volatile int turn;

static void *spin_plain(void *arg)
{
    while (!flag)
        ;
    return arg;
}

static void *spin_pause(void *arg)
{
    while (!flag)
        __builtin_ia32_pause();
    return arg;
}

static void *spin_yield(void *arg)
{
    while (!flag)
        sched_yield();
    return arg;
}

static void *set(void *arg)
{
    flag = 1;
    return arg;
}

static void *wait_in_spinlock(void *arg)
{
    for (int i = 0; i < 100; i++) {
        ZERO(pthread_spin_lock(&spin));
        int held = counter;
        if (i % 20 == 0)
            sched_yield();
        counter = held + 1;
        ZERO(pthread_spin_unlock(&spin));
    }
    return arg;
}

static void *take_turns(void *arg)
{
    int id = (int)(intptr_t)arg;

    for (int i = 0; i < 20; i++) {
        while (turn != id)
            sched_yield();
        turn = (id + 1) % SPINNERS;
    }
    return arg;
}

static void round_of(const char *name, void *(*run)(void *))
{
    pthread_t threads[SPINNERS];

    flag = 0;
    for (int i = 0; i < SPINNERS; i++)
        threads[i] = start(run, NULL);
    join(start(set, NULL));
    for (int i = 0; i < SPINNERS; i++)
        join(threads[i]);
    puts(name);
}

int main(void)
{
    begin(30);
    round_of("plain", spin_plain);
    round_of("pause", spin_pause);
    round_of("yield", spin_yield);
    ZERO(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    in_threads(SPINNERS, wait_in_spinlock);
    EXPECT(counter, SPINNERS * 100);
    puts("spinlock");
    in_threads(SPINNERS, take_turns);
    puts("turns");
    return finish();
}
