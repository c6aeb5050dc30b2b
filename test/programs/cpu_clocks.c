/* Processor time of threads: a thread's clock counts what it computes and not what others do meanwhile;
 * another can read it; timers on it expire in its time, and their signals go to the thread that they name. */
#include "check.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { SLEEPERS = 8, MS = 1000000 };

static struct gate ready = GATE, go = GATE;
static atomic_int stop;
static clockid_t clocks[SLEEPERS + 1];
static __thread volatile int alarms;
static atomic_int wrong;
static pthread_t aimed;
static sem_t woken;

static int64_t usage_ns(void)
{
    struct rusage usage;
    SYS(getrusage(RUSAGE_THREAD, &usage));
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64_C(1000000000) +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * INT64_C(1000);
}

static void *sleeps(void *arg)
{
    int id = (int)(intptr_t)arg;
    int64_t first = now_ns(CLOCK_THREAD_CPUTIME_ID), usage = usage_ns();
    ZERO(pthread_getcpuclockid(pthread_self(), &clocks[id]));
    gate_add(&ready, 1);
    while (!stop)
        sleep_us(5000);
    CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) - first < 150 * MS);
    CHECK(now_ns(clocks[id]) - first < 150 * MS);
    CHECK(usage_ns() - usage < 150 * MS);
    return arg;
}

static void burn(int64_t ns)
{
    int64_t first = now_ns(CLOCK_THREAD_CPUTIME_ID), last = first, now;
    while ((now = now_ns(CLOCK_THREAD_CPUTIME_ID)) - first < ns) {
        CHECK(now >= last);
        last = now;
    }
}

static void *computes(void *arg)
{
    int64_t usage = usage_ns(), process = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    ZERO(pthread_getcpuclockid(pthread_self(), &clocks[SLEEPERS]));
    gate_add(&ready, 1);
    gate_wait(&go, 1);
    for (int i = 0; i < 30; i++) {
        burn(10 * MS);
        sched_yield();
    }
    CHECK(usage_ns() - usage >= 290 * MS);
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= 290 * MS);
    struct timespec ts;
    SYS(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &ts));
    CHECK(ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec >= 300 * MS);
    return arg;
}

static void *reads(void *arg)
{
    int64_t first = now_ns(clocks[SLEEPERS]), now, last = first;
    gate_add(&go, 1);
    while ((now = now_ns(clocks[SLEEPERS])) - first < 100 * MS) {
        CHECK(now >= last);
        last = now;
        sleep_us(1000);
    }
    for (int i = 0; i < SLEEPERS; i++)
        CHECK(now_ns(clocks[i]) < 150 * MS);
    return arg;
}

static void on_timer(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    alarms++;
    if (info->si_code != SI_TIMER || info->si_value.sival_int != 77 || !pthread_equal(pthread_self(), aimed))
        wrong++;
    sem_post(&woken);
}

/* A limit on its own time. */
static void *limited(void *arg)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    struct itimerspec in = {.it_value = {0, 20 * MS}};
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
    timer_t timer;
    event._sigev_un._tid = gettid();
    aimed = pthread_self();
    if (arg)
        ZERO(pthread_getcpuclockid(pthread_self(), &clock));
    SYS(timer_create(clock, &event, &timer));
    SYS(timer_settime(timer, 0, &in, NULL));
    int64_t first = now_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!alarms)
        CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID) - first < 10000 * (int64_t)MS);
    SYS(timer_delete(timer));
    return NULL;
}

static pid_t target;

static void *is_signalled(void *arg)
{
    aimed = pthread_self();
    target = gettid();
    gate_add(&ready, 1);
    while (!alarms)
        if (sem_wait(&woken) == -1)
            EXPECT(errno, EINTR);
    EXPECT(gettid(), target);
    return arg;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO};
    pthread_t threads[SLEEPERS];
    begin(60);
    SYS(sem_init(&woken, 0, 0));
    SYS(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < SLEEPERS; i++)
        threads[i] = start_number(sleeps, i);
    pthread_t computer = start(computes, NULL);
    gate_wait(&ready, SLEEPERS + 1);
    join(start(reads, NULL));
    join(computer);
    stop = 1;
    for (int i = 0; i < SLEEPERS; i++)
        join(threads[i]);
    puts("clocks");
    join(start(limited, NULL));
    join(start(limited, &woken));
    puts("timers");

    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    struct itimerspec in = {.it_value = {0, 1 * MS}};
    timer_t timer;
    ready.count = 0;
    while (sem_trywait(&woken) == 0)
        ;
    pthread_t thread = start(is_signalled, NULL);
    gate_wait(&ready, 1);
    event._sigev_un._tid = target;
    SYS(timer_create(CLOCK_MONOTONIC, &event, &timer));
    SYS(timer_settime(timer, 0, &in, NULL));
    join(thread);
    SYS(timer_delete(timer));
    EXPECT(wrong, 0);
    return finish();
}
