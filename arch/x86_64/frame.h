/* The frame that a parked x86-64 context's `sp` points at; shared by context.S and arch.c. */
#ifndef VT_ARCH_X86_64_FRAME_H
#define VT_ARCH_X86_64_FRAME_H

#define VT_FRAME_MXCSR 0 /* 4 bytes */
#define VT_FRAME_FCW   4 /* 2 bytes: x87 control word */
#define VT_FRAME_FSW   6 /* 2 bytes: x87 exception flags */
#define VT_FRAME_R15   8
#define VT_FRAME_R14   16
#define VT_FRAME_R13   24
#define VT_FRAME_R12   32
#define VT_FRAME_RBX   40
#define VT_FRAME_RBP   48
#define VT_FRAME_RIP   56
#define VT_FRAME_SIZE  64 /* sp + this is the stack pointer after the switch has returned: the frame's CFA */

#define VT_FSW_FLAGS 0x3f /* IE DE ZE OE UE PE of the x87 status word */

#endif
