/* SA_NODEFER, SA_RESETHAND, and a handler that is taken back as soon as it has run: however busy the threads are, each signal
 * runs its handler once, and none does what it would do without. */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

enum { BUSY = 3, TURNS = 300 };

static _Atomic int handled, stop, turn, depth, nested, handled_nested;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t busy[BUSY];

static void count(int sig)
{
    (void)sig;
    handled++;
}

static void nest(int sig)
{
    handled_nested++;
    if (depth++ == 0) {
        ZERO(raise(sig));
        nested++;
    }
    depth--;
}

/* Goes in and out of the scheduler all the time. */
static void *hand_on(void *arg)
{
    int me = (int)(intptr_t)arg;
    ZERO(pthread_mutex_lock(&mutex));
    while (!stop) {
        while (turn != me && !stop)
            ZERO(pthread_cond_wait(&cond, &mutex));
        turn = (me + 1) % BUSY;
        ZERO(pthread_cond_broadcast(&cond));
    }
    ZERO(pthread_mutex_unlock(&mutex));
    return arg;
}

static void set(int sig, void (*handler)(int), int flags)
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
    ZERO(sigaction(sig, &act, NULL));
}

static void send(int i)
{
    if (i % 2)
        ZERO(kill(getpid(), SIGUSR1));
    else
        ZERO(pthread_kill(busy[i / 2 % BUSY], SIGUSR1));
}

static void await(int n)
{
    while (handled < n)
        sleep_us(20);
    EXPECT(handled, n);
}

static void *nop(void *arg)
{
    return arg;
}

static void not_deferred(void)
{
    int status;
    pid_t me = getpid(), sender;
    handled = 0;
    set(SIGUSR1, count, SA_NODEFER | SA_RESTART);
    fflush(stdout);
    if ((sender = SYS(fork())) == 0) {
        for (int i = 0; i < TURNS; i++) {
            kill(me, SIGUSR1);
            sleep_us(50);
        }
        _exit(0);
    }
    while (SYS(waitpid(sender, &status, WNOHANG)) == 0)
        join(start(nop, NULL));
    EXPECT(status, 0);
    CHECK(handled > 0 && handled <= TURNS);
    puts("SA_NODEFER");
}

static void *nests(void *arg)
{
    for (int i = 0; i < 20; i++)
        ZERO(raise(SIGUSR2));
    return arg;
}

static void nested_handlers(void)
{
    struct sigaction old;
    set(SIGUSR2, nest, SA_NODEFER);
    ZERO(sigaction(SIGUSR2, NULL, &old));
    CHECK(old.sa_handler == nest && (old.sa_flags & SA_NODEFER) && !(old.sa_flags & SA_SIGINFO));
    nests(NULL);
    join(start(nests, NULL));
    EXPECT(nested, 40);
    EXPECT(handled_nested, 80);
    puts("handlers in handlers");
}

static void reset(void)
{
    struct sigaction old;
    for (int i = 0; i < TURNS; i++) {
        handled = 0;
        set(SIGUSR1, count, SA_RESETHAND | SA_RESTART);
        send(i);
        await(1);
        ZERO(sigaction(SIGUSR1, NULL, &old));
        CHECK(old.sa_handler == SIG_DFL);
        CHECK(old.sa_flags & SA_RESETHAND);
    }
    puts("SA_RESETHAND");
}

static void taken_back(void)
{
    struct sigaction old;
    for (int i = 0; i < TURNS; i++) {
        handled = 0;
        set(SIGUSR1, count, SA_RESTART);
        send(2 * i);
        await(1);
        set(SIGUSR1, SIG_DFL, 0);
        ZERO(sigaction(SIGUSR1, NULL, &old));
        CHECK(old.sa_handler == SIG_DFL);
        EXPECT(old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_ONSTACK), 0);
    }
    puts("handlers that are taken back");
}

/* How a child ends to whose threads the signal is sent; every default but what only the kernel's own does. */
static void *is_sent(void *arg)
{
    ZERO(raise((int)(intptr_t)arg));
    return arg;
}

static void *is_sent_to_all(void *arg)
{
    ZERO(kill(getpid(), (int)(intptr_t)arg));
    for (;;)
        sleep(100);
    return arg;
}

static void ends(int sig, void *(*run)(void *), int flags)
{
    int status;
    pid_t pid;
    fflush(stdout);
    if ((pid = SYS(fork())) == 0) {
        set(sig, count, flags);
        ZERO(raise(sig));
        if (!(flags & SA_RESETHAND))
            set(sig, SIG_DFL, 0);
        join(start_number(run, sig));
        _exit(1);
    }
    EXPECT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    EXPECT(WTERMSIG(status), sig);
}

static void by_default(void)
{
    ends(SIGUSR1, is_sent, 0);
    ends(SIGUSR1, is_sent, SA_RESETHAND);
    ends(SIGUSR1, is_sent_to_all, 0);
    ends(SIGTERM, is_sent_to_all, SA_RESETHAND);
    ends(SIGRTMIN, is_sent_to_all, 0);
    ends(SIGABRT, is_sent, 0);
    puts("defaults");
}

static int *volatile nowhere;

static void *faults(void *arg)
{
    *nowhere = 1;
    return arg;
}

static sigjmp_buf out;

static void leaves(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void fault(void)
{
    int status;
    pid_t pid;
    fflush(stdout);
    if ((pid = SYS(fork())) == 0) {
        set(SIGSEGV, leaves, SA_RESETHAND);
        if (sigsetjmp(out, 1) == 0)
            faults(NULL);
        join(start(faults, NULL));
        _exit(1);
    }
    EXPECT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    EXPECT(WTERMSIG(status), SIGSEGV);
    puts("a second fault");
}

/* What the default ignores interrupts nothing, whatever the program has had for it. */
static void ignored(void)
{
    struct timespec moment = {0, 20000000}, left;
    set(SIGURG, count, 0);
    set(SIGURG, SIG_DFL, 0);
    for (int i = 0; i < BUSY; i++)
        ZERO(pthread_kill(busy[i], SIGURG));
    ZERO(kill(getpid(), SIGURG));
    pid_t pid = SYS(fork());
    if (pid == 0) {
        for (int i = 0; i < 3; i++) {
            sleep_us(2000);
            kill(getppid(), SIGURG);
        }
        _exit(0);
    }
    ZERO(nanosleep(&moment, &left));
    EXPECT(waitpid(pid, NULL, 0), pid);
    puts("what is ignored");
}

int main(void)
{
    begin(100);
    for (long i = 0; i < BUSY; i++)
        busy[i] = start_number(hand_on, i);
    not_deferred();
    nested_handlers();
    reset();
    taken_back();
    by_default();
    fault();
    ignored();
    stop = 1;
    ZERO(pthread_mutex_lock(&mutex));
    ZERO(pthread_cond_broadcast(&cond));
    ZERO(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < BUSY; i++)
        join(busy[i]);
    return finish();
}
