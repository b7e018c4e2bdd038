// SPDX-License-Identifier: MIT
// Results as JSON; docs/formats.md is the schema.
#pragma once

#include "core/json.h"
#include "heads/composition.h"
#include "heads/correlation.h"
#include "heads/head_comparison.h"
#include "heads/head_report.h"

namespace clearhead {

Json ToJson(const HeadResult& head);
Json ToJson(const ModelReport& report, const std::vector<const HeadResult*>& shown);
Json ToJson(const ModelComparison& comparison);
Json ToJson(const Composition& composition);
Json CompositionChange(const Composition& before, const Composition& after);
Json ToJson(const ScatterSection& section);
Json ToJson(const CorrelationMatrix& matrix);

// A header line and one line per head; numbers as in the JSON.
std::string HeadCsvHeader();
std::string HeadCsvLine(const std::string& label, const HeadResult& head);

}  // namespace clearhead
