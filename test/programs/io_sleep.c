/* Every way to sleep, on every clock, relative and absolute, by many threads: never early, the errors of
 * libc, and what is left when a handler interrupts. */
#include "check.h"
#include <poll.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <threads.h>

enum { THREADS = 60, WAYS = 12 };

static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI};

static void *sleep_each_way(void *arg)
{
    int id = (int)(intptr_t)arg;

    for (int i = 0; i < WAYS; i++) {
        int way = (id + i) % WAYS;
        int64_t ns = 1000000 + id % 7 * 500000, before = now_ns(CLOCK_MONOTONIC);
        struct timespec t = {0, ns}, at;
        struct timeval tv = {0, ns / 1000};
        errno = 0;
        switch (way) {
        case 0:
            ZERO(nanosleep(&t, NULL));
            break;
        case 1:
            ZERO(usleep((useconds_t)(ns / 1000)));
            break;
        case 2:
            ZERO(thrd_sleep(&t, NULL));
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            ZERO(clock_nanosleep(clocks[way - 3], 0, &t, NULL));
            break;
        case 7:
        case 8:
            clock_gettime(clocks[way - 7], &at);
            at.tv_nsec += ns;
            at.tv_sec += at.tv_nsec / 1000000000;
            at.tv_nsec %= 1000000000;
            ZERO(clock_nanosleep(clocks[way - 7], TIMER_ABSTIME, &at, NULL));
            CHECK(now_ns(clocks[way - 7]) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
            break;
        case 9:
            ZERO(select(0, NULL, NULL, NULL, &tv));
            EXPECT(tv.tv_usec, 0);
            break;
        case 10:
            ZERO(syscall(SYS_nanosleep, &t, NULL));
            break;
        default:
            ZERO(ppoll(NULL, 0, &t, NULL));
        }
        if (now_ns(CLOCK_MONOTONIC) - before < ns)
            FAIL("way %d woke early", way);
        EXPECT(errno, 0);
    }
    return NULL;
}

static void *whole_seconds(void *arg)
{
    int64_t before = now_us();

    EXPECT(sleep(1), 0);
    CHECK(now_us() - before >= 1000000);
    EXPECT(sleep(0), 0);
    return arg;
}

static void *errors(void *arg)
{
    struct timespec past = {0, 0}, bad = {0, 1000000000}, negative = {-1, 0}, tiny = {0, 1};

    for (unsigned i = 0; i < 2; i++) {
        ZERO(clock_nanosleep(clocks[i], TIMER_ABSTIME, &past, NULL));
        EXPECT_ERROR(clock_nanosleep(clocks[i], 0, &bad, NULL), EINVAL);
        EXPECT_ERROR(clock_nanosleep(clocks[i], 0, &negative, NULL), EINVAL);
        ZERO(clock_nanosleep(clocks[i], 0, &tiny, NULL));
    }
    EXPECT_ERRNO(nanosleep(&bad, NULL), EINVAL);
    EXPECT_ERRNO(nanosleep(&negative, NULL), EINVAL);
    EXPECT_ERROR(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &tiny, NULL), EINVAL);
    EXPECT_ERROR(clock_nanosleep(12345, 0, &tiny, NULL), EINVAL);
    EXPECT(thrd_sleep(&bad, NULL), -2);
    ZERO(sched_yield());
    thrd_yield();
    return arg;
}

/* The time of the process's processors goes on while another computes. */
static volatile int done;

static void *compute(void *arg)
{
    while (!done)
        ;
    return arg;
}

static void *processor_time(void *arg)
{
    struct timespec t = {0, 20000000};
    pthread_t other = start(compute, NULL);
    int64_t before = now_ns(CLOCK_PROCESS_CPUTIME_ID);

    ZERO(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &t, NULL));
    CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID) - before >= 20000000);
    done = 1;
    join(other);
    return arg;
}

static __thread volatile int handled;

static void on_signal(int signal)
{
    (void)signal;
    handled = 1;
}

static int woken[4];

static void *interrupted(void *arg)
{
    int id = (int)(intptr_t)arg;
    struct timespec day = {86400, 0}, left = {0, 0}, at = in_ms(CLOCK_MONOTONIC, 86400000);

    switch (id) {
    case 0:
        EXPECT_ERRNO(nanosleep(&day, &left), EINTR);
        break;
    case 1: {
        unsigned rest = sleep(86400);
        CHECK(rest > 86300 && rest <= 86400);
        left.tv_sec = rest;
        break;
    }
    case 2:
        EXPECT_ERROR(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, &left), EINTR);
        EXPECT(left.tv_sec, 0); /* an absolute one leaves it alone */
        left.tv_sec = 86400;
        break;
    default:
        EXPECT(thrd_sleep(&day, &left), -1);
    }
    CHECK(left.tv_sec > 86300 && left.tv_sec <= 86400);
    CHECK(handled);
    __atomic_store_n(&woken[id], 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&woken[id], __ATOMIC_ACQUIRE) == 1)
        sched_yield();
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}; /* sleeping is never restarted */
    pthread_t threads[4];

    begin(30);
    in_threads(THREADS, sleep_each_way);
    puts("each way");
    in_threads(4, whole_seconds);
    puts("seconds");
    in_threads(4, errors);
    puts("errors");
    join(start(processor_time, NULL));
    puts("processor time");
    SYS(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 4; i++)
        threads[i] = start_number(interrupted, i);
    for (int i = 0; i < 4; i++) {
        while (!__atomic_load_n(&woken[i], __ATOMIC_ACQUIRE)) {
            ZERO(pthread_kill(threads[i], SIGUSR1));
            sleep_us(500);
        }
        __atomic_store_n(&woken[i], 2, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    puts("interrupted");
    return finish();
}
