"""The memory of a container counts where it is less than the machine's."""

import psutil
import pytest

from cavalcade.core.memory import memory

GIB = 1 << 30
V1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("", "memory.max", "memory.current", "inactive_file")


@pytest.mark.parametrize(("controllers", "most", "used", "cache"), [V1, V2])
def test_the_limit_of_a_group_or_of_one_above_it(tmp_path, controllers, most, used, cache):
    mine, root = tmp_path / "mine", tmp_path / "groups" / controllers
    mine.write_text(f"4:cpuset:/other\n{'5' if controllers else '0'}:{controllers}:/outer/inner\n")
    for name, limit in (("outer", GIB), ("outer/inner", 2 * GIB)):
        (root / name).mkdir(parents=True)
        (root / name / most).write_text(f"{limit}\n")
        (root / name / used).write_text(f"{GIB // 2}\n")
        (root / name / "memory.stat").write_text(f"anon 3\n{cache} {GIB // 4}\n")
    found = memory(tmp_path / "groups", mine)
    assert found.total == GIB
    assert found.available == min(GIB - GIB // 4, psutil.virtual_memory().available)


def test_without_a_limit_it_is_the_machines(tmp_path):
    (tmp_path / "mine").write_text("0::/here\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "memory.max").write_text("max\n")
    assert memory(tmp_path, tmp_path / "mine").total == psutil.virtual_memory().total
    assert memory(tmp_path, tmp_path / "missing").total == psutil.virtual_memory().total
