/* Threads with real-time priorities get a mutex, a semaphore and a condition by priority, those of one priority in the order
 * in which they came, and before those without. And one that runs in place of another of less priority, wherever that one
 * was, gets what that one locks for moments only. Where priorities are refused there is nothing to see. */
#include "check.h"

#include <stdbool.h>

#define THREADS 8
#define ROUNDS  1000

enum kind { MUTEX, SEM, COND, KINDS };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static struct gate noted;
static int order[THREADS], begun;
static enum kind kind;
static _Atomic pid_t waiter;

/* They begin to wait in this order; 0 has no real-time policy. */
static const int priority[THREADS] = {0, 5, 20, 10, 20, 5, 0, 10};
static const int wanted[THREADS] = {2, 4, 3, 7, 1, 5, 0, 6};

static int set_policy(int value)
{
    struct sched_param param = {.sched_priority = value};

    return pthread_setschedparam(pthread_self(), value ? SCHED_FIFO : SCHED_OTHER, &param);
}

static pthread_t start_with(int value, void *(*run)(void *), long number)
{
    struct sched_param param = {.sched_priority = value};
    pthread_attr_t attr;
    pthread_t thread;

    ZERO(pthread_attr_init(&attr));
    if (value) {
        ZERO(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
        ZERO(pthread_attr_setschedpolicy(&attr, SCHED_FIFO));
        ZERO(pthread_attr_setschedparam(&attr, &param));
    }
    ZERO(pthread_create(&thread, &attr, run, (void *)(intptr_t)number));
    ZERO(pthread_attr_destroy(&attr));
    return thread;
}

static void note(int i)
{
    order[noted.count] = i;
    gate_add(&noted, 1);
}

static void *waits(void *arg)
{
    int i = (int)(intptr_t)arg;

    if (kind == COND) {
        if (priority[i])
            ZERO(set_policy(priority[i])); /* by itself, not by its attributes */
        ZERO(pthread_mutex_lock(&mutex));
        begun++;
        ZERO(pthread_cond_wait(&cond, &mutex));
    } else {
        waiter = gettid();
        if (kind == SEM)
            ZERO(sem_wait(&sem));
        else
            ZERO(pthread_mutex_lock(&mutex));
    }
    note(i);
    if (kind != SEM)
        ZERO(pthread_mutex_unlock(&mutex));
    return arg;
}

/* Until the thread sleeps. Those without a priority come last in any case. */
static void await_sleep(int i)
{
    char path[64], state = 0;

    if (kind == COND) {
        for (int now = 0; now <= i; sched_yield()) {
            ZERO(pthread_mutex_lock(&mutex));
            now = begun;
            ZERO(pthread_mutex_unlock(&mutex));
        }
        return;
    }
    while (!waiter)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)waiter);
    while (priority[i] && state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file && fscanf(file, "%*d %*[^)]) %c", &state) == 1);
        fclose(file);
        sched_yield();
    }
}

static void by_priority(enum kind what)
{
    pthread_t thread[THREADS];

    kind = what;
    begun = 0;
    noted = (struct gate)GATE;
    if (kind == MUTEX)
        ZERO(pthread_mutex_lock(&mutex));
    for (int i = 0; i < THREADS; i++) {
        waiter = 0;
        thread[i] = start_with(kind == COND ? 0 : priority[i], waits, i);
        await_sleep(i);
    }
    if (kind == MUTEX)
        ZERO(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < THREADS; i++) {
        if (kind == SEM)
            ZERO(sem_post(&sem));
        else if (kind == COND)
            ZERO(pthread_cond_signal(&cond));
        gate_wait(&noted, kind == MUTEX ? THREADS : i + 1);
    }
    for (int i = 0; i < THREADS; i++)
        join(thread[i]);
    for (int i = 0; i < THREADS; i++)
        if (priority[order[i]] != priority[wanted[i]] || (priority[order[i]] && order[i] != wanted[i]))
            FAIL("%s: thread %d of priority %d was number %d, expected thread %d of priority %d",
                 kind == MUTEX ? "mutex"
                 : kind == SEM ? "semaphore"
                               : "condition",
                 order[i], priority[order[i]], i, wanted[i], priority[wanted[i]]);
}

static volatile int high_done;

/* On one processor, on one condition, with a deadline that has passed: so that it is mostly about to join, or leave, a queue.
 */
static void *looks_in(void *arg)
{
    const struct timespec past = {1, 0};
    bool high = arg != NULL;
    cpu_set_t set;
    int cpu = 0;

    ZERO(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ZERO(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
    ZERO(pthread_mutex_lock(&mine));
    for (int i = 0; high ? i < ROUNDS : !high_done; i++) {
        if (high)
            sleep_us(20);
        EXPECT_ERROR(pthread_cond_timedwait(&cond, &mine, &past), ETIMEDOUT);
    }
    ZERO(pthread_mutex_unlock(&mine));
    if (high)
        high_done = 1;
    return arg;
}

static void *may_have_priority(void *arg)
{
    *(bool *)arg = set_policy(1) == 0;
    return NULL;
}

int main(void)
{
    bool may = false;

    begin(60);
    join(start(may_have_priority, &may));
    if (!may) {
        fputs("skipped: real-time priorities are refused\n", stderr);
        return finish();
    }
    ZERO(sem_init(&sem, 0, 0));
    for (int i = MUTEX; i < KINDS; i++)
        by_priority((enum kind)i);
    pthread_t low = start_with(5, looks_in, 0), high = start_with(20, looks_in, 1);
    join(high);
    join(low);
    return finish();
}
