"""The names that a mistyped or foreign one may have meant."""

import difflib
from collections.abc import Iterable

# How other trainers call it.
_SYNONYMS = {
    "batch_size": ("minibatches", "num_envs", "rollout_steps"),
    "clip_coef": ("clip",),
    "clip_range": ("clip",),
    "discount": ("gamma",),
    "env_kwargs": ("env_options",),
    "ent_coef": ("entropy_coef",),
    "gpu": ("device",),
    "lambda": ("gae_lambda",),
    "layers": ("hidden",),
    "max_grad_norm": ("grad_clip",),
    "max_steps": ("horizon",),
    "n_steps": ("rollout_steps",),
    "name": ("run",),
    "net_arch": ("hidden",),
    "output": ("out", "run"),
    "timesteps": ("steps", "episodes"),
    "total_episodes": ("episodes",),
    "total_timesteps": ("steps", "episodes"),
    "update_epochs": ("epochs",),
    "vf_coef": ("value_coef",),
}


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Known names close to one: of the same meaning elsewhere, by initials, abbreviated, or mistyped; best first."""
    name, known = name.replace("-", "_").lower(), list(known)
    found = [other for other in _SYNONYMS.get(name, ()) if other in known]
    found += [other for other in known if len(name) > 1 and _initials(other) == name.replace("_", "")]
    found += [other for other in known if _abbreviates(name, other)]
    found = found or difflib.get_close_matches(name, known, n=most)
    return list(dict.fromkeys(found))[:most]


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.split("_"))


def _abbreviates(name: str, other: str) -> bool:
    """Whether each word begins that word of the other name: ent_coef is entropy_coef, learn is learning_rate."""
    words, others = name.split("_"), other.split("_")
    if len(name) < 3 or len(words) > len(others):
        return False
    return all(a and b.startswith(a) for a, b in zip(words, others, strict=False))
