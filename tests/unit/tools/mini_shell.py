"""mini_shell.py [--ignore=SIGNAL,...] COMMAND...: plays a shell with job control, and the person in front of it, for
plexrl_run_test.py.

The command runs in the foreground process group of a new pseudo-terminal. When it says "ready" the person types Ctrl-Z;
the shell sees it stopped and puts it back in front; when it says "SIGCONT" the person types Ctrl-C, then Ctrl-\\. What the
person reads on the terminal goes to stdout. As with any shell, the command finds all signals unblocked and at their
default, except those that --ignore names.
"""

import os
import pty
import signal
import sys
import termios

TYPED = {"ready": b"\x1a", "SIGCONT": b"\x03", "SIGINT": b"\x1c"}


def main():
    arguments = sys.argv[1:]
    ignored = []
    if arguments[0].startswith("--ignore="):
        ignored = [signal.Signals[name] for name in arguments.pop(0).removeprefix("--ignore=").split(",")]
    for number in (0, 1, 2):  # what was closed must not become the terminal
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)
    forget_inherited_signals()
    shell, terminal = pty.fork()
    if shell == 0:
        os._exit(be_shell(arguments, ignored))
    pending = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # nobody has the other side any more
            break
        pending += data
        *lines, pending = pending.split(b"\n")
        for line in lines:
            word = line.decode().strip()
            print(word, flush=True)
            if word in TYPED:
                os.write(terminal, TYPED[word])
    os.waitpid(shell, 0)


def forget_inherited_signals():
    """Who ignored or blocked them was not this shell, and a shell that ignores SIGCHLD never learns how its job ended."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) in (signal.SIG_IGN, signal.default_int_handler):
            signal.signal(number, signal.SIG_DFL)


def be_shell(command, ignored):
    # No echo: the key's own "^C" could come between a word of the job and its end of line. And a terminal throws away
    # output that was not read yet when a signal key is typed, unless told not to (termios(3)).
    settings = termios.tcgetattr(0)
    settings[3] |= termios.NOFLSH
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, settings)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        os.execvp(command[0], command)
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            print("shell: stopped", flush=True)
            os.tcsetpgrp(0, job)
            os.killpg(job, signal.SIGCONT)
        else:
            print("shell: exited", os.waitstatus_to_exitcode(status), flush=True)
            return 0


if __name__ == "__main__":
    main()
