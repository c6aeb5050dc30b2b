/* Jumps and contexts within threads: setjmp, sigsetjmp, makecontext coroutines that block and that change
 * threads. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

enum { THREADS = 8, STACK = 65536, STEPS = 100 };

static sem_t turn[THREADS];

static void block(int id)
{
    ZERO(sem_post(&turn[(id + 1) % THREADS]));
    ZERO(sem_wait(&turn[id]));
    sched_yield();
}

__attribute__((noinline, noreturn)) static void jump_from(jmp_buf *to, int depth, int id)
{
    char frame[64];

    memset(frame, depth, sizeof frame);
    __asm__ volatile("" : : "r"(frame) : "memory");
    if (depth == 0) {
        block(id);
        longjmp(*to, id + 1);
    }
    jump_from(to, depth - 1, id);
}

static void *jump(void *arg)
{
    int id = (int)(intptr_t)arg;
    jmp_buf here;

    for (volatile int i = 0; i < 50; i++) {
        int value = setjmp(here);
        if (value == 0)
            jump_from(&here, 20, id);
        EXPECT(value, id + 1);
    }
    return NULL;
}

static void *jump_mask(void *arg)
{
    sigset_t set, got;
    sigjmp_buf here;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    if (sigsetjmp(here, 1) == 0) {
        ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
        sched_yield();
        siglongjmp(here, 1);
    }
    ZERO(pthread_sigmask(SIG_BLOCK, NULL, &got));
    EXPECT(sigismember(&got, SIGUSR1), 0);
    return arg;
}

struct coroutine {
    ucontext_t inside, outside;
    int id, step, done;
    char stack[STACK];
};

static __thread struct coroutine *running;

static void body(int high, int low)
{
    struct coroutine *c = (struct coroutine *)(((uintptr_t)(unsigned)high << 32) | (unsigned)low);
    volatile char frame[200];

    memset((char *)frame, c->id, sizeof frame);
    while (c->step < STEPS) {
        c->step++;
        block(c->id);
        SYS(swapcontext(&c->inside, &c->outside));
        EXPECT(frame[199], c->id);
    }
    c->done = 1;
}

static struct coroutine *make(int id)
{
    struct coroutine *c = calloc(1, sizeof *c);

    c->id = id;
    SYS(getcontext(&c->inside));
    c->inside.uc_stack.ss_sp = c->stack;
    c->inside.uc_stack.ss_size = sizeof c->stack;
    c->inside.uc_link = &c->outside;
    makecontext(&c->inside, (void (*)(void))body, 2, (int)((uintptr_t)c >> 32), (int)(uintptr_t)c);
    return c;
}

static void *drive(void *arg)
{
    struct coroutine *c = make((int)(intptr_t)arg);
    int resumed = 0;

    while (!c->done) {
        running = c;
        SYS(swapcontext(&c->outside, &c->inside));
        CHECK(running == c);
        resumed++;
    }
    EXPECT(resumed, STEPS + 1);
    free(c);
    return NULL;
}

/* Coroutines that go from thread to thread, one step in each. */
static struct coroutine *travelling[THREADS];
static pthread_barrier_t barrier;

static void *drive_all(void *arg)
{
    int id = (int)(intptr_t)arg;

    for (int i = 0; i <= STEPS; i++) {
        struct coroutine *c = travelling[(id + i) % THREADS];
        SYS(swapcontext(&c->outside, &c->inside));
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    begin(20);
    for (int i = 0; i < THREADS; i++)
        ZERO(sem_init(&turn[i], 0, 0));
    in_threads(THREADS, jump);
    in_threads(THREADS, jump_mask);
    puts("setjmp");
    in_threads(THREADS, drive);
    puts("makecontext");
    ZERO(pthread_barrier_init(&barrier, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        travelling[i] = make(i);
    in_threads(THREADS, drive_all);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(travelling[i]->done, 1);
        free(travelling[i]);
    }
    puts("travelling");
    return finish();
}
