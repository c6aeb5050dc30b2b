#include "wheel.h"

#include <string.h>

#define NEVER_TICK (UINT64_C(1) << (64 - VT_WHEEL_SHIFT))

static uint64_t round_up(uint64_t ns)
{
    return (ns >> VT_WHEEL_SHIFT) + ((ns & (VT_WHEEL_GRAIN - 1)) != 0);
}

/* Puts t at the head of the list whose head is *head. */
static void link_first(struct vt_timer **head, struct vt_timer *t)
{
    t->next = *head;
    t->pprev = head;
    if (t->next)
        t->next->pprev = &t->next;
    *head = t;
}

/* Takes out and returns the head of a list that is not empty. */
static struct vt_timer *unlink_first(struct vt_timer **head)
{
    struct vt_timer *t = *head;

    *head = t->next;
    if (t->next)
        t->next->pprev = head;
    t->pprev = NULL;
    return t;
}

static void mark_empty(struct vt_wheel *w, unsigned index)
{
    unsigned level = index / VT_WHEEL_SLOTS;

    w->used[level] &= ~(UINT64_C(1) << (index % VT_WHEEL_SLOTS));
    if (!w->used[level])
        w->levels &= ~(1U << level);
}

/* Links t into the slot for its deadline as seen from w->tick. */
static void place(struct vt_wheel *w, struct vt_timer *t)
{
    uint64_t tick = round_up(t->deadline);

    if (tick < w->tick)
        tick = w->tick;
    /* The 1 gives level 0 to the current tick, which differs in no digit, and changes the level of no other.
     */
    unsigned level = (63 - (unsigned)__builtin_clzll((tick ^ w->tick) | 1)) / VT_WHEEL_BITS;
    unsigned n = (unsigned)(tick >> (level * VT_WHEEL_BITS)) % VT_WHEEL_SLOTS;
    struct vt_wheel_slot *s = &w->slot[level * VT_WHEEL_SLOTS + n];

    if (!s->first || tick < s->min)
        s->min = tick;
    link_first(&s->first, t);
    w->used[level] |= UINT64_C(1) << n;
    w->levels |= 1U << level;
}

/* The slot of the earliest timer; there must be one in a slot. */
static unsigned first_slot(const struct vt_wheel *w)
{
    unsigned level = (unsigned)__builtin_ctz(w->levels);

    return level * VT_WHEEL_SLOTS + (unsigned)__builtin_ctzll(w->used[level]);
}

void vt_wheel_init(struct vt_wheel *w, uint64_t now)
{
    memset(w, 0, sizeof(*w));
    w->tick = now >> VT_WHEEL_SHIFT;
}

void vt_wheel_add(struct vt_wheel *w, struct vt_timer *t, uint64_t deadline)
{
    t->deadline = deadline;
    place(w, t);
    w->count++;
}

bool vt_wheel_remove(struct vt_wheel *w, struct vt_timer *t)
{
    struct vt_timer **pprev = t->pprev;

    if (!pprev)
        return false;
    *pprev = t->next;
    if (t->next)
        t->next->pprev = pprev;
    t->pprev = NULL;
    w->count--;
    /* If that emptied a list whose head is a slot's, rather than a timer's or w->moving, the slot is empty
     * now. */
    uintptr_t offset = (uintptr_t)pprev - (uintptr_t)w->slot;
    if (!*pprev && offset < sizeof(w->slot))
        mark_empty(w, (unsigned)(offset / sizeof(w->slot[0])));
    return true;
}

uint64_t vt_wheel_next(const struct vt_wheel *w)
{
    uint64_t tick;

    if (w->moving)
        tick = w->tick;
    else if (w->levels)
        tick = w->slot[first_slot(w)].min;
    else
        tick = NEVER_TICK;
    return tick < NEVER_TICK ? tick << VT_WHEEL_SHIFT : UINT64_MAX;
}

struct vt_timer *vt_wheel_expire(struct vt_wheel *w, uint64_t now, size_t max)
{
    uint64_t now_tick = now >> VT_WHEEL_SHIFT;
    unsigned work = VT_WHEEL_WORK;
    struct vt_timer *list = NULL;
    struct vt_timer **end = &list;

    for (;;) {
        /* While timers are moving the wheel stands at the first tick of their old slot, and all go below its
         * level. */
        while (w->moving) {
            if (!work--)
                goto out;
            place(w, unlink_first(&w->moving));
        }
        if (!w->levels)
            break;

        unsigned index = first_slot(w);
        unsigned shift = index / VT_WHEEL_SLOTS * VT_WHEEL_BITS;
        uint64_t start = (w->tick >> shift >> VT_WHEEL_BITS << VT_WHEEL_BITS | index % VT_WHEEL_SLOTS) << shift;
        struct vt_wheel_slot *s = &w->slot[index];

        if (start > now_tick)
            break;
        w->tick = start;
        if (shift) {
            /* Relink the head; the others point to their neighbours. */
            w->moving = s->first;
            w->moving->pprev = &w->moving;
            s->first = NULL;
            mark_empty(w, index);
            continue;
        }
        while (s->first) {
            if (!max--)
                goto out;
            struct vt_timer *t = unlink_first(&s->first);
            w->count--;
            *end = t;
            end = &t->next;
        }
        mark_empty(w, index);
    }
    /* Nothing is left before now_tick, so no timer's level changes by going there. The clock never goes back.
     */
    if (w->tick < now_tick)
        w->tick = now_tick;
out:
    *end = NULL;
    return list;
}
