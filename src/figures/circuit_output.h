// SPDX-License-Identifier: MIT
// What `clearhead circuit` shows and writes, from the reports of one task.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "circuits/circuit_json.h"

namespace clearhead {

// circuit.json, graph.json, curve-*.svg, heads.svg, edges.svg, table.md. With several models the
// files of each carry its name: circuit-<model>.json beside a circuit.json with all of them.
void WriteCircuitFiles(std::span<const CircuitReport> reports, const std::filesystem::path& folder);

// The file with one model's circuit, of `models` that were searched.
std::string CircuitFileName(std::size_t models, std::string_view model);

// circuit.json's content.
Json CircuitsJson(std::span<const CircuitReport> reports);

// For a terminal: settings, sizes, the most important heads.
std::string CircuitText(std::span<const CircuitReport> reports);

// For a document: settings, one row per task and model, and in words who needs fewer. Reports of
// any number of tasks, models in one order in each.
std::string CircuitMarkdown(std::span<const CircuitReport> reports, const std::string& command);

// Puts `text` between two marks in the file, in place of what was between them, or at its end.
void ReplaceSection(const std::filesystem::path& file, const std::string& text);

}  // namespace clearhead
