//===- Pareto.cpp - Time against peak ---------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Solves the problem under limits between the lowest and the highest useful peak, and keeps the answers that no other
// one dominates.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Pareto.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Solves for single limits and collects the points.
class CurveSolver {
public:
  CurveSolver(const Problem &problem, const ScheduleOptions &options) : problem(problem), options(options) {}

  /// Solves for `limits` and keeps the answers, in their order.
  void solve(llvm::ArrayRef<Bytes> limits, ParallelFor parallelFor) {
    std::vector<Schedule> results(limits.size());
    parallelFor(limits.size(), [&](size_t index) {
      ScheduleOptions limited = options;
      limited.memory.limit = limits[index];
      results[index] = schedule(problem, limited);
    });
    for (const Schedule &result : results)
      take(result);
  }

  std::vector<ParetoPoint> points;
  ParetoCurve curve;

private:
  void take(const Schedule &result) {
    int32_t collectives = static_cast<int32_t>(
        llvm::count_if(problem.nodes, [](const Node &node) { return node.kind == NodeKind::Start; }));
    curve.input = {result.inputPeak, result.inputMakespan, collectives};
    for (const Bucket &bucket : result.buckets)
      collectives -= static_cast<int32_t>(bucket.members.size()) - 1;
    points.push_back({result.peak, result.makespan, collectives});
    ++curve.limits;
    curve.steps += result.steps;
    if (curve.defect.empty())
      curve.defect = result.defect;
  }

  const Problem &problem;
  const ScheduleOptions &options;
};

/// Appends `count` limits strictly between `low` and `high`, evenly spaced; fewer if the range is too small.
void spread(Bytes low, Bytes high, int32_t count, std::vector<Bytes> &limits) {
  Bytes last = low;
  for (int32_t step = 1; step <= count; ++step)
    if (Bytes limit = low + mulDiv(high - low, step, count + 1); limit > last && limit < high) {
      limits.push_back(limit);
      last = limit;
    }
}

/// Keeps the points that no point with a lower peak matches.
std::vector<ParetoPoint> frontOf(std::vector<ParetoPoint> points) {
  llvm::stable_sort(points, [](const ParetoPoint &a, const ParetoPoint &b) {
    return std::pair(a.peak, a.makespan) < std::pair(b.peak, b.makespan);
  });
  std::vector<ParetoPoint> front;
  for (const ParetoPoint &point : points)
    if (front.empty() || point.makespan < front.back().makespan)
      front.push_back(point);
  return front;
}

} // namespace

ParetoCurve commsched::paretoCurve(const Problem &problem, const ScheduleOptions &options, int32_t limits,
                                   ParallelFor parallelFor) {
  CurveSolver solver(problem, options);
  // A limit of 0 gives the lowest peak that can be reached.
  solver.solve({0, kUnlimited}, parallelFor);
  Bytes lowest = solver.points[0].peak, input = solver.curve.input.peak;
  Bytes highest = std::max(solver.points[1].peak, input);

  int32_t between = std::max(limits - 3, 0);
  std::vector<Bytes> others = {input};
  spread(std::min(lowest, input), input, between / 2, others);
  spread(input, highest, between - between / 2, others);
  solver.solve(others, parallelFor);
  solver.points.push_back(solver.curve.input);
  solver.curve.points = frontOf(std::move(solver.points));
  return solver.curve;
}
