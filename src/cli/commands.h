// SPDX-License-Identifier: MIT
// One function per command; each sits in its own file: parse, call the library, print.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace clearhead {
struct SparsifyProgress;
}

namespace clearhead::cli {

// Sees every validation of a run of sparsify.
using SparsifyWatch = std::function<void(const SparsifyProgress&)>;

// All of them, in the order of the help.
void AddCommands(CLI::App& app);

void AddInfo(CLI::App& app);
void AddTokenize(CLI::App& app);
void AddCapture(CLI::App& app);
void AddEval(CLI::App& app);
void AddCompare(CLI::App& app);
void AddGenerate(CLI::App& app);
void AddWrite(CLI::App& app);
void AddTrain(CLI::App& app);
void AddSparsify(CLI::App& app, SparsifyWatch watch = {});
void AddFrontier(CLI::App& app);
void AddConvert(CLI::App& app);
void AddDemo(CLI::App& app);
void AddBench(CLI::App& app);
void AddAttention(CLI::App& app);
void AddTasks(CLI::App& app);
void AddCircuit(CLI::App& app);
void AddGrid(CLI::App& app);
void AddHeads(CLI::App& app);
void AddScatter(CLI::App& app);
void AddLens(CLI::App& app);
void AddKnockout(CLI::App& app);
void AddSteer(CLI::App& app);
void AddServe(CLI::App& app);
void AddReport(CLI::App& app);
void AddTrace(CLI::App& app);
void AddCarriers(CLI::App& app);

// `features` stands in front of commands of its own; these are they.
void AddFeatures(CLI::App& app);
void AddFeaturesTrain(CLI::App& features);
void AddFeaturesEval(CLI::App& features);
void AddFeaturesIndex(CLI::App& features);
void AddFeaturesShow(CLI::App& features);

}  // namespace clearhead::cli
