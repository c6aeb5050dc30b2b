/* Descriptors that the program did not make are not there: not in /proc/self/fd however it is read, not for any call on any
 * number, and not in the numbers that it gets; nor in what children inherit. While threads wait, and with limits on the
 * number of descriptors that change meanwhile.
 *
 * usage: descriptors_hidden [list]: the child that says what it has inherited */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 8, MOST = 256 };

extern char **environ;
static char self[4096];

/* --- what is open --------------------------------------------------------------------------------- */

struct set {
    int n, at[MOST];
};

static void set_add(struct set *s, const char *name)
{
    if (*name == '.')
        return;
    CHECK(s->n < MOST);
    s->at[s->n++] = atoi(name);
}

static void by_readdir(const char *path, struct set *s)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    CHECK(dir != NULL);
    while ((e = readdir(dir)))
        if (atoi(e->d_name) != dirfd(dir) || *e->d_name == '.')
            set_add(s, e->d_name);
    ZERO(closedir(dir));
}

static void by_getdents(struct set *s)
{
    _Alignas(8) char buffer[sizeof(struct dirent64)];
    const size_t few = 80; /* bytes, two or three entries */
    int fd = SYS(open("/proc/self/fd", O_RDONLY | O_DIRECTORY)), n;

    while ((n = (int)SYS(syscall(SYS_getdents64, fd, buffer, few))) > 0) {
        for (int at = 0; at < n;) {
            struct dirent64 *e = (struct dirent64 *)(void *)(buffer + at);
            if (atoi(e->d_name) != fd || *e->d_name == '.')
                set_add(s, e->d_name);
            at += e->d_reclen;
        }
    }
    SYS(close(fd));
}

static void by_scandir(struct set *s)
{
    struct dirent **list;
    int n = SYS(scandir("/proc/self/fd/", &list, NULL, versionsort)), first_free = SYS(dup(0));

    for (int i = 0; i < n; i++) {
        if (atoi(list[i]->d_name) != first_free || *list[i]->d_name == '.')
            set_add(s, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    SYS(close(first_free));
}

static bool answers(int fd, int how)
{
    struct stat st;
    struct pollfd p = {fd, 0, 0};
    int copy, n = 0;

    errno = 0;
    switch (how) {
    case 0:
        return fcntl(fd, F_GETFD) != -1 || errno != EBADF;
    case 1:
        return fcntl(fd, F_GETFL) != -1 || errno != EBADF;
    case 2:
        return fstat(fd, &st) != -1 || errno != EBADF;
    case 3:
        copy = dup(fd);
        if (copy >= 0)
            close(copy);
        return copy >= 0 || errno != EBADF;
    case 4:
        return poll(&p, 1, 0) != 1 || !(p.revents & POLLNVAL);
    case 5:
        return ioctl(fd, FIONREAD, &n) != -1 || errno != EBADF;
    case 6:
        return read(fd, &st, 0) != -1 || errno != EBADF;
    case 7:
        return write(fd, &st, 0) != -1 || errno != EBADF;
    case 8:
        return syscall(SYS_fcntl, fd, F_GETFD) != -1 || errno != EBADF;
    default:
        copy = fcntl(fd, F_DUPFD, 0);
        if (copy >= 0)
            close(copy);
        return copy >= 0 || errno != EBADF;
    }
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void same(struct set *a, struct set *b, const char *what)
{
    qsort(a->at, (size_t)a->n, sizeof *a->at, compare);
    qsort(b->at, (size_t)b->n, sizeof *b->at, compare);
    for (int i = 0; i < a->n && i < b->n; i++)
        if (a->at[i] != b->at[i])
            FAIL("%s: %d instead of %d", what, b->at[i], a->at[i]);
    if (a->n != b->n)
        FAIL("%s: %d instead of %d", what, b->n, a->n);
}

static struct set expected;

static void *look(void *arg)
{
    struct set s;
    long end = 40000 > sysconf(_SC_OPEN_MAX) ? sysconf(_SC_OPEN_MAX) + 300 : 40000;

    s.n = 0, by_readdir("/proc/self/fd", &s), same(&expected, &s, "readdir");
    s.n = 0, by_readdir("/proc/self/fdinfo", &s), same(&expected, &s, "fdinfo");
    s.n = 0, by_getdents(&s), same(&expected, &s, "getdents64");
    s.n = 0, by_scandir(&s), same(&expected, &s, "scandir");
    for (int how = 0; how < 10; how++) {
        s.n = 0;
        for (int fd = 0; fd < end; fd++)
            if (answers(fd, how))
                s.at[s.n++] = fd;
        if (how == 5 || how == 6 || how == 7) /* these may say something else of one that is open */
            continue;
        char text[32];
        snprintf(text, sizeof text, "call %d", how);
        same(&expected, &s, text);
    }
    return arg;
}

/* --- threads that wait ------------------------------------------------------------------------------ */

static int pair[2];
static struct gate waiting = GATE;

static void *receive(void *arg)
{
    char byte;

    gate_add(&waiting, 1);
    EXPECT(read(pair[0], &byte, 1), 1);
    return arg;
}

/* --- children --------------------------------------------------------------------------------------- */

static int list(void)
{
    struct set s = {0};

    by_readdir("/proc/self/fd", &s);
    qsort(s.at, (size_t)s.n, sizeof *s.at, compare);
    for (int i = 0; i < s.n; i++)
        printf("%d ", s.at[i]);
    puts("");
    fflush(stdout);
    return 0;
}

static void expect_inherited(const char *got)
{
    EXPECT_STR(got, "0 1 2 \n");
}

static void read_child(int fd, pid_t pid)
{
    char text[256];
    size_t n = 0;
    ssize_t got;
    int status;

    while ((got = SYS(read(fd, text + n, sizeof text - 1 - n))) > 0)
        n += (size_t)got;
    text[n] = '\0';
    SYS(close(fd));
    EXPECT(waitpid(pid, &status, 0), pid);
    EXPECT(status, 0);
    expect_inherited(text);
}

static void *children(void *arg)
{
    char command[4200], text[256], *argv[] = {self, "list", NULL};
    int fds[2], plain = (int)(intptr_t)arg;
    posix_spawn_file_actions_t actions;
    pid_t pid;

    if (plain)
        unsetenv("LD_PRELOAD"); /* the child looks with nobody's help */
    SYS(pipe2(fds, O_CLOEXEC));
    ZERO(posix_spawn_file_actions_init(&actions));
    ZERO(posix_spawn_file_actions_adddup2(&actions, fds[1], 1));
    ZERO(posix_spawn(&pid, self, &actions, NULL, argv, environ));
    ZERO(posix_spawn_file_actions_destroy(&actions));
    SYS(close(fds[1]));
    read_child(fds[0], pid);

    SYS(pipe2(fds, O_CLOEXEC));
    pid = SYS(fork());
    if (pid == 0) {
        dup2(fds[1], 1);
        execv(self, argv);
        _exit(9);
    }
    SYS(close(fds[1]));
    read_child(fds[0], pid);

    SYS(pipe2(fds, O_CLOEXEC));
    pid = SYS(vfork());
    if (pid == 0) {
        dup2(fds[1], 1);
        for (int fd = 3; fd < 2000; fd++)
            if (fd != fds[1])
                close(fd);
        execv(self, argv);
        _exit(9);
    }
    SYS(close(fds[1]));
    read_child(fds[0], pid);

    snprintf(command, sizeof command, "%s list", self);
    FILE *f = popen(command, "re");
    CHECK(f && fgets(text, sizeof text, f));
    EXPECT(pclose(f), 0);
    expect_inherited(text);
    return arg;
}

/* --- limits ------------------------------------------------------------------------------------------ */

static int count_until_full(int *first, int *last)
{
    int fd, n = 0;

    *first = *last = -1;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) {
        if (*first < 0)
            *first = fd;
        *last = fd;
        n++;
    }
    EXPECT(errno, EMFILE);
    EXPECT_ERRNO(socket(AF_UNIX, SOCK_STREAM, 0), EMFILE);
    SYS(close_range((unsigned)*first, ~0U, 0));
    return n;
}

static void *fill(void *arg)
{
    static const int soft[] = {300, 64, 20, 1000, 64, 2000};
    struct rlimit old, now;

    ZERO(getrlimit(RLIMIT_NOFILE, &old));
    for (size_t i = 0; i < sizeof soft / sizeof *soft; i++) {
        struct rlimit l = {(rlim_t)soft[i], old.rlim_max};
        int first, last;
        if (i % 2)
            ZERO(setrlimit(RLIMIT_NOFILE, &l));
        else
            ZERO(prlimit(0, RLIMIT_NOFILE, &l, NULL));
        ZERO(getrlimit(RLIMIT_NOFILE, &now));
        EXPECT(now.rlim_cur, soft[i]);
        EXPECT(now.rlim_max, old.rlim_max);
        int n = count_until_full(&first, &last);
        EXPECT(last, soft[i] - 1);
        EXPECT(n, last - first + 1);
        EXPECT_ERRNO(dup2(0, soft[i]), EBADF);
        EXPECT_ERRNO(fcntl(0, F_DUPFD, soft[i]), EINVAL);
        EXPECT(dup2(0, soft[i] - 1), soft[i] - 1);
        SYS(close(soft[i] - 1));
    }
    ZERO(setrlimit(RLIMIT_NOFILE, &old));
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct rlimit l;

    if (argc > 1 && strcmp(argv[1], "list") == 0)
        return list();
    begin(60);
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    ZERO(getrlimit(RLIMIT_NOFILE, &l));
    l.rlim_cur = 1024;
    ZERO(setrlimit(RLIMIT_NOFILE, &l));
    SYS(close_range(3, ~0U, 0));
    SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    by_readdir("/proc/self/fd", &expected);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(receive, NULL);
    gate_wait(&waiting, THREADS);

    look(NULL);
    join(start(look, NULL));
    puts("not to be seen");
    join(start(fill, NULL));
    fill(NULL);
    puts("not counted");
    join(start(look, NULL));
    children((void *)0);
    join(start_number(children, 0));
    join(start_number(children, 1));
    puts("not inherited");

    write_all(pair[1], "12345678", THREADS);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return finish();
}
