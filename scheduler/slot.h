/*
 * Slots: the address space of virtual threads, a reservation each of
 *
 *     guard | stack | TLS and TCB
 *
 * cut from slabs of many slots. A slab is one mapping that the kernel neither counts against overcommit nor
 * backs with huge pages; nothing of a slot is touched until its thread touches it. The guard of a slot lies
 * on the TLS of the one before, so that a thread that sleeps in shallow calls costs two pages and its share
 * of a page table. The distance of two slots is an odd number of pages, and tops are shifted by cache lines,
 * so that many stacks do not meet in the same sets of the caches.
 *
 * Slots are used again with their memory and their TCB (vt_tcb_reset); a stack that was used deeply gives its
 * memory back first. Slabs are never unmapped. What is known of a slot lies apart from it, in memory that is
 * never freed and never becomes anything else.
 *
 * Nothing here calls malloc or free, but vt_slot_tcb, whose TCBs own a little of it. That one may therefore
 * run the program's malloc, and wait for the loader's lock: not in a scheduler section. The others may; under
 * a spin lock they make a few system calls when a slab is needed.
 *
 * Two things are not as with stacks of libc's: slabs are not locked in memory after mlockall(MCL_FUTURE), and
 * a mlockall(MCL_CURRENT) that gets through to the kernel fills every slab, unused slots too. They become
 * executable when a module comes that wants it (vt_tcb_exec_wanted).
 */
#ifndef VT_SLOT_H
#define VT_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vt_guard {
    VT_GUARD_NONE,     /* not asked for, or not to be had: see vt_slot_stats */
    VT_GUARD_MARKER,   /* MADV_GUARD_INSTALL: no mapping of its own */
    VT_GUARD_MPROTECT, /* PROT_NONE: costs the process two mappings */
};

struct vt_slot_class;

struct vt_slot {
    char *stack_lo, *stack_hi; /* the stack; hi exclusive and aligned to 64: TLS begins there, or the caller's
                                  stack ends */
    size_t stack_size;         /* at least what was asked for, in whole pages, at most hi - lo */
    void *tp;                  /* valid if tcb_ready */
    struct vt_slot *next;      /* of the owner: free lists here, whatever it likes in the owner of a slot in use */
    struct vt_slot *next_pack; /* of the first of a pack, on a class's list */
    char *top;                 /* TLS and TCB end here */
    uint32_t guard_size;       /* bytes, below stack_lo; 0 if there is none */
    uint16_t class_index;
    uint16_t uses;   /* how often it was put; wraps */
    uint16_t packed; /* of the first of a pack: how many there are */
    uint8_t guard;   /* enum vt_guard */
    bool tcb_ready;  /* a thread has used and left the TCB */
    bool in_use;
    bool wrapped; /* the stack is the caller's */
    bool checked; /* for deep use, since its last */
};

/*
 * Free slots that a place or a kernel thread keeps for itself, all of one class. Zero is empty. Used by one
 * kernel thread at a time. They come from and go to the list that all share in packs, so that its lock is
 * taken once for many threads.
 */
#define VT_SLOT_PACK 16
struct vt_slot_cache {
    struct vt_slot_class *class;
    struct vt_slot *head; /* used last first */
    unsigned n;
    struct vt_slot *spare; /* a whole pack of VT_SLOT_PACK, or NULL */
};

/*
 * A slot with at least `stack_size` bytes of stack and, unless it is 0, `guard_size` bytes of guard, both
 * rounded up. From `cache` if it has one of that kind, else (or if it is NULL) from the list that all share,
 * else a new one. 0; EAGAIN when there is no address space or memory; EINVAL when the sizes are beyond any
 * address space. A guard that cannot be had does not make it fail. Any thread that vt_lock suits; not
 * async-signal-safe. vt_tcb_init has succeeded.
 */
int vt_slot_get(struct vt_slot_cache *cache, size_t stack_size, size_t guard_size, struct vt_slot **out);

/*
 * A slot whose stack is the caller's `size` bytes at `stackaddr`. TLS and TCB are in memory of our own, so
 * that the whole stack is the thread's, and a TCB can be used again. EINVAL if libc would refuse the size,
 * EAGAIN as above.
 */
int vt_slot_wrap(struct vt_slot_cache *cache, void *stackaddr, size_t size, struct vt_slot **out);

/*
 * Makes the TCB of a slot that has been got (or resets the one that it has) for a thread with this id, sets
 * slot->tp, and tells libc of the stack. EAGAIN when there is no memory. Any thread.
 */
int vt_slot_tcb(struct vt_slot *slot, unsigned tid);

/*
 * Gives a slot back. Nothing runs on its stack or TCB any more; if vt_slot_tcb was called, the thread has
 * gone through vt_tcb_leave or has never run. One system call if it looks for deep use, which it does now and
 * then, and always while threads of the kind go deep; two if it finds it.
 */
void vt_slot_put(struct vt_slot_cache *cache, struct vt_slot *slot);

/* Empties a cache, as its kernel thread ends. */
void vt_slot_cache_flush(struct vt_slot_cache *cache);

/*
 * Free slots keep their memory up to a limit. What goes beyond it is given back at once, or, if this function
 * is set, later: it is called once, by any kernel thread in a section, and then vt_slot_trim is to be called
 * until it says false, when threads have stopped to come and go so fast.
 */
extern void (*vt_slot_surplus)(void);

/* Gives the memory of a pack of free slots back. False when there is no surplus any more. Any thread. */
bool vt_slot_trim(void);

/*
 * For a kernel thread with nothing better to do: makes a pack of slots that no thread has used yet ready, with
 * their memory, if slots are being used up faster than threads end. False if there is no need. Takes some
 * 100 us.
 */
bool vt_slot_ahead(void);

/*
 * The slot in whose guard, stack or TLS an address lies, or NULL; in use or not. Callers' stacks are not
 * found. Any thread; async-signal-safe; takes time in the number of slabs. For the diagnosis of faults.
 */
struct vt_slot *vt_slot_find(const void *addr);

/* True if an address lies in the slot's guard. */
static inline bool vt_slot_in_guard(const struct vt_slot *slot, const void *addr)
{
    const char *a = addr;
    return a < slot->stack_lo && slot->stack_lo - a <= (ptrdiff_t)slot->guard_size;
}

struct vt_slot_stats {
    uint64_t in_use, peak;   /* with those in caches */
    uint64_t made;           /* ever cut from a slab */
    uint64_t bytes_reserved; /* of address space */
    uint64_t slabs;
    uint64_t guards_marker, guards_mprotect, guards_missing; /* slots; missing: asked for but not to be had */
    uint64_t deep;                                           /* stacks whose memory was given back */
};

/* Each number is right by itself. Any thread; async-signal-safe. */
void vt_slot_stats(struct vt_slot_stats *stats);

/* For who looks from outside (debug.h): where numbers are, and the list of slabs with the offsets in them. Eight
 * bytes each. */
extern const struct vt_slot_view {
    const void *made, *free, *peak, *slabs;
    size_t next, lo, hi;
} vt_slot_view;

/*
 * In a forked child, on its only thread. Slots in use stay so: the caller gives those of vanished threads
 * back, having set tcb_ready to false if it did not vt_tcb_renew or vt_tcb_free them, or leaves them alone.
 */
void vt_slot_fork_child(void);

#endif
