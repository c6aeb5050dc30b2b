/* What the compiler calls where a frame of ours is unwound (cleanup attributes). Ours, and hidden, so that the library needs
 * no libgcc_s at load time and adds nothing of the unwinder to the program's symbols; the work is done by the libgcc_s that is
 * there whenever something unwinds (unwind.c). Entered by a jump: libgcc looks at its caller. */
    .text
    .globl _Unwind_Resume
    .hidden _Unwind_Resume
    .type _Unwind_Resume, @function
_Unwind_Resume:
    .cfi_startproc
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    call vt_unwind_resume
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
    .size _Unwind_Resume, . - _Unwind_Resume
    .section .note.GNU-stack, "", @progbits
