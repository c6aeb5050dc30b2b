/* More than 2 GiB in one call: the kernel moves 0x7ffff000 bytes at most and says so. 1024 pieces in one vector, and one more.
 */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define LARGE ((size_t)3 << 30)
#define MOST  0x7ffff000l

static char *large; /* never written to: the zero page, all of it */

static void *null(void *arg)
{
    int fd = SYS(open("/dev/null", O_WRONLY));
    struct iovec v[2] = {{large, LARGE / 2}, {large + LARGE / 2, LARGE / 2}};

    EXPECT(write(fd, large, LARGE), MOST);
    EXPECT(writev(fd, v, 2), MOST);
    EXPECT(pwrite(fd, large, LARGE, 0), MOST);
    SYS(close(fd));
    return arg;
}

/* Drains without copying. */
static void *drain(void *arg)
{
    int fd = *(int *)arg, sink = SYS(open("/dev/null", O_WRONLY));
    long total = 0, n;

    while ((n = SYS(splice(fd, NULL, sink, NULL, 1 << 20, 0))) > 0)
        total += n;
    SYS(close(sink));
    EXPECT(total, MOST);
    return NULL;
}

static void *through_pipe(void *arg)
{
    int fds[2];

    SYS(pipe(fds));
    SYS(fcntl(fds[1], F_SETPIPE_SZ, 1 << 20));
    pthread_t t = start(drain, &fds[0]);
    EXPECT(write(fds[1], large, LARGE), MOST);
    SYS(close(fds[1]));
    join(t);
    SYS(close(fds[0]));
    return arg;
}

/* As much as that is asked for, and what is there comes. */
static void *asked_for(void *arg)
{
    char *room = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fds[2];

    CHECK(room != MAP_FAILED);
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    write_all(fds[1], "abc", 3);
    EXPECT(read(fds[0], room, LARGE), 3);
    write_all(fds[1], "abc", 3);
    EXPECT(recv(fds[0], room, LARGE, 0), 3);
    struct iovec v[3] = {{room, 1}, {room + 1, LARGE / 2}, {room + 1 + LARGE / 2, LARGE / 2 - 1}};
    write_all(fds[1], "abc", 3);
    EXPECT(readv(fds[0], v, 3), 3);
    SYS(close(fds[0]));
    SYS(close(fds[1]));
    SYS(munmap(room, LARGE));
    return arg;
}

static void *put(void *arg)
{
    static char bytes[2 * IOV_MAX];
    struct iovec v[IOV_MAX + 1];
    int fd = *(int *)arg;

    for (int i = 0; i <= IOV_MAX; i++) {
        v[i] = (struct iovec){bytes + 2 * (i % IOV_MAX), 2};
        bytes[2 * (i % IOV_MAX)] = (char)i;
        bytes[2 * (i % IOV_MAX) + 1] = (char)(i >> 8);
    }
    bytes[0] = bytes[1] = 0;
    EXPECT(writev(fd, v, IOV_MAX), 2 * IOV_MAX);
    EXPECT_ERRNO(writev(fd, v, IOV_MAX + 1), EINVAL);
    return NULL;
}

static void *pieces(void *arg)
{
    struct iovec v[IOV_MAX + 1];
    static unsigned char bytes[2 * IOV_MAX];
    int fds[2];

    for (int way = 0; way < 2; way++) {
        SYS(way ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe(fds));
        memset(bytes, 0xff, sizeof bytes);
        for (int i = 0; i <= IOV_MAX; i++)
            v[i] = (struct iovec){bytes + 2 * (i % IOV_MAX), 2};
        pthread_t t = start(put, &fds[1]);
        EXPECT(readv(fds[0], v, IOV_MAX), 2 * IOV_MAX);
        for (int i = 0; i < IOV_MAX; i++)
            EXPECT(bytes[2 * i] | bytes[2 * i + 1] << 8, i);
        EXPECT_ERRNO(readv(fds[0], v, IOV_MAX + 1), EINVAL);
        join(t);
        SYS(close(fds[0]));
        SYS(close(fds[1]));
    }
    return arg;
}

int main(void)
{
    begin(100);
    large = mmap(NULL, LARGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(large != MAP_FAILED);
    join(start(null, NULL));
    puts("to nowhere");
    join(start(through_pipe, NULL));
    puts("through a pipe");
    join(start(asked_for, NULL));
    puts("asked for");
    join(start(pieces, NULL));
    puts("pieces");
    return finish();
}
