"""Completion for bash, zsh and fish, without any library of theirs."""
import re


def function_of(command):
    return "_" + re.sub(r"[^a-z]", "_", command.name)


def value_options(program):
    """Of all commands: each option that takes a value, once."""
    seen = {}
    for command in [program, *program.commands]:
        for option in command.options:
            if option.takes_value:
                seen.setdefault("|".join(option.names), option)
    return list(seen.values())


# ---- bash

def bash_value_case(option):
    pattern = "|".join(option.names)
    reply = {"words": f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.choices)}" -- "$typed")',
             "files": '_FUNCTION_files -f', "directories": '_FUNCTION_files -d', "": ":"}[option.completes]
    return f"    {pattern}) {reply}; return ;;\n"


def bash_command_case(program, command):
    words = [name for option in command.options for name in option.names]
    if command is not program:
        words += [name for option in program.options for name in option.names if name not in words]
    words += [one.last_name for one in program.inside(command)]
    words += [word for argument in command.arguments for word in argument.choices]
    files = any(argument.completes == "files" for argument in command.arguments)
    return f'    "{command.name}") words="{" ".join(words)}"{" files=1" if files else ""} ;;\n'


def bash(program):
    function = function_of(program)
    values = value_options(program)
    with_value = "|".join(name for option in values for name in option.names)
    commands = " | ".join(f'"{command.name}"' for command in program.commands)
    text = f"""# Completion of {program.name} for bash; made from its options.
{function}_files() {{
  compopt -o filenames 2> /dev/null
  mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen "$1" -- "$typed")
}}
{function}() {{
  local typed=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command={program.name} words="" files="" i
  COMPREPLY=()
"""
    if program.runs_another:
        text += f"""  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      {with_value}) ((++i)) ;;
      =) ((++i)) ;;
      -*) ;;
      *)
        if declare -F _command_offset > /dev/null; then _command_offset "$i"; else {function}_files -f; fi
        return
        ;;
    esac
  done
"""
    elif commands:
        text += f"""  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {commands}) command+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
"""
    text += '  case "$before" in\n' + "".join(bash_value_case(option) for option in values) + "  esac\n"
    text += '  case "$command" in\n'
    text += "".join(bash_command_case(program, command) for command in [program, *program.commands]) + "  esac\n"
    text += '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$typed")\n'
    if program.runs_another:
        text += f"  [[ $typed == -* ]] || {{ {function}_files -c; {function}_files -f; }}\n"
    text += f"  [[ -z $files || $typed == -* ]] || {function}_files -f\n}}\n"
    return text.replace("_FUNCTION", function) + f"complete -F {function} {program.name}\n"


# ---- zsh

def zsh_text(text):
    """The first sentence, as it may stand in a specification within single quotes."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_action(option):
    return {"words": f"({' '.join(option.choices)})", "files": "_files", "directories": "_files -/",
            "": " "}[option.completes]


def zsh_specification(option):
    value = f":{zsh_text(option.type)}:{zsh_action(option)}" if option.takes_value else ""
    equals = "=" if option.takes_value else ""
    if option.type and not option.takes_value:
        value, equals = f"::{zsh_text(option.names[0])}:{zsh_action(option)}", "=-"
    specifications = [f"'{name}{equals if name.startswith('--') else ''}[{zsh_text(option.text)}]{value}'"
                      for name in option.names]
    return " ".join(specifications)


def zsh_function(program, command):
    options = command.options + ([] if command is program else
                                 [option for option in program.options if "--help" not in option.names])
    inside = program.inside(command)
    lines = [f"{function_of(command)}() {{", "  local context state state_descr line", "  typeset -A opt_args",
             "  _arguments -C \\"]
    lines += [f"    {zsh_specification(option)} \\" for option in options]
    if inside:
        lines += ["    '1:command:->command' '*::argument:->rest'", "  case $state in", "    command)", "      local -a commands=("]
        lines += [f"        '{one.last_name}:{zsh_text(one.text)}'" for one in inside]
        lines += ["      )", "      _describe command commands ;;", "    rest)", "      case $words[1] in"]
        lines += [f"        {one.last_name}) {function_of(one)} ;;" for one in inside]
        lines += ["      esac ;;", "  esac"]
    elif program.runs_another:
        lines += ["    '(-)1:program:_command_names -e' '*::argument:_normal'"]
    else:
        lines += [f"    '{number}:{argument.names[0]}:{zsh_action(argument)}' \\"
                  for number, argument in enumerate(command.arguments, 1)]
        lines += ["    && return"]
    return "\n".join(lines) + "\n}\n"


def zsh(program):
    functions = "".join(zsh_function(program, command) for command in [*program.commands, program])
    return f"#compdef {program.name}\n# Completion of {program.name} for zsh; made from its options.\n" \
           f'{functions}{function_of(program)} "$@"\n'


# ---- fish

def fish_quoted(text):
    return "'" + re.sub(r"\s+", " ", text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_option(program, option, condition):
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = {"words": f" -x -a {fish_quoted(' '.join(option.choices))}", "files": " -r -F",
             "directories": " -x -a '(__fish_complete_directories)'", "": " -x"}[option.completes] if option.takes_value else ""
    return f"complete -c {program.name}{condition} {names}{value} -d {fish_quoted(option.text)}\n"


def fish_condition(program, command):
    """While `command` is the innermost one that was typed."""
    typed = [f"__fish_seen_subcommand_from {word}" for word in command.name.split()[1:]]
    further = [one.last_name for one in program.inside(command)]
    if further:
        typed.append(f"not __fish_seen_subcommand_from {' '.join(further)}")
    return f" -n {fish_quoted('; and '.join(typed))}" if typed else ""


def fish(program):
    text = f"# Completion of {program.name} for fish; made from its options.\n"
    if program.runs_another:
        text += f"complete -c {program.name} -x -a '(__fish_complete_subcommand)'\n"
    elif program.commands:
        text += f"complete -c {program.name} -f\n"
    for option in program.options:
        text += fish_option(program, option, "")
    for command in [program, *program.commands]:
        condition = fish_condition(program, command)
        for one in program.inside(command):
            text += f"complete -c {program.name}{condition} -a {one.last_name} -d {fish_quoted(one.text)}\n"
        if command is program:
            continue
        for option in command.options:
            if "--help" not in option.names:
                text += fish_option(program, option, condition)
        for argument in command.arguments:
            if argument.completes == "words":
                text += f"complete -c {program.name}{condition} -a {fish_quoted(' '.join(argument.choices))}\n"
            elif argument.completes == "files":
                text += f"complete -c {program.name}{condition} -F\n"
    return text
