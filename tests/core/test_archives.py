"""Damaged archives raise what callers expect."""

import numpy as np
import pytest

from cavalcade.core.archives import DAMAGED, read_arrays


def test_a_header_with_an_open_bracket(tmp_path):
    """Not checked by a CRC, since members that are read in part are not."""
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content.replace(b"'shape': (3,), }", b"'shape': (3,,   "))
    with pytest.raises(DAMAGED):
        read_arrays(tmp_path / "a.npz")
