/* Runs another of these programs under a limit, or where the kernel refuses what it may refuse: it is to print what it prints
 * without.
 *
 * usage: under_limits what program [argument...]. what: io_uring is refused with eperm, enosys or enomem; memlock: nothing can
 * be locked; nofile=N: both limits on descriptors; as=MIB: address space */
#include "check.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void refuse_io_uring(unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SYS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void limit(__rlimit_resource_t what, const char *value, rlim_t unit)
{
    rlim_t n = (rlim_t)strtoul(value, NULL, 0) * unit;
    struct rlimit l = {n, n};

    ZERO(setrlimit(what, &l));
}

int main(int argc, char **argv)
{
    char path[4096];

    CHECK(argc > 2);
    if (strcmp(argv[1], "eperm") == 0)
        refuse_io_uring(EPERM);
    else if (strcmp(argv[1], "enosys") == 0)
        refuse_io_uring(ENOSYS);
    else if (strcmp(argv[1], "enomem") == 0)
        refuse_io_uring(ENOMEM);
    else if (strcmp(argv[1], "memlock") == 0)
        limit(RLIMIT_MEMLOCK, "0", 1);
    else if (strncmp(argv[1], "nofile=", 7) == 0)
        limit(RLIMIT_NOFILE, argv[1] + 7, 1);
    else if (strncmp(argv[1], "as=", 3) == 0)
        limit(RLIMIT_AS, argv[1] + 3, 1 << 20);
    else
        FAIL("what is %s?", argv[1]);
    execv(beside(path, sizeof path, argv[2]), argv + 2);
    FAIL("%s: %s", path, error_name(errno));
}
