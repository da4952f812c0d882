//===- HloFileTest.cpp - Modules of XLA in files ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Reader/HloFile.h"
#include "Hlo/Reader/WireFormat.h"
#include "HloTestSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

class HloFiles : public testing::TestWithParam<const char *> {};

} // namespace

// Tests that the module in XLA's dump is the module itself, and that another order leaves the rest of the dump as it
// was.
TEST_P(HloFiles, Dumps) {
  std::string bytes = readInput(GetParam() + Twine(".pb")), dump, written;
  writeBytes(1, bytes, dump);
  writeBytes(3, "a buffer assignment", dump);
  HloFile file = cantFail(HloFile::read(dump, "x.hlo.pb"));
  EXPECT_EQ(file.module().bytes, bytes);
  HloOptions options;
  options.shuffle = 3;
  HloResult result = cantFail(scheduleModule(file.module(), h100(), options));
  EXPECT_NE(result.module, bytes);
  writeBytes(1, result.module, written);
  writeBytes(3, "a buffer assignment", written);
  EXPECT_EQ(file.withModule(result.module), written);
}

// Tests that a file which is the module itself is replaced as a whole.
TEST_P(HloFiles, Modules) {
  std::string bytes = readInput(GetParam() + Twine(".pb"));
  HloFile file = cantFail(HloFile::read(bytes, "x.pb"));
  EXPECT_EQ(file.module().bytes, bytes);
  EXPECT_EQ(file.withModule("another module"), "another module");
}

INSTANTIATE_TEST_SUITE_P(Xla, HloFiles, testing::Values("small-fsdp", "small-scan", "small-moe", "forms"),
                         [](const auto &info) {
                           std::string name = info.param;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

// Tests that what is no module is refused in one line with the path, and that the line for text says what converts it.
TEST(HloFile, Refused) {
  EXPECT_EQ(toString(HloFile::read("HloModule m, is_scheduled=true", "a.txt").takeError()),
            "'a.txt': expected a module of XLA, got HLO text, which 'python -m commsched.jax.convert a.txt module.pb' "
            "converts");
  EXPECT_EQ(toString(HloFile::read("no module", "b.pb").takeError()),
            "'b.pb': expected a module of XLA, got bytes that are not a message");
}
