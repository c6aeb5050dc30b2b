/* Partial transfers, atomic pipe writes, many vectors, and large blocking writes to slow readers. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { LARGE = 1 << 20, WRITERS = 12, RECORDS = 60 };

static int fds[2];
static volatile int too_few = -1;

static void *read_slowly(void *arg)
{
    char *data = malloc(LARGE);
    long total = 0, want = (intptr_t)arg;

    while (total < want) {
        ssize_t n = SYS(read(fds[0], data, (size_t)(1 + total % 50000)));
        CHECK(n > 0);
        total += n;
        sched_yield();
    }
    free(data);
    EXPECT(total, want);
    return NULL;
}

static void large_writes(const char *name)
{
    char *data = calloc(1, LARGE);
    struct iovec v[4];

    pthread_t reader = start_number(read_slowly, 2L * LARGE);
    EXPECT(write(fds[1], data, LARGE), LARGE);
    for (int i = 0; i < 4; i++)
        v[i] = (struct iovec){data + i * LARGE / 4, LARGE / 4};
    EXPECT(writev(fds[1], v, 4), LARGE);
    join(reader);
    free(data);
    puts(name);
}

static void *large(void *arg)
{
    SYS(pipe(fds));
    large_writes("large writes to a pipe");
    SYS(close(fds[0])), SYS(close(fds[1]));
    SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    large_writes("large writes to a socket");
    SYS(close(fds[0])), SYS(close(fds[1]));
    return arg;
}

/* Records of no more than PIPE_BUF bytes do not mix. */
static void *write_records(void *arg)
{
    char record[PIPE_BUF];
    int id = (int)(intptr_t)arg;
    size_t size = (size_t)(64 + id * 300);
    struct iovec v[2] = {{record, 10}, {record + 10, size - 10}};

    memset(record, 'a' + id, sizeof record);
    memcpy(record, &size, sizeof size);
    for (int i = 0; i < RECORDS; i++)
        EXPECT(i % 2 ? write(fds[1], record, size) : writev(fds[1], v, 2), (long)size);
    return NULL;
}

static void *read_records(void *arg)
{
    char record[PIPE_BUF];
    size_t size;

    for (int i = 0; i < WRITERS * RECORDS; i++) {
        read_all(fds[0], &size, sizeof size);
        CHECK(size >= 64 && size <= PIPE_BUF);
        read_all(fds[0], record, size - sizeof size);
        for (size_t j = 0; j < size - sizeof size; j++)
            EXPECT(record[j], 'a' + (int)(size - 64) / 300);
    }
    return arg;
}

static void *vectors(void *arg)
{
    static char out[IOV_MAX][3], in[IOV_MAX][3];
    struct iovec v[IOV_MAX + 1];

    SYS(pipe(fds));
    for (int i = 0; i < IOV_MAX; i++) {
        out[i][0] = (char)i, out[i][1] = (char)(i >> 8), out[i][2] = 'x';
        v[i] = (struct iovec){out[i], 3};
    }
    v[IOV_MAX] = v[0];
    EXPECT_ERRNO(writev(fds[1], v, IOV_MAX + 1), EINVAL);
    EXPECT_ERRNO(readv(fds[0], v, too_few), EINVAL);
    EXPECT(writev(fds[1], v, IOV_MAX), IOV_MAX * 3);
    for (int i = 0; i < IOV_MAX; i++)
        v[i] = (struct iovec){in[i], 3};
    EXPECT(readv(fds[0], v, IOV_MAX), IOV_MAX * 3);
    EXPECT(memcmp(in, out, sizeof in), 0);
    EXPECT(write(fds[1], out, 0), 0);
    /* Fewer than asked for: what there is, without waiting for the rest. */
    EXPECT(write(fds[1], "abcde", 5), 5);
    EXPECT(read(fds[0], in, 3), 3);
    EXPECT(read(fds[0], in, 3), 2);
    SYS(fcntl(fds[1], F_SETFL, O_NONBLOCK));
    char *data = calloc(1, LARGE);
    EXPECT(write(fds[1], data, LARGE), fcntl(fds[1], F_GETPIPE_SZ));
    free(data);
    SYS(close(fds[0])), SYS(close(fds[1]));
    return arg;
}

int main(void)
{
    begin(20);
    join(start(large, NULL));
    SYS(pipe(fds));
    pthread_t reader = start(read_records, NULL);
    in_threads(WRITERS, write_records);
    join(reader);
    puts("records");
    join(start(vectors, NULL));
    puts("vectors");
    return finish();
}
