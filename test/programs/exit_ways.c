/* How a process ends, by the way named in the argument: its status, its handlers and their order. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>

static sem_t never;
static pthread_key_t key;

static void *park(void *arg)
{
    gate_add(arg, 1);
    sem_wait(&never);
    FAIL("woken although nobody posts");
}

static void park_many(void)
{
    static struct gate parked = GATE;

    for (int i = 0; i < 50; i++)
        start(park, &parked);
    gate_wait(&parked, 50);
}

static void first(void)
{
    puts("ok");
}

static void second(void)
{
    puts("atexit");
}

static void quick(void)
{
    puts("at_quick_exit");
    fflush(stdout);
}

static void key_end(void *p)
{
    puts(p == &never ? "key of a thread" : "key of main");
}

static void *exit_here(void *arg)
{
    /* Its own keys' destructors do not run at exit. */
    pthread_setspecific(key, &never);
    exit((int)(intptr_t)arg);
}

static void *quick_here(void *arg)
{
    quick_exit((int)(intptr_t)arg);
}

static void *underscore_here(void *arg)
{
    fflush(stdout);
    _exit((int)(intptr_t)arg);
}

static void *abort_here(void *arg)
{
    (void)arg;
    abort();
}

static void *segv_here(void *arg)
{
    *(volatile char *)arg = 1;
    return NULL;
}

static void *kill_here(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
    sem_wait(&never);
    return NULL;
}

static void *exec_here(void *arg)
{
    execl("/proc/self/exe", "exit_ways", "plain", (char *)NULL);
    return arg;
}

static void wait_for_end(void)
{
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "plain";
    struct rlimit no_core = {0, 0};

    begin(20);
    SYS(setrlimit(RLIMIT_CORE, &no_core));
    ZERO(sem_init(&never, 0, 0));
    ZERO(pthread_key_create(&key, key_end));
    atexit(first);
    atexit(second);
    at_quick_exit(quick);
    if (strcmp(way, "plain") != 0)
        park_many();
    puts(way);
    if (strcmp(way, "plain") == 0 || strcmp(way, "return") == 0)
        return 0;
    if (strcmp(way, "return7") == 0)
        return 7;
    if (strcmp(way, "exit") == 0)
        start_number(exit_here, 0);
    else if (strcmp(way, "exit7") == 0)
        start_number(exit_here, 7);
    else if (strcmp(way, "quick_exit") == 0)
        start_number(quick_here, 8);
    else if (strcmp(way, "_exit") == 0)
        start_number(underscore_here, 9);
    else if (strcmp(way, "abort") == 0)
        start(abort_here, NULL);
    else if (strcmp(way, "segv") == 0)
        start(segv_here, NULL);
    else if (strcmp(way, "kill") == 0)
        start(kill_here, NULL);
    else if (strcmp(way, "exec") == 0)
        start(exec_here, NULL);
    else
        FAIL("no such way: %s", way);
    wait_for_end();
}
