/*
 * System calls by number that block where only a kernel thread can wait, each in more threads than there are carriers:
 * what lets them go runs in a thread of the same program. And those on files.
 */
#include "check.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { EACH = 6, KINDS = 4, N = EACH * KINDS };

static char directory[] = "/tmp/blocking_number-XXXXXX", path[64], fifo[64];
static int locked, recorded, release[2];
static pid_t children[EACH];
static struct gate waiting = GATE;

static void *block(void *arg)
{
    int id = (int)(intptr_t)arg, fd;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    siginfo_t info;
    char c;

    gate_add(&waiting, 1);
    switch (id % KINDS) {
    case 0:
        fd = (int)SYS(syscall(SYS_openat, AT_FDCWD, fifo, O_RDONLY, 0));
        EXPECT(syscall(SYS_read, fd, &c, 1), 0);
        break;
    case 1:
        fd = (int)SYS(syscall(SYS_open, path, O_RDWR, 0));
        ZERO(syscall(SYS_fcntl, fd, F_OFD_SETLKW, &whole));
        break;
    case 2:
        fd = (int)SYS(syscall(SYS_openat, AT_FDCWD, path, O_RDWR, 0));
        ZERO(syscall(SYS_flock, fd, LOCK_EX));
        break;
    default:
        ZERO(syscall(SYS_waitid, P_PID, children[id / KINDS], &info, WEXITED, NULL));
        EXPECT(info.si_status, id / KINDS);
        return NULL;
    }
    ZERO(syscall(SYS_close, fd));
    return NULL;
}

static void *let_go(void *arg)
{
    pthread_t *threads = arg;

    gate_wait(&waiting, N);
    sleep_us(10000);
    SYS(close(locked)), SYS(close(recorded)), SYS(close(release[1]));
    /* A reader that opens after a writer has gone waits for the next one. */
    for (int i = 0; i < N; i += KINDS) {
        int error, fd;
        while ((error = pthread_tryjoin_np(threads[i], NULL)) == EBUSY) {
            if ((fd = open(fifo, O_WRONLY | O_NONBLOCK)) >= 0)
                SYS(close(fd));
            sched_yield();
        }
        ZERO(error);
    }
    return NULL;
}

static void *files(void *arg)
{
    char text[16] = "";
    struct iovec two[2] = {{"ab", 2}, {"cd", 2}}, in = {text, 4};
    int fd = SYS(open(path, O_RDWR));

    EXPECT(syscall(SYS_pwritev, fd, two, 2, 0L, 0L), 4);
    EXPECT(syscall(SYS_pwrite64, fd, "C", 1, 2L), 1);
    EXPECT(syscall(SYS_preadv, fd, &in, 1, 0L, 0L), 4);
    EXPECT_STR(text, "abCd");
    EXPECT_ERRNO(syscall(SYS_preadv, fd, &in, 1, -1L, 0L), EINVAL);
    EXPECT_ERRNO(syscall(SYS_pwritev, fd, two, 2, -1L, 0L), EINVAL);
    EXPECT(syscall(SYS_getrandom, text, 16, 0), 16);
    EXPECT_ERRNO(syscall(SYS_openat, AT_FDCWD, "/nonexistent/file", O_RDONLY, 0), ENOENT);
    ZERO(syscall(SYS_sync_file_range, fd, 0L, 0L, SYNC_FILE_RANGE_WRITE));
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    map[0] = 'A';
    ZERO(syscall(SYS_msync, map, 4096, MS_SYNC));
    SYS(munmap(map, 4096));
    ZERO(syscall(SYS_fsync, fd));
    SYS(close(fd));
    return arg;
}

int main(void)
{
    pthread_t threads[N];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    begin(30);
    SYS(pipe(release));
    for (int i = 0; i < EACH; i++) {
        if ((children[i] = SYS(fork())) == 0) {
            char c;
            close(release[1]);
            _exit(read(release[0], &c, 1) == 0 ? i : 99);
        }
    }
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(fifo, sizeof fifo, "%s/fifo", directory);
    SYS(mkfifo(fifo, 0600));
    locked = SYS(open(path, O_RDWR | O_CREAT, 0600));
    recorded = SYS(open(path, O_RDWR));
    ZERO(flock(locked, LOCK_EX));
    SYS(fcntl(recorded, F_OFD_SETLK, &whole));
    for (int i = 0; i < N; i++)
        threads[i] = start_number(block, i);
    join(start(let_go, threads));
    for (int i = 0; i < N; i++)
        if (i % KINDS)
            join(threads[i]);
    puts("all");
    join(start(files, NULL));
    SYS(unlink(path)), SYS(unlink(fifo)), SYS(rmdir(directory));
    return finish();
}
