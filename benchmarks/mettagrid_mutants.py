"""Would the recorded episodes of MettaGrid notice a broken rule? `python benchmarks/mettagrid_mutants.py` says.

As `mutants.py` for CAGE-2: one rule at a time is broken, in plain Python, and the recorded random configurations are
replayed, those of few agents first.
"""

from mutants import ROOT, report

RECORDED = ROOT / "src" / "cavalcade" / "envs" / "mettagrid" / "recorded"

# (file, text, replacement): the text must occur exactly once.
MUTANTS = [
    ("mersenne.py", "j, k = x // (i + 2), x % (i + 2)", "k, j = x // (i + 2), x % (i + 2)"),
    ("mersenne.py", "    if n % 2 == 0:\n", "    if False:\n"),
    ("initial.py", "return passed[::-1]", "return passed"),
    ("window.py", "tip = square == tall * tall + 1 and", "tip = square == tall * tall + 2 and"),
    ("window.py", "for c in ((-column, column) if column", "for c in ((column, -column) if column"),
    ("sight.py", "        if crosses_row and crosses_column:", "        if False:"),
    ("sight.py", "        if (r, c) != (row, column):\n            yield r, c", "        yield r, c"),
    ("sight.py", "crosses_row = next_row <= next_column if", "crosses_row = next_row < next_column if"),
    ("maps.py", "yield roles[seen[i] if len(roles) > 1 else 0]", "yield roles[0]"),
    ("programs.py", "return self._all(part.filters, no, yes)", "return self._all(part.filters, yes, no)"),
    ("programs.py", "                no = self._all(group, yes, no)", "                yes = self._all(group, yes, no)"),
    ("programs.py", "yes, no = self.any(child, yes, yes), self.any(child, yes, no)", "no = self.any(child, yes, no)"),
    ("programs.py", "                no = self.any(child, yes, no)\n            return no", "                no = self.any(child, no if no >= 0 else yes, no)\n            return no"),
    ("programs.py", "return yes if part.amount <= 0 else no", "return no"),
    ("programs.py", "return bool(actor.tags & self._target.tags & {*part.tags})", "return bool(actor.tags & {*part.tags})"),
    ("programs.py", "return asked.vibe == part.vibe if", "return asked.vibe >= part.vibe if"),
    ("tables.py", "usual = game.roles[0].inventory.default_limit if agent", "usual = inventory.default_limit if agent"),
    ("tables.py", "usual if agent or name in started else MOST", "usual"),
    ("tables.py", "sorted({game.tags.index(name) for name in tags})", "[game.tags.index(name) for name in tags]"),
    ("using.py", "        for i in range(count, 0, -1):\n            state.held[e, h, i] = state.held[e, h, i - 1]\n        state.held[e, h, 0] = resource", "        state.held[e, h, count] = resource"),
    ("using.py", "new = min(max(old + delta, 0), max(room_of(state, tables, e, h, resource), 0))", "new = min(max(old + delta, 0), max(room_of(state, tables, e, h, resource), old, 0))"),
    ("using.py", "    if tables.shared[role, resource]:", "    if False:"),
    ("using.py", "allowed += bonus * np.int64(state.inventory[e, h, other])", "allowed += bonus"),
    ("using.py", "limit = min(max(limit, allowed), np.int64(tables.most[role, resource]))", "limit = max(limit, allowed)"),
    ("using.py", "        if lost:\n", "        if False:\n"),
    ("using.py", "passed = late >= 0 and late % amount == 0", "passed = late % amount == 0"),
    ("using.py", "wanted = there if amount < 0 else amount", "wanted = amount"),
    ("using.py", "delta = -min(there, wanted, max(free, 0))", "delta = -min(there, wanted)"),
    ("using.py", "            state.deposited[e, h, resource] -= np.float32(delta)", "            pass"),
    ("using.py", "        delta = -there\n", "        delta = -1\n"),
    ("rules.py", "state.counts[e, a, INVALID] += np.float32(2)", "state.counts[e, a, INVALID] += np.float32(1)"),
    ("rules.py", "row = after if applied and first else", "row = after if first else"),
    ("rules.py", "row = after if applied and first else", "row = np.int64(UNDONE) if applied and first else"),
    ("rules.py", "        state.last[e, a] = action\n", "        pass\n"),
    ("rules.py", "GROUP << 8 | tables.groups_of_agents[role] << 16", "GROUP << 8"),
    ("rules.py", "moved = np.int64(state.place[e, a] != state.before[e, a])", "moved = np.int64(state.last[e, a] != 0)"),
    ("rules.py", "feature = EAST if east > 0 else WEST", "feature = WEST if east > 0 else EAST"),
    ("rules.py", "            change += value - state.worth[e, a, k - first]", "            change += (value - state.worth[e, a, k - first]) if state.step[e] > 1 else np.float32(0)"),
    ("rules.py", "        if tables.per_tick[k]:", "        if False:"),
    ("rules.py", "return min(max(value, tables.reward_least[k]), tables.reward_most[k])", "return min(value, tables.reward_most[k])"),
    ("rules.py", "found = state.gained[e, a, index]", "found = state.lost[e, a, index]"),
    ("rules.py", "share = 0 if most == 0 else 255 if step >= most else", "share = 0 if most == 0 else"),
]  # fmt: skip


if __name__ == "__main__":
    report(
        MUTANTS,
        "mettagrid",
        ["mettagrid", *map(str, sorted(RECORDED.glob("random-*.npz"), key=lambda path: int(path.stem[7:])))],
    )
