"""Search the best order of repairs, and ask whether the order matters.

    python examples/order_search.py

Two orders and two trainings each show the calls; an answer takes more: docs/tutorials/workflow.md.
"""

import cavalcade

search = cavalcade.search(
    "cage2",
    red="meander",
    searcher="fixed",
    orders=("critical_first", "reverse"),
    rounds=2,
    total_episodes=4_000,
    max_episodes=20,
    confirm=0,
)
print(search.ranking())
print(f"does the order matter? {search.answer}; best: {search.best}")
print(f"report: {search.report}")
