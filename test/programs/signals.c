/* Signals by thread: pthread_kill interrupts or restarts what is blocked, masks, sigwait, values, alternate
 * stacks. */
#include "check.h"
#include <poll.h>
#include <signal.h>

enum { THREADS = 12 };

static int pipes[2];
static sem_t never;
static __thread volatile int handled;
static __thread char *alternate;
static int answered[THREADS];
static pthread_t threads[THREADS];

static void on_signal(int signal)
{
    (void)signal;
    handled++;
}

static void install(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    SYS(sigaction(signal, &action, NULL));
}

/* Each is signalled until it says that its call has come back. */
static void *interrupted(void *arg)
{
    int id = (int)(intptr_t)arg;
    struct timespec day = {86400, 0}, left;
    struct pollfd p = {pipes[0], POLLIN, 0};
    char c;

    switch (id % 6) {
    case 0:
        EXPECT_ERRNO(read(pipes[0], &c, 1), EINTR);
        break;
    case 1:
        EXPECT_ERRNO(poll(&p, 1, -1), EINTR);
        break;
    case 2:
        EXPECT_ERRNO(nanosleep(&day, &left), EINTR);
        CHECK(left.tv_sec > 86000 && left.tv_sec <= 86400);
        break;
    case 3:
        EXPECT_ERRNO(sem_wait(&never), EINTR);
        break;
    case 4:
        EXPECT_ERRNO(pause(), EINTR);
        break;
    default:
        EXPECT_ERROR(clock_nanosleep(CLOCK_MONOTONIC, 0, &day, &left), EINTR);
    }
    CHECK(handled > 0);
    __atomic_store_n(&answered[id], 1, __ATOMIC_RELEASE);
    /* Stay until the signaller knows. */
    while (__atomic_load_n(&answered[id], __ATOMIC_ACQUIRE) == 1)
        sched_yield();
    return NULL;
}

static void interrupt_all(void)
{
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(interrupted, i);
    for (int left = THREADS; left > 0;) {
        for (int i = 0; i < THREADS; i++) {
            if (__atomic_load_n(&answered[i], __ATOMIC_ACQUIRE) == 0) {
                ZERO(pthread_kill(threads[i], SIGUSR1));
            } else if (answered[i] == 1) {
                __atomic_store_n(&answered[i], 2, __ATOMIC_RELEASE);
                left--;
            }
        }
        sleep_us(200);
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

/* With SA_RESTART a read goes on; a mutex and a condition wait do so always. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int go;

static void *restarted(void *arg)
{
    int id = (int)(intptr_t)arg;
    char c;

    if (id % 2) {
        EXPECT(read(pipes[0], &c, 1), 1);
    } else {
        ZERO(pthread_mutex_lock(&lock));
        while (!go)
            ZERO(pthread_cond_wait(&cond, &lock));
        ZERO(pthread_mutex_unlock(&lock));
    }
    EXPECT(handled, 20);
    return NULL;
}

static sem_t received;

static void on_counted(int signal)
{
    on_signal(signal);
    sem_post(&received);
}

static void restart_all(void)
{
    install(SIGUSR2, on_counted, SA_RESTART);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(restarted, i);
    for (int n = 0; n < 20; n++) {
        for (int i = 0; i < THREADS; i++) {
            ZERO(pthread_kill(threads[i], SIGUSR2));
            ZERO(sem_wait(&received)); /* a signal wakes it at once, parked or not */
        }
    }
    for (int i = 0; i < THREADS / 2; i++)
        write_all(pipes[1], "x", 1);
    ZERO(pthread_mutex_lock(&lock));
    go = 1;
    ZERO(pthread_cond_broadcast(&cond));
    ZERO(pthread_mutex_unlock(&lock));
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

/* Masks are by thread, and stay so over blocking. */
static void *masked(void *arg)
{
    int id = (int)(intptr_t)arg;
    sigset_t set, got;

    sigemptyset(&set);
    if (id % 2)
        sigaddset(&set, SIGUSR1);
    if (id % 3)
        sigaddset(&set, SIGRTMIN + 1);
    ZERO(pthread_sigmask(SIG_SETMASK, &set, NULL));
    for (int i = 0; i < 50; i++) {
        sched_yield();
        if (i % 10 == 0)
            sleep_us(50);
        ZERO(pthread_sigmask(SIG_BLOCK, NULL, &got));
        EXPECT(sigismember(&got, SIGUSR1), id % 2);
        EXPECT(sigismember(&got, SIGRTMIN + 1), id % 3 != 0);
        EXPECT(sigismember(&got, SIGUSR2), 0);
    }
    if (id % 2) {
        /* Blocked: pending until it is let in. */
        handled = 0;
        ZERO(raise(SIGUSR1));
        sched_yield();
        EXPECT(handled, 0);
        sigset_t waiting;
        ZERO(sigpending(&waiting));
        EXPECT(sigismember(&waiting, SIGUSR1), 1);
        sigemptyset(&set);
        EXPECT_ERRNO(sigsuspend(&set), EINTR);
        EXPECT(handled, 1);
        ZERO(pthread_sigmask(SIG_BLOCK, NULL, &got));
        EXPECT(sigismember(&got, SIGUSR1), 1);
    }
    return NULL;
}

/* Each waits for its own. */
static void *wait_value(void *arg)
{
    int id = (int)(intptr_t)arg;
    sigset_t set;
    siginfo_t info;
    struct timespec long_time = {50, 0};

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    EXPECT(id % 2 ? sigwaitinfo(&set, &info) : sigtimedwait(&set, &info, &long_time), SIGRTMIN + 2);
    EXPECT(info.si_value.sival_int, id);
    EXPECT(info.si_code, SI_QUEUE);
    return NULL;
}

static void values(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(wait_value, i);
    for (int i = THREADS - 1; i >= 0; i--)
        ZERO(pthread_sigqueue(threads[i], SIGRTMIN + 2, (union sigval){.sival_int = i}));
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

static void on_alternate(int signal)
{
    char here;

    on_signal(signal);
    CHECK(&here >= alternate && &here < alternate + 65536);
}

static void *use_alternate(void *arg)
{
    stack_t mine = {.ss_sp = malloc(65536), .ss_size = 65536}, got;

    SYS(sigaltstack(NULL, &got));
    EXPECT(got.ss_flags, SS_DISABLE);
    alternate = mine.ss_sp;
    SYS(sigaltstack(&mine, NULL));
    for (int i = 1; i <= 20; i++) {
        sched_yield();
        SYS(sigaltstack(NULL, &got));
        CHECK(got.ss_sp == alternate);
        ZERO(raise(SIGRTMIN + 3));
        EXPECT(handled, i);
    }
    mine.ss_flags = SS_DISABLE;
    SYS(sigaltstack(&mine, NULL));
    free(alternate);
    return arg;
}

int main(void)
{
    begin(20);
    SYS(pipe(pipes));
    ZERO(sem_init(&never, 0, 0));
    ZERO(sem_init(&received, 0, 0));
    install(SIGUSR1, on_signal, 0);
    interrupt_all();
    puts("interrupted");
    restart_all();
    puts("restarted");
    in_threads(THREADS, masked);
    puts("masks");
    values();
    puts("values");
    install(SIGRTMIN + 3, on_alternate, SA_ONSTACK);
    in_threads(THREADS, use_alternate);
    puts("alternate stacks");
    ZERO(pthread_kill(pthread_self(), 0));
    EXPECT_ERROR(pthread_kill(pthread_self(), 99), EINVAL);
    return finish();
}
