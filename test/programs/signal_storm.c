/* Timers send SIGPROF and SIGALRM a thousand times a second, and other signals by twos, while threads switch,
 * lock, wait and make threads; the handlers unwind the stack. Nothing hangs, and no signal is left blocked.
 */
#include "check.h"
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

enum { THREADS = 16, PAIRS = 4 };

static atomic_int stop;
static atomic_long handled[65], frames;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn[PAIRS];

/* To unwind takes the loader's lock before 2.35 (_dl_find_object), and a handler cannot take a recursive mutex of libc's whose
 * taking or release it has interrupted: whose it is is not known then, and the thread waits for itself. So there a handler on
 * another leaves it alone; handlers still hold the lock, and all threads want it. */
#if __GLIBC_PREREQ(2, 35)
enum { NESTS = 1 };
#else
enum { NESTS = 0 };
#endif

static void on_signal(int signal)
{
    static __thread volatile sig_atomic_t unwinds;
    void *here[64];
    int saved = errno, n = 0;
    if (NESTS || !unwinds) {
        unwinds = 1;
        n = backtrace(here, 64);
        unwinds = 0;
    }
    handled[signal]++;
    if (n > 1)
        frames += n;
    errno = saved;
}

static void expect_unblocked(void)
{
    sigset_t set;
    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &set));
    for (int i = 1; i < 32; i++)
        if (sigismember(&set, i))
            FAIL("signal %d has stayed blocked", i);
}

static void *nothing(void *arg)
{
    expect_unblocked();
    return arg;
}

static void *plays(void *arg)
{
    int id = (int)(intptr_t)arg, pair = id % PAIRS, side = id / PAIRS;
    for (long i = 0; !stop; i++) {
        if (side < 2) { /* a ping-pong */
            ZERO(pthread_mutex_lock(&lock));
            while (turn[pair] != side && !stop)
                ZERO(pthread_cond_wait(&changed, &lock));
            turn[pair] = !side;
            ZERO(pthread_cond_broadcast(&changed));
            ZERO(pthread_mutex_unlock(&lock));
        } else if (side == 2) {
            sched_yield();
            if (i % 16 == 0)
                sleep_us(50);
        } else if (i % 64 == 0) {
            join(start(nothing, NULL));
        } else {
            ZERO(pthread_mutex_lock(&lock));
            ZERO(pthread_mutex_unlock(&lock));
        }
        expect_unblocked();
    }
    return arg;
}

static void send_to(pthread_t to, int signal)
{
    int err = pthread_kill(to, signal);
    CHECK(err == 0 || (err == ESRCH && stop && !__GLIBC_PREREQ(2, 34))); /* before, one that has ended is not found */
}

/* Two at a time, to main and to threads. */
static void *sends(void *arg)
{
    pthread_t *threads = arg;
    for (int i = 0; !stop; i++) {
        pthread_t to = threads[i % (THREADS + 1)];
        send_to(to, SIGUSR1);
        send_to(to, SIGUSR2);
        if (i % 8 == 0)
            sleep_us(100);
    }
    return NULL;
}

int main(void)
{
    static const int signals[] = {SIGPROF, SIGALRM, SIGUSR1, SIGUSR2};
    struct itimerval each = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_t threads[THREADS + 1], sender;
    void *here[4];
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec ms = {{0, 1000000}, {0, 1000000}};

    begin(60);
    alarm(0);
    backtrace(here, 4); /* loads what it needs */
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        SYS(sigaction(signals[i], &action, NULL));
    threads[THREADS] = pthread_self();
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(plays, i);
    SYS(timer_create(CLOCK_MONOTONIC, &event, &timer));
    SYS(timer_settime(timer, 0, &ms, NULL));
    SYS(setitimer(ITIMER_PROF, &each, NULL));
    sender = start(sends, threads);
    int64_t end = now_us() + 1500000, last = now_us() + 30000000;
    while (now_us() < end || ((handled[SIGPROF] < 100 || handled[SIGALRM] < 100) && now_us() < last)) {
        ZERO(pthread_mutex_lock(&lock));
        ZERO(pthread_cond_broadcast(&changed));
        ZERO(pthread_mutex_unlock(&lock));
        expect_unblocked();
    }
    SYS(setitimer(ITIMER_PROF, &off, NULL));
    SYS(timer_delete(timer));
    stop = 1;
    join(sender);
    ZERO(pthread_mutex_lock(&lock));
    ZERO(pthread_cond_broadcast(&changed));
    ZERO(pthread_mutex_unlock(&lock));
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        CHECK(handled[signals[i]] > 50);
    CHECK(frames > 0);
    expect_unblocked();
    return finish();
}
