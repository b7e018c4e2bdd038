// SPDX-License-Identifier: MIT
// Completions: commands, options, and the values of options that have a list of them. Everything
// else is a file's name, in bash also the name of a model that ships.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "manuals/described_command.h"

namespace clearhead::manuals {
namespace {

void ForEach(const DescribedCommand& command,
             const std::function<void(const DescribedCommand&)>& visit) {
  visit(command);
  for (const DescribedCommand& inner : command.commands) ForEach(inner, visit);
}

std::vector<std::string> OptionNames(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedOption& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> CommandNames(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedCommand& inner : command.commands) names.push_back(inner.words.back());
  return names;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// In single quotes, for all three shells.
std::string Quoted(const std::string& text, std::string_view apostrophe) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string(apostrophe) : std::string(1, c);
  return out + "'";
}

// Brackets and colons end a description of zsh's.
std::string ZshText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string BashCompletion(const DescribedCommand& program) {
  std::string cases, values;
  ForEach(program, [&](const DescribedCommand& command) {
    cases += fmt::format(
        "    {:<18} words={} ;;\n",
        Quoted(fmt::format("{}", fmt::join(command.words, " ")), "") + ")",
        Quoted(fmt::format("{}", fmt::join(command.commands.empty() ? OptionNames(command)
                                                                    : CommandNames(command),
                                           " ")),
               ""));
    for (const DescribedOption& option : command.options) {
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names) {
        values += fmt::format("    '{} {}') words='{}' ;;\n", fmt::join(command.words, " "), name,
                              fmt::join(option.choices, " "));
      }
    }
  });
  return fmt::format(R"bash(# bash completion for clearhead, made from the words of --help
_clearhead() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command='' words='' i
  local models; models=$(dirname "$(command -v clearhead)")/../share/clearhead/models
  for ((i = 1; i < COMP_CWORD; i++)); do
    case $command in
      '' | {0}) [[ ${{COMP_WORDS[i]}} == -* ]] || command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command $previous" in
{1}  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  case $command in
{2}  esac
  case $command:$current in
    :* | {0}:* | *:-*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$current"; compgen -W "$(command ls "$models" 2>/dev/null)" -- "$current") ;;
  esac
}}
complete -o filenames -F _clearhead clearhead
)bash",
                     [&] {
                       std::vector<std::string> groups;
                       for (const DescribedCommand& inner : program.commands) {
                         if (!inner.commands.empty()) groups.push_back(inner.words.back());
                       }
                       return fmt::format("{}", fmt::join(groups, " | "));
                     }(),
                     values, cases);
}

std::string ZshCompletion(const DescribedCommand& program) {
  std::string functions;
  const auto function = [](const DescribedCommand& command) {
    return command.words.empty() ? std::string("_clearhead_program")
                                 : fmt::format("_clearhead_{}", fmt::join(command.words, "_"));
  };
  ForEach(program, [&](const DescribedCommand& command) {
    std::string body;
    if (!command.commands.empty()) {
      std::string list, cases;
      for (const DescribedCommand& inner : command.commands) {
        list += fmt::format(
            "    {}\n",
            Quoted(inner.words.back() + ":" + ZshText(FirstLine(inner.description)), "'\\''"));
        cases += fmt::format("    {}) {} ;;\n", inner.words.back(), function(inner));
      }
      body = fmt::format(
          "  local line state\n  local -a commands=(\n{}  )\n"
          "  _arguments -C '--help[Print this help]' '1:command:->command' '*::rest:->rest'\n"
          "  case $state in\n  command) _describe command commands ;;\n  rest) case $line[1] in\n"
          "{}  esac ;;\n  esac\n",
          list, cases);
    } else {
      body = "  _arguments \\\n";
      for (const DescribedOption& option : command.options) {
        for (const std::string& name : option.names) {
          std::string action;
          if (!option.argument.empty() && !option.choices.empty()) {
            action = fmt::format(":value:({})", fmt::join(option.choices, " "));
          } else if (!option.argument.empty()) {
            action = ":value:_files";
          }
          body += fmt::format("    {} \\\n",
                              Quoted(fmt::format("{}{}[{}]{}", option.repeats ? "*" : "", name,
                                                 ZshText(FirstLine(option.help)), action),
                                     "'\\''"));
        }
      }
      body += "    '*:model or file:_files'\n";
    }
    functions += fmt::format("{}() {{\n{}}}\n\n", function(command), body);
  });
  return fmt::format(
      "#compdef clearhead\n# zsh completion for clearhead, made from the words of --help\n\n{}"
      "_clearhead_program \"$@\"\n",
      functions);
}

std::string FishCompletion(const DescribedCommand& program) {
  std::string lines;
  ForEach(program, [&](const DescribedCommand& command) {
    std::string when;
    for (const std::string& word : command.words) {
      when += fmt::format("{}__fish_seen_subcommand_from {}", when.empty() ? "" : "; and ", word);
    }
    if (!command.commands.empty()) {
      const std::string here = command.words.empty()
                                   ? std::string("__fish_use_subcommand")
                                   : fmt::format("{}; and not __fish_seen_subcommand_from {}", when,
                                                 fmt::join(CommandNames(command), " "));
      for (const DescribedCommand& inner : command.commands) {
        lines += fmt::format("complete -c clearhead -f -n '{}' -a {} -d {}\n", here,
                             inner.words.back(), Quoted(FirstLine(inner.description), "\\'"));
      }
      return;
    }
    for (const DescribedOption& option : command.options) {
      for (const std::string& name : option.names) {
        if (!name.starts_with("--")) continue;
        std::string argument;
        if (!option.choices.empty()) {
          argument = fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
        } else if (!option.argument.empty()) {
          argument = " -r";
        }
        lines += fmt::format("complete -c clearhead -n '{}' -l {}{} -d {}\n", when, name.substr(2),
                             argument, Quoted(FirstLine(option.help), "\\'"));
      }
    }
  });
  return "# fish completion for clearhead, made from the words of --help\n" + lines;
}

}  // namespace clearhead::manuals
