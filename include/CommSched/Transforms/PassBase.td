//===- PassBase.td - Passes that say what is wrong with their options -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Takes the place of mlir/Pass/PassBase.td. The records have the names and the fields that mlir-tblgen looks for. In
// addition, every pass derives from CheckedPass (CheckedOptions.h), and every option adds itself to the pass's checks.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PASSBASE
#define COMMSCHED_TRANSFORMS_PASSBASE

/// `default`: a C++ expression; empty: the type's. `flags`: further arguments of the option's constructor in C++.
class Option<string name, string arg, string valueType, string default, string desc, string flags = ""> {
  string cppName = name;
  string argument = arg;
  string type = valueType;
  string defaultValue = default;
  string description = desc;
  string additionalOptFlags = !if(!empty(flags), "", flags # ", ") # "::commsched::CheckedBy(this->optionChecks)";
}

/// An option with values that are separated by commas.
class ListOption<string name, string arg, string valueType, string desc, string flags = "">
    : Option<name, arg, valueType, /*default=*/"", desc, flags>;

class Statistic<string name, string argument, string desc> {
  string cppName = name;
  string name = argument;
  string description = desc;
}

class PassBase<string arg, string base> {
  string argument = arg;
  string baseClass = base;
  string summary = "";
  string description = "";
  code constructor = "";
  list<string> dependentDialects = [];
  list<Option> options = [];
  list<Statistic> statistics = [];
}

/// A pass on one kind of operation, or on any.
class Pass<string arg, string operation = "">
    : PassBase<arg, "::commsched::CheckedPass<::mlir::OperationPass<" # operation # ">>">;

#endif // COMMSCHED_TRANSFORMS_PASSBASE
