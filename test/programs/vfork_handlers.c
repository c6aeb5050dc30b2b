/* Children of vfork that set actions for signals and send some to themselves, as those that make other programs do before exec:
 * what they set is theirs, and their parents' handlers are as they were. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>

enum { TURNS = 8 };

static _Atomic int handled, in_child, stop;

static void count(int sig)
{
    (void)sig;
    handled++;
}

static void count_in_child(int sig)
{
    (void)sig;
    in_child++;
}

static void set(int sig, void (*handler)(int))
{
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
    SYS(sigaction(sig, &act, NULL));
}

static void (*get(int sig))(int)
{
    struct sigaction act;
    SYS(sigaction(sig, NULL, &act));
    return act.sa_handler;
}

/* In the child, whose memory is the parent's. */
static void resets(int how)
{
    if (get(SIGUSR1) != count || get(SIGUSR2) != SIG_DFL || get(SIGHUP) != SIG_IGN)
        _exit(1);
    set(SIGUSR1, SIG_DFL);
    set(SIGUSR2, count_in_child);
    set(SIGHUP, SIG_DFL);
    signal(SIGWINCH, SIG_IGN);
    if (get(SIGUSR1) != SIG_DFL || get(SIGUSR2) != count_in_child || get(SIGHUP) != SIG_DFL || get(SIGWINCH) != SIG_IGN)
        _exit(2);
    in_child = 0;
    if (kill(getpid(), SIGUSR2) != 0 || in_child != 1)
        _exit(3);
    if (how == 1)
        kill(getpid(), SIGUSR1);
    else if (how == 2)
        pthread_kill(pthread_self(), SIGUSR1);
    else if (how == 3)
        raise(SIGUSR1);
    _exit(how == 0 ? 0 : 4);
}

static void *forks(void *arg)
{
    for (int i = 0; i < TURNS; i++) {
        int status;
        pid_t child = vfork();
        if (child == 0)
            resets(i % 4);
        CHECK(child > 0);
        EXPECT(waitpid(child, &status, 0), child);
        EXPECT(status, i % 4 == 0 ? 0 : SIGUSR1); /* the end that the default is, or _exit */
        CHECK(get(SIGUSR1) == count);
        CHECK(get(SIGUSR2) == SIG_DFL);
        CHECK(get(SIGHUP) == SIG_IGN);
        CHECK(get(SIGWINCH) == SIG_DFL);

        int before = handled;
        ZERO(raise(SIGUSR1));
        CHECK(handled > before);
        child = fork();
        if (child == 0)
            _exit(kill(getppid(), SIGUSR1));
        CHECK(child > 0);
        EXPECT(waitpid(child, &status, 0), child);
        EXPECT(status, 0);
    }
    return arg;
}

static void *waits(void *arg)
{
    while (!stop)
        usleep(1000);
    return arg;
}

int main(void)
{
    pthread_t threads[3];

    set(SIGUSR1, count);
    set(SIGHUP, SIG_IGN);
    forks(NULL); /* before there are threads */
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&threads[i], NULL, waits, NULL));
    forks(NULL);
    pthread_t forker;
    ZERO(pthread_create(&forker, NULL, forks, NULL));
    ZERO(pthread_join(forker, NULL));
    stop = 1;
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(threads[i], NULL));
    puts("ok");
    return 0;
}
