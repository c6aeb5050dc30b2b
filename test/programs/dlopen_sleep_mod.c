/* Sleeps in its constructor and destructor, under the loader's lock. */
#include <time.h>

static int ready;

int module_ready(void);

static void sleep_a_little(void)
{
    struct timespec t = {0, 1000000};

    nanosleep(&t, 0);
}

__attribute__((constructor)) static void construct(void)
{
    sleep_a_little();
    ready = 1;
}

__attribute__((destructor)) static void destruct(void)
{
    sleep_a_little();
    ready = 0;
}

int module_ready(void)
{
    return ready;
}
