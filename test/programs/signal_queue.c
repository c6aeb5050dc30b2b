/* Signals that queue: real-time signals to one thread all come, in order and with their values, the lowest
 * number first; ordinary ones once. What handlers, sigtimedwait and system calls by number say of them, and
 * masks that jumps, contexts and system calls change. */
#include "check.h"
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { SENT = 20, ROUNDS = 30 };

static struct gate ready = GATE, go = GATE;
static int got[SENT * 4], values[SENT * 4], ngot;
static pthread_t target;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(pthread_equal(pthread_self(), target));
    CHECK(ngot < SENT * 4);
    EXPECT(info->si_signo, signal);
    EXPECT(info->si_pid, getpid());
    EXPECT(info->si_uid, getuid());
    got[ngot] = signal;
    values[ngot++] = info->si_code == SI_QUEUE ? info->si_value.sival_int : -info->si_code;
}

static void install(int signal)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&action.sa_mask);
    SYS(sigaction(signal, &action, NULL));
}

static sigset_t these(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGRTMIN + 2);
    return set;
}

static void wander(void)
{
    for (int i = 0; i < 5; i++) {
        sched_yield();
        sleep_us(100);
    }
}

/* Lets them in when all are there. */
static void *blocks(void *arg)
{
    sigset_t set = these(), old, now;
    target = pthread_self();
    ngot = 0;
    ZERO(pthread_sigmask(SIG_BLOCK, &set, &old));
    gate_add(&ready, 1);
    gate_wait(&go, 1);
    SYS(sigpending(&now));
    CHECK(sigismember(&now, SIGUSR1) && sigismember(&now, SIGRTMIN + 1) && sigismember(&now, SIGRTMIN + 2));
    EXPECT(ngot, 0);
    wander();
    ZERO(pthread_sigmask(SIG_SETMASK, &old, NULL));
    return arg;
}

static void *takes(void *arg)
{
    sigset_t set = these();
    struct timespec none = {0, 0}, day = {86400, 0};
    siginfo_t info;
    target = pthread_self();
    ngot = 0;
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    gate_add(&ready, 1);
    gate_wait(&go, 1);
    for (int i = 0; i < 2 * SENT + 2; i++) {
        int signal = i % 3 == 0   ? SYS(sigwaitinfo(&set, &info))
                     : i % 3 == 1 ? SYS(sigtimedwait(&set, &info, &day))
                                  : (int)SYS(syscall(SYS_rt_sigtimedwait, &set, &info, &day, (size_t)8));
        on_signal(signal, &info, NULL);
    }
    EXPECT_ERRNO(sigtimedwait(&set, &info, &none), EAGAIN);
    return arg;
}

static void queue(pthread_t thread, int signal, int value)
{
    union sigval v = {.sival_int = value};
    ZERO(pthread_sigqueue(thread, signal, v));
}

static void send_all(pthread_t thread)
{
    for (int i = 0; i < SENT; i++) {
        queue(thread, SIGRTMIN + 2, 1000 + i);
        queue(thread, SIGRTMIN + 1, 2000 + i);
        if (i < 3)
            queue(thread, SIGUSR1, 3000 + i);
    }
    ZERO(pthread_kill(thread, SIGRTMIN + 2));
}

static void expect_all(void)
{
    EXPECT(ngot, 2 * SENT + 2);
    EXPECT(got[0], SIGUSR1);
    EXPECT(values[0], 3000);
    for (int i = 0; i < SENT; i++) {
        EXPECT(got[1 + i], SIGRTMIN + 1);
        EXPECT(values[1 + i], 2000 + i);
        EXPECT(got[1 + SENT + i], SIGRTMIN + 2);
        EXPECT(values[1 + SENT + i], 1000 + i);
    }
    EXPECT(got[2 * SENT + 1], SIGRTMIN + 2);
    EXPECT(values[2 * SENT + 1], -SI_TKILL);
}

static void queued(void *(*run)(void *))
{
    for (int i = 0; i < ROUNDS; i++) {
        ready.count = go.count = 0;
        pthread_t thread = start(run, NULL);
        gate_wait(&ready, 1);
        send_all(thread);
        gate_add(&go, 1);
        join(thread);
        expect_all();
    }
}

/* In order also while the thread runs, waits and comes back. */
static atomic_int stop;

static void *is_at_work(void *arg)
{
    target = pthread_self();
    ngot = 0;
    gate_add(&ready, 1);
    while (!stop) {
        for (volatile int i = 0; i < 10000; i++)
            ;
        sleep_us(200);
    }
    return arg;
}

static void at_work(void)
{
    stop = 0;
    ready.count = 0;
    pthread_t thread = start(is_at_work, NULL);
    gate_wait(&ready, 1);
    for (int i = 0; i < 3 * SENT; i++) {
        queue(thread, SIGRTMIN + 1, i);
        if (i % 7 == 0)
            sleep_us(300);
    }
    while (__atomic_load_n(&ngot, __ATOMIC_ACQUIRE) < 3 * SENT)
        sleep_us(1000);
    stop = 1;
    join(thread);
    for (int i = 0; i < 3 * SENT; i++)
        EXPECT(values[i], i);
}

/* As the system calls say it: raise, tgkill, rt_tgsigqueueinfo by number, with an own code. */
static void *by_number(void *arg)
{
    sigset_t set = these();
    uint64_t bits = 0, pending = 0;
    siginfo_t info;
    struct timespec none = {0, 0};
    target = pthread_self();
    ngot = 0;
    SYS(raise(SIGUSR1));
    SYS(tgkill(getpid(), gettid(), SIGUSR1));
    SYS(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
    SYS(syscall(SYS_tkill, gettid(), SIGUSR1));
    EXPECT(ngot, 4);
    for (int i = 0; i < 4; i++)
        EXPECT(values[i], -SI_TKILL);
    SYS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, &bits, sizeof bits));
    wander();
    memset(&info, 0, sizeof info);
    info.si_code = -60;
    info.si_pid = 17;
    info.si_uid = 18;
    info.si_value.sival_int = 19;
    SYS(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGRTMIN + 1, &info));
    ZERO(pthread_kill(target, SIGUSR1));
    EXPECT(ngot, 4);
    SYS(syscall(SYS_rt_sigpending, &pending, sizeof pending));
    CHECK(pending & UINT64_C(1) << (SIGUSR1 - 1));
    EXPECT(SYS(syscall(SYS_rt_sigtimedwait, &set, &info, NULL, sizeof bits)), SIGUSR1);
    EXPECT(info.si_code, SI_TKILL);
    EXPECT(SYS(syscall(SYS_rt_sigtimedwait, &set, &info, NULL, sizeof bits)), SIGRTMIN + 1);
    EXPECT(info.si_code, -60);
    EXPECT(info.si_pid, 17);
    EXPECT(info.si_uid, 18);
    EXPECT(info.si_value.sival_int, 19);
    EXPECT_ERRNO(syscall(SYS_rt_sigtimedwait, &set, &info, &none, sizeof bits), EAGAIN);
    ZERO(pthread_kill(target, SIGUSR1));
    EXPECT(ngot, 4);
    SYS(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &bits, NULL, sizeof bits));
    EXPECT(ngot, 5);
    return arg;
}

static int blocked(int signal)
{
    sigset_t set;
    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &set));
    return sigismember(&set, signal);
}

static void expect_mask(int is_blocked)
{
    for (int i = 0; i < 3; i++) {
        EXPECT(blocked(SIGUSR1), is_blocked);
        int before = ngot;
        sched_yield();
        if (!is_blocked) {
            ZERO(pthread_kill(pthread_self(), SIGUSR1));
            EXPECT(ngot, before + 1);
        }
        sleep_us(200);
    }
}

static __thread sigjmp_buf back;

static void jumps_out(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static ucontext_t outer, inner;
static char stack[1 << 16] __attribute__((aligned(16)));

static void in_context(void)
{
    expect_mask(1);
    SYS(swapcontext(&inner, &outer));
    expect_mask(1);
    SYS(setcontext(&outer));
}

static void *masks(void *arg)
{
    sigset_t set = these();
    volatile int times = 0;
    target = pthread_self();
    ngot = 0;
    /* Out of a handler, during which the signal is blocked. */
    if (sigsetjmp(back, 1) == 0 || times < 3) {
        expect_mask(0);
        if (times++ < 3)
            ZERO(pthread_kill(target, SIGUSR2));
    }
    EXPECT(times, 3 + (times > 3));
    EXPECT(blocked(SIGUSR2), 0);
    if (sigsetjmp(back, 1) == 0) {
        ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
        expect_mask(1);
        siglongjmp(back, 1);
    }
    expect_mask(0);
    /* What is pending comes with the jump. */
    ngot = 0;
    if (sigsetjmp(back, 1) == 0) {
        ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
        ZERO(pthread_kill(target, SIGUSR1));
        EXPECT(ngot, 0);
        siglongjmp(back, 1);
    }
    EXPECT(ngot, 1);
    SYS(getcontext(&inner));
    inner.uc_stack.ss_sp = stack;
    inner.uc_stack.ss_size = sizeof stack;
    inner.uc_link = NULL;
    inner.uc_sigmask = set;
    makecontext(&inner, in_context, 0);
    for (int i = 0; i < 2; i++) {
        SYS(swapcontext(&outer, &inner));
        expect_mask(0);
    }
    return arg;
}

static void *many(void *arg)
{
    sigset_t set = these();
    struct rlimit limit, small = {64, 64};
    union sigval v = {.sival_int = 1};
    int sent = 0, err;
    SYS(getrlimit(RLIMIT_SIGPENDING, &limit));
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    small.rlim_max = limit.rlim_max;
    SYS(setrlimit(RLIMIT_SIGPENDING, &small));
    while ((err = pthread_sigqueue(pthread_self(), SIGRTMIN + 1, v)) == 0)
        CHECK(++sent <= 64);
    EXPECT_ERROR(err, EAGAIN);
    ZERO(pthread_kill(pthread_self(), SIGUSR1));
    SYS(setrlimit(RLIMIT_SIGPENDING, &limit));
    return arg;
}

int main(void)
{
    struct sigaction action = {.sa_handler = jumps_out};
    begin(60);
    install(SIGUSR1);
    install(SIGRTMIN + 1);
    install(SIGRTMIN + 2);
    SYS(sigaction(SIGUSR2, &action, NULL));
    queued(blocks);
    puts("handlers");
    queued(takes);
    puts("sigtimedwait");
    for (int i = 0; i < 10; i++)
        at_work();
    puts("at work");
    join(start(by_number, NULL));
    puts("by number");
    for (int i = 0; i < 5; i++)
        join(start(masks, NULL));
    puts("masks");
    join(start(many, NULL));
    return finish();
}
