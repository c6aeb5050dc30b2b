/* Blocking reads and writes of every form on pipes, by many more threads than processors, and on files. */
#include "check.h"
#include <fcntl.h>
#include <sys/uio.h>

enum { THREADS = 64, LAPS = 20, SIZE = 1 << 20 };

static int ring[THREADS][2];
static int wide[2], closing[2];
static void *volatile bad_address = (void *)8;

static void put(int fd, const void *data, size_t size, int form)
{
    if (form % 2) {
        struct iovec v[2] = {{(void *)data, size / 2}, {(char *)data + size / 2, size - size / 2}};
        EXPECT(writev(fd, v, 2), (long)size);
    } else {
        EXPECT(write(fd, data, size), (long)size);
    }
}

static void get(int fd, void *data, size_t size, int form)
{
    if (form % 2) {
        struct iovec v[3] = {{data, 1}, {NULL, 0}, {(char *)data + 1, size - 1}};
        EXPECT(readv(fd, v, 3), (long)size);
    } else {
        EXPECT(read(fd, data, size), (long)size);
    }
}

/* A token goes round; each thread adds one. */
static void *pass(void *arg)
{
    long id = (intptr_t)arg, token;

    for (int i = 0; i < LAPS; i++) {
        get(ring[id][0], &token, sizeof token, (int)id + i);
        EXPECT(token, i * THREADS + id);
        token++;
        put(ring[(id + 1) % THREADS][1], &token, sizeof token, (int)id + i + 1);
    }
    return arg;
}

static unsigned char byte_at(long i)
{
    return (unsigned char)(i * 131 + i / 977);
}

static void *write_wide(void *arg)
{
    unsigned char *data = malloc(SIZE);
    long at = 0;

    for (long i = 0; i < SIZE; i++)
        data[i] = byte_at(i);
    for (long n = 1; at < SIZE; at += n, n = n * 3 % 200001 + 1) {
        if (n > SIZE - at)
            n = SIZE - at;
        /* A blocking write to a pipe writes it all. */
        put(wide[1], data + at, (size_t)n, (int)n);
    }
    SYS(close(wide[1]));
    free(data);
    return arg;
}

static void *read_wide(void *arg)
{
    unsigned char part[5000];
    long at = 0, n;

    while ((n = SYS(read(wide[0], part, 1 + (size_t)(at * 7 % 4999)))) > 0)
        for (long i = 0; i < n; i++, at++)
            EXPECT(part[i], byte_at(at));
    EXPECT(at, SIZE);
    EXPECT(read(wide[0], part, 1), 0);
    return arg;
}

static void *read_to_end(void *arg)
{
    char c;

    EXPECT(read(closing[0], &c, 1), 0);
    return arg;
}

static void *use_file(void *arg)
{
    char name[] = "/tmp/io_pipes-XXXXXX", text[64], got[64] = "";
    int id = (int)(intptr_t)arg, fd = SYS(mkstemp(name));
    struct iovec v[2] = {{text, 5}, {text + 5, 5}}, w[2] = {{got, 3}, {got + 3, 7}};

    SYS(unlink(name));
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "%02d-%02d-abcd", id % 100, i);
        EXPECT(pwrite(fd, text, 10, i * 10), 10);
        EXPECT(pread(fd, got, 64, i * 10), 10);
        EXPECT_STR(got, text);
        EXPECT(pwritev(fd, v, 2, i * 10), 10);
        memset(got, 0, sizeof got);
        EXPECT(preadv(fd, w, 2, i * 10), 10);
        EXPECT_STR(got, text);
        memset(got, 0, sizeof got);
        EXPECT(pwritev2(fd, v, 2, i * 10, 0), 10);
        EXPECT(preadv2(fd, w, 2, i * 10, 0), 10);
        EXPECT_STR(got, text);
    }
    /* The position is the description's: none of those moved it. */
    EXPECT(lseek(fd, 0, SEEK_CUR), 0);
    EXPECT(write(fd, "xy", 2), 2);
    EXPECT(lseek(fd, 0, SEEK_CUR), 2);
    EXPECT(readv(fd, w, 2), 10);
    EXPECT(lseek(fd, 0, SEEK_CUR), 12);
    SYS(fdatasync(fd));
    EXPECT(lseek(fd, 0, SEEK_END), 100);
    EXPECT(read(fd, got, 1), 0);
    SYS(ftruncate(fd, 50));
    EXPECT(pread(fd, got, 10, 45), 5);
    EXPECT(pread(fd, got, 10, 50), 0);
    /* An appending writer: the position follows the end. */
    SYS(fcntl(fd, F_SETFL, O_APPEND));
    SYS(lseek(fd, 0, SEEK_SET));
    EXPECT(write(fd, "end", 3), 3);
    EXPECT(lseek(fd, 0, SEEK_CUR), 53);
    EXPECT_ERRNO(pread(fd, got, 1, -1), EINVAL);
    SYS(close(fd));
    EXPECT_ERRNO(read(-1, got, 1), EBADF);
    EXPECT_ERRNO(write(closing[0], got, 1), EBADF);
    EXPECT_ERRNO(pread(closing[0], got, 1, 0), ESPIPE);
    EXPECT_ERRNO(read(wide[0], bad_address, 1), EFAULT);
    return arg;
}

int main(void)
{
    long zero = 0;
    pthread_t threads[10], writer, reader;

    begin(20);
    for (int i = 0; i < THREADS; i++)
        SYS(pipe(ring[i]));
    put(ring[0][1], &zero, sizeof zero, 0);
    in_threads(THREADS, pass);
    puts("ring");
    SYS(pipe(wide));
    reader = start(read_wide, NULL);
    writer = start(write_wide, NULL);
    join(writer);
    join(reader);
    puts("wide");
    SYS(pipe(closing));
    for (int i = 0; i < 10; i++)
        threads[i] = start(read_to_end, NULL);
    sched_yield();
    SYS(close(closing[1]));
    for (int i = 0; i < 10; i++)
        join(threads[i]);
    puts("end");
    SYS(pipe(wide));
    write_all(wide[1], "0123456789", 10);
    in_threads(20, use_file);
    puts("files");
    return finish();
}
