"""`cavalcade models [NAME]`: the policies that are shipped with the package, or the card of one."""

from dataclasses import dataclass
from typing import Any

from cavalcade import models
from cavalcade.cli.options import Positional
from cavalcade.cli.parse import parse

_CELLS = 9  # of the official protocol


@dataclass(frozen=True)
class Options:
    """Lists the trained policies that come with Cavalcade, or prints the model card of one.

    model:NAME stands for a policy wherever a run does: `cavalcade evaluate model:NAME`, `play`, `export`, `payoff`.
    """

    name: Positional[str | None] = None
    """Model whose card is printed; by default all are listed."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "models")
    print(_card_text(models.card(options.name)) if options.name else _list())
    return 0


def _list() -> str:
    lines = []
    for name in models.names():
        card = models.card(name)
        size = models.model_file(name).stat().st_size
        lines.append(f"{models.PREFIX}{name:<20}  {card['summary']} ({size / 1000:,.0f} kB)")
    return "\n".join(lines)


def _card_text(card: dict[str, Any]) -> str:
    lines = [f"{models.PREFIX}{card['name']}: {card['summary']}", ""]
    lines += [f"trained   {card['trained']}", f"chosen    {card['chosen']}", f"observes  {card['observes']}"]
    lines.append(f"network   {card['network']}")
    if "order" in card:
        kept = ", ".join(f"{what} {share:g}" for what, share in card["compliance"].items())
        lines += [f"order     {card['order']}", f"obeys it  {kept}"]
    for simulator, scores in card["scores"].items():
        for revision, found in scores.items():
            lines += ["", f"{simulator}, revision {revision}, {found['episodes']:,} episodes per cell, greedy"]
            for name, (mean, interval) in found["cells"].items():
                lines.append(f"  {name:<12} {mean:8.2f} ± {interval:.2f}")
            mean, interval = found["total"]
            name = "total" if len(found["cells"]) == _CELLS else f"sum of {len(found['cells'])}"
            lines.append(f"  {name:<12} {mean:8.2f} ± {interval:.2f}")
    return "\n".join([*lines, "", f"limits    {card['limits']}", f"licence   {card['licence']}"])
