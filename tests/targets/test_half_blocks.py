"""Pictures on a terminal."""

import numpy as np
import pytest

from cavalcade.targets.half_blocks import half_blocks


@pytest.mark.parametrize(("shape", "fits"), [((100, 50), (10, 10)), ((50, 100), (20, 5)), ((1, 1), (2, 1))])
def test_a_picture_fits_and_keeps_its_shape(shape, fits):
    text = half_blocks(np.zeros((*shape, 3), np.uint8), 20, 10)
    lines = text.plain.splitlines()
    assert (len(lines[0]), len(lines)) == fits or shape == (1, 1)
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 20


def test_upper_and_lower_pixels_have_their_colours():
    frame = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8)
    text = half_blocks(frame, 2, 1)
    assert text.plain == "▀▀\n"
    left, right = (span.style for span in text.spans)
    assert (left.color.triplet.hex, left.bgcolor.triplet.hex) == ("#ff0000", "#0000ff")
    assert (right.color.triplet.hex, right.bgcolor.triplet.hex) == ("#00ff00", "#ffffff")
