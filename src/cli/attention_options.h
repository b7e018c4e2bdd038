// SPDX-License-Identifier: MIT
// Attention from anywhere, for the commands that look at heads: models with an input to run them
// on, or files with attention in them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/gate_options.h"
#include "heads/attention_source.h"

namespace clearhead::cli {

struct AttentionOptions {
  std::vector<std::string> models, files, labels;
  InputOptions input;
  std::string text, task;
  std::int64_t context = 0, tokens = 0, items = 20;
  Option* text_option = nullptr;
  Option* task_option = nullptr;
  GateFlags gates;

  void Add(Command* command);
};

// What a figure of heads shows, and where it goes.
struct HeadFigureOptions {
  std::string out;
  std::vector<std::string> heads;  // as given: none, one list for all sources, or one for each
  std::size_t sequence = 0;

  // `heads_default`: the words for it in the help.
  void Add(Command* command, const std::string& heads_default);
};

struct OpenedSource {
  AttentionSource attention;
  std::optional<Model> model;  // none for a file
};

// The models in the order given, then the files. Refuses fewer than one source and more than
// `most`.
std::vector<OpenedSource> OpenSources(const AttentionOptions& options, std::uint64_t seed,
                                      std::size_t most);

// An option that may be given once for all sources or once for each.
const std::string& ForSource(const std::vector<std::string>& values, std::size_t source,
                             std::size_t sources, const char* option);

// The heads that --heads asks for. top:N analyses the first sequence of the source.
std::vector<HeadId> ChooseHeads(const AttentionSource& source, const std::string& list);

// The sequence to draw of each source. Refuses a number beyond the last.
void CheckSequence(const std::vector<OpenedSource>& sources, std::size_t sequence);

}  // namespace clearhead::cli
