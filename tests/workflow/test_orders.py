"""Orders: parsing, distances, encodings."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.workflow.orders import Subtasks, classes, kendall, one_hot, precedences, ranks

ORDERS = st.permutations(range(5)).map(tuple)


def test_all_orders_in_the_order_of_the_scripts():
    orders = CAGE2.orders()
    assert len(orders) == 120
    assert orders[0] == (0, 1, 2, 3, 4)
    assert orders == list(itertools.permutations(range(5)))


@given(ORDERS)
def test_text_and_back(order):
    assert CAGE2.parse(CAGE2.text(order)) == order
    assert CAGE2.parse(CAGE2.text(order).replace(">", ", ")) == order


def test_canonical_orders_have_names():
    assert len(CAGE2.named) == 6
    assert CAGE2.text(CAGE2.parse("critical_first")) == "defender>op_server>enterprise>op_host>user"
    assert CAGE2.name_of(CAGE2.parse("reverse")) == "user>op_host>enterprise>op_server>defender (reverse)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("defender,user", "lacks enterprise, op_server, op_host"),
        ("defender,user,user,op_server,op_host,enterprise", "has user more than once"),
        ("defender,router,user,op_server,op_host", "'router' in order"),
        ("", "'' in order '' is not a subtask; there are defender"),
        ("best_first", "an order of critical_first"),
    ],
)
def test_bad_orders_are_refused(text, words):
    with pytest.raises(ConfigError, match=words):
        CAGE2.parse(text)


@given(ORDERS, ORDERS, ORDERS)
def test_kendall_is_a_distance(a, b, c):
    assert kendall(a, a) == 0
    assert kendall(a, b) == kendall(b, a)
    assert kendall(a, b) <= kendall(a, c) + kendall(c, b)
    assert kendall(a, a[::-1]) == 10
    swapped = list(a)
    swapped[1], swapped[2] = swapped[2], swapped[1]
    assert kendall(a, tuple(swapped)) == 1


def test_encodings_by_hand():
    order = (2, 0, 1)
    assert one_hot(order).tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 0]
    assert ranks([order]).tolist() == [[1, 2, 0]]
    assert precedences([order]).tolist() == [[1.0, -1.0, -1.0]]  # 0 before 1; 2 before 0; 2 before 1


@given(ORDERS)
def test_one_hot_is_place_by_subtask(order):
    square = one_hot(order).reshape(5, 5)
    assert (square.sum(0) == 1).all()
    assert (square.argmax(1) == np.array(order)).all()


def test_too_many_subtasks_to_list():
    with pytest.raises(ConfigError, match="8 subtasks have too many orders"):
        Subtasks(tuple("abcdefgh")).orders()


def test_orders_that_agree_are_one_class():
    orders = Subtasks(tuple("abc")).orders()  # abc acb bac bca cab cba
    assert classes(orders, [0, 1, 2]) == [0, 1, 2, 3, 4, 5]
    assert classes(orders, []) == [0] * 6
    assert classes(orders, [0]) == [0, 0, 2, 2, 0, 2]  # a before b
    assert classes(orders, np.array([2])) == [0, 1, 0, 0, 1, 1]  # b before c
    assert classes(orders[::-1], [0]) == [0, 1, 0, 0, 1, 1]  # the first that agrees, as they are listed


@given(st.sets(st.integers(0, 9)))
def test_classes_are_those_of_the_precedences_that_count(pairs):
    orders = CAGE2.orders()
    counted = sorted(pairs)
    found = classes(orders, counted)
    signs = precedences(orders)[:, counted]
    assert len(set(found)) == len({tuple(row) for row in signs.tolist()})
    for order, first in enumerate(found):
        assert first <= order
        assert found[first] == first
        assert (signs[order] == signs[first]).all()


def test_of_three_subtasks_that_compete_there_are_six_classes():
    names = CAGE2.names
    competing = {"enterprise", "op_server", "user"}
    pairs = [k for k, (a, b) in enumerate(CAGE2.pairs()) if {names[a], names[b]} <= competing]
    found = classes(CAGE2.orders(), pairs)
    assert sorted(found.count(first) for first in set(found)) == [20] * 6
