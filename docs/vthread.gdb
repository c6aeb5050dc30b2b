# Virtual threads in gdb, of a process that it is attached to (x86-64; the library's debug information is needed; in a core
# file only vt-threads works):
#
#     gdb -p PID -x docs/vthread.gdb
#     vt-threads          lists the living virtual threads
#     vt-bt THREAD        the stack of a parked one, by the address that vt-threads gives
#     vt-bt-all           of all that are parked
#
# vt-bt changes the registers of the selected kernel thread and puts them back: do not interrupt it. Choose a kernel thread
# that sleeps in the scheduler or in a system call (thread N).

define vt-threads
  set $vt_i = 0
  while $vt_i < 'life.c'::pool.used
    set $vt_p = &'life.c'::pool.chunk[$vt_i / 1024][$vt_i % 1024]
    if $vt_p->alive && $vt_p->kind == 1
      printf "%p id %u %-15s ", $vt_p, $vt_p->tid, $vt_p->name
      if $vt_p->token == 2
        printf "parked, on %p\n", $vt_p->wait_on
      else
        if $vt_p->carrier && $vt_p->carrier->mounted == $vt_p
          printf "runs on LWP %d", $vt_p->carrier->tid
          if $vt_p->wait_what
            printf ", blocked in %s", $vt_p->wait_what
          end
          printf "\n"
        else
          printf "runnable\n"
        end
      end
    end
    set $vt_i = $vt_i + 1
  end
end
document vt-threads
List the living virtual threads.
end

define vt-bt
  set $vt_t = (struct vt_thread *)$arg0
  set $vt_f = (unsigned long *)$vt_t->ctx.sp
  set $vt_rip = $rip
  set $vt_rsp = $rsp
  set $vt_rbp = $rbp
  set $vt_rbx = $rbx
  set $vt_r12 = $r12
  set $vt_r13 = $r13
  set $vt_r14 = $r14
  set $vt_r15 = $r15
  set $r15 = $vt_f[1]
  set $r14 = $vt_f[2]
  set $r13 = $vt_f[3]
  set $r12 = $vt_f[4]
  set $rbx = $vt_f[5]
  set $rbp = $vt_f[6]
  set $rip = $vt_f[7]
  set $rsp = $vt_f + 8
  backtrace
  set $rip = $vt_rip
  set $rsp = $vt_rsp
  set $rbp = $vt_rbp
  set $rbx = $vt_rbx
  set $r12 = $vt_r12
  set $r13 = $vt_r13
  set $r14 = $vt_r14
  set $r15 = $vt_r15
end
document vt-bt
The stack of a parked virtual thread: vt-bt THREAD
end

define vt-bt-all
  set $vt_i = 0
  while $vt_i < 'life.c'::pool.used
    set $vt_p = &'life.c'::pool.chunk[$vt_i / 1024][$vt_i % 1024]
    if $vt_p->alive && $vt_p->kind == 1 && $vt_p->token == 2
      printf "\nVirtual thread %p id %u %s, parked on %p\n", $vt_p, $vt_p->tid, $vt_p->name, $vt_p->wait_on
      vt-bt $vt_p
    end
    set $vt_i = $vt_i + 1
  end
end
document vt-bt-all
The stacks of all virtual threads that are parked.
end
