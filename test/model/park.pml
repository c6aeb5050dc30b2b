/* How threads wait and carriers sleep (scheduler/park.c, place.c, carrier.c), without the monitor, which would mend what goes
 * wrong here a little later.
 *
 * Virtual threads take units that kernel threads give them, and block by their tokens while there are none. Carriers take
 * runnable threads from one queue, and sleep at their places when it is empty; threads hand their carriers' places over,
 * as before a call that blocks, and may take one back. Every interleaving must end with all units taken, and no thread is
 * ever runnable twice.
 *
 * With LODGERS defined a thread that blocks may stay with its carrier, which alone runs it until it has run another one.
 *
 * With WITHOUT_... defined one step is left out, and a check must find that: see CMakeLists.txt. */

#ifndef THREADS
#define THREADS 2
#endif
#ifndef UNITS
#define UNITS 1 /* for each thread from each of those who give */
#endif
#ifndef GIVERS
#define GIVERS 1
#endif
#ifndef HANDOFFS
#define HANDOFFS 0 /* at most, by the first thread */
#endif
#ifndef PLACES
#define PLACES 2 /* or 1 */
#endif
#define CARRIERS 2
#define NONE 9

#define NO_PERMIT 0
#define PERMIT 1
#define BLOCKED 2
#define LODGED 3

byte token[THREADS];
byte units[THREADS], taken[THREADS];
bool runnable[THREADS], running[THREADS], ended[THREADS];
byte handoffs[THREADS];
chan queue = [THREADS] of { byte };

bool idle[2], called[2], rung[2];
byte attendant[2] = NONE; /* the place's carrier */
byte nidle;
bool searching;

byte place[CARRIERS] = NONE; /* the carrier's place */
bool spare[CARRIERS], woken[CARRIERS], seeks[CARRIERS];
byte lodger[CARRIERS] = NONE; /* whose thread pointer the carrier's own context has */
byte home[THREADS];           /* the thread's carrier */

/* What each process needs while it is in an inline below: the place and the carrier that it has found. */
#define LOCALS byte vp = NONE, vc = NONE; bool found

/* vt_spare_take; in an atomic section. */
inline spare_take() {
    vc = NONE;
    if
    :: spare[0] -> vc = 0; spare[0] = false
    :: !spare[0] && spare[1] -> vc = 1; spare[1] = false
    :: else
    fi
}

inline spare_give() {
    attendant[vp] = vc;
    atomic { place[vc] = vp; woken[vc] = true; vp = NONE; vc = NONE } /* nobody looks at place before woken */
}

#define any_spare (spare[0] || spare[1])
#define asleep(p) (idle[p] && attendant[p] != NONE)
#define orphan(p) (idle[p] && attendant[p] == NONE)

inline call_one() {
    atomic { /* idle_lock */
        vc = NONE;
        if
        :: asleep(0) -> vp = 0
        :: asleep(1) -> vp = 1
        :: orphan(0) && any_spare -> vp = 0; spare_take()
        :: orphan(1) && any_spare -> vp = 1; spare_take()
        :: else -> vp = NONE
        fi;
        if
        :: vp != NONE -> idle[vp] = false; nidle--; called[vp] = true
        :: else
        fi
    };
    atomic {
        found = (vp != NONE);
        if
        :: vp == NONE
        :: vp != NONE && vc != NONE -> seeks[vc] = true; spare_give()
        :: vp != NONE && vc == NONE -> rung[vp] = true; vp = NONE
        fi
    }
}

inline wake_idle() {
    do
    :: nidle == 0 -> break
    :: nidle != 0 ->
        if
        :: searching -> break
        :: atomic { !searching -> searching = true };
            call_one();
            if
            :: atomic { found -> found = false; break }
            :: !found ->
                searching = false;
#ifdef WITHOUT_SECOND_CALL
                break
#else
                if
                :: nempty(queue) && (asleep(0) || asleep(1) || ((idle[0] || idle[1]) && any_spare))
                :: else -> break
                fi
#endif
            fi
        fi
    od
}

inline wake_place(p) {
    atomic { /* idle_lock */
        vp = NONE;
        vc = NONE;
        if
        :: asleep(p) -> vp = p
        :: orphan(p) && any_spare -> vp = p; spare_take()
        :: else
        fi;
        if
        :: vp != NONE -> idle[vp] = false; nidle--
        :: else
        fi
    };
    if
    :: vp == NONE
    :: vp != NONE && vc != NONE -> spare_give()
    :: atomic { vp != NONE && vc == NONE -> rung[vp] = true; vp = NONE }
    fi
}

inline adopt_orphans() {
    if :: orphan(0) && nempty(queue) -> wake_place(0) :: else fi;
    if :: orphan(1) && nempty(queue) -> wake_place(1) :: else fi
}

inline ready(t) {
    atomic {
        assert(!runnable[t] && !running[t]);
        runnable[t] = true;
        queue!t
    };
    wake_idle()
}

inline unblock(t) {
    if
    :: atomic { token[t] != BLOCKED && token[t] != LODGED -> token[t] = PERMIT }
    :: atomic { token[t] == LODGED -> token[t] = PERMIT };
#ifndef WITHOUT_LODGERS_CALL
        if
        :: place[home[t]] == 0 -> wake_place(0)
        :: place[home[t]] == 1 -> wake_place(1)
        :: else
        fi
#endif
#ifndef WITHOUT_ORDER
    :: atomic { token[t] == BLOCKED -> token[t] = PERMIT }; token[t] = NO_PERMIT; ready(t)
#else
    :: atomic { token[t] == BLOCKED -> token[t] = PERMIT }; ready(t); token[t] = NO_PERMIT
#endif
    fi
}

#define lodger_called(c) (lodger[c] != NONE && token[lodger[c]] != LODGED)

inline set_idle(p) {
    atomic { idle[p] = true; called[p] = false; nidle++ }
}

inline give_away(p) {
    vc = NONE;
    if
    :: nempty(queue) -> atomic { spare_take() }
    :: else
    fi;
    if
    :: vc != NONE -> vp = p; spare_give()
    :: vc == NONE ->
        set_idle(p);
#ifndef WITHOUT_LOOK_BACK
        if
        :: nempty(queue) -> adopt_orphans(); wake_idle()
        :: else
        fi
#endif
    fi
}

proctype carrier(byte c)
{
    LOCALS;
    byte p = NONE, t = NONE, l = NONE;
    do
    :: place[c] == NONE -> /* become_spare */
        assert(lodger[c] == NONE);
        woken[c] = false;
        spare[c] = true;
#ifndef WITHOUT_ADOPTION
        adopt_orphans();
#endif
end_spare:
        woken[c] -> skip
    :: place[c] != NONE -> /* vt_find */
        p = place[c];
        atomic {
            if
            :: lodger_called(c) -> t = lodger[c]
            :: !lodger_called(c) && nempty(queue) -> queue?t; runnable[t] = false
            :: !lodger_called(c) && empty(queue) -> t = NONE
            fi;
            if
            :: t != NONE -> assert(!running[t]); running[t] = true
            :: else
            fi
        };
        if
        :: t != NONE && t == lodger[c] -> token[t] = NO_PERMIT; lodger[c] = NONE
        :: else
        fi;
        if
        :: t != NONE ->
            /* Mounted, and in its context. */
            home[t] = c;
            if
            :: lodger[c] != NONE ->
                atomic { l = lodger[c]; lodger[c] = NONE };
                if
                :: atomic { token[l] == LODGED -> token[l] = BLOCKED }
                :: token[l] != LODGED -> token[l] = NO_PERMIT; ready(l)
                fi;
                l = NONE
            :: else
            fi;
            if
            :: seeks[c] ->
                seeks[c] = false;
                searching = false;
                if
                :: nempty(queue) -> wake_idle()
                :: else
                fi
            :: else
            fi;
            /* The thread runs until it blocks or ends. */
            do
            :: units[t] > 0 ->
                atomic {
                    units[t]--;
                    taken[t]++;
                    if
                    :: taken[t] == GIVERS * UNITS -> running[t] = false; ended[t] = true; break
                    :: else
                    fi
                }
            :: units[t] == 0 && token[t] == PERMIT ->
                token[t] = NO_PERMIT /* a compare-and-swap; only the thread itself makes a permit go */
            :: units[t] == 0 && token[t] != PERMIT ->
                if
                :: atomic { token[t] == NO_PERMIT -> running[t] = false; token[t] = BLOCKED }
#ifdef LODGERS
                :: place[c] != NONE ->
                    lodger[c] = t;
                    if
                    :: atomic { token[t] == NO_PERMIT -> running[t] = false; token[t] = LODGED }
                    :: atomic { token[t] != NO_PERMIT -> running[t] = false }
                    fi
#endif
                :: atomic { token[t] != NO_PERMIT -> running[t] = false };
                    token[t] = NO_PERMIT;
                    ready(t)
                fi;
                break
            :: place[c] != NONE && handoffs[t] > 0 ->
                handoffs[t]--;
                place[c] = NONE;
                attendant[p] = NONE;
                give_away(p);
                /* What it blocks in ends when the other threads have done their work. */
                (THREADS == 1 || ended[THREADS - 1]);
                if /* vt_handoff_end, perhaps */
                :: true ->
                    atomic {
                        if
                        :: orphan(0) -> vp = 0
                        :: orphan(1) -> vp = 1
                        :: else -> vp = NONE
                        fi;
                        if
                        :: vp != NONE -> idle[vp] = false; nidle--
                        :: else
                        fi
                    };
                    if
                    :: vp != NONE -> attendant[vp] = c; atomic { place[c] = vp; p = vp; vp = NONE }
                    :: else
                    fi
                :: true
                fi
            od;
            atomic { t = NONE; p = NONE }
        :: t == NONE -> /* sleep_idle */
            set_idle(p);
            if
            :: atomic { seeks[c] -> seeks[c] = false; searching = false }
            :: !seeks[c]
            fi;
            if
#ifndef WITHOUT_RECHECK
            :: nempty(queue)
#ifndef WITHOUT_LODGERS_LOOK
            :: lodger_called(c)
            :: empty(queue) && !lodger_called(c) ->
#else
            :: empty(queue) ->
#endif
#else
            :: true ->
#endif
end_sleep:
                atomic { rung[p] -> rung[p] = false }
            fi;
            atomic { /* idle_lock */
                if
                :: idle[p] -> idle[p] = false; nidle--
                :: else
                fi;
                seeks[c] = called[p];
                called[p] = false;
                p = NONE
            }
        fi
    od
}

proctype giver()
{
    LOCALS;
    byte n, t;
    for (n : 1 .. UNITS) {
        for (t : 0 .. THREADS - 1) {
            units[t]++;
            unblock(t)
        }
    }
}

init
{
    byte t;
    atomic {
        for (t : 0 .. THREADS - 1) {
            runnable[t] = true;
            queue!t
        }
        handoffs[0] = HANDOFFS;
        t = 0;
        /* One carrier attends a place; the other place is unattended, and the other carrier is about to join the spares. */
        attendant[0] = 0;
        place[0] = 0;
        idle[1] = PLACES == 2;
        nidle = PLACES - 1;
        run carrier(0);
        run carrier(1);
        for (t : 1 .. GIVERS) {
            run giver()
        }
    };
    timeout -> /* nothing can move any more */
    for (t : 0 .. THREADS - 1) {
        assert(ended[t])
    }
}
