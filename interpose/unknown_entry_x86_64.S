// The stand-ins of unknown_entry.h: 256 entry points of 16 bytes. Each knows its number only.
//
// A stand-in is entered like the function it stands for, whose signature nobody here knows. So it
// keeps every register that may carry an argument (System V ABI for x86-64, section 3.2.3: rdi, rsi,
// rdx, rcx, r8, r9, rax for the count of vector registers, xmm0 to xmm7), leaves the stack as it was,
// and uses r11 only, which no call has a claim on.

        .text

        .globl  plexrl_unknown_stand_ins
        .hidden plexrl_unknown_stand_ins
        .type   plexrl_unknown_stand_ins, @function
        .p2align 4
plexrl_unknown_stand_ins:
        .set    number, 0
        .rept   256
        .p2align 4
        endbr64
        movl    $number, %r11d
        jmp     go_on
        .set    number, number + 1
        .endr
        .size   plexrl_unknown_stand_ins, . - plexrl_unknown_stand_ins

        .type   go_on, @function
        .p2align 4
go_on:
        .cfi_startproc
        shlq    $7, %r11                        // sizeof(Slot)
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        leaq    plexrl_unknown_slots(%rip), %rax
        addq    %rax, %r11
        popq    %rax
        .cfi_adjust_cfa_offset -8
        cmpb    $0, 8(%r11)                     // Slot::is_told
        je      tell
        jmp     *(%r11)                         // Slot::function

tell:
        pushq   %r11
        .cfi_adjust_cfa_offset 8
        pushq   %rax
        .cfi_adjust_cfa_offset 8
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        subq    $136, %rsp                      // xmm0 to xmm7, and rsp aligned to 16
        .cfi_adjust_cfa_offset 136
        movups  %xmm0, (%rsp)
        movups  %xmm1, 16(%rsp)
        movups  %xmm2, 32(%rsp)
        movups  %xmm3, 48(%rsp)
        movups  %xmm4, 64(%rsp)
        movups  %xmm5, 80(%rsp)
        movups  %xmm6, 96(%rsp)
        movups  %xmm7, 112(%rsp)
        movq    %r11, %rdi
        call    plexrl_unknown_called
        movups  (%rsp), %xmm0
        movups  16(%rsp), %xmm1
        movups  32(%rsp), %xmm2
        movups  48(%rsp), %xmm3
        movups  64(%rsp), %xmm4
        movups  80(%rsp), %xmm5
        movups  96(%rsp), %xmm6
        movups  112(%rsp), %xmm7
        addq    $136, %rsp
        .cfi_adjust_cfa_offset -136
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        popq    %rax
        .cfi_adjust_cfa_offset -8
        popq    %r11
        .cfi_adjust_cfa_offset -8
        jmp     *(%r11)
        .cfi_endproc
        .size   go_on, . - go_on

        .hidden plexrl_unknown_slots
        .hidden plexrl_unknown_called
        .section .note.GNU-stack, "", @progbits
