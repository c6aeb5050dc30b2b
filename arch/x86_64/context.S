/*
 * The context switch for x86-64.
 *
 * Both stacks have the same frame at the instruction that exchanges them, so one set of call frame information is right
 * before and after it, and a debugger or profiler that stops at any instruction unwinds the context whose stack it is.
 * While the registers are loaded back, their rules keep saying "in the frame", which stays true.
 */
#include "frame.h"

#define ARCH_SET_FS     0x1002
#define NR_ARCH_PRCTL   158

/* rdi: save, rsi: load, rdx: thread pointer. */
.macro SWITCH name, set_tp
    .globl  \name
    .hidden \name
    .type   \name, @function
    .p2align 6
\name:
    .cfi_startproc
    leaq    -VT_FRAME_RIP(%rsp), %rsp
    .cfi_def_cfa_offset VT_FRAME_SIZE
    stmxcsr VT_FRAME_MXCSR(%rsp)
    fnstcw  VT_FRAME_FCW(%rsp)
    fnstsw  %ax
    movq    %r15, VT_FRAME_R15(%rsp)
    .cfi_rel_offset %r15, VT_FRAME_R15
    movq    %r14, VT_FRAME_R14(%rsp)
    .cfi_rel_offset %r14, VT_FRAME_R14
    movq    %r13, VT_FRAME_R13(%rsp)
    .cfi_rel_offset %r13, VT_FRAME_R13
    movq    %r12, VT_FRAME_R12(%rsp)
    .cfi_rel_offset %r12, VT_FRAME_R12
    movq    %rbx, VT_FRAME_RBX(%rsp)
    .cfi_rel_offset %rbx, VT_FRAME_RBX
    movq    %rbp, VT_FRAME_RBP(%rsp)
    .cfi_rel_offset %rbp, VT_FRAME_RBP
    movl    VT_FRAME_MXCSR(%rsp), %r8d
    movzwl  VT_FRAME_FCW(%rsp), %r9d
    andl    $VT_FSW_FLAGS, %eax
    shll    $16, %eax
    orl     %eax, %r9d
    /* Both halves in one store, so that an early switch back can forward it to its one load. */
    movl    %r9d, VT_FRAME_FCW(%rsp)

    movq    %rsp, (%rdi)
    movq    (%rsi), %rsp

    \set_tp

    movq    VT_FRAME_R15(%rsp), %r15
    movq    VT_FRAME_R14(%rsp), %r14
    movq    VT_FRAME_R13(%rsp), %r13
    movq    VT_FRAME_R12(%rsp), %r12
    movq    VT_FRAME_RBX(%rsp), %rbx
    movq    VT_FRAME_RBP(%rsp), %rbp
    /* Writing these is slow and they are nearly always the same. */
    cmpl    VT_FRAME_MXCSR(%rsp), %r8d
    jne     2f
1:  cmpl    VT_FRAME_FCW(%rsp), %r9d
    jne     3f
4:  movq    VT_FRAME_RIP(%rsp), %rcx
    .cfi_remember_state
    leaq    VT_FRAME_SIZE(%rsp), %rsp
    .cfi_def_cfa_offset 0
    .cfi_register %rip, %rcx
    .cfi_same_value %r15
    .cfi_same_value %r14
    .cfi_same_value %r13
    .cfi_same_value %r12
    .cfi_same_value %rbx
    .cfi_same_value %rbp
    /* Not ret: the return-address predictor has the other context's calls on it. */
    jmp     *%rcx
    .cfi_restore_state

2:  ldmxcsr VT_FRAME_MXCSR(%rsp)
    jmp     1b

    /*
     * Exception flags can only be set by loading the whole x87 environment, 28 bytes, built here in the red zone. The
     * register stack is empty at a call (psABI), so nothing else in the environment differs.
     */
3:  fnstenv -32(%rsp)
    movzwl  VT_FRAME_FCW(%rsp), %eax
    movw    %ax, -32(%rsp)
    movzwl  VT_FRAME_FSW(%rsp), %eax
    andw    $~VT_FSW_FLAGS, -28(%rsp)
    orw     %ax, -28(%rsp)
    fldenv  -32(%rsp)
    jmp     4b
    .cfi_endproc
    .size   \name, . - \name
.endm

.macro SET_TP_FSGSBASE
    wrfsbase %rdx
.endm

/* The word at the thread pointer is its own address. The system call clobbers rax, rcx and r11 only, and cannot fail: the
 * address is a user-space one. */
.macro SET_TP_PRCTL
    cmpq    %fs:0, %rdx
    je      5f
    movl    $NR_ARCH_PRCTL, %eax
    movl    $ARCH_SET_FS, %edi
    movq    %rdx, %rsi
    syscall
5:
.endm

    .text
    SWITCH vt_x86_switch_fsgsbase, SET_TP_FSGSBASE
    SWITCH vt_x86_switch_prctl, SET_TP_PRCTL

/*
 * Where a new context begins: r12 is the function, r13 its argument, rsp is aligned to 16. The return address is
 * undefined, which is how call frame information says "outermost frame". The FDE begins one instruction early, because
 * unwinders look up return addresses less one, and the address of vt_x86_start is the return address of a context that
 * has not run yet.
 */
    .p2align 4
    .cfi_startproc
    .cfi_undefined %rip
    .cfi_def_cfa %rsp, 8
    nop
    .globl  vt_x86_start
    .hidden vt_x86_start
    .type   vt_x86_start, @function
vt_x86_start:
    movq    %r13, %rdi
    call    *%r12
    ud2
    .cfi_endproc
    .size   vt_x86_start, . - vt_x86_start

    .section .note.GNU-stack, "", @progbits
