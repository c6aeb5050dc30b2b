/* Files read by many threads while they are not in memory; the ends of files, files that the kernel makes up,
 * devices; sendfile, splice, tee and copy_file_range. */
#include "check.h"
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { THREADS = 24, SIZE = 300000 };

static char path[] = "/tmp/io_files-XXXXXX";
static int file;
static const char *volatile nowhere = (const char *)8;

static char byte_at(long i)
{
    return (char)(i * 31 + i / 1009);
}

static void check_bytes(const char *data, long at, long n)
{
    for (long i = 0; i < n; i++)
        EXPECT(data[i], byte_at(at + i));
}

static void *read_parts(void *arg)
{
    int id = (int)(intptr_t)arg, fd = SYS(open(path, O_RDONLY));
    char *data = malloc(SIZE + 10);
    struct iovec v[3] = {{data, 10}, {data + 10, 50000}, {data + 50010, SIZE}};

    for (int i = 0; i < 12; i++) {
        long at = (id * 7919 + i * 60013) % SIZE, want = SIZE - at, n;
        if (i % 3 == 0) /* out of memory, as far as the kernel takes the advice */
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        EXPECT(lseek(fd, at, SEEK_SET), at);
        switch (i % 4) {
        case 0:
            n = read(fd, data, SIZE);
            break;
        case 1:
            n = pread(fd, data, SIZE, at);
            break;
        case 2:
            v[2].iov_len = SIZE - 50000;
            n = readv(fd, v, 3);
            break;
        default:
            n = preadv2(fd, v, 3, at, 0);
        }
        EXPECT(n, want); /* all there is up to the end, not what happened to be in memory */
        check_bytes(data, at, n);
    }
    EXPECT(pread(fd, data, 10, SIZE), 0);
    EXPECT(pread(fd, data, 10, SIZE + 4096), 0);
    EXPECT(pread(fd, data, 100, SIZE - 7), 7);
    EXPECT(lseek(fd, SIZE, SEEK_SET), SIZE);
    EXPECT(read(fd, data, 10), 0);
    EXPECT_ERRNO(write(fd, data, 1), EBADF);
    SYS(close(fd));
    free(data);
    return NULL;
}

static void *special(void *arg)
{
    char data[100];
    int fd = SYS(open("/proc/self/stat", O_RDONLY));
    long pid;

    ssize_t n = SYS(read(fd, data, sizeof data - 1));
    data[n] = '\0';
    CHECK(sscanf(data, "%ld", &pid) == 1);
    EXPECT(pid, getpid());
    SYS(close(fd));
    fd = SYS(open("/dev/zero", O_RDWR));
    EXPECT(read(fd, data, sizeof data), (long)sizeof data);
    EXPECT(data[99], 0);
    EXPECT(write(fd, data, 5), 5);
    SYS(close(fd));
    fd = SYS(open("/dev/null", O_RDWR));
    EXPECT(read(fd, data, sizeof data), 0);
    EXPECT(write(fd, data, 5), 5);
    SYS(close(fd));
    fd = SYS(open("/dev/urandom", O_RDONLY));
    EXPECT(read(fd, data, sizeof data), (long)sizeof data);
    SYS(close(fd));
    fd = SYS(open("/tmp", O_RDONLY | O_DIRECTORY));
    EXPECT_ERRNO(read(fd, data, 1), EISDIR);
    SYS(close(fd));
    EXPECT_ERRNO(open("/nonexistent/file", O_RDONLY), ENOENT);
    EXPECT_ERRNO(open(nowhere, O_RDONLY), EFAULT);
    return arg;
}

static void *drain(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char data[3000];
    long at = 0, n;

    while ((n = SYS(read(fd, data, sizeof data))) > 0) {
        check_bytes(data, at, n);
        at += n;
        if (at % 7 == 0)
            sched_yield();
    }
    return (void *)at;
}

/* From a file to a slow reader, by each way. */
static void *copy(void *arg)
{
    int id = (int)(intptr_t)arg, fd = SYS(open(path, O_RDONLY)), out[2], between[2];
    off_t at = 0;
    long n, done = 0;

    if (id % 2)
        SYS(pipe(out));
    else
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, out));
    pthread_t t = start_number(drain, out[0]);
    switch (id % 3) {
    case 0:
        while ((n = SYS(sendfile(out[1], fd, &at, SIZE))) > 0)
            done += n;
        EXPECT(at, SIZE);
        break;
    case 1:
        SYS(pipe(between));
        while ((n = SYS(splice(fd, NULL, between[1], NULL, 50000, 0))) > 0) {
            done += n;
            for (long m; n > 0; n -= m)
                m = SYS(splice(between[0], NULL, out[1], NULL, (size_t)n, 0));
        }
        SYS(close(between[0])), SYS(close(between[1]));
        break;
    default: {
        char *data = malloc(SIZE);
        EXPECT(read(fd, data, SIZE), SIZE);
        struct iovec v = {data, SIZE};
        EXPECT(writev(out[1], &v, 1), SIZE);
        done = SIZE;
        free(data);
    }
    }
    EXPECT(done, SIZE);
    SYS(close(out[1]));
    EXPECT((intptr_t)join(t), SIZE);
    SYS(close(out[0])), SYS(close(fd));
    return NULL;
}

static void *copy_in_kernel(void *arg)
{
    char name[] = "/tmp/io_files-XXXXXX", data[100];
    int fd = SYS(open(path, O_RDONLY)), to = SYS(mkostemp(name, O_CLOEXEC)), p[2], q[2];

    SYS(unlink(name));
    long n = copy_file_range(fd, NULL, to, NULL, SIZE, 0);
    if (n > 0) {
        EXPECT(pread(to, data, 100, n - 100), 100);
        check_bytes(data, n - 100, 100);
    }
    SYS(fsync(to)), SYS(fdatasync(to)), SYS(syncfs(to));
    SYS(pipe(p)), SYS(pipe(q));
    write_all(p[1], "tea", 3);
    EXPECT(tee(p[0], q[1], 10, 0), 3);
    EXPECT(read(p[0], data, 10), 3);
    EXPECT(read(q[0], data, 10), 3);
    EXPECT(vmsplice(p[1], &(struct iovec){"vm", 2}, 1, 0), 2);
    EXPECT(read(p[0], data, 10), 2);
    SYS(close(p[0])), SYS(close(p[1])), SYS(close(q[0])), SYS(close(q[1])), SYS(close(fd)), SYS(close(to));
    return arg;
}

/* One file, one position, many readers: each byte once. */
static int shared;
static long total;

static void *share(void *arg)
{
    char data[997];
    long n;

    while ((n = SYS(read(shared, data, sizeof data))) > 0)
        __atomic_fetch_add(&total, n, __ATOMIC_RELAXED);
    return arg;
}

int main(void)
{
    char *data = malloc(SIZE);

    begin(40);
    for (long i = 0; i < SIZE; i++)
        data[i] = byte_at(i);
    file = SYS(mkstemp(path));
    write_all(file, data, SIZE);
    SYS(fsync(file));
    free(data);
    in_threads(THREADS, read_parts);
    puts("parts");
    in_threads(8, special);
    puts("special");
    in_threads(12, copy);
    puts("copies");
    in_threads(4, copy_in_kernel);
    puts("copies in the kernel");
    shared = SYS(open(path, O_RDONLY));
    in_threads(8, share);
    EXPECT(total, SIZE);
    puts("shared");
    SYS(unlink(path));
    return finish();
}
