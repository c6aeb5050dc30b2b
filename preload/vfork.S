/* pid_t vfork(void)
 *
 * It returns twice on one stack, and what the child writes there the parent finds: so the return address waits in a
 * register, as libc has it, which the kernel keeps for each of the two (sysdeps/unix/sysv/linux/x86_64/vfork.S). */
    .text
    .globl vfork
    .type vfork, @function
    .globl __vfork
    .type __vfork, @function
vfork:
__vfork:
    .cfi_startproc
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call vt_vfork_begin
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    .cfi_register %rip, %rdi
    movl $58, %eax /* SYS_vfork */
    syscall
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rip, 0
    testq %rax, %rax
    jz 1f
    movq %rax, %rdi
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call vt_vfork_end
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
1:  ret
    .cfi_endproc
    .size vfork, . - vfork
    .size __vfork, . - __vfork
    .section .note.GNU-stack, "", @progbits
