/*
 * Thread control blocks: the TLS and the `struct pthread` of a virtual thread, as the installed glibc wants
 * them.
 *
 * The memory is the caller's (slot.h); the blocks in it are made by ld.so's own _dl_allocate_tls, so that any
 * code, whatever its TLS model, finds there what it would find in a kernel thread. What is inside glibc's
 * private structures is found by the _thread_db_ descriptors that it exports for debuggers, by asking the
 * kernel, or by watching what malloc writes; every fact is checked at vt_tcb_init, and a libc that does not
 * pass is refused.
 *
 * From the top of a slot downwards: a word or two of this module, `struct pthread` (the thread pointer points
 * to it), the blocks of the modules, libc's surplus for modules to come. The stack begins below.
 *
 * A thread's life:
 *
 *     creator      vt_tcb_make for new memory, vt_tcb_reset for a TCB whose thread has left
 *     new thread   vt_tcb_enter, the start routine, (cleanup handlers), vt_tcb_leave
 *     anybody      vt_tcb_free, if the memory goes
 *
 * After vt_tcb_leave the thread should not call malloc, or anything else that puts something into its TLS or
 * under its keys: nobody would destroy it. free is harmless.
 *
 * vt_tcb_make, vt_tcb_reset, vt_tcb_renew and vt_tcb_free call malloc or free, the program's if it has its
 * own, and vt_tcb_make and whatever finds that modules have changed take locks of the loader: not in a
 * scheduler section.
 */
#ifndef VT_TCB_H
#define VT_TCB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Ids of virtual threads begin here: above the kernel's largest pid (PID_MAX_LIMIT, 4 Mi). They must stay
 * below 2^30: the low 30 bits of a mutex word are the owner's id (FUTEX_TID_MASK).
 */
#define VT_TCB_TID_MIN ((1u << 22) + 1)

/*
 * Finds out about the libc. Once before anything else here, on any thread that libc made; later calls give
 * the first one's answer. Allocates and frees a little with malloc on a scratch TCB, with signals blocked. 0,
 * or ENOSYS when this libc cannot be served, and then vt_tcb_why() says why in one line. Takes some ten
 * microseconds.
 */
int vt_tcb_init(void);
const char *vt_tcb_why(void);

/*
 * Whether vt_tcb_init can be thought to succeed, as far as symbols and offsets tell; else vt_tcb_why() says why not. Before
 * that, on the main thread. Looks up some dozens of symbols, and keeps nothing.
 */
bool vt_tcb_known(void);

/*
 * The bytes below a slot's top that TLS and TCB may take, whatever the top is (it is aligned down as needed),
 * a multiple of 64; and the alignment of the thread pointer, a power of two of at least 64. Constant after
 * vt_tcb_init. Any thread.
 */
size_t vt_tcb_size(void);
size_t vt_tcb_align(void);

/*
 * Builds TLS and TCB in the vt_tcb_size() bytes below `top`, and says where the thread pointer must point.
 * The memory may hold anything. Stack and pointer guard are copied from the calling thread, whose TLS must be
 * real (any thread, virtual or not). The TCB says: several threads, cancellation enabled and deferred, not
 * registered for rseq, an empty robust list, on no list of threads. ENOMEM when malloc has no memory for the
 * vector of modules (dtv). Any thread; may wait for the loader's lock.
 */
int vt_tcb_make(void *top, unsigned tid, void **tp);

/*
 * Gives the TCB of a thread that has gone through vt_tcb_leave to a new thread. The TLS of every module is as
 * for a new thread, but libc keeps what malloc keeps for a thread (the tcache and the arena), and buffers
 * that grow on use. Blocks of modules with dynamic TLS are freed and made again at their first use. Any
 * thread, also that which has left if it no longer runs on this TLS; frees memory only if the thread used
 * dynamic TLS. Does not fail.
 */
void vt_tcb_reset(void *tp, unsigned tid);

/*
 * As vt_tcb_reset for a thread that ended otherwise, as the other threads do at fork in the child: nothing of
 * what it left is used again, malloc's memory for it least of all. ENOMEM as vt_tcb_make, and then the TCB is
 * gone.
 */
int vt_tcb_renew(void *tp, unsigned tid);

/*
 * Frees what a TCB owns outside its slot: the dtv and blocks of dynamic TLS. What malloc keeps for the thread
 * passes to the next TCB that is made. Any thread but the one that runs on it.
 */
void vt_tcb_free(void *tp);

/* The same without a call of free: all that the TCB owns waits until the next one is made. Also in a
 * scheduler section. */
void vt_tcb_drop(void *tp);

/*
 * What libc believes of the thread's stack. It matters to functions that choose between alloca and malloc by
 * it, and to pthread_getattr_np if that gets through to libc. `lo` is the lowest usable byte. After
 * vt_tcb_make or vt_tcb_reset; does nothing if libc's notion could not be found.
 */
void vt_tcb_set_stack(void *tp, char *lo, char *hi, size_t guard_size);

/* On the new thread, before anything that looks at the locale. */
void vt_tcb_enter(void);

/*
 * On the ending thread, on its own TLS and stack, after its cleanup handlers: C++ thread_local destructors,
 * pthread key destructors in glibc's order and rounds, then libc's own state: resolver sockets, dlerror's
 * text, the locale. Calls code of the program, which may block, but not leave by an exception or
 * pthread_exit.
 */
void vt_tcb_leave(void);

/* glibc's word of cancellation state and type (bits 0 and 1), cancelled (2 and 3), exiting (4). */
atomic_int *vt_tcb_cancelhandling(void *tp);
#define VT_TCB_DISABLED  0x01 /* the state is PTHREAD_CANCEL_DISABLE */
#define VT_TCB_ANY_TIME  0x02 /* the type is PTHREAD_CANCEL_ASYNCHRONOUS, or libc is in a call that blocks */
#define VT_TCB_CANCELING 0x04 /* it is being cancelled at any time: libc has left it to the signal */
#define VT_TCB_CANCELED  0x08

/* Whether the thread has been cancelled, acted upon or not; any thread's. False as long as libc is not known. */
bool vt_tcb_cancelled(void *tp);

/* The innermost buffer of __pthread_register_cancel, that __pthread_unwind starts from. NULL in a new thread.
 */
void **vt_tcb_cleanup_jmp_buf(void *tp);

/* The id that libc's own recursive locks, the loader's among them, tell threads apart by. */
void vt_tcb_set_tid(void *tp, unsigned tid);
unsigned vt_tcb_tid(void *tp);

/* Brings what vt_tcb_reset and vt_tcb_leave touch near the processor: of the TCB, and of what it points to once the TCB is
 * there. Nobody need use the TCB. */
void vt_tcb_prefetch(const void *tp);
void vt_tcb_prefetch_dtv(const void *tp);

/* True if some loaded object wants executable stacks, or one did that was loaded since vt_tcb_init, as glibc sees it. */
bool vt_tcb_exec_stack(void);

/* If set, it is called once when that has become true; by any thread that makes a TCB, or by vt_tcb_module_came. */
extern void (*vt_tcb_exec_wanted)(void);

/* A module is about to be loaded, and nobody will say when it is: who makes the next TCB looks at all of them. Modules
 * without TLS are not noticed else. Any thread; for nothing before vt_tcb_init. */
void vt_tcb_module_comes(void);

/* A module may have been loaded. Any thread, not in a section. After vt_tcb_init. */
void vt_tcb_module_came(void);

/*
 * --- Modules that come later
 *
 * A module with initial-exec TLS that is dlopened gets a piece of every thread's surplus. libc initialises it
 * for the threads on its lists of stacks, and the TCBs made here are on none: they would read zeros, or what
 * a former module left there. Nor does libc wait for them before it frees what a symbol look-up in progress
 * may read (its "gscope"). Two means against this:
 *
 * vt_tcb_list puts a TCB on libc's list of threads with caller's stacks, under libc's lock, for the time of a
 * dlopen or dlclose. The interposed function is
 *
 *     bool listed = vt_tcb_dl_begin();
 *     for each living virtual thread (or at least the calling one)
 *         vt_tcb_list(tp);
 *     ret = real dlopen or dlclose
 *     vt_tcb_dl_end(listed);
 *     for each living virtual thread
 *         vt_tcb_late_tls(tp);
 *
 * so that constructors of the module already find its TLS right. Between begin and end of any thread, TCBs
 * that are made or reset are put on the list also; the outermost end takes all off. A debugger that attaches
 * meanwhile may show the virtual threads as kernel threads that it cannot read; nothing else walks this list,
 * but for setuid and family.
 *
 * vt_tcb_late_tls is enough where the list cannot be used (vt_tcb_dl_begin returned false), and cheap where
 * it was: it initialises the blocks of modules that came since the TCB was made, reset, listed or last
 * brought up to date. It can then not be in time for constructors. It also serves after libc has loaded a
 * module by itself.
 */

/* Announces a dlopen or dlclose; true if libc's list can be used, and then end must follow on the same
 * thread. */
bool vt_tcb_dl_begin(void);
void vt_tcb_dl_end(bool begun);

/* Between dl_begin and dl_end: puts a TCB on the list, if it is not there. It must be in use: the caller
 * keeps the thread from ending meanwhile. ENOSYS if the list cannot be used. */
int vt_tcb_list(void *tp);

/* dl_begin for the calling thread alone, and dl_end. True if that was possible (and then call it with false
 * later). */
bool vt_tcb_list_self(bool on);

/*
 * Counts the modules with static TLS that have come so far: grows whenever vt_tcb_late_tls has work to do for
 * older TCBs. Reads a word or two. Any thread; async-signal-safe, but then it may be behind.
 */
uint64_t vt_tcb_generation(void);

/* See above. The caller keeps the thread from ending meanwhile; the thread may run. Any thread. */
void vt_tcb_late_tls(void *tp);

/*
 * In a forked child, on its only thread. All TCBs but the calling thread's must go through vt_tcb_renew or
 * never be used again. Takes no lock, allocates nothing.
 */
void vt_tcb_fork_child(void);

/*
 * The same for the TCB of the calling thread, if it was made here: tid is the id that it has among libc's
 * locks, and kernel_tp the TCB of the kernel thread that the caller ran on (NULL: its own), of which libc
 * thinks that it is free. libc has put tp on its list of threads.
 */
void vt_tcb_forked(void *tp, unsigned tid, void *kernel_tp);

/*
 * Says to libc and the kernel that the TCB of the calling kernel thread is `by`, from vt_tcb_make with its
 * kernel's id, and no longer tp, on which the caller goes on as something else. `by` is for ever.
 */
void vt_tcb_replace(void *tp, void *by);

#endif
