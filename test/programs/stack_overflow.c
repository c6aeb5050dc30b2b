/*
 * A thread that overflows its stack gets SIGSEGV at the guard, on its alternate stack, and no neighbour is
 * touched. With an argument there is no handler and the process ends by the signal.
 */
#include "check.h"
#include <setjmp.h>
#include <signal.h>

enum { NEIGHBOURS = 20, STACK = 128 * 1024 };

static __thread sigjmp_buf back;
static __thread char alternate[32768];
static __thread char *low, *high;
static struct gate filled = GATE, leave = GATE;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    char here, *at = info->si_addr;

    (void)signal, (void)context;
    CHECK(&here >= alternate && &here < alternate + sizeof alternate);
    if (at >= high || at < low - 65536)
        FAIL("the fault is not at the end of the stack");
    siglongjmp(back, 1);
}

__attribute__((noinline)) static long overflow(long depth)
{
    volatile char frame[512];

    frame[0] = (char)depth;
    if (depth < 0)
        return 0;
    return overflow(depth + 1) + frame[0];
}

__attribute__((noinline)) static void overflow_and_back(void)
{
    if (sigsetjmp(back, 1) == 0) {
        overflow(0);
        FAIL("there is no end to the stack");
    }
}

static void *overflow_once(void *arg)
{
    pthread_attr_t attr;
    size_t size;
    void *address;
    stack_t alt = {.ss_sp = alternate, .ss_size = sizeof alternate};

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstack(&attr, &address, &size));
    ZERO(pthread_attr_destroy(&attr));
    low = address;
    high = low + size;
    SYS(sigaltstack(&alt, NULL));
    for (int i = 0; i < 3; i++) {
        overflow_and_back();
        sched_yield();
    }
    alt.ss_flags = SS_DISABLE;
    SYS(sigaltstack(&alt, NULL));
    return arg;
}

static void *plain_overflow(void *arg)
{
    overflow(0);
    return arg;
}

static void *neighbour(void *arg)
{
    volatile unsigned char area[STACK / 2];

    for (size_t i = 0; i < sizeof area; i++)
        area[i] = (unsigned char)(i * 7);
    gate_add(&filled, 1);
    gate_wait(&leave, 1);
    for (size_t i = 0; i < sizeof area; i++)
        EXPECT(area[i], (unsigned char)(i * 7));
    return arg;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    pthread_t neighbours[NEIGHBOURS], t;
    pthread_attr_t attr;

    (void)argv;
    begin(20);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, STACK));
    for (int i = 0; i < NEIGHBOURS; i++)
        ZERO(pthread_create(&neighbours[i], &attr, neighbour, NULL));
    gate_wait(&filled, NEIGHBOURS);
    if (argc > 1) {
        puts("without a handler");
        ZERO(pthread_create(&t, &attr, plain_overflow, NULL));
        join(t);
        FAIL("the process has outlived its stack");
    }
    SYS(sigaction(SIGSEGV, &action, NULL));
    for (int i = 0; i < 5; i++) {
        ZERO(pthread_create(&t, &attr, overflow_once, NULL));
        join(t);
    }
    gate_add(&leave, 1);
    for (int i = 0; i < NEIGHBOURS; i++)
        join(neighbours[i]);
    return finish();
}
