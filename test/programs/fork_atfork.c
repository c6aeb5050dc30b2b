/* Handlers of pthread_atfork that lock what threads use all the time, the program's own and a library's,
 * while threads come and go, load, allocate and print, and several fork at once: nothing hangs, the order is
 * right, and in the child libc's own locks are free. */
#include "check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/wait.h>

extern pthread_mutex_t mod_lock;

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static FILE *null;
static __thread char order[8];
static __thread unsigned steps;

static void step(char c)
{
    if (steps < sizeof order - 1)
        order[steps++] = c;
}

static void prepare_1(void)
{
    step('1');
}

static void prepare_2(void)
{
    step('2');
    pthread_mutex_lock(&own_lock);
}

static void parent_1(void)
{
    step('p');
}

static void release_2(void)
{
    pthread_mutex_unlock(&own_lock);
    step('q');
}

static void child_1(void)
{
    step('c');
}

static void *comes_and_goes(void *arg)
{
    return arg;
}

static void *uses(void *arg)
{
    for (unsigned i = 0; !stop; i++) {
        pthread_mutex_t *lock = i % 2 ? &mod_lock : &own_lock;
        ZERO(pthread_mutex_lock(lock));
        if (i % 64 == 0)
            sleep_us(50); /* and is not running while it holds it */
        ZERO(pthread_mutex_unlock(lock));
        free(malloc(100 + i % 4000));
        fprintf(null, "%u\n", i);
        dlsym(RTLD_DEFAULT, "no_such_name");
        if (i % 8 == 0)
            join(start(comes_and_goes, NULL));
    }
    return arg;
}

static void *works(void *arg)
{
    for (int i = 0; i < 20; i++) {
        free(malloc(500));
        fprintf(null, "%d\n", i);
        CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL);
        ZERO(pthread_mutex_lock(&own_lock));
        ZERO(pthread_mutex_lock(&mod_lock));
        ZERO(pthread_mutex_unlock(&mod_lock));
        ZERO(pthread_mutex_unlock(&own_lock));
        sched_yield();
    }
    return arg;
}

static void *forks(void *arg)
{
    for (int i = 0; i < 15; i++) {
        memset(order, 0, sizeof order);
        steps = 0;
        pid_t child = SYS(fork());
        if (child == 0) {
            EXPECT_STR(order, "21cq");
            works(NULL);
            in_threads(8, works);
            works(NULL);
            _exit(7);
        }
        EXPECT_STR(order, "21pq");
        int status;
        EXPECT(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        EXPECT(WEXITSTATUS(status), 7);
    }
    return arg;
}

int main(void)
{
    pthread_t users[6];

    begin(60);
    null = fopen("/dev/null", "w");
    CHECK(null != NULL);
    ZERO(pthread_atfork(prepare_1, parent_1, child_1));
    ZERO(pthread_atfork(prepare_2, release_2, release_2));
    for (int i = 0; i < 6; i++)
        users[i] = start(uses, NULL);
    in_threads(6, forks);
    forks(NULL);
    stop = 1;
    for (int i = 0; i < 6; i++)
        join(users[i]);
    return finish();
}
