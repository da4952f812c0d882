//===- PlacementTable.cpp - Placements for people and programs --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/Count.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Scheduling/Placement.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace commsched;

size_t PlacementTable::candidatesLeft() const {
  return llvm::count_if(ArrayRef<Placement>(placements).drop_front(),
                        [&](const Placement &other) { return !other.bound || *other.bound < *best().makespan; });
}

/// "dp=8 x tp=8", the slowest axis first.
static std::string describeOrder(const Mesh &mesh, ArrayRef<int64_t> order) {
  return llvm::join(
      llvm::map_range(order,
                      [&](int64_t axis) { return mesh.axes[axis].name + "=" + std::to_string(mesh.axes[axis].size); }),
      " x ");
}

/// "tp, 2 of dp": what is inside a unit of a level.
static std::string describeInside(const Mesh &mesh, ArrayRef<int64_t> inside) {
  SmallVector<std::string> parts;
  for (auto [axis, part] : llvm::zip_equal(mesh.axes, inside))
    if (part > 1)
      parts.push_back(part == axis.size ? axis.name : std::to_string(part) + " of " + axis.name);
  return parts.empty() ? "nothing" : llvm::join(parts, ", ");
}

/// "+12.3 %" of `time` against the best one.
static std::string describeLoss(Ns time, Ns best) {
  if (best <= 0)
    return "";
  return llvm::formatv("+{0:f1} %", 100.0 * static_cast<double>(time - best) / static_cast<double>(best)).str();
}

static llvm::json::Array axisNamesOf(const Mesh &mesh, ArrayRef<int64_t> order) {
  return llvm::json::Array(llvm::map_range(order, [&](int64_t axis) { return mesh.axes[axis].name; }));
}

llvm::json::Value PlacementTable::toJSON() const {
  llvm::json::Array axes, rows, units;
  for (const auto &[name, size] : levels)
    units.push_back(llvm::json::Object{{"name", name}, {"ranks", size}});
  for (const MeshAxis &axis : mesh.axes)
    axes.push_back(llvm::json::Object{{"name", axis.name}, {"size", axis.size}});
  for (const Placement &placement : placements) {
    llvm::json::Object shapes;
    llvm::json::Array inside;
    for (const std::vector<int64_t> &parts : placement.inside) {
      llvm::json::Object ofLevel;
      for (auto [axis, part] : llvm::zip_equal(mesh.axes, parts))
        ofLevel[axis.name] = part;
      inside.push_back(std::move(ofLevel));
    }
    llvm::json::Value insideNode = inside.front();
    for (auto [group, shape] : llvm::zip_equal(groups, placement.shapes))
      shapes[group] = llvm::json::Object{{"ranks", shape.ranks}, {"nodes", shape.nodes}};
    llvm::json::Object row{
        {"orders",
         llvm::json::Array(llvm::map_range(
             placement.orders, [&](const AxisList &order) { return llvm::json::Value(axisNamesOf(mesh, order)); }))},
        {"inside_node", std::move(insideNode)},
        {"inside", std::move(inside)},
        {"groups", std::move(shapes)},
        {"bound_by", llvm::json::Array(placement.boundBy)},
        {"as_given", &placement == &placements[asGiven]},
        {"proven_worse", isProvenWorse(placement)}};
    if (placement.bound)
      row["bound_ns"] = *placement.bound;
    if (placement.makespan) {
      row["makespan_ns"] = *placement.makespan;
      row["peak_bytes"] = placement.peak;
    }
    rows.push_back(std::move(row));
  }
  return llvm::json::Object{{"schema_version", 1},
                            {"machine", machine},
                            {"ranks_per_node", levels.front().second},
                            {"levels", std::move(units)},
                            {"axes", std::move(axes)},
                            {"placements", std::move(rows)},
                            {"candidates_left", static_cast<int64_t>(candidatesLeft())},
                            {"unfit_orders", unfit},
                            {"given_times", givenTimes},
                            {"assumption", assumption}};
}

/// The calls that make a mesh of this order. One rank needs no mesh.
static void printCalls(const Mesh &mesh, ArrayRef<int64_t> order, llvm::raw_ostream &os) {
  if (order.empty())
    return;
  auto sizes = llvm::map_range(order, [&](int64_t axis) { return std::to_string(mesh.axes[axis].size); });
  auto names = llvm::map_range(order, [&](int64_t axis) { return "\"" + mesh.axes[axis].name + "\""; });
  std::string comma = order.size() == 1 ? "," : "";
  std::string shape = "(" + llvm::join(sizes, ", ") + comma + ")", dims = "(" + llvm::join(names, ", ") + comma + ")";
  os << "PyTorch: init_device_mesh(\"cuda\", " << shape << ", mesh_dim_names=" << dims << ")\n"
     << "JAX:     jax.make_mesh(" << shape << ", " << dims << ")\n";
}

/// The cells of one row, and what is to be said of it.
static std::vector<std::string> makeCells(const PlacementTable &table, const Placement &placement) {
  SmallVector<std::string> remarks;
  if (&placement == &table.placements[table.asGiven])
    remarks.push_back("as given");
  if (table.isProvenWorse(placement))
    remarks.push_back("proven worse");
  if (size_t others = placement.orders.size() - 1; others > 0)
    remarks.push_back("as " + std::to_string(others) + (others == 1 ? " other order" : " other orders"));
  Ns best = *table.best().makespan;
  std::string loss;
  if (&placement != &table.best())
    loss = placement.makespan ? describeLoss(*placement.makespan, best)
                              : "at least " + describeLoss(*placement.bound, best);
  std::vector<std::string> cells = {describeOrder(table.mesh, placement.orders.front())};
  for (const std::vector<int64_t> &inside : placement.inside)
    cells.push_back(describeInside(table.mesh, inside));
  cells.insert(cells.end(), {placement.makespan ? formatNs(*placement.makespan) : "-", loss,
                             placement.makespan ? formatBytes(placement.peak) : "-",
                             placement.bound ? formatNs(*placement.bound) : "none", llvm::join(remarks, "; ")});
  return cells;
}

/// Prints rows in columns as wide as their longest cell. The first `left` are left-aligned, as is the last one.
static void printColumns(ArrayRef<std::vector<std::string>> rows, size_t left, llvm::raw_ostream &os) {
  for (const std::vector<std::string> &row : rows) {
    std::string line;
    for (auto [column, cell] : llvm::enumerate(row)) {
      size_t width = 0;
      for (const std::vector<std::string> &other : rows)
        width = std::max(width, other[column].size());
      std::string blanks(width - cell.size(), ' ');
      line += "  " + (column < left || column + 1 == row.size() ? cell + blanks : blanks + cell);
    }
    os << StringRef(line).rtrim() << "\n";
  }
}

void PlacementTable::print(llvm::raw_ostream &os) const {
  os << "machine " << machine;
  for (const auto &[name, size] : levels)
    os << ", " << name << "s of " << size << " ranks";
  os << "; a mesh of " << formatCount(mesh.numRanks(), "rank") << "\n";
  std::vector<std::vector<std::string>> rows = {{"axes, the slowest first"}};
  for (const auto &[name, size] : levels)
    rows.front().push_back("inside a " + name);
  rows.front().insert(rows.front().end(), {"makespan", "", "peak", "bound", ""});
  for (const Placement &placement : placements)
    rows.push_back(makeCells(*this, placement));
  printColumns(rows, 1 + levels.size(), os);
  if (placements.size() == 1)
    os << "all orders cost the same\n";
  else if (candidatesLeft() == 0)
    os << "proven: no other order is faster than the first one\n";
  else
    os << "may be faster than the first one, as far as is proven: " << candidatesLeft() << " of "
       << placements.size() - 1 << "\n";
  if (unfit > 0) {
    auto plurals = llvm::map_range(levels, [](const auto &level) { return level.first + "s"; });
    os << "orders that do not fit, because " << llvm::join(plurals, " or ")
       << " would hold different parts of the mesh: " << unfit << "\n";
  }
  if (givenTimes > 0)
    os << "collectives with a given time, which no order changes: " << givenTimes << "\n";
  if (!assumption.empty())
    os << assumption << "\n";
  printCalls(mesh, best().orders.front(), os);
}
