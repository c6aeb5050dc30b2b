/* stdio on what may block.
 *
 * libc reads and writes by itself, out of our sight, with the stream locked. So before a call that will have
 * to, on a pipe, a terminal or a socket, the virtual thread waits here until the descriptor is ready, without
 * the lock. A call that may have to read or write more than once can still block after that; where that has
 * been seen to happen the place is handed over during the next ones. A call that the stream's buffer
 * satisfies, or on a file, goes straight through. The looks at the buffer take no lock: they only choose the
 * way. */
#include "call.h"
#include "fd.h"
#include "park.h"
#include "sys.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <wchar.h>

#undef getc
#undef putc
#undef getchar
#undef putchar
#undef getc_unlocked
#undef putc_unlocked
#undef fread_unlocked
#undef fwrite_unlocked

/* Bits of FILE's _flags, part of glibc's binary interface (libio.h). */
enum {
    UNBUFFERED = 0x0002,
    NO_READS = 0x0004,
    EOF_SEEN = 0x0010,
    ERR_SEEN = 0x0020,
    IN_BACKUP = 0x0100,
    LINE_BUF = 0x0200,
    PUTTING = 0x0800,
};

enum way {
    DIRECT, /* call libc */
    TIMED,  /* call it and see whether it blocks */
    HANDED, /* call it with the place handed over */
    FAILED, /* do not call it: errno and the error indicator are set */
};

/* A call that blocks for longer is one for which a hand-off, some tens of microseconds, is worth its price.
 */
#define LONG_NS UINT64_C(500000)

/* A call that began at start is over. */
static void took(const FILE *fp, uint64_t start)
{
    if (vt_now() - start > LONG_NS)
        vt_fd_set(fp->_fileno, VT_FD_PIECEMEAL);
    else
        vt_fd_clear(fp->_fileno, VT_FD_PIECEMEAL);
}

static enum way handed_or_timed(const FILE *fp)
{
    return vt_fd_bits(fp->_fileno) & VT_FD_PIECEMEAL ? HANDED : TIMED;
}

/* Whether the stream is on a descriptor that a virtual thread may have to wait for. */
static bool slow(const FILE *fp)
{
    int fd = fp->_fileno;
    if (fd < 0)
        return false;
    enum vt_fd_kind kind = vt_fd_kind(fd);
    return kind != VT_FD_FILE && kind != VT_FD_UNKNOWN && !VT_AS_IS(fd);
}

static __attribute__((noinline)) enum way wait_ready(FILE *fp, short events, enum way then)
{
    int fd = fp->_fileno;
    if (vt_poll_now(fd, events))
        return then;
    if (vt_fd_nonblocking(fd))
        return DIRECT;
    if (events == POLLIN && vt_fd_kind(fd) == VT_FD_CHAR && vt_read_is_timed(fd))
        return HANDED;
    long ret = events == POLLIN ? vt_wait_for(fd, NULL, events, vt_fd_deadline(fd, SO_RCVTIMEO)) : vt_wait_room(fd);
    if (ret == VT_BLOCK)
        return HANDED;
    if (ret != -EINTR && ret != -EAGAIN)
        return then;
    fp->_flags |= ERR_SEEN;
    errno = (int)-ret;
    return FAILED;
}

/* --- the lock ------------------------------------------------------------------------------------------
 * libc takes a stream's lock in the kernel. That is well while it is held by a thread that runs; but one that
 * holds it by flockfile may park meanwhile, and then those who want it must leave it a carrier. */

static _Atomic unsigned held;    /* flockfile's locks of virtual threads */
static _Atomic uint32_t unlocks; /* counts funlockfile */

/* Takes the lock, by parking; unlocks may be missed where libc does them. */
static __attribute__((noinline)) void lock_by_parking(FILE *fp)
{
    for (uint64_t pause = 50000;; pause = pause < 5000000 ? 2 * pause : pause) {
        uint32_t seen = atomic_load_explicit(&unlocks, memory_order_seq_cst);
        if (vt_real(ftrylockfile)(fp) == 0)
            return;
        vt_park(&unlocks, seen, vt_now() + pause, VT_BITS_ALL, 0);
    }
}

/* Before a call that takes the lock. */
static inline void wait_unlocked(FILE *fp)
{
    if (__builtin_expect(atomic_load_explicit(&held, memory_order_relaxed) != 0, 0)) {
        lock_by_parking(fp);
        vt_real(funlockfile)(fp);
    }
}

VT_EXPORT void flockfile(FILE *fp)
{
    if (!vt_on() || !vt_is_virtual()) {
        vt_real(flockfile)(fp);
        return;
    }
    lock_by_parking(fp);
    atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
}

VT_EXPORT int ftrylockfile(FILE *fp)
{
    int ret = vt_real(ftrylockfile)(fp);
    if (ret == 0 && vt_on() && vt_is_virtual())
        atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    return ret;
}

VT_EXPORT void funlockfile(FILE *fp)
{
    vt_real(funlockfile)(fp);
    if (!vt_on() || !vt_is_virtual())
        return;
    atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&unlocks, 1, memory_order_seq_cst);
    if (vt_parked_on(&unlocks))
        vt_unpark(&unlocks, UINT32_MAX, VT_BITS_ALL);
}

/* --- input ------------------------------------------------------------------------------------------ */

static size_t buffered(const FILE *fp)
{
    const char *from = fp->_IO_read_ptr, *to = fp->_IO_read_end;
    return from < to ? (size_t)(to - from) : 0;
}

static bool has_byte(const FILE *fp)
{
    return fp->_IO_read_ptr < fp->_IO_read_end;
}

static bool has(const FILE *fp, size_t n)
{
    return buffered(fp) >= n;
}

static bool has_delimiter(const FILE *fp, int delimiter)
{
    size_t n = buffered(fp);
    return n && memchr(fp->_IO_read_ptr, delimiter, n);
}

/* The stream's buffer is short of what is wanted. once: a single read will do. */
static __attribute__((noinline)) enum way before_input(FILE *fp, bool once)
{
    int flags = fp->_flags;
    if (!slow(fp) || (flags & (EOF_SEEN | NO_READS)))
        return DIRECT;
    /* There is output to flush first, or pushed-back input. */
    if (flags & (PUTTING | IN_BACKUP))
        return HANDED;
    /* Reading from a terminal, or without full buffering, first shows what a line-buffered stdout holds (as
     * libc's reading itself does, but only after we have waited). */
    if (((flags & (LINE_BUF | UNBUFFERED)) || (vt_fd_bits(fp->_fileno) & VT_FD_KIND) == VT_FD_CHAR) &&
        (stdout->_flags & LINE_BUF) && stdout->_IO_write_ptr > stdout->_IO_write_base)
        fflush(stdout);
    return wait_ready(fp, POLLIN, once ? DIRECT : handed_or_timed(fp));
}

/* A wide stream's converted characters are not to be seen from here. */
static enum way before_wide_input(FILE *fp)
{
    return slow(fp) ? handed_or_timed(fp) : DIRECT;
}

/* A call on the stream has been made: what it may have raised, by an error of which only the stream tells. */
static inline void moved(const FILE *fp)
{
    if (__builtin_expect(fp->_flags & ERR_SEEN, 0))
        vt_moved(-errno);
}

/* The body of a function on a stream: the way is looked for unless quick holds. */
#define BODY(name, arguments, fp, quick, choose, failure)                                                                      \
    if (!vt_on() || !vt_is_virtual())                                                                                          \
        return vt_real(name) arguments;                                                                                        \
    wait_unlocked(fp);                                                                                                         \
    if (quick)                                                                                                                 \
        return vt_real(name) arguments;                                                                                        \
    vt_cancel_point();                                                                                                         \
    enum way way_ = (choose);                                                                                                  \
    if (way_ == FAILED)                                                                                                        \
        return failure;                                                                                                        \
    uint64_t start_ = way_ == DIRECT ? 0 : vt_now();                                                                           \
    __auto_type ret_ = way_ != HANDED ? vt_real(name) arguments : VT_HANDED(#name, vt_real(name) arguments);                   \
    if (way_ != HANDED)                                                                                                        \
        moved(fp);                                                                                                             \
    if (start_)                                                                                                                \
        took(fp, start_);                                                                                                      \
    return ret_;

#define FUNCTION(type, name, parameters, arguments, fp, quick, choose, failure)                                                \
    type name parameters;                                                                                                      \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        BODY(name, arguments, fp, quick, choose, failure)                                                                      \
    }

#define CHARACTER_IN(name, parameters, arguments, fp)                                                                          \
    FUNCTION(int, name, parameters, arguments, fp, has_byte(fp), before_input(fp, true), EOF)

CHARACTER_IN(fgetc, (FILE * fp), (fp), fp)
CHARACTER_IN(getc, (FILE * fp), (fp), fp)
CHARACTER_IN(_IO_getc, (FILE * fp), (fp), fp)
CHARACTER_IN(getchar, (void), (), stdin)
CHARACTER_IN(fgetc_unlocked, (FILE * fp), (fp), fp)
CHARACTER_IN(getc_unlocked, (FILE * fp), (fp), fp)
CHARACTER_IN(getchar_unlocked, (void), (), stdin)
/* What the inline forms of getc_unlocked call when the buffer is empty. */
CHARACTER_IN(__uflow, (FILE * fp), (fp), fp)
CHARACTER_IN(__underflow, (FILE * fp), (fp), fp)
FUNCTION(int, getw, (FILE * fp), (fp), fp, has(fp, sizeof(int)), before_input(fp, false), EOF)

#define LINE_IN(name, parameters, arguments)                                                                                   \
    FUNCTION(char *, name, parameters, arguments, fp, n > 0 && (has(fp, (size_t)n - 1) || has_delimiter(fp, '\n')),            \
             before_input(fp, false), NULL)

LINE_IN(fgets, (char *restrict buf, int n, FILE *restrict fp), (buf, n, fp))
LINE_IN(_IO_fgets, (char *restrict buf, int n, FILE *restrict fp), (buf, n, fp))
LINE_IN(fgets_unlocked, (char *restrict buf, int n, FILE *restrict fp), (buf, n, fp))
LINE_IN(__fgets_chk, (char *restrict buf, size_t size, int n, FILE *restrict fp), (buf, size, n, fp))
LINE_IN(__fgets_unlocked_chk, (char *restrict buf, size_t size, int n, FILE *restrict fp), (buf, size, n, fp))

#define BLOCK_IN(name, parameters, arguments)                                                                                  \
    FUNCTION(size_t, name, parameters, arguments, fp, has(fp, size *n), before_input(fp, false), 0)

BLOCK_IN(fread, (void *restrict buf, size_t size, size_t n, FILE *restrict fp), (buf, size, n, fp))
BLOCK_IN(_IO_fread, (void *restrict buf, size_t size, size_t n, FILE *restrict fp), (buf, size, n, fp))
BLOCK_IN(fread_unlocked, (void *restrict buf, size_t size, size_t n, FILE *restrict fp), (buf, size, n, fp))
BLOCK_IN(__fread_chk, (void *restrict buf, size_t room, size_t size, size_t n, FILE *restrict fp), (buf, room, size, n, fp))
BLOCK_IN(__fread_unlocked_chk, (void *restrict buf, size_t room, size_t size, size_t n, FILE *restrict fp),
         (buf, room, size, n, fp))

FUNCTION(ssize_t, getline, (char **restrict line, size_t *restrict n, FILE *restrict fp), (line, n, fp), fp,
         has_delimiter(fp, '\n'), before_input(fp, false), -1)
FUNCTION(ssize_t, getdelim, (char **restrict line, size_t *restrict n, int delimiter, FILE *restrict fp),
         (line, n, delimiter, fp), fp, has_delimiter(fp, delimiter), before_input(fp, false), -1)
FUNCTION(ssize_t, __getdelim, (char **restrict line, size_t *restrict n, int delimiter, FILE *restrict fp),
         (line, n, delimiter, fp), fp, has_delimiter(fp, delimiter), before_input(fp, false), -1)

FUNCTION(char *, gets, (char *buf), (buf), stdin, has_delimiter(stdin, '\n'), before_input(stdin, false), NULL)
FUNCTION(char *, __gets_chk, (char *buf, size_t size), (buf, size), stdin, has_delimiter(stdin, '\n'),
         before_input(stdin, false), NULL)

/* Variadic ones stand on libc's with a va_list. */
#define VARIADIC(type, name, parameters, last, call)                                                                           \
    type name parameters;                                                                                                      \
    VT_EXPORT type name parameters                                                                                             \
    {                                                                                                                          \
        va_list list;                                                                                                          \
        va_start(list, last);                                                                                                  \
        type ret = call;                                                                                                       \
        va_end(list);                                                                                                          \
        return ret;                                                                                                            \
    }

#define SCAN_FAMILY(vfscan, fscan, vscan, scan)                                                                                \
    FUNCTION(int, vfscan, (FILE *restrict fp, const char *restrict format, va_list list), (fp, format, list), fp,              \
             has_delimiter(fp, '\n'), before_input(fp, false), EOF)                                                            \
    int vscan(const char *restrict format, va_list list);                                                                      \
    VT_EXPORT int vscan(const char *restrict format, va_list list)                                                             \
    {                                                                                                                          \
        return vfscan(stdin, format, list);                                                                                    \
    }                                                                                                                          \
    VARIADIC(int, fscan, (FILE *restrict fp, const char *restrict format, ...), format, vfscan(fp, format, list))              \
    VARIADIC(int, scan, (const char *restrict format, ...), format, vfscan(stdin, format, list))

/* The plain names take %a as a flag, and <stdio.h> gives C99 programs the others by renaming the plain ones.
 * So does it here: the plain ones need their assembler names said again. */
int plain_vfscanf(FILE *restrict fp, const char *restrict format, va_list list) __asm__("vfscanf");
int plain_fscanf(FILE *restrict fp, const char *restrict format, ...) __asm__("fscanf");
int plain_vscanf(const char *restrict format, va_list list) __asm__("vscanf");
int plain_scanf(const char *restrict format, ...) __asm__("scanf");

VT_EXPORT int plain_vfscanf(FILE *restrict fp, const char *restrict format, va_list list)
{
    typedef int function(FILE *restrict, const char *restrict, va_list);
    static struct vt_real_entry entry __attribute__((section("vt_real"), used)) = {"vfscanf", NULL};
    void *found = atomic_load_explicit(&entry.function, memory_order_relaxed);
    function *real = (function *)(found ? found : vt_real_find(&entry));
    if (!vt_on() || !vt_is_virtual())
        return real(fp, format, list);
    wait_unlocked(fp);
    if (has_delimiter(fp, '\n'))
        return real(fp, format, list);
    vt_cancel_point();
    enum way way = before_input(fp, false);
    if (way == FAILED)
        return EOF;
    if (way == DIRECT)
        return real(fp, format, list);
    uint64_t start = vt_now();
    int ret = way == TIMED ? real(fp, format, list) : VT_HANDED("vfscanf", real(fp, format, list));
    took(fp, start);
    return ret;
}

VT_EXPORT int plain_vscanf(const char *restrict format, va_list list)
{
    return plain_vfscanf(stdin, format, list);
}

VARIADIC(int, plain_fscanf, (FILE *restrict fp, const char *restrict format, ...), format, plain_vfscanf(fp, format, list))
VARIADIC(int, plain_scanf, (const char *restrict format, ...), format, plain_vfscanf(stdin, format, list))

SCAN_FAMILY(__isoc99_vfscanf, __isoc99_fscanf, __isoc99_vscanf, __isoc99_scanf)
SCAN_FAMILY(__isoc23_vfscanf, __isoc23_fscanf, __isoc23_vscanf, __isoc23_scanf)

FUNCTION(wint_t, fgetwc, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)
FUNCTION(wint_t, getwc, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)
FUNCTION(wint_t, getwchar, (void), (), stdin, false, before_wide_input(stdin), WEOF)
FUNCTION(wint_t, fgetwc_unlocked, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)
FUNCTION(wint_t, getwc_unlocked, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)
FUNCTION(wint_t, getwchar_unlocked, (void), (), stdin, false, before_wide_input(stdin), WEOF)
FUNCTION(wchar_t *, fgetws, (wchar_t *restrict buf, int n, FILE *restrict fp), (buf, n, fp), fp, false, before_wide_input(fp),
         NULL)
FUNCTION(wchar_t *, fgetws_unlocked, (wchar_t *restrict buf, int n, FILE *restrict fp), (buf, n, fp), fp, false,
         before_wide_input(fp), NULL)
FUNCTION(wchar_t *, __fgetws_chk, (wchar_t *restrict buf, size_t size, int n, FILE *restrict fp), (buf, size, n, fp), fp, false,
         before_wide_input(fp), NULL)
FUNCTION(wchar_t *, __fgetws_unlocked_chk, (wchar_t *restrict buf, size_t size, int n, FILE *restrict fp), (buf, size, n, fp),
         fp, false, before_wide_input(fp), NULL)
FUNCTION(wint_t, __wuflow, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)
FUNCTION(wint_t, __wunderflow, (FILE * fp), (fp), fp, false, before_wide_input(fp), WEOF)

#define WIDE_SCAN_FAMILY(vfwscan, fwscan, vwscan, wscan)                                                                       \
    FUNCTION(int, vfwscan, (FILE *restrict fp, const wchar_t *restrict format, va_list list), (fp, format, list), fp, false,   \
             before_wide_input(fp), EOF)                                                                                       \
    int vwscan(const wchar_t *restrict format, va_list list);                                                                  \
    VT_EXPORT int vwscan(const wchar_t *restrict format, va_list list)                                                         \
    {                                                                                                                          \
        return vfwscan(stdin, format, list);                                                                                   \
    }                                                                                                                          \
    VARIADIC(int, fwscan, (FILE *restrict fp, const wchar_t *restrict format, ...), format, vfwscan(fp, format, list))         \
    VARIADIC(int, wscan, (const wchar_t *restrict format, ...), format, vfwscan(stdin, format, list))

WIDE_SCAN_FAMILY(__isoc99_vfwscanf, __isoc99_fwscanf, __isoc99_vwscanf, __isoc99_wscanf)
WIDE_SCAN_FAMILY(__isoc23_vfwscanf, __isoc23_fwscanf, __isoc23_vwscanf, __isoc23_wscanf)

/* --- output ----------------------------------------------------------------------------------------- */

/* Whether n more bytes stay in the buffer. A line-buffered or unbuffered stream leaves no room here, nor does
 * one that has not been written to yet. */
static bool room(const FILE *fp, size_t n)
{
    const char *at = fp->_IO_write_ptr, *end = fp->_IO_write_end;
    return at < end && (size_t)(end - at) > n;
}

/* n bytes or so are to be written, and not all of them will stay in the buffer. */
static __attribute__((noinline)) enum way before_output(FILE *fp, size_t n)
{
    if (!slow(fp))
        return DIRECT;
    /* What is ready takes PIPE_BUF bytes, about a buffer's worth, without blocking. */
    return wait_ready(fp, POLLOUT, n > 4096 ? handed_or_timed(fp) : DIRECT);
}

static enum way before_flush(FILE *fp)
{
    return fp->_IO_write_ptr > fp->_IO_write_base ? before_output(fp, 1) : DIRECT;
}

/* What a formatted text may come to. */
#define TEXT 512

#define CHARACTER_OUT(name, parameters, arguments, fp)                                                                         \
    FUNCTION(int, name, parameters, arguments, fp, room(fp, 1), before_output(fp, 1), EOF)

CHARACTER_OUT(fputc, (int c, FILE *fp), (c, fp), fp)
CHARACTER_OUT(putc, (int c, FILE *fp), (c, fp), fp)
CHARACTER_OUT(_IO_putc, (int c, FILE *fp), (c, fp), fp)
CHARACTER_OUT(putchar, (int c), (c), stdout)
CHARACTER_OUT(fputc_unlocked, (int c, FILE *fp), (c, fp), fp)
CHARACTER_OUT(putc_unlocked, (int c, FILE *fp), (c, fp), fp)
CHARACTER_OUT(putchar_unlocked, (int c), (c), stdout)
/* What the inline forms of putc_unlocked call when the buffer is full. */
CHARACTER_OUT(__overflow, (FILE * fp, int c), (fp, c), fp)
FUNCTION(int, putw, (int w, FILE *fp), (w, fp), fp, room(fp, sizeof w), before_output(fp, sizeof w), EOF)

#define STRING_OUT(name, parameters, arguments, fp)                                                                            \
    FUNCTION(int, name, parameters, arguments, fp, room(fp, strlen(s) + 1), before_output(fp, strlen(s) + 1), EOF)

STRING_OUT(fputs, (const char *restrict s, FILE *restrict fp), (s, fp), fp)
STRING_OUT(_IO_fputs, (const char *restrict s, FILE *restrict fp), (s, fp), fp)
STRING_OUT(fputs_unlocked, (const char *restrict s, FILE *restrict fp), (s, fp), fp)
STRING_OUT(puts, (const char *s), (s), stdout)
STRING_OUT(_IO_puts, (const char *s), (s), stdout)

#define BLOCK_OUT(name)                                                                                                        \
    FUNCTION(size_t, name, (const void *restrict buf, size_t size, size_t n, FILE *restrict fp), (buf, size, n, fp), fp,       \
             room(fp, size *n), before_output(fp, size *n), 0)

BLOCK_OUT(fwrite)
BLOCK_OUT(_IO_fwrite)
BLOCK_OUT(fwrite_unlocked)

FUNCTION(int, vfprintf, (FILE *restrict fp, const char *restrict format, va_list list), (fp, format, list), fp, room(fp, TEXT),
         before_output(fp, TEXT), -1)
FUNCTION(int, _IO_vfprintf, (FILE *restrict fp, const char *restrict format, va_list list), (fp, format, list), fp,
         room(fp, TEXT), before_output(fp, TEXT), -1)
FUNCTION(int, vprintf, (const char *restrict format, va_list list), (format, list), stdout, room(stdout, TEXT),
         before_output(stdout, TEXT), -1)
VARIADIC(int, fprintf, (FILE *restrict fp, const char *restrict format, ...), format, vfprintf(fp, format, list))
VARIADIC(int, _IO_fprintf, (FILE *restrict fp, const char *restrict format, ...), format, vfprintf(fp, format, list))
VARIADIC(int, printf, (const char *restrict format, ...), format, vfprintf(stdout, format, list))
VARIADIC(int, _IO_printf, (const char *restrict format, ...), format, vfprintf(stdout, format, list))

FUNCTION(int, __vfprintf_chk, (FILE *restrict fp, int flag, const char *restrict format, va_list list),
         (fp, flag, format, list), fp, room(fp, TEXT), before_output(fp, TEXT), -1)
FUNCTION(int, __vprintf_chk, (int flag, const char *restrict format, va_list list), (flag, format, list), stdout,
         room(stdout, TEXT), before_output(stdout, TEXT), -1)
VARIADIC(int, __fprintf_chk, (FILE *restrict fp, int flag, const char *restrict format, ...), format,
         __vfprintf_chk(fp, flag, format, list))
VARIADIC(int, __printf_chk, (int flag, const char *restrict format, ...), format, __vfprintf_chk(stdout, flag, format, list))

/* Straight to a descriptor. */
static bool slow_descriptor(int fd)
{
    enum vt_fd_kind kind = vt_fd_kind(fd);
    return kind != VT_FD_FILE && kind != VT_FD_UNKNOWN && !VT_AS_IS(fd) && !vt_poll_now(fd, POLLOUT) && !vt_fd_nonblocking(fd);
}

static int printed(int ret)
{
    if (ret < 0)
        vt_moved(-errno);
    return ret;
}

int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list list);

VT_EXPORT int vdprintf(int fd, const char *restrict format, va_list list)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(vdprintf)(fd, format, list);
    if (!slow_descriptor(fd))
        return printed(vt_real(vdprintf)(fd, format, list));
    return VT_HANDED("dprintf", vt_real(vdprintf)(fd, format, list));
}

VT_EXPORT int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list list)
{
    if (!vt_on() || !vt_is_virtual())
        return vt_real(__vdprintf_chk)(fd, flag, format, list);
    if (!slow_descriptor(fd))
        return printed(vt_real(__vdprintf_chk)(fd, flag, format, list));
    return VT_HANDED("dprintf", vt_real(__vdprintf_chk)(fd, flag, format, list));
}

VARIADIC(int, dprintf, (int fd, const char *restrict format, ...), format, vdprintf(fd, format, list))
VARIADIC(int, __dprintf_chk, (int fd, int flag, const char *restrict format, ...), format,
         __vdprintf_chk(fd, flag, format, list))

FUNCTION(wint_t, fputwc, (wchar_t c, FILE *fp), (c, fp), fp, room(fp, MB_LEN_MAX), before_output(fp, 1), WEOF)
FUNCTION(wint_t, putwc, (wchar_t c, FILE *fp), (c, fp), fp, room(fp, MB_LEN_MAX), before_output(fp, 1), WEOF)
FUNCTION(wint_t, putwchar, (wchar_t c), (c), stdout, room(stdout, MB_LEN_MAX), before_output(stdout, 1), WEOF)
FUNCTION(int, fputws, (const wchar_t *restrict s, FILE *restrict fp), (s, fp), fp, false, before_output(fp, TEXT), -1)
FUNCTION(wint_t, fputwc_unlocked, (wchar_t c, FILE *fp), (c, fp), fp, room(fp, MB_LEN_MAX), before_output(fp, 1), WEOF)
FUNCTION(wint_t, putwc_unlocked, (wchar_t c, FILE *fp), (c, fp), fp, room(fp, MB_LEN_MAX), before_output(fp, 1), WEOF)
FUNCTION(wint_t, putwchar_unlocked, (wchar_t c), (c), stdout, room(stdout, MB_LEN_MAX), before_output(stdout, 1), WEOF)
FUNCTION(wint_t, __woverflow, (FILE * fp, wint_t c), (fp, c), fp, false, before_output(fp, 1), WEOF)
FUNCTION(int, fputws_unlocked, (const wchar_t *restrict s, FILE *restrict fp), (s, fp), fp, false, before_output(fp, TEXT), -1)
FUNCTION(int, vfwprintf, (FILE *restrict fp, const wchar_t *restrict format, va_list list), (fp, format, list), fp, false,
         before_output(fp, TEXT), -1)
VARIADIC(int, fwprintf, (FILE *restrict fp, const wchar_t *restrict format, ...), format, vfwprintf(fp, format, list))
FUNCTION(int, __vfwprintf_chk, (FILE *restrict fp, int flag, const wchar_t *restrict format, va_list list),
         (fp, flag, format, list), fp, false, before_output(fp, TEXT), -1)
VARIADIC(int, __fwprintf_chk, (FILE *restrict fp, int flag, const wchar_t *restrict format, ...), format,
         __vfwprintf_chk(fp, flag, format, list))
VARIADIC(int, __wprintf_chk, (int flag, const wchar_t *restrict format, ...), format,
         __vfwprintf_chk(stdout, flag, format, list))

int __vwprintf_chk(int flag, const wchar_t *restrict format, va_list list);

VT_EXPORT int __vwprintf_chk(int flag, const wchar_t *restrict format, va_list list)
{
    return __vfwprintf_chk(stdout, flag, format, list);
}

VT_EXPORT int vwprintf(const wchar_t *restrict format, va_list list)
{
    return vfwprintf(stdout, format, list);
}

VARIADIC(int, wprintf, (const wchar_t *restrict format, ...), format, vfwprintf(stdout, format, list))

VT_EXPORT int fflush(FILE *fp)
{
    if (!fp && vt_on() && vt_is_virtual()) /* all of them */
        return VT_HANDED("fflush", vt_real(fflush)(fp));
    BODY(fflush, (fp), fp, false, before_flush(fp), EOF)
}

FUNCTION(int, fflush_unlocked, (FILE * fp), (fp), fp, false, before_flush(fp), EOF)

/* --- the system's log ------------------------------------------------------------------------------- */

/* The daemon takes what comes, as a rule at once. */
static _Atomic bool log_is_slow;

static enum way before_log(void)
{
    return atomic_load_explicit(&log_is_slow, memory_order_relaxed) ? HANDED : TIMED;
}

static void logged(uint64_t start)
{
    bool slow = vt_now() - start > LONG_NS;
    if (slow != atomic_load_explicit(&log_is_slow, memory_order_relaxed))
        atomic_store_explicit(&log_is_slow, slow, memory_order_relaxed);
}

#define LOG_FUNCTION(name, parameters, arguments)                                                                              \
    void name parameters;                                                                                                      \
    VT_EXPORT void name parameters                                                                                             \
    {                                                                                                                          \
        bool handed = false;                                                                                                   \
        uint64_t start = 0;                                                                                                    \
        if (vt_on() && vt_is_virtual()) {                                                                                      \
            vt_cancel_point();                                                                                                 \
            start = vt_now();                                                                                                  \
            if ((handed = before_log() == HANDED))                                                                             \
                vt_handoff_begin(#name);                                                                                       \
        }                                                                                                                      \
        vt_real(name) arguments;                                                                                               \
        if (handed)                                                                                                            \
            vt_handoff_end();                                                                                                  \
        if (start)                                                                                                             \
            logged(start);                                                                                                     \
    }

LOG_FUNCTION(vsyslog, (int priority, const char *format, va_list list), (priority, format, list))
LOG_FUNCTION(__vsyslog_chk, (int priority, int flag, const char *format, va_list list), (priority, flag, format, list))

VT_EXPORT void syslog(int priority, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsyslog(priority, format, list);
    va_end(list);
}

void __syslog_chk(int priority, int flag, const char *format, ...);

VT_EXPORT void __syslog_chk(int priority, int flag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    __vsyslog_chk(priority, flag, format, list);
    va_end(list);
}

/* --- opening and closing ---------------------------------------------------------------------------- */

VT_EXPORT int fclose(FILE *fp)
{
    if (!vt_on())
        return vt_real(fclose)(fp);
    int fd = fp->_fileno;
    if (vt_is_virtual()) {
        vt_cancel_point();
        if (fp->_IO_write_ptr > fp->_IO_write_base && slow(fp) && !vt_poll_now(fd, POLLOUT) && !vt_fd_nonblocking(fd)) {
            vt_fd_forget(fd);
            return VT_HANDED("fclose", vt_real(fclose)(fp));
        }
    }
    if (fd >= 0)
        vt_fd_forget(fd);
    int ret = vt_real(fclose)(fp);
    if (ret < 0 && vt_is_virtual())
        vt_moved(-errno);
    return ret;
}

static FILE *opened(FILE *fp)
{
    if (fp && vt_on())
        vt_fd_born(fp->_fileno, VT_FD_UNKNOWN, false, VT_FD_NO_TIMEO);
    return fp;
}

static bool is_fifo(const char *path)
{
    struct stat st;
    return path && vt_sys4(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, 0) == 0 && S_ISFIFO(st.st_mode);
}

#define FOPEN_FUNCTION(name)                                                                                                   \
    VT_EXPORT FILE *name(const char *restrict path, const char *restrict mode)                                                 \
    {                                                                                                                          \
        if (vt_on() && vt_is_virtual() && is_fifo(path))                                                                       \
            return opened(VT_HANDED("fopen", vt_real(name)(path, mode)));                                                      \
        return opened(vt_real(name)(path, mode));                                                                              \
    }
FOPEN_FUNCTION(fopen)
FOPEN_FUNCTION(fopen64)

#define FREOPEN_FUNCTION(name)                                                                                                 \
    VT_EXPORT FILE *name(const char *restrict path, const char *restrict mode, FILE *restrict fp)                              \
    {                                                                                                                          \
        if (vt_on())                                                                                                           \
            vt_fd_forget(fp->_fileno);                                                                                         \
        if (vt_on() && vt_is_virtual() && is_fifo(path))                                                                       \
            return opened(VT_HANDED("freopen", vt_real(name)(path, mode, fp)));                                                \
        FILE *ret = vt_real(name)(path, mode, fp);                                                                             \
        return path ? opened(ret) : ret;                                                                                       \
    }
FREOPEN_FUNCTION(freopen)
FREOPEN_FUNCTION(freopen64)
