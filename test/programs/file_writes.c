/*
 * Files written by more threads than there are carriers, in all the ways that wait for the disk: O_SYNC, O_DSYNC, O_DIRECT
 * from the start and set later, RWF_DSYNC, and the plain one; at positions and at the current one. What was written is there,
 * nobody else has to wait, and a limit of the size is noticed as natively.
 */
#include "lateness.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { WAYS = 6, EACH = 4, BLOCK = 4096, BLOCKS = 24 };

static char directory[] = "/var/tmp/file_writes-XXXXXX";
static _Atomic int over;
static volatile sig_atomic_t too_large;

static char byte_of(long id, long i)
{
    return (char)(id * 11 + i * 5 + i / BLOCK);
}

static int open_way(const char *path, int way)
{
    static const int flags[WAYS] = {O_SYNC, O_DSYNC, O_DIRECT, 0, 0, O_APPEND};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags[way], 0600);

    if (fd == -1 && errno == EINVAL) /* a file system that does not know O_DIRECT */
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    SYS(fd);
    if (way == 4)
        fcntl(fd, F_SETFL, O_DIRECT);
    return fd;
}

static void *write_one(void *arg)
{
    long id = (intptr_t)arg;
    int way = (int)(id % WAYS);
    char path[64], *data;

    CHECK(posix_memalign((void **)&data, BLOCK, BLOCK * BLOCKS) == 0);
    for (long i = 0; i < BLOCK * BLOCKS; i++)
        data[i] = byte_of(id, i);
    snprintf(path, sizeof path, "%s/%ld", directory, id);
    do {
        int fd = open_way(path, way);
        for (long i = 0; i < BLOCKS; i++) {
            char *block = data + i * BLOCK;
            struct iovec two[2] = {{block, BLOCK / 2}, {block + BLOCK / 2, BLOCK / 2}}, one = {block, BLOCK};
            if (way == 3)
                EXPECT(pwritev2(fd, two, 2, i * BLOCK, RWF_DSYNC), BLOCK);
            else if (way == 5)
                EXPECT(i % 2 ? write(fd, block, BLOCK) : writev(fd, two, 2), BLOCK);
            else if (i % 3 == 0)
                EXPECT(pwrite(fd, block, BLOCK, i * BLOCK), BLOCK);
            else if (i % 3 == 1)
                EXPECT(pwritev(fd, &one, 1, i * BLOCK), BLOCK);
            else {
                EXPECT(lseek(fd, i * BLOCK, SEEK_SET), i * BLOCK);
                EXPECT(write(fd, block, BLOCK), BLOCK);
            }
        }
        struct stat st;
        SYS(fstat(fd, &st));
        EXPECT(st.st_size, BLOCK * BLOCKS);
        memset(data, 0, BLOCK * BLOCKS);
        EXPECT(pread(fd, data, BLOCK * BLOCKS, 0), BLOCK * BLOCKS);
        for (long i = 0; i < BLOCK * BLOCKS; i++)
            EXPECT(data[i], byte_of(id, i));
        SYS(fdatasync(fd));
        SYS(close(fd));
    } while (!over);
    SYS(unlink(path));
    free(data);
    return NULL;
}

static void *sleeper(void *arg)
{
    *(int64_t *)arg = worst_of_sleeps(200000, 10);
    return NULL;
}

static int64_t measure(void)
{
    int64_t worst;

    join(start(sleeper, &worst));
    return worst;
}

static void on_signal(int signal)
{
    (void)signal;
    too_large++;
}

static void *limited(void *arg)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct rlimit limit = {BLOCK, RLIM_INFINITY}, old;
    char path[64], data[BLOCK] = "x";

    snprintf(path, sizeof path, "%s/limited", directory);
    int fd = SYS(open(path, O_RDWR | O_CREAT | O_DSYNC, 0600));
    SYS(unlink(path));
    SYS(sigaction(SIGXFSZ, &action, NULL));
    SYS(getrlimit(RLIMIT_FSIZE, &old));
    SYS(setrlimit(RLIMIT_FSIZE, &limit));
    EXPECT(pwrite(fd, data, BLOCK, BLOCK / 2), BLOCK / 2);
    EXPECT(too_large, 0);
    EXPECT_ERRNO(pwrite(fd, data, 1, BLOCK), EFBIG);
    EXPECT(too_large, 1);
    limit.rlim_cur = old.rlim_cur;
    SYS(setrlimit(RLIMIT_FSIZE, &limit));
    SYS(close(fd));
    return arg;
}

int main(void)
{
    pthread_t threads[WAYS * EACH];

    begin(60);
    start_control();
    CHECK(mkdtemp(directory) != NULL);
    for (int i = 0; i < WAYS * EACH; i++)
        threads[i] = start_number(write_one, i);
    expect_punctual("while all write", measure);
    over = 1;
    for (int i = 0; i < WAYS * EACH; i++)
        join(threads[i]);
    join(start(limited, NULL));
    SYS(rmdir(directory));
    return finish();
}
