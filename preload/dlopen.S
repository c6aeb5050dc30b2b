/* void *dlopen(const char *file, int mode)
 *
 * libc's dlopen looks at its return address: the caller's RUNPATH and namespace decide what a name means. So it is entered
 * by a jump, with the caller's return address in place, unless vt_dlopen (module.c) has done the work. */
    .text
    .globl dlopen
    .type dlopen, @function
dlopen:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $24, %rsp
    .cfi_adjust_cfa_offset 24
    movq 40(%rsp), %rdx /* who calls */
    leaq 8(%rsp), %rcx  /* the result, if any */
    call vt_dlopen
    testl %eax, %eax
    jz 1f
    movq 8(%rsp), %rax
    addq $40, %rsp
    .cfi_adjust_cfa_offset -40
    ret
    .cfi_adjust_cfa_offset 40
1:  call vt_dlopen_real
    movq %rax, %r11
    addq $24, %rsp
    .cfi_adjust_cfa_offset -24
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    .cfi_endproc
    .size dlopen, . - dlopen
    .section .note.GNU-stack, "", @progbits
