/* Waiting for child processes and for signals. */
#include "call.h"
#include "sys.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- children ----------------------------------------------------------------------------------------------------- */

VT_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait4)(pid, status, options, usage);
    vt_cancel_point();
    long ret = vt_sys4(SYS_wait4, pid, (long)status, options | WNOHANG, (long)usage);
    if (ret != 0 || (options & WNOHANG))
        return (pid_t)vt_result(ret);
    return VT_HANDED("wait", vt_real(wait4)(pid, status, options, usage));
}

VT_EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(waitpid)(pid, status, options);
    return wait4(pid, status, options, NULL);
}
VT_ALIAS(waitpid, __waitpid);

VT_EXPORT pid_t wait(int *status)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait)(status);
    return wait4(-1, status, 0, NULL);
}
VT_ALIAS(wait, __wait);

VT_EXPORT pid_t wait3(int *status, int options, struct rusage *usage)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(wait3)(status, options, usage);
    return wait4(-1, status, options, usage);
}

VT_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(waitid)(type, id, info, options);
    vt_cancel_point();
    /* Nobody there gives 0 and a siginfo without a process. */
    siginfo_t now;
    now.si_pid = 0;
    now.si_signo = 0;
    long ret = vt_sys6(SYS_waitid, type, id, (long)&now, options | WNOHANG, 0, 0);
    if (ret != 0 || now.si_signo != 0 || (options & WNOHANG)) {
        if (ret == 0 && info)
            *info = now;
        return (int)vt_result(ret);
    }
    return VT_HANDED("waitid", vt_real(waitid)(type, id, info, options));
}

VT_HANDED_FUNCTION(int, system, (const char *command), (command))
VT_HANDED_FUNCTION(FILE *, popen, (const char *command, const char *mode), (command, mode))
VT_HANDED_FUNCTION(int, pclose, (FILE * stream), (stream))

/* --- signals ------------------------------------------------------------------------------------------------------ */

VT_HANDED_FUNCTION(int, sigwait, (const sigset_t *restrict set, int *restrict sig), (set, sig))
VT_HANDED_FUNCTION(int, sigwaitinfo, (const sigset_t *restrict set, siginfo_t *restrict info), (set, info))
VT_HANDED_FUNCTION(int, sigtimedwait,
                   (const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict timeout),
                   (set, info, timeout))
VT_HANDED_FUNCTION(int, sigsuspend, (const sigset_t *set), (set))
VT_ALIAS(sigsuspend, __sigsuspend);
VT_HANDED_FUNCTION(int, pause, (void), ())
