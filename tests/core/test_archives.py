"""Damaged archives raise what callers expect."""

import io
import zipfile

import numpy as np
import pytest

from cavalcade.core.archives import DAMAGED, read_arrays


def test_a_header_whose_bracket_is_never_closed(tmp_path):
    array = io.BytesIO()
    np.save(array, np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", array.getvalue().replace(b"(3,), }", b"(3,,   "))
    with pytest.raises(DAMAGED):
        read_arrays(tmp_path / "a.npz")
