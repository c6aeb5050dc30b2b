/* How the child of a thread that forked ends: the thread's own end, with others there or not, exit from any
 * thread and the other ways out; statuses, and what handlers, destructors and keys say. */
#include "check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static pthread_key_t key;
static pthread_t forker;

static void say(const char *what)
{
    char line[80];
    int n = snprintf(line, sizeof line, "  %s\n", what);

    write_all(STDOUT_FILENO, line, (size_t)n);
}

static void on_exit_handler(void)
{
    say("atexit");
}

static void on_quick_exit(void)
{
    say("at_quick_exit");
}

static void destroy(void *value)
{
    (void)value;
    say("key");
}

static void cleanup(void *value)
{
    (void)value;
    say("cleanup");
}

static pid_t parent;

__attribute__((destructor)) static void at_end(void)
{
    if (getpid() != parent)
        say("destructor");
}

/* --- threads of the child --- */

static void *exits(void *arg)
{
    exit((int)(intptr_t)arg);
}

static void *quick_exits(void *arg)
{
    quick_exit((int)(intptr_t)arg);
}

static void *joins_it(void *arg)
{
    void *value = join(forker);

    say(value == PTHREAD_CANCELED ? "joined, cancelled" : value == (void *)5 ? "joined" : "joined with another result");
    return arg;
}

static void *outlives_it(void *arg)
{
    join(forker);
    sleep_us(20000);
    say("last");
    return arg;
}

static void *cancels_it(void *arg)
{
    ZERO(pthread_cancel(forker));
    return joins_it(arg);
}

static void *waits(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void *nothing(void *arg)
{
    return arg;
}

static void die(int sig)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    signal(sig, SIG_DFL);
    if (sig == SIGABRT)
        abort();
    raise(sig);
}

/* What the thread does in the child; returns what its start routine then returns. */
static void *way(int n)
{
    switch (n) {
    case 0:
        return NULL;
    case 1:
        pthread_exit(NULL);
    case 2:
        exit(3);
    case 3:
        quick_exit(4);
    case 4:
        _exit(5);
    case 5:
        die(SIGABRT);
        break;
    case 6:
        die(SIGTERM);
        break;
    case 7:
        start(joins_it, NULL);
        return (void *)5;
    case 8:
        start(joins_it, NULL);
        pthread_exit((void *)5);
    case 9:
        start(outlives_it, NULL);
        return (void *)5;
    case 10:
        for (int i = 0; i < 10; i++)
            start(waits, NULL);
        start_number(exits, 6);
        waits(NULL);
        break;
    case 11:
        for (int i = 0; i < 10; i++)
            start(waits, NULL);
        start_number(quick_exits, 7);
        waits(NULL);
        break;
    case 12:
        for (int i = 0; i < 10; i++)
            start(waits, NULL);
        exit(8);
    case 13:
        start(cancels_it, NULL);
        waits(NULL);
        break;
    case 14:
        pthread_cancel(pthread_self());
        pthread_testcancel();
        break;
    case 15: /* a thread that has come and gone changes nothing */
        join(start(nothing, NULL));
        return NULL;
    default:
        break;
    }
    FAIL("way %d did not end", n);
}

static void *forks(void *arg)
{
    int n = (int)(intptr_t)arg;
    void *result = NULL;

    ZERO(pthread_setspecific(key, &key));
    forker = pthread_self();
    pid_t child = SYS(fork());
    if (child == 0) {
        if (atexit(on_exit_handler) != 0 || at_quick_exit(on_quick_exit) != 0)
            _exit(99);
        pthread_cleanup_push(cleanup, NULL);
        result = way(n);
        pthread_cleanup_pop(0);
        return result;
    }
    ZERO(pthread_setspecific(key, NULL));
    int status;
    EXPECT(waitpid(child, &status, 0), child);
    printf("%d: %s %d\n", n, WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return NULL;
}

int main(void)
{
    begin(60);
    parent = getpid();
    ZERO(pthread_key_create(&key, destroy));
    for (int i = 0; i <= 15; i++)
        join(start_number(forks, i));
    /* And the main thread's children. */
    for (int i = 0; i <= 1; i++) {
        fflush(stdout);
        pid_t child = SYS(fork());
        if (child == 0) {
            forker = pthread_self();
            if (i)
                start(joins_it, NULL);
            pthread_exit((void *)5);
        }
        int status;
        EXPECT(waitpid(child, &status, 0), child);
        printf("main %d: %x\n", i, (unsigned)status);
    }
    return finish();
}
