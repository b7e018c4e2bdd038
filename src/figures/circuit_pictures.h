// SPDX-License-Identifier: MIT
// Circuits as figures.
#pragma once

#include <span>

#include "circuits/find_circuit.h"
#include "figures/circuit_curve.h"
#include "figures/circuit_diagram.h"

namespace clearhead {

// Faithfulness over size, all models of one task in one chart.
CircuitCurveFigure CurveFigure(std::span<const CircuitReport> reports, bool edges);

// The heads that reach 90 %, with the strongest direct edges between them.
CircuitDiagram HeadDiagram(const CircuitReport& report);

// The circuit of edges that reaches 90 %.
CircuitDiagram EdgeDiagram(const CircuitReport& report);

}  // namespace clearhead
