/* Cancellation where no call of the thread's own looks for it: at any time (asynchronously), again and again
 * on the same kernel threads; of itself; of main, and of a thread of libc's, in each wait. And nothing that a
 * cancelled thread had begun stays behind. */
#include "check.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

static sem_t never;
static int empty[2], epoll, full;
static pthread_t main_thread;
static __thread int cleaned_here;
static _Atomic int cleaned;

static void clean(void *arg)
{
    (void)arg;
    cleaned_here++;
    cleaned++;
}

static void forever(long kind)
{
    struct timespec moment = {0, 1}, long_time = {1000, 0};
    struct pollfd input = {empty[0], POLLIN, 0};
    struct epoll_event event;
    static char data[1 << 16];
    char byte;
    sigset_t none;

    switch (kind) {
    case 0:
        for (volatile long i = 0;; i++)
            ;
    case 1:
        for (;;)
            sched_yield();
    case 2:
        for (;;)
            nanosleep(&moment, NULL);
    case 3:
        for (;;)
            getppid();
    case 4:
        sigemptyset(&none);
        for (;;)
            pthread_sigmask(SIG_BLOCK, &none, NULL);
    case 5:
        nanosleep(&long_time, NULL);
        break;
    case 6:
        sem_wait(&never);
        break;
    case 7:
        EXPECT(read(empty[0], &byte, 1), 1);
        break;
    case 8:
        poll(&input, 1, -1);
        break;
    case 9:
        for (;;)
            poll(&input, 1, 1);
    case 10:
        epoll_wait(epoll, &event, 1, -1);
        break;
    case 11:
        pause();
        break;
    case 12:
        for (;;)
            EXPECT(send(full, data, sizeof data, 0), sizeof data);
    }
}
#define KINDS 13

static void *any_time(void *arg)
{
    pthread_cleanup_push(clean, NULL);
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    forever((intptr_t)arg);
    pthread_cleanup_pop(0);
    FAIL("%ld came back", (long)(intptr_t)arg);
}

/* Ends before or while it is cancelled. */
static void *brief(void *arg)
{
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    for (volatile long i = 0; i < 5000 * (intptr_t)arg; i++)
        ;
    return NULL;
}

static void *in_time(void *arg)
{
    for (int i = 0; i < 100; i++)
        sched_yield();
    return arg;
}

static void all_kinds(void)
{
    for (int round = 0; round < 12; round++) {
        pthread_t threads[KINDS], brief_thread = start_number(brief, round % 4), bystander = start_number(in_time, 7);
        for (long kind = 0; kind < KINDS; kind++)
            threads[kind] = start_number(any_time, kind);
        if (round % 3)
            sleep_us(round * 200);
        pthread_cancel(brief_thread);
        for (int kind = 0; kind < KINDS; kind++)
            ZERO(pthread_cancel(threads[kind]));
        for (int kind = 0; kind < KINDS; kind++)
            CHECK(join(threads[kind]) == PTHREAD_CANCELED);
        join(brief_thread);
        EXPECT((intptr_t)join(bystander), 7);
    }
    puts("at any time");
}

static void *of_itself(void *arg)
{
    pthread_cleanup_push(clean, NULL);
    ZERO(pthread_cancel(pthread_self()));
    forever((intptr_t)arg);
    pthread_cleanup_pop(0);
    return NULL;
}

static void themselves(void)
{
    for (long kind = 2; kind < KINDS; kind++) {
        if (kind == 3 || kind == 4) /* make no call that is a cancellation point */
            continue;
        CHECK(join(start_number(of_itself, kind)) == PTHREAD_CANCELED);
    }
    puts("themselves");
}

/* Of two that wait for one set the first is cancelled: the other gets what comes. */
static void *one_event(void *arg)
{
    struct epoll_event event;

    (void)arg;
    return (void *)(intptr_t)epoll_wait(epoll, &event, 1, 20000);
}

static void nothing_left_behind(void)
{
    for (int round = 0; round < 10; round++) {
        pthread_t first = start_number(any_time, 10);
        sleep_us(500);
        pthread_t second = start(one_event, NULL);
        sleep_us(500);
        ZERO(pthread_cancel(first));
        CHECK(join(first) == PTHREAD_CANCELED);
        write_all(empty[1], "x", 1);
        EXPECT((intptr_t)join(second), 1);
        char byte;
        read_all(empty[0], &byte, 1);
    }
    /* A send that was left is not found by who shuts the socket down. */
    ZERO(shutdown(full, SHUT_RDWR));
    puts("nothing left behind");
}

/* --- kernel threads: main, each time in a process of its own ---------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct gate ready = GATE;

static void *sleeps(void *arg)
{
    forever(5);
    return arg;
}

static void *cancels_main(void *arg)
{
    void *value;

    gate_wait(&ready, 1);
    if ((intptr_t)arg)
        sleep_us(2000);
    ZERO(pthread_cancel(main_thread));
    ZERO(pthread_join(main_thread, &value));
    _exit(value == PTHREAD_CANCELED ? 42 : 1);
}

static void main_waits(int kind, int late)
{
    struct timespec at = in_ms(CLOCK_REALTIME, 100000);

    main_thread = pthread_self();
    start_number(cancels_main, late);
    pthread_t sleeper = start(sleeps, NULL);
    if (kind == 5)
        ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    if (late)
        gate_add(&ready, 1);
    switch (kind) {
    case 0:
        if (!late) {
            ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
            gate_add(&ready, 1);
            sleep_us(2000);
            ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
        }
        sem_wait(&never);
        break;
    case 1:
        sem_timedwait(&never, &at);
        break;
    case 2:
        pthread_join(sleeper, NULL);
        break;
    case 3:
        ZERO(pthread_mutex_lock(&mutex));
        pthread_cond_wait(&cond, &mutex);
        break;
    case 4:
        pause();
        break;
    case 5:
        for (;;) {
            sem_post(&never);
            sem_trywait(&never);
        }
    case 6:
        ZERO(pthread_cancel(pthread_self()));
        sem_wait(&never);
        break;
    }
    _exit(3);
}

static void main_thread_too(void)
{
    for (int i = 0; i < 8; i++) {
        int status;
        pid_t child = SYS(fork());
        if (child == 0)
            main_waits(i % 7, i != 7);
        EXPECT(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
            FAIL("main in wait %d: status %x", i, (unsigned)status);
    }
    puts("main");
}

int main(void)
{
    int pair[2];

    begin(60);
    signal(SIGPIPE, SIG_IGN);
    ZERO(sem_init(&never, 0, 0));
    ZERO(pipe(empty));
    epoll = SYS(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN};
    ZERO(epoll_ctl(epoll, EPOLL_CTL_ADD, empty[0], &event));
    ZERO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    full = pair[0];
    main_thread_too();
    all_kinds();
    themselves();
    nothing_left_behind();
    return finish();
}
