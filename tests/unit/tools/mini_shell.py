"""mini_shell.py COMMAND...: plays a shell with job control, and the person in front of it, for plexrl_run_test.py.

The command runs in the foreground process group of a new pseudo-terminal. When it says "ready" the person types Ctrl-Z;
the shell sees it stopped and puts it back in front; when it says "SIGCONT" the person types Ctrl-C, then Ctrl-\\. What the
person reads on the terminal goes to stdout, without the echo of the keys.
"""

import os
import pty
import signal
import sys
import termios

TYPED = {"ready": b"\x1a", "SIGCONT": b"\x03", "SIGINT": b"\x1c"}


def main():
    shell, terminal = pty.fork()
    if shell == 0:
        os._exit(be_shell(sys.argv[1:]))
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
            while word.startswith("^"):
                word = word[2:]
            print(word, flush=True)
            if word in TYPED:
                os.write(terminal, TYPED[word])
    os.waitpid(shell, 0)


def be_shell(command):
    # A terminal throws away output that was not read yet when a signal key is typed, unless told not to (termios(3)).
    settings = termios.tcgetattr(0)
    settings[3] |= termios.NOFLSH
    termios.tcsetattr(0, termios.TCSANOW, settings)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
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
