/* A module that wants executable stacks, loaded while threads run, or when they have ended: stacks are executable from then
 * on, those of threads that were there, that come later on stacks used before, and on new ones; their guards stay. Newer C
 * libraries refuse to load it. */
#include "check.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

static struct gate ready = GATE, loaded = GATE;

/* As a trampoline would be: mov eax, 42; ret. */
static void runs_on_stack(void)
{
    volatile unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    int (*function)(void) = (int (*)(void))(uintptr_t)code;

    EXPECT(function(), 42);
}

static __thread sigjmp_buf back;

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* The guard is one still. */
static void guard_holds(void)
{
    pthread_attr_t attr;
    void *low;
    size_t size;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstack(&attr, &low, &size));
    ZERO(pthread_attr_destroy(&attr));
    if (sigsetjmp(back, 1) == 0) {
        (void)*((volatile char *)low - 1);
        FAIL("the guard is not one any more");
    }
}

static void *was_there(void *arg)
{
    gate_add(&ready, 1);
    gate_wait(&loaded, 1);
    runs_on_stack();
    guard_holds();
    return arg;
}

static void *comes_later(void *arg)
{
    runs_on_stack();
    guard_holds();
    return arg;
}

static void *does_nothing(void *arg)
{
    return arg;
}

static void threads_come(void)
{
    pthread_attr_t attr;
    pthread_t thread;

    in_threads(4, comes_later);
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, 3 << 20));
    ZERO(pthread_create(&thread, &attr, comes_later, NULL));
    join(thread);
    ZERO(pthread_attr_destroy(&attr));
}

static bool load(void)
{
    char path[4096];

    return dlopen(beside(path, sizeof path, "exec_stack_mod.so"), RTLD_NOW) != NULL;
}

/* In a child: what has been loaded cannot be undone. */
static void when_all_have_ended(void)
{
    int status;
    pid_t pid = SYS(fork());

    if (pid == 0) {
        in_threads(4, does_nothing);
        if (load())
            threads_come();
        _exit(0);
    }
    EXPECT(SYS(waitpid(pid, &status, 0)), pid);
    EXPECT(status, 0);
}

int main(void)
{
    pthread_t thread[4];

    begin(30);
    signal(SIGSEGV, on_fault);
    when_all_have_ended();
    for (int i = 0; i < 4; i++)
        thread[i] = start(was_there, NULL);
    gate_wait(&ready, 4);
    if (!load()) {
        fprintf(stderr, "skipped: %s\n", dlerror());
        return finish();
    }
    threads_come();
    gate_add(&loaded, 1);
    for (int i = 0; i < 4; i++)
        join(thread[i]);
    threads_come();
    return finish();
}
