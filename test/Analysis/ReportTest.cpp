//===- ReportTest.cpp - Tests of the certificate of a report ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bound that is printed is one of what was done, and a result below it is never passed over.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

/// Two gathers of 100 bytes, 50 ns each; no order is below 120 ns, no bucketing below 80 ns.
BlockReport makeReport(Ns makespan, int64_t collectives) {
  BlockReport report;
  report.name = "f";
  report.before.makespan = 150;
  report.before.orderBound = report.before.jointBound = report.before.limitBound = 120;
  report.before.anyBound = report.before.anyLimitBound = 80;
  report.before.jointBoundBy = "compute lane";
  report.before.anyBoundBy = "lane of group @dp";
  report.after.makespan = makespan;
  for (BlockSnapshot *snapshot : {&report.before, &report.after}) {
    int64_t count = snapshot == &report.before ? 2 : collectives;
    for (int64_t index = 0; index < count; ++index) {
      CollectiveRow row;
      row.kind = CollectiveKind::AllGather;
      row.group = "@dp";
      row.bytes = 200 / count;
      snapshot->rows.push_back(row);
    }
    snapshot->collectives = count;
  }
  return report;
}

TEST(Report, AnOrderIsComparedWithOrders) {
  BlockReport report = makeReport(120, 2);
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 120);
  EXPECT_EQ(report.gap(), 0);
}

TEST(Report, AMergedProgramIsComparedWithAnyBucketing) {
  BlockReport report = makeReport(100, 1);
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 80);
  EXPECT_EQ(report.before.jointBoundBy, "lane of group @dp");
  EXPECT_DOUBLE_EQ(report.gap(), 0.25);
}

TEST(Report, BelowEveryBoundIsADefect) {
  BlockReport report = makeReport(79, 1);
  EXPECT_NE(certify(report), "");
}

// Passes of another project may change anything: what is below every bound is no defect then.
TEST(Report, OtherPassesMayChangeAnything) {
  BlockReport report = makeReport(79, 1);
  report.hasOtherPasses = true;
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 0);
}

TEST(Report, ALimitBoundCountsWhereTheLimitIsKept) {
  BlockReport report = makeReport(100, 1);
  report.before.anyLimitBound = 110;
  report.limit = 10;
  report.after.peak = 11;
  EXPECT_EQ(certify(report), "");
  report.after.peak = 10;
  EXPECT_NE(certify(report), "");
}

// Passes that know no order of collectives may get below the bound of that order, within the limit too.
TEST(Report, AnotherOrderIsComparedWithAnyOrder) {
  for (bool isWithin : {false, true}) {
    BlockReport report = makeReport(119, 2);
    report.before.orderBound = 110;
    report.before.jointBound = 110;
    report.before.anyBound = 100;
    report.before.anyLimitBound = 105;
    report.limit = 10;
    report.after.peak = isWithin ? 10 : 11;
    EXPECT_EQ(certify(report), "");
    EXPECT_EQ(report.before.jointBound, isWithin ? 100 : 110);
    EXPECT_EQ(report.before.limitBound, isWithin ? 105 : 120);
    report.after.makespan = 99;
    EXPECT_NE(certify(report), "");
  }
}

TEST(Report, RegionsMayBecomeShorter) {
  BlockReport report = makeReport(79, 1);
  report.before.nestedTimes = 30;
  report.after.nestedTimes = 29;
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 79);
}

TEST(Report, AnotherProgramHasNoBound) {
  BlockReport report = makeReport(79, 1);
  report.after.oneShots = 1;
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 0);
  EXPECT_EQ(report.gap(), 0);
  report = makeReport(79, 1);
  report.after.rows.front().bytes = 100;
  EXPECT_EQ(certify(report), "");
  EXPECT_EQ(report.before.jointBound, 0);
}

} // namespace
