# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Faults of the PyTorch front end, each with the test that notices it. `mutations.py` plants them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Args:
        name: what is wrong.
        file: the file, below python/commsched/torch.
        edits: each from a text that occurs exactly once to another one.
        killer: the test that is known to notice it: FILE::TEST.
        quick: whether the killer runs in one process and compiles nothing.
    """

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    killer: str
    quick: bool


def mutation(name: str, file: str, *edits: tuple[str, str], killer: str = "", quick: bool = True) -> Mutation:
    return Mutation(name, file, edits, killer, quick)


MUTATIONS = [
    # The importer.
    mutation(
        "a wait's result is memory of its own",
        "importer/collectives.py",
        (
            "        self.canonical[storage_of(val)] = source.storage\n        self.values[node] = self.wait(",
            "        self.values[node] = self.wait(",
        ),
        killer="test_import.py::test_views_share_storage_and_are_free",
    ),
    mutation(
        "a wait for landed memory waits again",
        "importer/collectives.py",
        (
            "source.storage in self.landed or not source.waitable and source.storage in self.waited",
            "False",
        ),
        killer="test_landing.py::test_a_wait_of_a_wait_is_imported_as_a_view",
    ),
    mutation(
        "memory that a collective fills again counts as landed",
        "importer/collectives.py",
        ("            self.landed.discard(v.storage)\n", ""),
        killer="test_import_memory.py::test_a_wait_for_memory_that_is_filled_again_is_a_wait",
    ),
    mutation(
        "a collective in place gives memory of its own",
        "importer/collectives.py",
        ("            self.canonical[v.storage] = v.storage = d.storage\n", "            pass\n"),
        killer="test_import.py::test_send_and_receive",
    ),
    mutation(
        "a wait for an opaque start writes nothing",
        "importer/collectives.py",
        ("            spec.mutated = (0,)\n", ""),
        killer="test_import_memory.py::test_a_wait_for_what_an_opaque_operator_started_writes_it",
    ),
    mutation(
        "two arguments of one storage are two buffers",
        "importer/graph.py",
        ("other = self.owner.get(value.storage) if value.storage else None", "other = None"),
        killer="test_import_memory.py::test_two_arguments_in_one_storage_are_one_buffer",
    ),
    mutation(
        "what is read before its wait is not waited for",
        "importer/state.py",
        ("[self._landed(v) if v.waitable else v for v in result]", "result"),
        killer="test_landing.py::test_a_second_wait_for_one_start_reads_the_first",
    ),
    mutation(
        "a root is its number in the job",
        "importer/collectives.py",
        ("            peer = ranks.index(peer)\n", ""),
        killer="test_import_memory.py::test_a_root_is_its_place_in_the_group",
    ),
    mutation(
        "truth values and bytes are one type",
        "importer/values.py",
        ('torch.bool: "si8"', 'torch.bool: "i8"'),
        killer="test_import_memory.py::test_truth_values_are_no_type_of_numbers",
    ),
    mutation(
        "all reductions are sums",
        "importer/collectives.py",
        ('(f" {reduction}", "")', '(" sum", "")'),
        killer="test_import.py::test_reductions[avg]",
    ),
    mutation(
        "all exchanges are even",
        "importer/collectives.py",
        ("len(known) == len(lists[0]) + len(lists[1]) and len(set(known)) <= 1", "True"),
        killer="test_import.py::test_broadcast_and_all_to_all",
    ),
    # What the checks read.
    mutation(
        "a write does not follow the reads before it",
        "semantics/effects.py",
        ("in (*access.reads, access.write) if", "in (access.write,) if"),
        killer="test_apply.py::test_a_write_stays_between_its_readers",
    ),
    mutation(
        "a collective has read its operands when it starts",
        "semantics/effects.py",
        ("reads = started[0] - started[1]", "reads = set()"),
        killer="test_apply.py::test_an_input_in_flight_is_not_written",
    ),
    mutation(
        "waits for what has landed stay",
        "semantics/landing.py",
        ("    if split_waits(graph) + name_landed_results(graph):\n        refresh(graph)\n", ""),
        killer="test_landing.py::test_a_wait_of_a_wait_is_the_first_wait[False-passes0]",
    ),
    # Forms of merged collectives.
    mutation(
        "every rank packs into the slice of the first",
        "apply/forms.py",
        ("(out, 0, total * rank, total * (rank + 1))", "(out, 0, 0, total)"),
        killer="test_buckets.py::test_every_element_lands_in_its_place[2]",
        quick=False,
    ),
    mutation(
        "tensors with gaps are dense",
        "apply/forms.py",
        ("if val.shape[i] != 1 and val.stride(i) != step:", "if False:"),
        killer="test_bucket_forms.py::test_tensors_with_gaps_have_no_order_of_memory",
    ),
    mutation(
        "coalesced reductions take inputs with gaps",
        "apply/forms.py",
        ("if target is not c10d.all_gather_into_tensor_coalesced.default:", "if False:"),
        killer="test_bucket_forms.py::test_results_keep_every_order_of_memory[order1-False]",
    ),
    mutation(
        "complex numbers are packed as they are",
        "apply/forms.py",
        ("    return p.result.dtype.is_complex\n", "    return False\n"),
        killer="test_bucket_forms.py::test_complex_numbers_are_gathered_as_pairs",
    ),
    # Merging and moving.
    mutation(
        "outputs are views although a reader looks at storage",
        "apply/buckets.py",
        ("who_looks(part.wait, gradient) is not None", "False"),
        killer="test_bucket_forms.py::test_a_reader_that_looks_at_storage_reads_a_copy",
    ),
    mutation(
        "readers behind views are not looked at",
        "apply/readers.py",
        ("                pending.append(user)\n", ""),
        killer="test_buckets.py::test_gradients_are_merged_and_results_of_a_forward_graph_are_not",
    ),
    mutation(
        "whoever gets the outputs of a graph does not look",
        "apply/readers.py",
        ("                if not gradient:\n", "                if False:\n"),
        killer="test_buckets.py::test_gradients_are_merged_and_results_of_a_forward_graph_are_not",
    ),
    mutation(
        "values of buckets are not computed again",
        "apply/buckets.py",
        ("        _check_values(parts, merged, moved)\n", ""),
        killer="test_buckets.py::test_a_merge_that_changes_a_value_is_undone",
    ),
    mutation(
        "an undone bucket leaves the values of its views",
        "apply/buckets.py",
        ('        for node, val in self._values:\n            node.meta["val"] = val\n', ""),
        killer="test_buckets.py::test_undone_buckets_leave_the_graph_as_it_was",
    ),
    mutation(
        "offsets of views in other types are not scaled",
        "apply/buckets.py",
        ("scaled = shift * was.dtype.itemsize // val.dtype.itemsize", "scaled = shift"),
        killer="test_bucket_forms.py::test_a_view_of_a_merged_result_in_another_type_begins_with_the_result",
    ),
    mutation(
        "packs convert between any types",
        "apply/buckets.py",
        ("exact = old.device == new.device and old.dtype in WIDENING and new.dtype in WIDENING", "exact = True"),
        killer="test_bucket_forms.py::test_a_pack_takes_over_a_cast_only_if_it_rounds_alike",
    ),
    mutation(
        "collectives of other reductions are merged",
        "apply/buckets.py",
        ("    if len(keys) != 1 or len(types) != 1 and not _moves_bytes(bucket):\n", "    if False:\n"),
        killer="test_apply.py::test_buckets_of_different_reductions_are_refused",
    ),
    mutation(
        "packs take over casts of memory that is written",
        "apply/rewrite.py",
        ("if not written.isdisjoint(aliases.of_all(n.all_input_nodes)))", "if False)"),
        killer="test_buckets.py::test_casts_of_memory_that_is_written_later_stay_before_the_write",
    ),
    mutation(
        "a schedule is not checked against writes",
        "apply/rewrite.py",
        ("    for before, after in effects.edges(graph, aliases):\n", "    for before, after in ():\n"),
        killer="test_buckets.py::test_what_a_pack_has_copied_may_be_written_while_its_collective_flies[False]",
    ),
    mutation(
        "whatever follows a packed collective may come before it lands",
        "apply/rewrite.py",
        (" and _only_writes_operands(after, before, aliases):", ":"),
        killer="test_bucket_forms.py::test_an_opaque_collective_stays_behind_what_a_pack_has_copied",
    ),
    mutation(
        "half a schedule stays",
        "apply/rewrite.py",
        ("        merger.undo()\n", ""),
        killer="test_buckets.py::test_undone_buckets_leave_the_graph_as_it_was",
    ),
    # Strands.
    mutation(
        "joins are contiguous",
        "strands/rewrite.py",
        ("order = None if val.is_contiguous() else dense_order(val)", "order = None"),
        killer="test_strands.py::test_a_join_has_the_strides_of_what_it_joins[columns-as_strided]",
    ),
    mutation(
        "whatever shows strides may read another join",
        "strands/rewrite.py",
        (" or is_restrided and _shows_strides(node):", ":"),
        killer="test_strands.py::test_strides_that_no_join_has_are_not_handed_on",
    ),
    mutation(
        "collectives take parts with gaps",
        "strands/rewrite.py",
        ("        if needs and not part", "        if False and not part"),
        killer="test_strand_rewrites.py::test_a_collective_reads_its_part_without_gaps",
    ),
    mutation(
        "an order of strands is not checked against writes",
        "strands/rewrite.py",
        ("            if index[before] > index[after]:\n", "            if False:\n"),
        killer="test_strand_rewrites.py::test_a_strand_behind_a_write_of_what_it_reads_is_refused[True]",
    ),
    mutation(
        "a sum leaves out the last part",
        "strands/rewrite.py",
        ("        for part in others:\n", "        for part in others[:-1]:\n"),
        killer="test_strands.py::test_gradients_of_weights_are_sums_of_partial_results",
    ),
    mutation(
        "an imposed split is not asked for again",
        "strands/decision.py",
        ("        _check_axes(graph, recipe)\n", ""),
        killer="test_strands.py::test_a_graph_that_does_not_divide_as_decided_is_refused",
    ),
    mutation(
        "scalars do not tell programs apart",
        "strands/decision.py",
        ("[shape.structure(), *_lines(graph, groups)]", "[shape.structure()]"),
        killer="test_strands.py::test_a_graph_of_other_sizes_decides_for_itself",
    ),
    mutation(
        "a causal mask divides along its rows",
        "strands/axes.py",
        ('rows = [] if _given(node, "is_causal", False) else', "rows ="),
        killer="test_strand_rewrites.py::test_rows_of_queries_divide_unless_a_mask_depends_on_their_place[True]",
    ),
    mutation(
        "a softmax divides along its dimension",
        "strands/axes.py",
        (
            '    return _everywhere(_others(results[0], [_given(node, "dim")]), operands, results)',
            "    return _everywhere(_others(results[0], []), operands, results)",
        ),
        killer="test_strands.py::test_a_graph_that_does_not_divide_as_decided_is_refused",
    ),
    # Ranks.
    mutation(
        "parameters that collectives carry do not tell programs apart",
        "ranks/weights.py",
        ("    if not inputs and not gradients:\n", "    if True:\n"),
        killer="test_ranks.py::test_uneven_shards_are_of_one_class[1024-512-False]",
    ),
    mutation(
        "whole parameters that no collective carries do not tell programs apart",
        "ranks/weights.py",
        ("        if not tensors:\n", "        if True:\n"),
        killer="test_ranks.py::test_a_tensor_parallel_model_of_another_width_decides_for_itself",
    ),
    mutation(
        "a forward graph decides for its backward graph",
        "ranks/agreement.py",
        (' += " backward" if is_backward(graph) else ""', ' += ""'),
        killer="test_ranks.py::test_a_tensor_parallel_model_of_another_width_decides_for_itself",
    ),
    mutation(
        "a forward graph from a cache tells its backward graph nothing",
        "inductor/passes.py",
        ("        weights.whole_parameters()\n", ""),
        killer="test_ranks.py::test_the_backward_graph_knows_the_parameters_of_a_forward_graph_from_a_cache",
    ),
    mutation(
        "padded gradients are not those of parameters",
        "ranks/weights.py",
        ("spec_of(user).op in KEEPING or _elements", "_elements"),
        killer="test_ranks.py::test_a_shard_that_is_padded_or_cut_is_of_the_class_of_a_whole_one",
    ),
    mutation(
        "an all-gather counts what one rank gives",
        "ranks/weights.py",
        ('"all_gather": False', '"all_gather": True'),
        killer="test_ranks.py::test_a_gather_counts_as_the_reduction_of_its_gradient",
    ),
    mutation(
        "a decision is not left for other ranks",
        "ranks/agreement.py",
        (
            "        first = settled(shape.structure(), decision)\n        if first",
            "        first = decision\n        if first",
        ),
        killer="test_comparison.py::test_a_rank_that_decides_second_takes_over_the_decision",
    ),
    mutation(
        "ranks that decide otherwise go on",
        "ranks/comparison.py",
        ("        if held != value:\n", "        if False:\n"),
        killer="test_comparison.py::test_ranks_that_decide_otherwise_about_one_program_fail[two]",
    ),
    mutation(
        "programs that are alike on a group share a comparison",
        "ranks/comparison.py",
        ('f"{program}.{earlier}" if earlier else program', "program"),
        killer="test_ranks.py::test_on_two_ranks[_two_groups_of_the_same_ranks]",
        quick=False,
    ),
    mutation(
        "a rank that goes on to another group waits in vain",
        "ranks/comparison.py",
        (
            'if any(self.store.check([f"{program}/all"]) for program in set(programs)) or self._places() != places:',
            "if False:",
        ),
        killer="test_comparison.py::test_a_rank_whose_program_all_have_come_to_does_not_wait_in_vain[True]",
    ),
    mutation(
        "ranks gather fake tensors",
        "ranks/channel.py",
        (
            "with _disable_current_modes(), torch._C._DisablePythonDispatcher():",
            "with torch._C._DisablePythonDispatcher():",
        ),
        killer="test_channel.py::test_ranks_gather_in_a_compilation_without_hanging",
        quick=False,
    ),
    mutation(
        "code is taken from a cache though its costs are measured",
        "options.py",
        (" or self.measures() or any(map", " or any(map"),
        killer="test_measure.py::test_measured_code_is_not_taken_from_a_cache",
    ),
    mutation(
        "ranks measure the sizes of the first one alone",
        "calibration/demand.py",
        ("known.sizes = sorted({*known.sizes, *question.sizes})", "known.sizes = sorted(known.sizes)"),
        killer="test_measure.py::test_sizes_of_all_ranks_are_measured",
        quick=False,
    ),
    # The last gate, and all-reduces in place.
    mutation(
        "the gate lets through writes of operands",
        "inductor/flights.py",
        ("for reader in self.reads.get(memory, ()):", "for reader in ():"),
        killer="test_in_place.py::test_the_gate_finds_a_write_under_a_gather",
    ),
    mutation(
        "the gate lets through reads of results",
        "inductor/flights.py",
        (
            "        for memory in reads:\n            if memory in self.fills:\n",
            "        for memory in reads:\n            if False:\n",
        ),
        killer="test_in_place.py::test_the_gate_finds_a_read_before_the_wait",
    ),
    mutation(
        "the gate lets through writes of results",
        "inductor/flights.py",
        (
            "        for memory in writes:\n            if memory in self.fills:\n",
            "        for memory in writes:\n            if False:\n",
        ),
        killer="test_gate.py::test_a_write_of_what_a_collective_fills_is_a_race",
    ),
    mutation(
        "the gate takes a wait for new memory",
        "inductor/gate.py",
        ("views = [UNMARKED_VIEWS[schema.name]] if schema.name in UNMARKED_VIEWS else []", "views = []"),
        killer="test_gate.py::test_what_a_wait_gives_is_the_memory_of_its_start",
    ),
    mutation(
        "the gate lands a list with its first element",
        "inductor/flights.py",
        ("if n == name and r is reads]", "if n == name]"),
        killer="test_gate.py::test_an_element_of_a_list_flies_until_its_own_wait",
    ),
    mutation(
        "the gate does not see memory that is used again",
        "inductor/kernel_gate.py",
        ("        if isinstance(line, code.ReuseLine):\n", "        if False:\n"),
        killer="test_gate.py::test_memory_of_a_collective_in_flight_is_not_given_away",
    ),
    mutation(
        "the gate does not see what kernels mutate",
        "inductor/kernel_gate.py",
        ("(*out.get_mutations(), *(() if", "(*(), *(() if"),
        ("    writes |= {memory.find(m) for out in leaf.get_outputs() for m in out.get_mutations()}\n", ""),
        killer="test_gate.py::test_kernels_leave_the_memory_of_collectives_in_flight_alone",
    ),
    mutation(
        "the gate takes operands of one collective for one memory",
        "inductor/kernel_gate.py",
        ("*(() if _collective(leaf) else out.get_aliases())", "*out.get_aliases()"),
        killer="test_gate.py::test_kernels_that_reduce_operands_in_place_together_do_not_make_them_one_memory",
    ),
    mutation(
        "the gate takes an operator of somebody else for one that starts nothing",
        "inductor/gate.py",
        ("            found.setdefault(filler, set()).add(m)\n", "            pass\n"),
        killer="test_gate.py::test_an_unknown_operator_whose_result_is_waited_for_is_a_start",
    ),
    mutation(
        "what an unknown operator started reads nothing",
        "semantics/effects.py",
        ("                reads = reads | self.aliases.of_all(read_until(node))\n", ""),
        killer="test_gate.py::test_an_unknown_operator_whose_result_is_waited_for_is_a_start",
    ),
    mutation(
        "the gate does not see that gloo fills lists again",
        "inductor/flights.py",
        ("            elif self.again.get(memory, ", "            elif False and self.again.get(memory, "),
        killer="test_gate.py::test_results_of_a_list_of_gloo_are_not_written_before_its_last_wait",
    ),
    mutation(
        "the gate does not look at graphs inside of a call",
        "inductor/gate.py",
        ("touched = [*waited, *(w for n in calls for w in _written(n))]", "touched = [*waited]"),
        killer="test_gate.py::test_a_call_with_a_graph_writes_what_the_graph_writes[True-the operand]",
    ),
    mutation(
        "the gate takes what a graph inside of a call writes of its own for operands",
        "inductor/gate.py",
        ("if of(n) & written]", "if written]"),
        killer="test_gate.py::test_a_call_with_a_graph_writes_what_the_graph_writes[True-its own]",
    ),
    mutation(
        "a write of what a function returned is none of its operand",
        "importer/computes.py",
        ("for v in (*written, *self.shadows_of(written)) if v.storage", "for v in written if v.storage"),
        killer="test_aliases.py::test_the_importer_reads_a_function_as_the_gate_does[0]",
    ),
    mutation(
        "what a function may have returned is free while it is gathered",
        "importer/state.py",
        ("if shadows and values:", "if False:"),
        killer="test_aliases.py::test_the_importer_reads_a_function_as_the_gate_does[1]",
    ),
    mutation(
        "collectives whose sizes are symbols stay in the buckets of another graph",
        "ranks/agreement.py",
        ("tuple(i for i in members if _is_static(starts[i]))", "members"),
        killer="test_ranks.py::test_collectives_whose_sizes_became_symbols_leave_the_buckets_of_their_program",
    ),
    mutation(
        "graphs that run as they stand compare nothing",
        "ranks/comparison.py",
        ("        if shape is not None and shape.lines:\n", "        if False:\n"),
        killer="test_ranks.py::test_on_two_ranks[_graphs_as_they_stand]",
        quick=False,
    ),
    mutation(
        "waits for lists of gloo stay apart",
        "inductor/gloo_lists.py",
        ("            waits[0].append(wait)\n", "            pass\n"),
        killer="test_gate.py::test_results_of_a_list_of_gloo_are_not_written_before_its_last_wait",
    ),
    mutation(
        "operands with gaps are reduced in place",
        "inductor/in_place.py",
        ("if any(_strides(n.meta", "if False and any(_strides(n.meta"),
        killer="test_in_place.py::test_a_reduction_of_a_view_with_gaps_keeps_the_strides_of_its_result",
    ),
    mutation(
        "collectives in flight do not keep their operands from being reduced in place",
        "inductor/in_place.py",
        ("                self._note(i, node, start, aliases.of_all(list(start.all_input_nodes)))\n", ""),
        killer="test_in_place.py::test_a_gather_in_flight_keeps_a_reduction_from_being_in_place[True]",
    ),
    mutation(
        "arguments are reduced in place although the sum is returned",
        "inductor/in_place.py",
        ("        and aliases.of(start).isdisjoint(returned)\n", ""),
        killer="test_gate.py::test_an_argument_whose_sum_is_returned_is_not_reduced_in_place[True]",
    ),
    mutation(
        "a plan repeats random operators",
        "memory_plan.py",
        ("    return bool(spec.ordered or spec.mutated or spec.hybrid)\n", "    return False\n"),
        killer="test_memory_plan.py::test_a_cut_that_repeats_a_random_operator_is_refused",
    ),
    mutation(
        "a plan may pass the limit",
        "memory_plan.py",
        ("            if peak <= limit:\n", "            if True:\n"),
        killer="test_memory_plan.py::test_a_limit_below_what_pytorch_needs_is_kept",
    ),
    mutation(
        "ranks whose values have other names repeat other collectives",
        "memory_plan.py",
        ("            return number[start] not in repeated\n", "            return True\n"),
        killer="test_memory_plan.py::test_the_first_rank_decides",
    ),
    mutation(
        "a plan does not know what checkpointing fixes",
        "memory_plan.py",
        ('    policy = node.meta.get("recompute") is not None and', "    policy = False and"),
        killer="test_memory_plan.py::test_what_a_policy_fixes_stays",
    ),
    # Rewrites.
    mutation(
        "an operand is replaced across a write",
        "apply/operands.py",
        (
            "                if since < self.index[writer] < at and start_of_wait",
            "                if False and start_of_wait",
        ),
        killer="test_rewrites.py::test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done"
        "[a value that is written in between]",
    ),
    mutation(
        "an operand becomes any other value",
        "apply/operands.py",
        ("    return repr((a.args, a.kwargs)) == repr((b.args, b.kwargs))", "    return True"),
        killer="test_rewrites.py::test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done[another operand]",
    ),
    mutation(
        "a gather writes a buffer that somebody reads",
        "apply/operands.py",
        ("                if self.index[node] > self.index[start] and not waits:\n", "                if False:\n"),
        killer="test_rewrites.py::test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done"
        "[a buffer that somebody reads]",
    ),
    mutation(
        "a parameter is used whose storage is gone",
        "apply/operands.py",
        ("            if resizes and stay:\n", "            if False:\n"),
        killer="test_rewrites.py::test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done"
        "[half of the resizes]",
    ),
    mutation(
        "the stages before a refused one stay",
        "schedule.py",
        ("        given.restore()\n        raise\n", "        raise\n"),
        killer="test_rewrites.py::test_what_a_graph_cannot_hold_is_refused_and_nothing_is_half_done"
        "[an effect that is gone]",
    ),
    mutation(
        "a sum loses bits without the user's word",
        "apply/casts.py",
        ("        if reduction in ROUNDED and self.behind and not allowed:\n", "        if False:\n"),
        killer="test_casts.py::test_the_graph_is_checked_without_trust_in_the_pass",
    ),
    mutation(
        "a cast moves across a write",
        "apply/operands.py",
        ("                if writer not in move.starts and writer not in move.waits:\n", "                if False:\n"),
        killer="test_casts.py::test_a_pass_that_does_not_see_a_write_is_refused",
    ),
    mutation(
        "the fake values behind a moved cast stay",
        "apply/casts.py",
        ('                node.meta["val"] = node.target(*args, **kwargs)\n', "                pass\n"),
        killer="test_casts.py::test_gathers_carry_the_narrower_type",
    ),
    # What is said of a step.
    mutation(
        "an order is proven to be faster by its own time alone",
        "../meshes.py",
        ("    if best is None or bound <= best[0] * (1 + WORTH_SAYING):", "    if best is None:"),
        killer="test_placement.py::test_the_right_order_gets_none",
    ),
    mutation(
        "a graph that was not played counts nothing",
        "../meshes.py",
        ("        if None not in times and (best", "        if (best"),
        killer="test_placement.py::test_a_step_counts_as_a_whole",
    ),
    mutation(
        "groups of another order are those of the given one",
        "../placement.py",
        ("            moved = Program(_placed(text, mesh, order)", "            moved = Program(text"),
        killer="test_placement.py::test_the_wrong_order_gets_one_line",
    ),
    mutation(
        "what one graph exposes is hidden by graphs that compute less",
        "summary.py",
        ("    return min(exposed, sum(max(0,", "    return max(exposed, sum(max(0,"),
        killer="test_breaks.py::test_the_other_side_hides_at_most_what_it_computes",
    ),
    mutation(
        "the backward graphs run in the order of the forward graphs",
        "inductor/breaks.py",
        ('[:: -1 if direction == "backward" else 1]', "[::1]"),
        killer="test_breaks.py::test_a_break_costs_at_most_what_the_report_says",
        quick=False,
    ),
    mutation(
        "a computation keeps what is only returned",
        "inductor/breaks.py",
        ("    return spec.start is not None or spec.is_wait or is_view", "    return True"),
        killer="test_breaks.py::test_collectives_at_the_edges",
    ),
    mutation(
        "gradients of compiled autograd are no gradients",
        "apply/readers.py",
        ("    return is_backward(graph) or in_compiled_autograd()", "    return is_backward(graph)"),
        killer="test_ddp.py::test_compiled_autograd_brings_the_all_reduces_into_the_schedule",
        quick=False,
    ),
    mutation(
        "PyTorch merges DDP's all-reduces in front of the schedule",
        "inductor/rivals.py",
        ('    "_fuse_ddp_communication": False,\n', ""),
        killer="test_ddp.py::test_compiled_autograd_brings_the_all_reduces_into_the_schedule",
        quick=False,
    ),
    mutation(
        "a wrapped module that does not run counts as running",
        "inductor/outside.py",
        ('    return state._training_state.name != "IDLE"', "    return True"),
        killer="test_outside.py::test_a_model_without_wrappers_and_one_that_is_not_at_work",
        quick=False,
    ),
    mutation(
        "the digits of a rank are read in the order of the mesh",
        "../placement.py",
        ("            for axis in reversed(order):\n", "            for axis in reversed(sorted(order)):\n"),
        killer="test_jax_placement.py::test_groups_are_those_of_numpys_arrays",
    ),
    mutation(
        "a pack of bytes takes over casts",
        "apply/buckets.py",
        ('    if len({m.meta["val"].dtype for m in bucket.members}) != 1:\n        return None\n', ""),
        killer="test_bucket_forms.py::test_gathers_of_several_types_travel_as_bytes",
    ),
]
