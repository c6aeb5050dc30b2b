# Virtual threads in gdb, of a process and of a core file:
#
#     info vthreads            lists them
#     vthread N                makes number N (or id N) the one whose frames are seen: bt, up, frame, info locals ...
#     vthread off              back to the kernel thread
#     vthread apply all|N... COMMAND
#
# A virtual thread that is parked is on no kernel thread. To show its stack, an unwinder says that the caller of the selected
# kernel thread's innermost frame is the parked context; nothing in the program is changed, so core files do as well. That
# innermost frame, number 0 (and what is inlined there), is not of the virtual thread, and backtraces leave it out.
#
# What is where in the library's memory comes from its own table (scheduler/debug.h): no debug information is needed.
import struct

import gdb
import gdb.frames
import gdb.unwinder

REGISTERS = ("rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15")  # in the order of vt_arch_saved


class NoLibrary(gdb.GdbError):
    pass


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def half(address):
    return struct.unpack("<I", read(address, 4))[0]


# --- the library's table ------------------------------------------------------------------------------------------------


def note_in_file(path):
    """The address of the table and of .text in the library's file; None if it is not the library."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError:
        return None
    if data[:5] != b"\x7fELF\x02":
        return None
    offset, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * 64) for i in range(count)]
    text = table = None
    for s in sections:
        at = sections[names][4] + s[0]
        name = data[at : data.index(b"\0", at)]
        if name == b".text":
            text = s[3]
        if name == b".note.vthread":
            # Three words, "vthread" and a zero; then the distance from where it stands.
            table = s[3] + 20 + struct.unpack_from("<q", data, s[4] + 20)[0]
    return (table, text) if table and text else None


def find_table():
    try:
        return int(gdb.parse_and_eval("(unsigned long)&vt_debug"))
    except gdb.error:
        pass
    # A stripped library: by what gdb knows of where it is loaded.
    for line in gdb.execute("info sharedlibrary", to_string=True).splitlines():
        parts = line.split()
        if len(parts) < 4 or not parts[0].startswith("0x") or not parts[-1].startswith("/"):
            continue
        found = note_in_file(parts[-1])
        if found:
            return found[0] + int(parts[0], 16) - found[1]
    raise NoLibrary("libvthread is not in this program")


def read_table():
    address = find_table()
    magic, version, size = struct.unpack("<8sII", read(address, 16))
    if magic != b"VTDEBUG\0" or version != 1:
        raise NoLibrary("libvthread's table is of another version than this script")
    table, at = {}, address + 16
    while True:
        name, value = struct.unpack("<24sQ", read(at, 32))
        name = name.rstrip(b"\0").decode()
        if not name:
            return table
        table[name] = value
        at += size


# --- threads ------------------------------------------------------------------------------------------------------------


class Thread:
    """One virtual thread, as it is now."""

    def __init__(self, engine, data, at, address, number):
        def get(name, code):
            return struct.unpack_from("<" + code, data, at + engine.table["thread." + name])[0]

        self.number = number
        self.address = address
        self.tid = get("tid", "I")
        self.sp = get("sp", "Q")
        self.start = get("start", "Q")
        self.lo, self.hi = get("stack_lo", "Q"), get("stack_hi", "Q")
        self.parked = get("token", "I") >= engine.table["token.blocked"]
        self.what = get("wait_what", "Q")
        self.kind, self.on = get("wait_kind", "I"), get("wait_on", "Q")
        self.name = data[at + engine.table["thread.name"] :][: engine.table["thread.name.size"]]
        self.name = self.name.split(b"\0")[0].decode(errors="replace")
        self.lwp = None

    def registers(self, engine):
        values = {}
        for name, offset in zip(REGISTERS, engine.saved):
            values[name] = word(self.sp + offset) if offset >= 0 else self.sp - offset
        return values


class Engine:
    def __init__(self):
        self.table = t = read_table()
        self.saved = struct.unpack("<8i", read(t["context.saved"], 32))
        self.kinds = {v: k[5:] for k, v in t.items() if k.startswith("wait.")}
        self.threads = []
        self.read_threads()
        self.find_running()

    def read_threads(self):
        t = self.table
        used, per = half(t["used"]), t["chunk.threads"]
        sole = word(t["sole"]) if "sole" in t else 0  # in a forked child: no other exists
        for first in range(0, used, per):
            chunk = word(t["chunks"] + first // per * 8)
            n = min(per, used - first)
            data = read(chunk, n * t["thread.size"])
            for i in range(n):
                at = i * t["thread.size"]
                alive, kind = (struct.unpack_from("<I", data, at + t["thread." + x])[0] for x in ("alive", "kind"))
                if alive and sole in (0, chunk + at) and kind == t["kind.virtual"]:
                    self.threads.append(Thread(self, data, at, chunk + at, len(self.threads) + 1))

    def find_running(self):
        """By the stack pointers of carriers: in the midst of a switch `mounted` is ahead of them."""
        t, carriers = self.table, {}
        at = word(t["carriers"])
        while at:
            carriers[half(at + t["carrier.tid"])] = at
            at = word(at + t["carrier.next"])
        by_address = {x.address: x for x in self.threads}
        selected = gdb.selected_thread()
        for thread in gdb.selected_inferior().threads():
            carrier = carriers.get(thread.ptid[1] or thread.ptid[2])
            if not carrier:
                continue
            mounted = by_address.get(word(carrier + t["carrier.mounted"]))
            left = by_address.get(word(carrier + t["carrier.after_arg"]))
            if not mounted and not left:
                continue
            thread.switch()
            sp = int(gdb.parse_and_eval("(unsigned long)$sp"))
            tp = word(carrier + t["carrier.tp"])
            for x in (left, mounted):
                if x and x.lo <= sp < x.hi:
                    break
            else:
                x = None if tp - t["carrier.stack"] <= sp < tp else mounted
            if x:
                x.lwp = thread
        if selected and selected.is_valid():
            selected.switch()

    def find(self, text):
        try:
            n = int(str(gdb.parse_and_eval(text)), 0)
        except (ValueError, gdb.error):
            raise gdb.GdbError("'%s' is neither the number nor the id of a virtual thread" % text)
        if 1 <= n <= len(self.threads):
            return self.threads[n - 1]
        for x in self.threads:
            if x.tid == n or x.address == n or x.address | 1 == n & 0xFFFFFFFFFFFF:
                return x
        raise gdb.GdbError("no virtual thread has the number or id %d" % n)


def symbol(address):
    text = gdb.execute("info symbol %#x" % address, to_string=True)
    return "" if text.startswith("No symbol") else " <%s>" % text.split(" in section")[0].strip()


def state(engine, x, symbols):
    if x.lwp:
        call = gdb.selected_inferior().read_memory(x.what, 32).tobytes().split(b"\0")[0].decode() if x.what else ""
        return "%s on %s (thread %d)" % ("blocked in " + call if call else "running",
                                         "LWP %d" % (x.lwp.ptid[1] or x.lwp.ptid[2]), x.lwp.num)
    if not x.parked:
        return "runnable"
    kind = engine.kinds.get(x.kind, "other")
    if kind in ("ring", "ready"):
        return "parked, for descriptor %d" % x.on
    if kind == "join":
        for other in engine.threads:
            if other.address == x.on:
                return "parked, to join %d (%d)" % (other.number, other.tid)
    if kind in ("other", "sleep", "join"):
        return "parked, " + ("in a sleep" if kind == "sleep" else kind)
    if x.on not in symbols:
        symbols[x.on] = symbol(x.on)
    return "parked, for %s %#x%s" % (kind, x.on, symbols[x.on])


# --- showing a parked one -----------------------------------------------------------------------------------------------


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class Parked(gdb.unwinder.Unwinder):
    """Makes the parked context the caller of the selected kernel thread's innermost frame."""

    def __init__(self):
        super().__init__("virtual threads")
        self.enabled = False
        self.at = self.registers = self.thread = None

    def show(self, thread, registers):
        self.hide()
        self.at = tuple(int(gdb.parse_and_eval("(unsigned long)$" + r)) for r in ("pc", "sp"))
        self.thread = gdb.selected_thread().ptid
        self.registers = registers
        self.number = thread.number
        self.enabled = True
        gdb.invalidate_cached_frames()

    def hide(self):
        if self.enabled:
            self.enabled = False
            gdb.invalidate_cached_frames()

    def active(self):
        selected = gdb.selected_thread()
        return self.enabled and selected is not None and selected.ptid == self.thread

    def __call__(self, frame):
        if not self.active():
            return None
        pc, sp = int(frame.read_register("rip")), int(frame.read_register("rsp"))
        mask = (1 << 64) - 1
        if (pc & mask, sp & mask) != self.at:
            return None
        number = gdb.lookup_type("unsigned long")
        value = {r: gdb.Value(v).cast(number) for r, v in self.registers.items()}
        # Further in than its caller, as gdb wants it, though its own stack is elsewhere.
        info = frame.create_unwind_info(FrameId(gdb.Value(self.registers["rsp"] - 64).cast(number),
                                                gdb.Value(pc & mask).cast(number)))
        for r, v in value.items():
            info.add_saved_register(r, v)
        return info


parked = Parked()
gdb.unwinder.register_unwinder(None, parked, replace=True)


class Filter:
    """Leaves the kernel thread's own frame out of backtraces."""

    def __init__(self):
        self.name, self.priority, self.enabled = "virtual threads", 100, True
        gdb.frame_filters[self.name] = self

    def filter(self, frames):
        first = parked.active()
        for f in frames:
            first = first and f.inferior_frame().pc() == parked.at[0]
            if not first:
                yield f


Filter()
gdb.events.cont.connect(lambda event: parked.hide())
gdb.events.exited.connect(lambda event: parked.hide())


def select(engine, x):
    if x.lwp:
        parked.hide()
        x.lwp.switch()
        frame = gdb.newest_frame()
    else:
        parked.show(x, x.registers(engine))
        frame = gdb.newest_frame()
        while frame is not None and frame.pc() == parked.at[0]:  # with what is inlined there
            frame = frame.older()
        if frame is None:
            parked.hide()
            raise gdb.GdbError("the stack of virtual thread %d cannot be read" % x.number)
    return frame


def outside(frame):
    """The innermost frame that is not the library's."""
    def library(f):
        name = gdb.solib_name(f.pc()) or ""
        return "libvthread" in name.rsplit("/", 1)[-1]

    first = frame
    while frame is not None and library(frame):
        frame = frame.older()
    return frame if frame is not None else first


# --- commands -----------------------------------------------------------------------------------------------------------


class InfoVthreads(gdb.Command):
    """List the virtual threads: number, id, name, and what each does."""

    def __init__(self):
        super().__init__("info vthreads", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        engine, symbols = Engine(), {}
        print("  %-6s %-10s %-16s %s" % ("Num", "Id", "Name", "State"))
        for x in engine.threads:
            mark = "*" if parked.active() and parked.number == x.number else " "
            print("%s %-6d %-10d %-16s %s" % (mark, x.number, x.tid, x.name, state(engine, x, symbols)))


class Vthread(gdb.Command):
    """Select a virtual thread: vthread N, by number or id as info vthreads has them.
Then backtrace, frame, up, down and info locals are of that thread. Frame 0 is that of a kernel thread, and the virtual
thread's follow. "vthread off" goes back to the kernel thread; so does continuing the program."""

    def __init__(self):
        super().__init__("vthread", gdb.COMMAND_RUNNING, prefix=True)

    def invoke(self, argument, from_tty):
        if argument == "off":
            parked.hide()
            return
        if not argument:
            print("virtual thread %d is selected" % parked.number if parked.active() else "none is selected")
            return
        engine = Engine()
        x = engine.find(argument)
        outside(select(engine, x)).select()
        print("[virtual thread %d, id %d \"%s\": %s]" % (x.number, x.tid, x.name, state(engine, x, {})))
        gdb.execute("frame")


class VthreadApply(gdb.Command):
    """Apply a command to virtual threads: vthread apply all COMMAND, or vthread apply N... COMMAND."""

    def __init__(self):
        super().__init__("vthread apply", gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        words = argument.split()
        engine, symbols, chosen = Engine(), {}, []
        if words and words[0] == "all":
            chosen, words = engine.threads, words[1:]
        while words and words[0].isdigit():
            chosen.append(engine.find(words.pop(0)))
        if not words or not chosen and "all" not in argument.split()[:1]:
            raise gdb.GdbError("usage: vthread apply all|N... COMMAND")
        before = gdb.selected_thread()
        try:
            for x in chosen:
                print("\nVirtual thread %d, id %d \"%s\": %s" % (x.number, x.tid, x.name, state(engine, x, symbols)))
                try:
                    select(engine, x).select()
                    gdb.execute(" ".join(words))
                except gdb.error as e:
                    print("%s" % e)
        finally:
            parked.hide()
            if before and before.is_valid():
                before.switch()


InfoVthreads()
Vthread()
VthreadApply()
