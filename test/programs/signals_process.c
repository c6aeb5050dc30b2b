/* Signals to the process that main blocks, and that a thread lets in which waits: they come to that thread at
 * once. What all block stays pending, with who sent it. */
#include "check.h"

#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static _Atomic pid_t from;
static _Atomic int handled, values, in_thread;
static sem_t came;
static __thread int name; /* of the thread in whose handler we are */

static void handler(int sig, siginfo_t *info, void *context)
{
    (void)context;
    from = info->si_pid;
    in_thread = name;
    if (sig != SIGUSR1)
        values += info->si_value.sival_int;
    handled++;
    sem_post(&came);
}

static void mask(int how, int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    ZERO(pthread_sigmask(how, &set, NULL));
}

static void install(int sig, int flags)
{
    struct sigaction act = {.sa_flags = SA_SIGINFO | flags};
    act.sa_sigaction = handler;
    ZERO(sigaction(sig, &act, NULL));
}

static struct gate ready = GATE;
static int hole[2];

struct waiter {
    pthread_t thread;
    int name, how, sig;
    ssize_t got;
    int error;
};

static void *waits(void *arg)
{
    struct waiter *w = arg;
    char byte;
    name = w->name;
    mask(w->how, w->sig);
    gate_add(&ready, 1);
    w->got = read(hole[0], &byte, 1);
    w->error = errno;
    return NULL;
}

static void begin_waiting(struct waiter *w)
{
    static int before;
    w->thread = start(waits, w);
    gate_wait(&ready, ++before);
}

static void end_waiting(struct waiter *w, int n)
{
    CHECK(write(hole[1], "xxx", (size_t)n) == n);
    for (int i = 0; i < n; i++) {
        join(w[i].thread);
        EXPECT(w[i].got, 1);
    }
}

static void await(int n)
{
    for (int i = 0; i < n; i++)
        while (sem_wait(&came) != 0)
            EXPECT(errno, EINTR);
}

static void the_one_that_lets_it_in(void)
{
    struct waiter w[3] = {{.name = 1, .how = SIG_BLOCK, .sig = SIGUSR1},
                          {.name = 2, .how = SIG_UNBLOCK, .sig = SIGUSR1},
                          {.name = 3, .how = SIG_BLOCK, .sig = SIGUSR1}};
    install(SIGUSR1, SA_RESTART);
    mask(SIG_BLOCK, SIGUSR1);
    for (int i = 0; i < 3; i++)
        begin_waiting(&w[i]);
    for (int i = 1; i <= 100; i++) {
        from = 0;
        ZERO(kill(getpid(), SIGUSR1));
        await(1);
        EXPECT(handled, i);
        EXPECT(in_thread, 2);
        EXPECT(from, getpid());
    }
    end_waiting(w, 3);
    puts("the one that lets it in has it");
}

static void main_blocks_later(void)
{
    struct waiter w = {.name = 4, .how = SIG_UNBLOCK, .sig = SIGRTMIN + 1};
    install(SIGRTMIN + 1, SA_RESTART);
    handled = values = 0;
    begin_waiting(&w);
    mask(SIG_BLOCK, SIGRTMIN + 1);
    for (int i = 1; i <= 50; i++)
        ZERO(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i}));
    await(50);
    EXPECT(handled, 50);
    EXPECT(values, 50 * 51 / 2);
    EXPECT(in_thread, 4);
    end_waiting(&w, 1);
    puts("real-time signals, all of them");
}

static void interrupts(void)
{
    struct waiter w = {.name = 5, .how = SIG_UNBLOCK, .sig = SIGUSR2};
    mask(SIG_BLOCK, SIGUSR2);
    begin_waiting(&w);
    install(SIGUSR2, 0); /* only now: before it would have been the end */
    /* It may not be in read yet when the first one comes. */
    int status = EBUSY;
    while (status == EBUSY) {
        struct timespec soon;
        ZERO(kill(getpid(), SIGUSR2));
        await(1);
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 20000000;
        if (soon.tv_nsec >= 1000000000) {
            soon.tv_nsec -= 1000000000;
            soon.tv_sec++;
        }
        status = pthread_timedjoin_np(w.thread, NULL, &soon) == 0 ? 0 : EBUSY;
    }
    EXPECT(w.got, -1);
    EXPECT(w.error, EINTR);
    EXPECT(in_thread, 5);
    puts("a wait is interrupted");
}

static void nobody(void)
{
    struct waiter w = {.name = 6, .how = SIG_BLOCK, .sig = SIGUSR1};
    sigset_t set;
    siginfo_t info;
    begin_waiting(&w);
    handled = 0;
    ZERO(kill(getpid(), SIGUSR1));
    ZERO(sigpending(&set));
    CHECK(sigismember(&set, SIGUSR1));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    EXPECT(sigwaitinfo(&set, &info), SIGUSR1);
    EXPECT(info.si_pid, getpid());
    EXPECT(info.si_code, SI_USER);
    EXPECT(handled, 0);
    end_waiting(&w, 1);
    puts("what all block stays pending");
}

static __thread sigjmp_buf out;

static void jumps(int sig)
{
    (void)sig;
    if (name == 7)
        siglongjmp(out, 1);
    in_thread = name;
    handled++;
    sem_post(&came);
}

/* Blocks SIGHUP in the end, as the handler did that it has left by a jump. */
static void *has_jumped(void *arg)
{
    char byte;
    name = 7;
    if (sigsetjmp(out, 1) == 0) {
        mask(SIG_UNBLOCK, SIGHUP);
        raise(SIGHUP);
        FAIL("no jump");
    }
    mask(SIG_BLOCK, SIGHUP);
    gate_add(&ready, 1);
    EXPECT(read(hole[0], &byte, 1), 1);
    return arg;
}

static void *blocks_later(void *arg)
{
    char byte;
    name = 8;
    mask(SIG_UNBLOCK, SIGHUP);
    gate_add(&ready, 1);
    EXPECT(read(hole[0], &byte, 1), 1);
    mask(SIG_BLOCK, SIGHUP);
    gate_add(&ready, 1);
    return arg;
}

static void left_by_a_jump(void)
{
    struct sigaction act = {.sa_handler = jumps, .sa_flags = SA_RESTART};
    struct timespec enough = {10, 0};
    sigset_t set;
    long before = ready.count;
    ZERO(sigaction(SIGHUP, &act, NULL));
    mask(SIG_BLOCK, SIGHUP);
    handled = 0;
    pthread_t later = start(blocks_later, NULL);
    gate_wait(&ready, before + 1);
    ZERO(kill(getpid(), SIGHUP));
    await(1);
    EXPECT(in_thread, 8);
    CHECK(write(hole[1], "x", 1) == 1);
    join(later);
    pthread_t jumped = start(has_jumped, NULL);
    gate_wait(&ready, before + 3);
    ZERO(kill(getpid(), SIGHUP));
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    EXPECT(sigtimedwait(&set, NULL, &enough), SIGHUP);
    EXPECT(handled, 1);
    CHECK(write(hole[1], "x", 1) == 1);
    join(jumped);
    puts("what a thread blocks is its own after it has left a handler by a jump");
}

/* Children: how each ends. */
static void *ends(void *arg)
{
    static char byte = 'r';
    mask(SIG_UNBLOCK, SIGTERM);
    CHECK(write(*(int *)arg, &byte, 1) == 1);
    for (;;)
        sleep(100);
}

static void leaves(int sig)
{
    _exit(sig + 20);
}

static int child(void (*term)(int), int main_ends)
{
    static int pipes[2]; /* main may be gone */
    int status;
    char byte;
    ZERO(pipe(pipes));
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct sigaction act = {.sa_flags = 0};
        act.sa_handler = term;
        ZERO(sigaction(SIGTERM, &act, NULL));
        mask(SIG_BLOCK, SIGTERM);
        pthread_t thread = start(ends, &pipes[1]);
        if (main_ends)
            pthread_exit(NULL);
        join(thread);
    }
    CHECK(read(pipes[0], &byte, 1) == 1);
    ZERO(kill(pid, SIGTERM));
    CHECK(waitpid(pid, &status, 0) == pid);
    close(pipes[0]);
    close(pipes[1]);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void *children(void *arg)
{
    EXPECT(child(SIG_DFL, 0), SIGTERM);
    EXPECT(child(leaves, 0), SIGTERM + 20);
    EXPECT(child(SIG_DFL, 1), SIGTERM);
    EXPECT(child(leaves, 1), SIGTERM + 20);
    return arg;
}

int main(void)
{
    begin(60);
    ZERO(sem_init(&came, 0, 0));
    ZERO(pipe(hole));
    the_one_that_lets_it_in();
    main_blocks_later();
    interrupts();
    nobody();
    left_by_a_jump();
    children(NULL);
    join(start(children, NULL));
    puts("children end as they should");
    return finish();
}
