/* Threads before any constructor, in constructors, in atexit handlers and in destructors after those. */
#include "check.h"

int module_count(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counter;
static pthread_t left;
static sem_t go;

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

static void *stay(void *arg)
{
    ZERO(sem_wait(&go));
    return arg;
}

static void preinit(int argc, char **argv, char **env)
{
    (void)argc, (void)argv, (void)env;
    in_threads(4, run);
    EXPECT(counter, 200);
    puts("before constructors");
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(int, char **, char **) = preinit;

__attribute__((constructor)) static void construct(void)
{
    EXPECT(module_count(), 200);
    in_threads(4, run);
    EXPECT(counter, 400);
    ZERO(sem_init(&go, 0, 0));
    left = start(stay, (void *)&lock);
    puts("constructor");
}

__attribute__((destructor)) static void destruct(void)
{
    in_threads(4, run);
    EXPECT(counter, 1000);
    puts("destructor");
}

static void at_exit(void)
{
    in_threads(4, run);
    EXPECT(counter, 800);
    puts("atexit");
}

int main(void)
{
    begin(20);
    atexit(at_exit);
    ZERO(sem_post(&go));
    CHECK(join(left) == (void *)&lock);
    in_threads(4, run);
    EXPECT(counter, 600);
    puts("main");
    return 0;
}
