/* setgid and setresuid, by main and by a thread, while others sleep, compute and block: they return, and are in force for
 * every thread. Also without the rights for it, where they set what is there. */
#include "check.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static atomic_int stop;
static int pipe_fds[2];
static uid_t uid;
static gid_t gid;

static void *sleeps(void *arg)
{
    while (!stop)
        usleep(1000);
    EXPECT((uid_t)syscall(SYS_geteuid), uid);
    EXPECT((gid_t)syscall(SYS_getegid), gid);
    return arg;
}

static void *computes(void *arg)
{
    while (!stop)
        ;
    return sleeps(arg);
}

static void *reads(void *arg)
{
    char c;
    EXPECT(read(pipe_fds[0], &c, 1), 0);
    return sleeps(arg);
}

static void *sets(void *arg)
{
    SYS(setresuid(uid, uid, uid));
    EXPECT((uid_t)syscall(SYS_getuid), uid);
    return arg;
}

/* What the kernel says of each of its threads: "Uid: real effective saved ..." */
static void look_at_all(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *e;
    char path[300], line[200];

    CHECK(tasks);
    while ((e = readdir(tasks))) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *status = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        unsigned real, effective;
        while (status && fgets(line, sizeof line, status)) {
            if (sscanf(line, "Uid: %u %u", &real, &effective) == 2)
                CHECK(real == uid && effective == uid);
            if (sscanf(line, "Gid: %u %u", &real, &effective) == 2)
                CHECK(real == gid && effective == gid);
        }
        if (status)
            fclose(status);
    }
    closedir(tasks);
}

int main(void)
{
    void *(*const kinds[])(void *) = {sleeps, computes, reads};
    pthread_t threads[9], setter;

    uid = geteuid() ? getuid() : 65534;
    gid = geteuid() ? getgid() : 65534;
    SYS(pipe(pipe_fds));
    for (int i = 0; i < 9; i++)
        ZERO(pthread_create(&threads[i], NULL, kinds[i % 3], NULL));
    usleep(20000);
    SYS(setgid(gid));
    puts("main has set the group");
    ZERO(pthread_create(&setter, NULL, sets, NULL));
    ZERO(pthread_join(setter, NULL));
    puts("a thread has set the user");
    look_at_all();
    stop = 1;
    close(pipe_fds[1]);
    for (int i = 0; i < 9; i++)
        ZERO(pthread_join(threads[i], NULL));
    puts("ok");
    return 0;
}
