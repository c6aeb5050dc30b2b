/* For test/counters: threads that spend all their time in burn_leaf, called by burn_middle, called by burn_start, built with
 * frame pointers. */
#include "check.h"

#include <pthread.h>
#include <sched.h>

static volatile unsigned long x;

/* The statements behind the calls keep them from becoming jumps. */
__attribute__((noinline)) void burn_leaf(void)
{
    for (unsigned i = 0; i < 1000000; i++)
        x += i;
}

__attribute__((noinline)) void burn_middle(void)
{
    burn_leaf();
    x++;
}

__attribute__((noinline)) void *burn_start(void *arg)
{
    for (int i = 0; i < 120; i++) {
        burn_middle();
        sched_yield();
    }
    return arg;
}

int main(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], NULL, burn_start, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(t[i], NULL) == 0);
    return 0;
}
