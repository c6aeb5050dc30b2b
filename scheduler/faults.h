/* Results of requests that a kernel may give and hardly ever does, for tests: nothing is changed unless VT_CHAOS is defined
 * and the environment variable VTHREAD_FAULTS says how many of a thousand requests to a ring are to fail or to be cut short.
 *
 * A request that is to fail is replaced by one that does nothing, whose completion carries the error; so nothing has come of
 * it, as with the kernel's own. What is cut short asks for less: only where less may come anyway, from a connected stream or
 * at a position of a file. */
#ifndef VT_FAULTS_H
#define VT_FAULTS_H

#ifdef VT_CHAOS

#include "chaos.h"
#include "io.h"
#include "sys.h"

#include <errno.h>
#include <liburing.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* The error is in the bits of the request's tag that no address of a program's has. */
#define VT_FAULT_SHIFT 48

static __attribute__((noinline, unused)) uint32_t vt_faults_read(void)
{
    const char *text = getenv("VTHREAD_FAULTS");
    return text ? (uint32_t)strtoul(text, NULL, 0) : 0;
}

static inline uint32_t vt_fault_chance(void)
{
    static uint32_t thousandth = UINT32_MAX; /* read by any thread, always the same */
    uint32_t n = __atomic_load_n(&thousandth, __ATOMIC_RELAXED);
    if (n == UINT32_MAX)
        __atomic_store_n(&thousandth, n = vt_faults_read(), __ATOMIC_RELAXED);
    return n && vt_chaos_next() % 1000 < n;
}

/* The error that is to end a request, or 0. ECANCELED is not for reads by READ: a timer's descriptor gives it by itself. */
static inline int vt_fault(uint8_t opcode)
{
    static const int any[] = {EINTR, EAGAIN, ENOMEM, ECANCELED}, receiving[] = {EINTR, EAGAIN, ENOMEM, ECANCELED, ECONNRESET};
    if (!vt_fault_chance())
        return 0;
    if (opcode == IORING_OP_READ || opcode == IORING_OP_READV)
        return any[vt_chaos_next() % 3];
    if (opcode == IORING_OP_RECV || opcode == IORING_OP_RECVMSG)
        return receiving[vt_chaos_next() % 5];
    return any[vt_chaos_next() % 4];
}

/* How many bytes the request is to ask for. */
static inline uint32_t vt_fault_length(const struct vt_io_req *req)
{
    int type = 0;
    socklen_t size = sizeof type;
    struct stat st;
    if (req->len < 2 || !vt_fault_chance())
        return req->len;
    if (req->opcode == IORING_OP_RECV) {
        if (vt_sys6(SYS_getsockopt, req->fd, SOL_SOCKET, SO_TYPE, (long)&type, (long)&size, 0) != 0 || type != SOCK_STREAM)
            return req->len;
    } else if (req->opcode != IORING_OP_READ || req->off == UINT64_MAX || vt_sys2(SYS_fstat, req->fd, (long)&st) != 0 ||
               !S_ISREG(st.st_mode)) {
        return req->len;
    }
    return 1 + vt_chaos_next() % (req->len - 1);
}

#define vt_fault_tag(op, error) ((uint64_t)(uintptr_t)(op) | (uint64_t)(error) << VT_FAULT_SHIFT)
#define vt_fault_op(tag)        ((struct vt_op *)(uintptr_t)((tag) & ((UINT64_C(1) << VT_FAULT_SHIFT) - 1)))
#define vt_fault_res(tag, res)  ((tag) >> VT_FAULT_SHIFT ? -(int32_t)((tag) >> VT_FAULT_SHIFT) : (res))

#else

#define vt_fault(opcode)        0
#define vt_fault_length(req)    ((req)->len)
#define vt_fault_tag(op, error) ((uint64_t)(uintptr_t)(op))
#define vt_fault_op(tag)        ((struct vt_op *)(uintptr_t)(tag))
#define vt_fault_res(tag, res)  (res)

#endif

#endif
