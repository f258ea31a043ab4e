"""Nodes and constants of an ONNX graph."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Nodes:
    """Nodes and constants of a graph."""

    def __init__(self):
        self.all: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.all.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: NDArray) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name
