/* Compiled with -fexceptions: init's exceptions pass through here. */
#include "once.h"

static uint32_t generation; /* changes only where there is one thread */

void vt_once_forked(void)
{
    generation += VT_ONCE_GENERATION;
}

struct run {
    pthread_once_t *once;
    uint32_t result;
};

/* At every way out of init. Release, for those who find the result. */
static void end_run(struct run *r)
{
    pthread_once_t *once = r->once;
    atomic_store_explicit(vt_word(once), r->result, memory_order_release);
    vt_unpark(once, UINT32_MAX, VT_BITS_ALL);
}

int vt_once(pthread_once_t *once, void (*init)(void))
{
    uint32_t seen = atomic_load_explicit(vt_word(once), memory_order_acquire);
    while (!(seen & VT_ONCE_DONE)) {
        uint32_t ours = generation | VT_ONCE_IN_PROGRESS;
        if (seen == ours) {
            vt_park(vt_word(once), ours, VT_NEVER, VT_BITS_ALL, 0);
            seen = atomic_load_explicit(vt_word(once), memory_order_acquire);
        } else if (atomic_compare_exchange_weak_explicit(vt_word(once), &seen, ours, memory_order_acquire,
                                                         memory_order_acquire)) {
            __attribute__((cleanup(end_run))) struct run r = {once, 0};
            init();
            r.result = VT_ONCE_DONE;
            break;
        }
    }
    return 0;
}
