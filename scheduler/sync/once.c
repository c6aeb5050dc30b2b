/* Compiled with -fexceptions: init's exceptions pass through here. */
#include "once.h"

#include "real.h"

static uint32_t generation; /* changes only where there is one thread */

void vt_once_forked(void)
{
    generation += VT_ONCE_GENERATION;
}

/* libc's, for pthread_cleanup_push in C; pthread.h hides them from code with exceptions. */
extern void __pthread_register_cancel(__pthread_unwind_buf_t *);
extern void __pthread_unregister_cancel(__pthread_unwind_buf_t *);
extern void __pthread_unwind_next(__pthread_unwind_buf_t *) __attribute__((noreturn));
/* Saves no signal mask, so that the buffer is as short as libc has made it for this purpose. */
extern int set_unwind_jump(void *, int) __asm__("__sigsetjmp") __attribute__((returns_twice));

struct run {
    pthread_once_t *once; /* NULL: it is over */
    uint32_t result;
    __pthread_unwind_buf_t buf;
};

/* At every way out of init. Release, for those who find the result. */
static void end_run(struct run *r)
{
    pthread_once_t *once = r->once;
    if (!once)
        return;
    r->once = NULL;
    vt_real(__pthread_unregister_cancel)(&r->buf);
    atomic_store_explicit(vt_word(once), r->result, memory_order_release);
    vt_unpark(once, UINT32_MAX, VT_BITS_ALL);
}

/* An exception leaves by the cleanup. So does libc's forced unwinding, of pthread_exit and cancellation, but where init or what
 * it calls has no unwind tables: then libc jumps to what is registered. */
static void __attribute__((noinline)) run_init(pthread_once_t *once, void (*init)(void))
{
    __attribute__((cleanup(end_run))) struct run r = {.once = once};
    if (set_unwind_jump(r.buf.__cancel_jmp_buf, 0)) {
        end_run(&r);
        vt_real(__pthread_unwind_next)(&r.buf);
    }
    vt_real(__pthread_register_cancel)(&r.buf);
    init();
    r.result = VT_ONCE_DONE;
}

int vt_once(pthread_once_t *once, void (*init)(void))
{
    uint32_t seen = atomic_load_explicit(vt_word(once), memory_order_acquire);
    while (!(seen & VT_ONCE_DONE)) {
        uint32_t ours = generation | VT_ONCE_IN_PROGRESS;
        if (seen == ours) {
            vt_park(vt_word(once), ours, VT_NEVER, VT_BITS_ALL, VT_PARK_FOR(VT_WAIT_ONCE));
            seen = atomic_load_explicit(vt_word(once), memory_order_acquire);
        } else if (atomic_compare_exchange_weak_explicit(vt_word(once), &seen, ours, memory_order_acquire,
                                                         memory_order_acquire)) {
            run_init(once, init);
            break;
        }
    }
    return 0;
}
