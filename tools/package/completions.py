#!/usr/bin/env python3
"""Writes completions for bash and zsh from what the programs themselves print as --help.

  completions.py OUT PROGRAM…     OUT/bash/NAME and OUT/zsh/_NAME for each program (a path)

An option's values are completed where its help lists them ({a,b}), files where it wants a FILE or DIR, and jobs, as the node manager
names them, for JOB.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"^  (?P<names>-[^ ]+)(?: (?P<value>[A-Z][A-Z:\[\]]*[A-Z]?\S*)(?: REQUIRED| \.\.\.)*)?(?:  +(?P<help>.*))?$")
VERB = re.compile(r"^  (?P<name>[a-z][a-z-]*)(?:  +(?P<help>.*))?$")


@dataclasses.dataclass
class Option:
    names: list
    value: str | None  # as the help calls it; None: takes none
    choices: list
    help: str


@dataclasses.dataclass
class Command:
    options: list
    takes: str  # the first positional's name, "" without one
    verbs: dict  # name → (help, Command)


def help_of(words):
    return subprocess.run([*words, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def parse(words):
    options, verbs, takes, section = [], {}, "", ""
    for line in help_of(words).splitlines():
        if re.match(r"^[A-Za-z][A-Za-z ]*:$", line):
            section = line.rstrip(":").lower()
        elif line and not line.startswith(" "):
            section = section if line.startswith("-") else ""
        elif section == "positionals" and (found := re.match(r"^  ([A-Z]+)", line)):
            takes = takes or found[1]
        elif section == "subcommands" and (found := VERB.match(line)):
            verbs[found["name"]] = (found["help"] or "", parse([*words, found["name"]]))
        elif found := OPTION.match(line):
            choices = re.search(r"\{([^}]*)\}", found["value"] or "")
            options.append(Option(found["names"].rstrip(",").split(","), found["value"],
                                  choices[1].split(",") if choices else [], found["help"] or ""))
    return Command(options, takes, verbs)


JOBS = "plexrl-ctl jobs --json 2>/dev/null | grep -oE '^ {4,6}\"name\": *\"[^\"]*\"|[[{,] *\"name\": *\"[^\"]*\"' | sed 's/.*\"\\([^\"]*\\)\"$/\\1/'"


def value_words(option):
    """A shell command that prints the values of an option, for compgen."""
    if option.choices:
        return f'compgen -W "{" ".join(option.choices)}" -- "$current"'
    if re.search(r"FILE|PATH", option.value or ""):
        return 'compgen -f -- "$current"'
    if "DIR" in (option.value or ""):
        return 'compgen -d -- "$current"'
    return ":"


def bash_case(command, path):
    """What is completed once the words `path` are there, as arms of one case."""
    names = [name for option in command.options for name in option.names]
    lines = [f"    '{path}')", '      case $previous in']
    for option in command.options:
        if option.value:
            lines.append(f"        {'|'.join(option.names)}) {value_words(option)}; return ;;")
    lines += ["      esac", '      case $current in', f'        -*) compgen -W "{" ".join(names)}" -- "$current" ;;']
    if command.verbs:
        lines.append(f'        *) compgen -W "{" ".join(command.verbs)}" -- "$current" ;;')
    elif command.takes == "JOB":
        lines.append(f'        *) compgen -W "$({JOBS})" -- "$current" ;;')
    else:
        lines.append('        *) compgen -f -- "$current" ;;')
    lines += ["      esac ;;"]
    for name, (_, verb) in command.verbs.items():
        lines += bash_case(verb, f"{path} {name}".strip())
    return lines


def bash(name, command):
    verbs = sorted({verb for path in paths(command) for verb in path.split()})
    function = "_" + name.replace("-", "_")
    stop = """    [ "${COMP_WORDS[i]}" != -- ] || {
      COMPREPLY=($(compgen -c -- "$current"))
      return
    }
""" if name == "plexrl-run" else ""
    is_verb = f"case \" {' '.join(verbs)} \" in *\" ${{COMP_WORDS[i]}} \"*) path=\"${{path:+$path }}${{COMP_WORDS[i]}}\" ;; esac" if verbs else ":"
    return f"""# Completion of {name} for bash; made by tools/package/completions.py.
{function}_words() {{
  case $path in
{chr(10).join(bash_case(command, ''))}
  esac
}}

{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} path='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
{stop}    {is_verb}
  done
  mapfile -t COMPREPLY < <({function}_words)
}}

complete -o filenames -F {function} {name}
"""


def paths(command, path=""):
    for name, (_, verb) in command.verbs.items():
        yield f"{path} {name}".strip()
        yield from paths(verb, f"{path} {name}".strip())


def quoted(text):
    return text.replace("'", "’").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh_arguments(command, indent):
    lines = []
    for option in command.options:
        if option.choices:
            action = f":value:({' '.join(option.choices)})"
        elif re.search(r"FILE|PATH", option.value or ""):
            action = ":file:_files"
        elif "DIR" in (option.value or ""):
            action = ":folder:_files -/"
        else:
            action = ":value: " if option.value else ""
        for name in option.names:
            lines.append(f"'{name}[{quoted(option.help)}]{action}'")
    if command.takes == "JOB":
        lines.append("'1:job:_plexrl_jobs'")
    return (" \\\n" + indent).join(lines)


def zsh_body(command, depth):
    indent = "  " * depth
    if not command.verbs:
        return f"{indent}_arguments -S \\\n{indent}  {zsh_arguments(command, indent + '  ')}\n"
    described = " ".join(f"'{verb}:{quoted(text)}'" for verb, (text, _) in command.verbs.items())
    body = f"{indent}_arguments -C -S \\\n{indent}  {zsh_arguments(command, indent + '  ')} \\\n{indent}  '1: :->verb' '*:: :->rest'\n"
    body += f"{indent}case $state in\n{indent}  verb) local -a verbs=({described}); _describe verb verbs ;;\n{indent}  rest)\n{indent}    case $words[1] in\n"
    for verb, (_, below) in command.verbs.items():
        body += f"{indent}      {verb})\n{zsh_body(below, depth + 4)}{indent}        ;;\n"
    return body + f"{indent}    esac ;;\n{indent}esac\n"


def zsh(name, command):
    if name == "plexrl-run":
        body = f"  _arguments -S \\\n    {zsh_arguments(command, '    ')} \\\n    '*::command:_normal'\n"
    else:
        body = zsh_body(command, 1)
    return f"""#compdef {name}
# Completion of {name} for zsh; made by tools/package/completions.py.
_plexrl_jobs() {{
  local -a jobs=(${{(f)"$({JOBS})"}})
  compadd -a jobs
}}
_{name.replace('-', '_')}() {{
  local state
  local -a words_rest
{body}}}
_{name.replace('-', '_')} "$@"
"""


def main(out, programs):
    for made in ("bash", "zsh"):
        (out / made).mkdir(parents=True, exist_ok=True)
    for program in programs:
        name = pathlib.Path(program).name
        command = parse([program])
        (out / "bash" / name).write_text(bash(name, command), encoding="utf-8")
        (out / "zsh" / f"_{name}").write_text(zsh(name, command), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
