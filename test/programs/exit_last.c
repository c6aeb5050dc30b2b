/* Main ends by pthread_exit, the other threads go on, and the end of the last is the end of the process,
 * status 0. */
#include "check.h"

static pthread_key_t key;
static pthread_t main_thread;
static sem_t chain[20];

static void handler(void)
{
    puts("ok");
}

static void key_end(void *name)
{
    printf("key of %s\n", (const char *)name);
}

static void cleanup(void *name)
{
    printf("clean-up of %s\n", (const char *)name);
}

static void *first(void *arg)
{
    /* Main can be joined like any other thread. */
    CHECK(join(main_thread) == &main_thread);
    puts("main is over");
    ZERO(sem_post(&chain[0]));
    return arg;
}

static void *in_chain(void *arg)
{
    long id = (intptr_t)arg;

    ZERO(sem_wait(&chain[id]));
    sched_yield();
    if (id == 19)
        puts("the last thread");
    else
        ZERO(sem_post(&chain[id + 1]));
    return arg;
}

int main(void)
{
    begin(20);
    main_thread = pthread_self();
    ZERO(pthread_key_create(&key, key_end));
    ZERO(pthread_setspecific(key, "main"));
    atexit(handler);
    for (int i = 0; i < 20; i++) {
        ZERO(sem_init(&chain[i], 0, 0));
        ZERO(pthread_detach(start_number(in_chain, i)));
    }
    start(first, NULL);
    pthread_cleanup_push(cleanup, "main");
    pthread_exit(&main_thread);
    pthread_cleanup_pop(0);
}
