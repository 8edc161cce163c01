// The exported dlsym and dlvsym.
//
// glibc resolves RTLD_NEXT and RTLD_DEFAULT for the object that holds the return address (dlsym(3)), so
// the real function must be entered with the caller's own one: by a jump. That is why this is
// assembly: whether a compiler makes a tail call a jump depends on its flags. plexrl_decide_dlsym and
// plexrl_decide_dlvsym (lookup.cc) return, in rax and rdx, either a function to jump to (rdx 0), with
// the arguments as they came, or the result itself (rdx 1).

        .text

        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:                                  // rdi handle, rsi name
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp                // calls want rsp aligned to 16
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx          // the caller
        call    plexrl_decide_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testl   %edx, %edx
        jne     1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym

        .globl  dlvsym
        .type   dlvsym, @function
        .p2align 4
dlvsym:                                 // rdi handle, rsi name, rdx version
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rcx          // the caller
        call    plexrl_decide_dlvsym
        movl    %edx, %ecx
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testl   %ecx, %ecx
        jne     1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   dlvsym, . - dlvsym

        .hidden plexrl_decide_dlsym
        .hidden plexrl_decide_dlvsym
        .section .note.GNU-stack, "", @progbits
