/* Runs a command and counts the instructions that it executes in user mode between two breakpoints, by single
 * steps. For machines without hardware counters; exact where those are not, and slow: some microseconds a
 * step. A system call is one instruction. The thread that meets the first breakpoint is stepped, the others
 * run on. */
#define _GNU_SOURCE
#include "bench.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static long count;
static pid_t stepped; /* 0: not between the breakpoints */

static void go_on(pid_t pid, int signal)
{
    ptrace(pid == stepped ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, (void *)(long)signal);
}

/* A trap of the program's own, not one that tracing makes. On x86 a step over a system call reports
 * TRAP_BRKPT, and a breakpoint does not (user_single_step_report and do_int3 in the kernel). */
static int at_breakpoint(pid_t pid)
{
    siginfo_t info;
#if defined __x86_64__ || defined __i386__
    int code = SI_KERNEL;
#else
    int code = TRAP_BRKPT;
#endif
    return ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) == 0 && info.si_code == code;
}

static void stopped(pid_t pid, int status)
{
    int signal = WSTOPSIG(status);
    if (status >> 16) { /* an event: a thread was made, or a program was called */
        go_on(pid, 0);
    } else if (signal == SIGTRAP && at_breakpoint(pid)) {
        stepped = stepped == pid ? 0 : pid;
        go_on(pid, 0);
    } else if (signal == SIGTRAP) {
        count += pid == stepped;
        go_on(pid, 0);
    } else {
        /* the first stop of a new thread is not a signal to pass on */
        go_on(pid, signal == SIGSTOP ? 0 : signal);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        usage("steps COMMAND [ARGUMENTS], for example: steps micro -t lock 100");
    pid_t child = sys(fork(), "fork");
    if (child == 0) {
        sys((int)ptrace(PTRACE_TRACEME, 0, NULL, NULL), "ptrace");
        raise(SIGSTOP);
        /* for the command and not for this program, which is to be as it is */
        if (getenv("STEPS_PRELOAD"))
            setenv("LD_PRELOAD", getenv("STEPS_PRELOAD"), 1);
        execvp(argv[1], argv + 1);
        check(errno, argv[1]);
    }
    int status, code = 1;
    sys(waitpid(child, &status, 0), "waitpid");
    sys((int)ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)),
        "PTRACE_SETOPTIONS");
    go_on(child, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            break;
        if (WIFSTOPPED(status))
            stopped(pid, status);
        else if (pid == child)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    printf("steps instructions=%ld\n", count);
    return code;
}
