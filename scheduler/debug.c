/* The table for who looks from outside, see debug.h.
 *
 * With all kernel threads stopped this holds. Whose stack the stack pointer of a kernel thread is on, that
 * virtual thread is in the registers of that kernel thread; of every other virtual thread that is alive all
 * is saved where `thread.sp` says. That is so at each instruction of a switch, too: `mounted` and
 * `thread.carrier` are set before it, the stack pointer is exchanged by one instruction, after `thread.sp`
 * has been written. (Who leaves its stack by swapcontext or in a handler on an alternate stack is `mounted`,
 * and no other stack of ours is under that stack pointer.) A thread that was parked and whose `turns` and
 * `generation` are the same at a second look has not run in between: its stack is the same, but for what
 * those who wake it write into its records there. */
#include "debug.h"

#include "life.h"
#include "place.h"
#include "slot.h"
#include "stats.h"
#include "stock.h"

#include <pthread.h>
#include <stddef.h>

#define NUMBER(name, value)                                                                                                    \
    {                                                                                                                          \
        name, (uint64_t)(value)                                                                                                \
    }
#define ADDRESS(name, thing)                                                                                                   \
    {                                                                                                                          \
        name, (uintptr_t)(thing)                                                                                               \
    }
#define OFFSET(name, type, member)                                                                                             \
    {                                                                                                                          \
        name, offsetof(struct type, member)                                                                                    \
    }

extern const struct vt_debug vt_debug __attribute__((visibility("hidden")));

const struct vt_debug vt_debug =
    {
        .magic = VT_DEBUG_MAGIC,
        .version = VT_DEBUG_VERSION,
        .entry_size = sizeof(struct vt_debug_entry),
        .entry =
            {
                /* Descriptors: "chunks" is an array of pointers to arrays of chunk.threads; "used" (32 bits)
                   have been made. */
                ADDRESS("chunks", &vt_pool.chunk),
                ADDRESS("used", &vt_pool.used),
                /* A pointer: in a forked child the only descriptor that is anybody's, or none; NULL: all are what they say. */
                ADDRESS("sole", &vt_sole),
                NUMBER("chunk.threads", VT_CHUNK),
                NUMBER("thread.size", sizeof(struct vt_thread)),
                OFFSET("thread.token", vt_thread, token),
                OFFSET("thread.kind", vt_thread, kind),
                OFFSET("thread.crit", vt_thread, crit),
                OFFSET("thread.tid", vt_thread, tid),
                OFFSET("thread.carrier", vt_thread, carrier),
                OFFSET("thread.sp", vt_thread, ctx.sp),
                OFFSET("thread.tp", vt_thread, tp),
                OFFSET("thread.deadline", vt_thread, timer.deadline),
                OFFSET("thread.timer_place", vt_thread, timer_place),
                OFFSET("thread.start", vt_thread, start),
                OFFSET("thread.arg", vt_thread, arg),
                OFFSET("thread.handle", vt_thread, handle),
                OFFSET("thread.alt_stack", vt_thread, alt_stack),
                OFFSET("thread.alt_size", vt_thread, alt_size),
                OFFSET("thread.wait_what", vt_thread, wait_what),
                OFFSET("thread.wait_on", vt_thread, wait_on),
                OFFSET("thread.wait_kind", vt_thread, wait_kind),
                OFFSET("thread.wait_detail", vt_thread, wait_detail),
                OFFSET("thread.since", vt_thread, since),
                OFFSET("thread.turns", vt_thread, turns),
                OFFSET("thread.stack_lo", vt_thread, stack_lo),
                OFFSET("thread.stack_hi", vt_thread, stack_hi),
                OFFSET("thread.adopted", vt_thread, adopted),
                OFFSET("thread.alive", vt_thread, alive),
                OFFSET("thread.generation", vt_thread, generation),
                OFFSET("thread.name", vt_thread, name),
                NUMBER("thread.name.size", sizeof((struct vt_thread *)0)->name),
                NUMBER("kind.virtual", VT_VIRTUAL),
                NUMBER("kind.bound", VT_BOUND),
                NUMBER("token.blocked", VT_BLOCKED), /* or more */

                /* What thread.wait_kind may be. */
                NUMBER("wait.other", VT_WAIT_OTHER),
                NUMBER("wait.futex", VT_WAIT_FUTEX),
                NUMBER("wait.sleep", VT_WAIT_SLEEP),
                NUMBER("wait.mutex", VT_WAIT_MUTEX),
                NUMBER("wait.cond", VT_WAIT_COND),
                NUMBER("wait.rdlock", VT_WAIT_RDLOCK),
                NUMBER("wait.wrlock", VT_WAIT_WRLOCK),
                NUMBER("wait.sem", VT_WAIT_SEM),
                NUMBER("wait.barrier", VT_WAIT_BARRIER),
                NUMBER("wait.once", VT_WAIT_ONCE),
                NUMBER("wait.join", VT_WAIT_JOIN),
                NUMBER("wait.ring", VT_WAIT_RING),
                NUMBER("wait.ready", VT_WAIT_READY),
                NUMBER("wait.poll", VT_WAIT_POLL),
                NUMBER("wait.proxy", VT_WAIT_PROXY),

                /* The program's objects. Who waits for an rwlock waits on the words rwlock.rdlock and
                   rwlock.wrlock of it. */
                NUMBER("mutex.owner", offsetof(pthread_mutex_t, __data.__owner)),
                NUMBER("rwlock.writer", offsetof(pthread_rwlock_t, __data.__cur_writer)),
                NUMBER("rwlock.rdlock", offsetof(pthread_rwlock_t, __data.__wrphase_futex)),
                NUMBER("rwlock.wrlock", offsetof(pthread_rwlock_t, __data.__writers_futex)),

                /* Carriers: a list, linked by carrier.next. */
                ADDRESS("carriers", &vt_sched.carriers),
                NUMBER("carrier.size", sizeof(struct vt_carrier)),
                OFFSET("carrier.next", vt_carrier, all_next),
                OFFSET("carrier.tid", vt_carrier, tid),
                OFFSET("carrier.index", vt_carrier, index),
                OFFSET("carrier.mounted", vt_carrier, mounted),
                OFFSET("carrier.place", vt_carrier, place),
                OFFSET("carrier.tp", vt_carrier, tp),
                OFFSET("carrier.after", vt_carrier, after),
                OFFSET("carrier.after_arg", vt_carrier, after_arg),
                NUMBER("carrier.stack", VT_CARRIER_STACK),
                /* Ids of kernel threads that are the library's and no carriers: an array of so many, 32 bits each, 0: free. */
                ADDRESS("staff", &vt_sched.staff),
                NUMBER("staff.count", VT_STAFF),

                /* Places: a pointer to an array of "nplaces" (32 bits). */
                ADDRESS("places", &vt_sched.places),
                ADDRESS("nplaces", &vt_sched.nplaces),
                NUMBER("place.size", sizeof(struct vt_place)),
                OFFSET("place.carrier", vt_place, carrier),
                OFFSET("place.index", vt_place, index),
                OFFSET("place.idle", vt_place, idle),
                OFFSET("place.mounts", vt_place, mounts),
                OFFSET("place.clock", vt_place, clock),
                OFFSET("place.due", vt_place, due),

                /* Counters: of each place, 64 bits each unless it says otherwise, written by who attends it; the
                   others as stats.h, slot.h and stock.h say. */
                OFFSET("stat.direct", vt_place, stats.direct),
                OFFSET("stat.lodged", vt_place, stats.lodged),
                OFFSET("stat.parks", vt_place, stats.parks), /* an array, by the numbers of wait.* */
                OFFSET("stat.yields", vt_place, stats.yields),
                OFFSET("stat.steals", vt_place, stats.steals),
                OFFSET("stat.timers", vt_place, stats.timers),
                OFFSET("stat.sleeps", vt_place, stats.sleeps),
                OFFSET("stat.submissions", vt_place, stats.submissions),
                OFFSET("stat.requests", vt_place, stats.requests),
                OFFSET("stat.batches", vt_place, stats.batches),
                OFFSET("stat.batch_most", vt_place, stats.batch_most),
                OFFSET("stat.wakes", vt_place, stats.wakes),
                OFFSET("stat.delay", vt_place, stats.delay), /* an array: n is for 2^(n-1) to 2^n ns */
                NUMBER("stat.delay.count", VT_DELAYS),
                OFFSET("stat.delay_most", vt_place, stats.delay_most),
                OFFSET("stat.created", vt_place, stock.created),
                OFFSET("stat.ended", vt_place, stock.ended),
                OFFSET("stock.created", vt_stock, created),
                OFFSET("stock.ended", vt_stock, ended),
                ADDRESS("stocks", &vt_stock_view),
                ADDRESS("slots", &vt_slot_view),
                ADDRESS("stats", &vt_stats_view),
                ADDRESS("ncarriers", &vt_sched.ncarriers), /* 32 bits */
                ADDRESS("nout", &vt_sched.nout),           /* 32 bits */
                ADDRESS("nidle", &vt_sched.nidle),         /* 32 bits */

                /* Contexts: the array vt_arch_saved (32 bits each, signed) and the pointer vt_arch_outermost,
                   see arch.h. */
                ADDRESS("context.saved", &vt_arch_saved),
                ADDRESS("context.outermost", &vt_arch_outermost),
                {"", 0},
            },
};

/* The distance is the linker's business, so the note needs no relocation at run time and is the same in the
 * file. */
__asm__(".pushsection .note.vthread, \"a\", @note\n"
        ".balign 4\n"
        ".long 8, 8, 1\n"
        ".asciz \"" VT_DEBUG_NOTE "\"\n"
        ".quad vt_debug - .\n"
        ".popsection");
