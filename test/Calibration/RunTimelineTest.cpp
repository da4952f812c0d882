//===- RunTimelineTest.cpp - Tests of costs from what a real run took -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Timelines of runs whose truth is known: an all-reduce of b bytes takes 1000 + b / 4 ns from the moment at which the
// last rank has started it and the previous one has ended.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/RunTimeline.h"
#include "CommSched/Machine/CostModel.h"
#include "llvm/Support/JSON.h"
#include "gtest/gtest.h"

using namespace commsched;
namespace json = llvm::json;

namespace {

constexpr Bytes kSizes[] = {1024, 2048, 4096, 8192, 16384, 32768, 65536};
constexpr int kRanks = 4;

Ns truth(Bytes bytes) { return 1000 + bytes / 4; }

json::Object span(int process, int lane, Ns begin, Ns end, json::Object arguments) {
  return json::Object{{"ph", "X"},
                      {"pid", process},
                      {"tid", lane},
                      {"ts", static_cast<double>(begin) / 1000},
                      {"dur", static_cast<double>(end - begin) / 1000},
                      {"name", "all_reduce"},
                      {"cat", "collective"},
                      {"args", std::move(arguments)}};
}

json::Object moved(int64_t site, Bytes bytes) {
  return json::Object{{"site", site}, {"bytes", bytes},           {"ranks", kRanks},
                      {"nodes", 1},   {"ranks_per_node", kRanks}, {"element", "f32"}};
}

std::string toText(json::Array events) {
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(json::Object{{"traceEvents", std::move(events)}});
  return text;
}

/// Some calls of a program with one site per size, all on one lane: sites 0 and 1 are started at once. Rank r starts
/// everything 500 x r ns late. The first call takes ten times as long.
std::string makeRun(int calls, llvm::ArrayRef<Bytes> sizes = kSizes) {
  json::Array events;
  for (int rank = 0; rank < kRanks; ++rank)
    events.push_back(json::Object{{"ph", "M"},
                                  {"pid", rank},
                                  {"name", "process_name"},
                                  {"args", json::Object{{"name", "step.mlir, rank " + std::to_string(rank)}}}});
  Ns now = 0;
  for (int call = 0; call < calls; ++call) {
    Ns previous = 0;
    for (auto [site, bytes] : llvm::enumerate(sizes)) {
      Ns started = site == 1 ? now : now + 10'000;
      now = started;
      Ns begin = std::max(now + 500 * (kRanks - 1), previous), end = begin + (call == 0 ? 10 : 1) * truth(bytes);
      for (int rank = 0; rank < kRanks; ++rank)
        events.push_back(span(rank, 1, now + 500 * rank, end, moved(static_cast<int64_t>(site), bytes)));
      previous = end;
      if (site != 0)
        now = end;
    }
  }
  return toText(std::move(events));
}

MachineModel base(llvm::StringRef tables = "[]") {
  return llvm::cantFail(MachineModel::parse(R"({"schema_version": 1, "name": "base", "node": {"ranks": 8},
    "memory": {"capacity_bytes": 1000, "bandwidth_gbps": 100}, "compute": {"peak_tflops": {"f32": 1}},
    "copy": {"launch_ns": 3, "bandwidth_gbps": 50}, "calibration": {"note": "kept"},
    "links": {"base_ns": 100, "intra": {"bandwidth_gbps": 10, "latency_ns": 5}}, "collectives": )" +
                                            tables.str() + "}"));
}

std::vector<RunPoint> read(std::string text) {
  return llvm::cantFail(readRunTimelines({{"run.json", std::move(text)}}));
}

std::string errorOf(std::string text) {
  llvm::Expected<std::vector<RunPoint>> points = readRunTimelines({{"run.json", std::move(text)}});
  return points ? "no error" : llvm::toString(points.takeError());
}

// Neither the first call, nor late ranks, nor the queue of a lane change the times.
TEST(RunTimeline, FindsTheTruth) {
  std::vector<RunPoint> points = read(makeRun(6));
  ASSERT_EQ(points.size(), std::size(kSizes));
  for (auto [point, bytes] : llvm::zip_equal(points, kSizes)) {
    EXPECT_EQ(point.kind, CollectiveKind::AllReduce);
    EXPECT_EQ(point.shape, (GroupShape{kRanks, 1, kRanks}));
    EXPECT_EQ(point.element, ElementType::F32);
    EXPECT_EQ(point.bytes, bytes);
    EXPECT_EQ(point.time.value, truth(bytes));
    EXPECT_EQ(point.time.lo, truth(bytes));
    EXPECT_EQ(point.time.hi, truth(bytes));
    EXPECT_EQ(point.time.n, 5);
  }
}

// Ranks of one file that share a clock: what counts is from the last begin to the last end, although each rank's times
// count from its own beginning, and the last rank to start is the first to finish.
TEST(RunTimeline, UsesTheClockOfTheRanks) {
  std::vector<json::Array> files(2);
  for (int call = 0; call < 3; ++call)
    for (int rank = 0; rank < kRanks; ++rank) {
      Ns begin = 100'000 * (call + 1) + 500 * rank, end = 100'000 * (call + 1) + 5000 - 300 * rank, own = 70 * rank;
      json::Object arguments = moved(0, 1024);
      arguments["clock_ns"] = begin;
      json::Value event = span(rank, 1, begin - own, end - own, std::move(arguments));
      files[0].push_back(event);
      if (rank < 3)
        files[1].push_back(event);
    }
  std::vector<RunPoint> points = read(toText(std::move(files[0])));
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].time.value, 5000 - 500 * (kRanks - 1));
  EXPECT_EQ(points[0].time.n, 2);
  // Without rank 3, the one that starts last counts: rank 2, whose call takes 4400 - 1000.
  EXPECT_EQ(read(toText(std::move(files[1]))).front().time.value, 3400);
}

// A single call counts, for nothing else does. Sites of equal sizes are one point.
TEST(RunTimeline, PoolsSites) {
  EXPECT_EQ(read(makeRun(1)).front().time.value, 10 * truth(1024));
  std::vector<RunPoint> points = read(makeRun(4, {1024, 1024, 1024}));
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].time.n, 9);
  EXPECT_EQ(points[0].time.value, truth(1024));
}

// Each rank's own file, as mpirun writes them, says the same as one file of all ranks.
TEST(RunTimeline, ReadsOneFilePerRank) {
  json::Value whole = llvm::cantFail(json::parse(makeRun(3)));
  std::vector<TimelineText> files;
  for (int rank = 0; rank < kRanks; ++rank) {
    json::Array events;
    for (const json::Value &event : *whole.getAsObject()->getArray("traceEvents"))
      if (event.getAsObject()->getInteger("pid") == rank)
        events.push_back(event);
    files.push_back({"run.json." + std::to_string(rank), toText(std::move(events))});
  }
  std::vector<RunPoint> points = llvm::cantFail(readRunTimelines(files)), same = read(makeRun(3));
  ASSERT_EQ(points.size(), same.size());
  for (auto [a, b] : llvm::zip_equal(points, same))
    EXPECT_EQ(a.time.value, b.time.value);
}

// Predicted events, waits, one-shot sums, coalesced starts and sites without a size are no measurements.
TEST(RunTimeline, PassesOverWhatIsNoPlainCollective) {
  json::Array events;
  json::Object oneShot = moved(0, 1024), coalesced = moved(1, 1024), unknown = moved(2, 1024);
  oneShot["one_shot"] = true;
  coalesced["parts"] = 2;
  unknown.erase("bytes");
  for (json::Object *arguments : {&oneShot, &coalesced, &unknown})
    events.push_back(span(0, 1, 0, 10, std::move(*arguments)));
  events.push_back(json::Object{{"ph", "X"}, {"pid", 0}, {"tid", 1}, {"cat", "collective"}});
  EXPECT_EQ(errorOf(toText(std::move(events))), "'run.json': expected collectives with sizes, as comm-run --timeline "
                                                "writes them for straight-line programs, got none");
}

TEST(RunTimeline, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(errorOf("[]"), "'run.json': expected an object with 'traceEvents', as comm-run --timeline writes it");
  EXPECT_NE(errorOf("{").find("'run.json': "), std::string::npos);
  auto with = [](llvm::StringRef key, json::Value value) {
    json::Object arguments = moved(0, 8);
    arguments[key] = std::move(value);
    return errorOf(toText(json::Array{span(0, 1, 0, 5, std::move(arguments))}));
  };
  EXPECT_EQ(with("bytes", -1), "'run.json': field 'traceEvents[0].args.bytes': expected an integer of at least 0");
  EXPECT_EQ(with("ranks", "four"), "'run.json': field 'traceEvents[0].args.ranks': expected an integer of at least 1");
  EXPECT_EQ(with("element", "f33"),
            "'run.json': field 'traceEvents[0].args.element': expected an element type, such as bf16");
  json::Object noTime = span(0, 1, 0, 5, moved(0, 8));
  noTime["dur"] = -3;
  EXPECT_EQ(errorOf(toText(json::Array{std::move(noTime)})),
            "'run.json': field 'traceEvents[0].dur': expected a time in microseconds");
  EXPECT_EQ(errorOf(toText(json::Array{3})), "'run.json': field 'traceEvents[0]': expected an object");
}

// The points become tables, more samples win, and of other tables everything stays.
TEST(RefineProfile, MoreSamplesWin) {
  MachineModel machine = base(R"([
    {"kind": "all_reduce", "ranks": 4, "nodes": 1, "points": [
       {"bytes": 512, "ns": 7, "n": 1}, {"bytes": 1024, "ns": 8, "n": 9}, {"bytes": 2048, "ns": 9, "n": 3},
       {"bytes": 1000000, "ns": 300000}]},
    {"kind": "all_reduce", "group": "dp", "points": [{"bytes": 1024, "ns": 5}]},
    {"kind": "all_reduce", "ranks": 4, "nodes": 2, "points": [{"bytes": 1024, "ns": 6}]}])");
  MachineModel refined = llvm::cantFail(refineProfile(machine, read(makeRun(4)), "new"));
  EXPECT_EQ(refined.name, "new");
  ASSERT_EQ(refined.collectives.size(), 3u);
  const std::vector<MeasuredPoint> &points = refined.collectives[0].points;
  ASSERT_EQ(points.size(), 9u);
  EXPECT_EQ(points[0].ns, 7);
  EXPECT_EQ(points[1].ns, 8);
  EXPECT_EQ(points[2].ns, truth(2048));
  EXPECT_EQ(points[2].n, 3);
  EXPECT_EQ(points[8].ns, 300000);
  EXPECT_FALSE(points[8].hasErrorBar());
  EXPECT_EQ(refined.collectives[1].points.size(), 1u);
  EXPECT_EQ(refined.collectives[2].points.size(), 1u);
  // Without a table that answers, there is a new one of this element type.
  refined = llvm::cantFail(refineProfile(base(), read(makeRun(4)), "new"));
  ASSERT_EQ(refined.collectives.size(), 1u);
  EXPECT_EQ(refined.collectives[0].element, ElementType::F32);
  CostModel costs(refined);
  EXPECT_EQ(costs.costOfCollective(CollectiveKind::AllReduce, 4096, {4, 1, 4}, ElementType::F32), truth(4096));
}

// Of seven sizes one is held out, in the middle, and interpolation foretells it; not if its truth is another one.
TEST(Validation, HoldsOutATenthOfThePoints) {
  std::vector<RunPoint> points = read(makeRun(4));
  EXPECT_EQ(chooseHeldOut(base(), points), std::vector<size_t>{3});
  Validation validation = llvm::cantFail(validateRefinement(base(), points));
  EXPECT_EQ(validation.points, 7);
  EXPECT_EQ(validation.heldOut, 1);
  // By hand: between truth(4096) = 2024 and truth(16384) = 5096, sqrt(2024 x 5096) = 3212 for 3048.
  EXPECT_EQ(validation.p50Permille, (3212 - 3048) * 1000 / 3048);
  EXPECT_EQ(validation.p95Permille, validation.p50Permille);
  points[3].time.value *= 2;
  EXPECT_EQ(llvm::cantFail(validateRefinement(base(), points)).p95Permille, (6096 - 3212) * 1000 / 6096);
}

// Without neighbours on both sides nothing is held out; neighbours in the base count.
TEST(Validation, NeedsNeighbours) {
  std::vector<RunPoint> points = read(makeRun(4, {1024, 4096}));
  EXPECT_TRUE(chooseHeldOut(base(), points).empty());
  EXPECT_EQ(llvm::cantFail(validateRefinement(base(), points)).heldOut, 0);
  MachineModel machine = base(R"([{"kind": "all_reduce", "ranks": 4, "nodes": 1, "points": [
    {"bytes": 16384, "ns": 5096, "lo_ns": 5000, "hi_ns": 5100, "n": 9}]}])");
  EXPECT_EQ(chooseHeldOut(machine, points), std::vector<size_t>{1});
  std::vector<RunPoint> many;
  for (Bytes bytes = 1; bytes <= 40; ++bytes)
    many.push_back({CollectiveKind::AllReduce, {4, 1, 4}, ElementType::F32, bytes, {100, 100, 100, 1, 0}});
  EXPECT_EQ(chooseHeldOut(base(), many).size(), 4u);
  MachineModel refined = llvm::cantFail(refineProfile(machine, points, "new", std::make_unique<Validation>().get()));
  EXPECT_NE(refined.toJSON().find("\"held_out\": 0"), std::string::npos);
  EXPECT_NE(refined.toJSON().find("\"note\": \"kept\""), std::string::npos);
}

} // namespace
