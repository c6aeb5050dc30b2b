/*
 * Children waited for in many threads, by each of the calls and in each of their ways: by number, group, any; ends, stops
 * and continuations; what is only looked at; handlers with and without SA_RESTART; cancellation. Arguments: the number
 * of threads that wait for a child each, and how many kernel threads there may be meanwhile (0: any number).
 */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

enum { KINDS = 7, ANY = 10 };

static int each, release[2];
static pid_t *children;
static struct gate waiting = GATE;
static _Atomic int found, lacking;
static volatile sig_atomic_t handled;

/* A child that ends when the write end is closed: with the status, or by a signal. */
static pid_t make_child(int status, int own_group)
{
    char c;
    pid_t pid = SYS(fork());

    if (pid == 0) {
        if (own_group)
            setpgid(0, 0);
        close(release[1]);
        if (read(release[0], &c, 1) != 0)
            _exit(99);
        if (status < 0)
            kill(getpid(), -status);
        _exit(status);
    }
    if (own_group)
        setpgid(pid, pid);
    return pid;
}

static void new_pipe(void)
{
    SYS(pipe(release));
}

static void let_go(void)
{
    SYS(close(release[1]));
    SYS(close(release[0]));
}

static void expect_info(const siginfo_t *info, pid_t pid, int code, int status)
{
    EXPECT(info->si_signo, SIGCHLD);
    EXPECT(info->si_pid, pid);
    EXPECT(info->si_code, code);
    EXPECT(info->si_status, status);
    EXPECT(info->si_uid, getuid());
}

static int status_of(int id)
{
    return id % KINDS == 6 ? -SIGKILL : id % 100;
}

static void *wait_for_one(void *arg)
{
    int id = (int)(intptr_t)arg, status = -1;
    pid_t pid = children[id];
    struct rusage usage = {.ru_maxrss = -1};
    siginfo_t info;

    gate_add(&waiting, 1);
    switch (id % KINDS) {
    case 0:
        EXPECT(waitpid(pid, &status, 0), pid);
        break;
    case 1:
        EXPECT(wait4(pid, &status, 0, &usage), pid);
        CHECK(usage.ru_maxrss > 0);
        break;
    case 2:
        memset(&info, 0x55, sizeof info);
        ZERO(waitid(P_PID, (id_t)pid, &info, WEXITED));
        expect_info(&info, pid, CLD_EXITED, id % 100);
        EXPECT_ERRNO(waitid(P_PID, (id_t)pid, &info, WEXITED), ECHILD);
        return NULL;
    case 3:
        EXPECT(waitpid(-pid, &status, 0), pid);
        EXPECT_ERRNO(waitpid(-pid, &status, 0), ECHILD);
        break;
    case 4:
        ZERO(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
        expect_info(&info, pid, CLD_EXITED, id % 100);
        ZERO(waitid(P_PGID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG));
        expect_info(&info, pid, CLD_EXITED, id % 100);
        EXPECT(waitpid(pid, &status, WNOHANG), pid);
        break;
    case 5:
        EXPECT(syscall(SYS_wait4, pid, &status, 0, NULL), pid);
        break;
    default:
        EXPECT(waitpid(pid, &status, WUNTRACED | WCONTINUED), pid);
        CHECK(WIFSIGNALED(status));
        EXPECT(WTERMSIG(status), SIGKILL);
        return NULL;
    }
    CHECK(WIFEXITED(status));
    EXPECT(WEXITSTATUS(status), id % 100);
    EXPECT_ERRNO(waitpid(pid, NULL, 0), ECHILD);
    return NULL;
}

static long kernel_threads(void)
{
    char line[128];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");

    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %ld", &n) == 1)
            break;
    ZERO(fclose(f));
    return n;
}

/* Waiting for children without a kernel thread each needs Linux 6.7. */
static int recent(void)
{
    struct utsname name;
    int major = 0, minor = 0;

    SYS(uname(&name));
    CHECK(sscanf(name.release, "%d.%d", &major, &minor) == 2);
    return major * 1000 + minor >= 6007;
}

static void *by_number(void *arg)
{
    long most = (long)(intptr_t)arg;
    pthread_t *threads = calloc((size_t)each, sizeof *threads);

    CHECK(threads != NULL);
    for (int i = 0; i < each; i++)
        threads[i] = start_number(wait_for_one, i);
    gate_wait(&waiting, each);
    /* Until all that are about to wait do. */
    sleep_us(50000);
    long n = kernel_threads();
    if (most && recent() && n > most)
        FAIL("%ld kernel threads, with %d threads that wait", n, each);
    let_go();
    for (int i = 0; i < each; i++)
        join(threads[i]);
    free(threads);
    return NULL;
}

/* More threads than children: each child is found once, and then there is none. */
static void *wait_for_any(void *arg)
{
    long id = (intptr_t)arg;
    int status;
    siginfo_t info;
    pid_t pid;

    gate_add(&waiting, 1);
    if (id % 3 == 0) {
        pid = wait(&status);
    } else if (id % 3 == 1) {
        pid = wait3(&status, 0, NULL);
    } else {
        pid = waitid(P_ALL, 0, &info, WEXITED) == 0 ? info.si_pid : -1;
        status = pid > 0 ? info.si_status << 8 : 0;
    }
    if (pid == -1) {
        EXPECT(errno, ECHILD);
        lacking++;
        return NULL;
    }
    for (int i = 0; i < ANY; i++) {
        if (children[i] == pid) {
            EXPECT(status, i << 8);
            children[i] = 0;
            found++;
            return NULL;
        }
    }
    FAIL("process %d is no child, or was found before", (int)pid);
}

static void any(void)
{
    pthread_t threads[2 * ANY];

    new_pipe();
    for (int i = 0; i < ANY; i++)
        children[i] = make_child(i, 0);
    waiting.count = 0;
    for (int i = 0; i < 2 * ANY; i++)
        threads[i] = start_number(wait_for_any, i);
    gate_wait(&waiting, 2 * ANY);
    let_go();
    for (int i = 0; i < 2 * ANY; i++)
        join(threads[i]);
    EXPECT(found, ANY);
    EXPECT(lacking, ANY);
    puts("any");
}

static void *stops(void *arg)
{
    pid_t pid = children[0];
    int status;
    siginfo_t info;

    EXPECT(waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED), 0);
    gate_add(&waiting, 1);
    EXPECT(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
    EXPECT(WSTOPSIG(status), SIGSTOP);
    gate_add(&waiting, 1);
    EXPECT(waitpid(pid, &status, WCONTINUED), pid);
    CHECK(WIFCONTINUED(status));
    gate_add(&waiting, 1);
    ZERO(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED));
    expect_info(&info, pid, CLD_STOPPED, SIGTSTP);
    gate_add(&waiting, 1);
    ZERO(waitid(P_ALL, 0, &info, WEXITED)); /* a stop and a continuation are not asked for */
    expect_info(&info, pid, CLD_KILLED, SIGTERM);
    EXPECT_ERRNO(waitid(P_ALL, 0, &info, WSTOPPED), ECHILD);
    EXPECT_ERRNO(waitid(P_ALL, 0, &info, 0), EINVAL);
    EXPECT_ERRNO(waitpid(-1, &status, 0x10000), EINVAL);
    return arg;
}

static void stop_and_go(void)
{
    new_pipe();
    children[0] = make_child(0, 1);
    waiting.count = 0;
    pthread_t t = start(stops, NULL);
    gate_wait(&waiting, 1);
    SYS(kill(children[0], SIGSTOP));
    gate_wait(&waiting, 2);
    SYS(kill(children[0], SIGCONT));
    gate_wait(&waiting, 3);
    SYS(kill(children[0], SIGTSTP));
    gate_wait(&waiting, 4);
    SYS(kill(children[0], SIGCONT));
    SYS(kill(children[0], SIGTERM));
    join(t);
    let_go();
    puts("stops");
}

static void on_signal(int signal)
{
    (void)signal;
    handled++;
}

static void install(int signal, int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};

    SYS(sigaction(signal, &action, NULL));
}

static _Atomic int answered;

static void *interrupted(void *arg)
{
    siginfo_t info;

    if (arg)
        EXPECT_ERRNO(waitid(P_PID, (id_t)children[0], &info, WEXITED), EINTR);
    else
        EXPECT_ERRNO(wait(NULL), EINTR);
    answered = 1;
    return NULL;
}

static void *restarted(void *arg)
{
    EXPECT(waitpid(children[0], NULL, 0), children[0]);
    answered = 1;
    return arg;
}

static void clean(void *arg)
{
    *(int *)arg += 1;
}

static void *cancelled(void *arg)
{
    pthread_cleanup_push(clean, arg);
    gate_add(&waiting, 1);
    waitpid(children[0], NULL, 0);
    FAIL("came back");
    pthread_cleanup_pop(0);
    return NULL;
}

static void ended_early(void)
{
    int cleaned = 0;

    new_pipe();
    children[0] = make_child(0, 0);
    install(SIGUSR1, 0);
    install(SIGUSR2, SA_RESTART);
    for (long i = 0; i < 2; i++) {
        answered = 0;
        pthread_t t = start_number(interrupted, i);
        while (!answered) {
            ZERO(pthread_kill(t, SIGUSR1));
            sleep_us(2000);
        }
        join(t);
    }
    puts("interrupted");
    waiting.count = 0;
    pthread_t t = start(cancelled, &cleaned);
    gate_wait(&waiting, 1);
    sleep_us(2000);
    ZERO(pthread_cancel(t));
    CHECK(join(t) == PTHREAD_CANCELED);
    EXPECT(cleaned, 1);
    puts("cancelled");
    answered = handled = 0;
    t = start(restarted, NULL);
    while (handled < 5) {
        ZERO(pthread_kill(t, SIGUSR2));
        sleep_us(2000);
    }
    CHECK(!answered);
    let_go();
    join(t);
    puts("restarted");
}

int main(int argc, char **argv)
{
    each = (int)argument(argc, argv, 1, 35);
    begin(40);
    children = calloc((size_t)(each > ANY ? each : ANY), sizeof *children);
    CHECK(children != NULL);
    new_pipe();
    for (int i = 0; i < each; i++)
        children[i] = make_child(status_of(i), i % KINDS == 3 || i % KINDS == 4);
    join(start_number(by_number, argument(argc, argv, 2, 0)));
    puts("by number");
    any();
    stop_and_go();
    ended_early();
    free(children);
    return finish();
}
