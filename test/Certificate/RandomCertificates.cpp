//===- RandomCertificates.cpp - Certificates of random problems ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// RandomCertificates FIRST COUNT NODES [--contention] [--choices]: solves COUNT random problems of about NODES nodes,
// in every mode in turn, and writes their certificates to the standard output. Without contention, they prove a regret.
//
//===------------------------------------------------------------------------------------------===//

#include "../Scheduling/RandomDemands.h"
#include "../Scheduling/RandomProblem.h"
#include "CommSched/Report/Certificate.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Lenses/Robust.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

using namespace commsched;

static llvm::cl::opt<uint64_t> first(llvm::cl::Positional, llvm::cl::Required, llvm::cl::desc("FIRST"));
static llvm::cl::opt<uint64_t> count(llvm::cl::Positional, llvm::cl::Required, llvm::cl::desc("COUNT"));
static llvm::cl::opt<int32_t> nodes(llvm::cl::Positional, llvm::cl::Required, llvm::cl::desc("NODES"));
static llvm::cl::opt<bool> contention("contention", llvm::cl::desc("Let activities share resources"));
static llvm::cl::opt<bool> choices("choices", llvm::cl::desc("Let the problem have cheaper ways than the answer's"));

/// The problem with cheaper collectives, as if the answer had chosen dearer ways to carry them out.
static Problem withCheaperChoices(const Problem &problem) {
  Problem least = problem;
  for (NodeId id = 0; id < problem.size(); ++id) {
    Node &node = least.nodes[id];
    if (node.kind != NodeKind::Start || id % 3 == 0)
      continue;
    node.cost = node.cost * 4 / 5;
    if (id % 2 == 0)
      node.demand = kNone;
  }
  for (MergeKey &key : least.mergeKeys)
    key.cost = [cost = key.cost](Bytes bytes) { return cost(bytes) * 4 / 5; };
  return least;
}

/// Appends the certificate of one problem; false if its peak cannot come down to its limit.
static bool certify(uint64_t seed, llvm::raw_ostream &os) {
  test::RandomOptions shape;
  shape.nodes = nodes;
  shape.commLanes = 1 + seed % 4;
  shape.collectiveOrder = static_cast<CollectiveOrder>(seed % 3);
  shape.chanceOfPinned = seed % 5 == 0 ? 10 : 0;
  if (seed % 7 == 0)
    shape.maxBytes = 6 << 20;
  if (seed % 2 == 0) {
    shape.chanceOfStart = 50;
    shape.chanceOfMergeable = 100;
    shape.mergeKinds = 1;
  }
  Problem problem = test::randomProblem(seed, shape);
  if (contention)
    test::addRandomDemands(problem, seed);
  ScheduleOptions options;
  options.collectiveOrder = shape.collectiveOrder;
  options.bucketing = seed / 3 % 2 == 1;
  options.effort = 20'000;
  if (seed / 6 % 3 == 0)
    options.memory.limit = kUnlimited;
  else
    options.memory.limit = peakOf(problem, identityOrder(problem)) * (seed / 6 % 3 == 1 ? 10 : 12) / 10;
  Schedule answer = schedule(problem, options);
  if (!answer.claims)
    answer.claims = {makespanOf(problem, answer.order), answer.peak};
  if (!answer.isWithinLimit() || !answer.defect.empty())
    return false;
  CertificateOptions certificate = {options.bucketing};
  Problem least;
  if (choices) {
    least = withCheaperChoices(problem);
    certificate.least = &least;
  }
  certificate.scales = kPlayedScales;
  writeCertificate("seed " + llvm::utostr(seed), problem, answer, certificate, os);
  return true;
}

int main(int argc, char **argv) {
  llvm::cl::ParseCommandLineOptions(argc, argv, "Certificates of random problems\n");
  std::string text;
  llvm::raw_string_ostream os(text);
  int64_t blocks = 0;
  for (uint64_t seed = first; seed < first + count; ++seed)
    blocks += certify(seed, os);
  writeCertificateHeader(blocks, "", "", Numerics::Exact, {}, llvm::outs());
  llvm::outs() << text;
  return 0;
}
