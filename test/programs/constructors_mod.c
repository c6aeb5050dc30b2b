/* Linked with the program: its constructor runs before those of the program and of preloaded libraries. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counter;

int module_count(void);

static void *run(void *arg)
{
    for (int i = 0; i < 50; i++) {
        ZERO(pthread_mutex_lock(&lock));
        counter++;
        sched_yield();
        ZERO(pthread_mutex_unlock(&lock));
    }
    return arg;
}

__attribute__((constructor(101))) static void first(void)
{
    in_threads(4, run);
    puts("library constructor");
}

__attribute__((destructor(101))) static void last(void)
{
    in_threads(4, run);
    EXPECT(counter, 400);
    puts("library destructor");
    puts("ok");
    fflush(stdout);
}

int module_count(void)
{
    return counter;
}
