"""CAGE-2 as a batch environment: thousands of games behind the buffers of `core.contract`."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Self

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike, NDArray

from cavalcade.config.io import from_dict
from cavalcade.core.contract import Buffers, Environment, EnvSpec, Packed, SavedState, checked_actions
from cavalcade.core.errors import ActionError, ConfigError, StateError, at_least, one_of
from cavalcade.core.jit import all_threads
from cavalcade.core.rng import STREAMS
from cavalcade.envs.cage2 import cpu, observe
from cavalcade.envs.cage2.changes import CHANGED, Scenario
from cavalcade.envs.cage2.game import Outputs, Params
from cavalcade.envs.cage2.observed_belief import ObservedBelief
from cavalcade.envs.cage2.own_red import MEMORY
from cavalcade.envs.cage2.red_choice import Red, RedChoices, red_codes
from cavalcade.envs.cage2.reward import OBJECTIVES, PARTS
from cavalcade.envs.cage2.scenario import MIXED, NUM_ACTIONS, OWN, REDS, REVISIONS, VARIANTS
from cavalcade.envs.cage2.state import GAME_FIELDS, WIDTHS, allocate, check_saved
from cavalcade.envs.cage2.truth import TRUTH_VALUES

DTYPES = ("uint8", "float32")
CRITICS = ("observation", "true-state")
RED_MEMORY = "red_memory"  # in saved states of games with user-defined Reds


class Cage2(Environment):
    """A batch of CAGE-2 games, equal to CybORG step for step.

    Args:
        num_envs: games in the batch (N).
        red: Red agent: bline, meander, sleep, mixed (drawn per episode), module:function or a function for a Red of
            your own (docs/own-red.md); one for all or one per environment.
        revision: of CybORG: head, the newest, or leaderboard-2022, that of the 2022 leaderboard.
        variant: Blue's table as in the official wrapper (challenge) or in the workflow-search scripts (workflow).
        green: whether Green scans ports; the official evaluation has no Green.
        horizon: steps per episode; 0 for no end.
        objective: what rewards add up to: the return, or protocol, the nine-cell score: each reward is multiplied by
            the number of the protocol's horizons (30, 50, 100) that count its step.
        extras: observation extras after the 52 values of the table, any of scans, decoys, action, time, elapsed, belief
            (what Blue can conclude: `ObservedBelief`), truth.
        critic: what critics see: the observation, or true-state: the last `critic_values` values of an observation are
            then the hidden state, which policies must not see.
        scenario: changes to the scenario, as {"detection": 0.5}; the game is then not that of the challenge.
        dtype: of the observation values, uint8 or float32 (needed for time).
        seed: of the games; of a sequence, each seed takes an equal share of the environments, as for a population.
        stream: train, evaluate or heldout: streams have no games in common.
        first_index: index of the first environment, for a batch that is part of a larger one.
        autoreset: begin the next episode in the step that ends one.
        threads: maximum number of CPU threads; 0 for all.

    Attributes:
        state: the true state, readable in place (see `State`); sets of hosts are bits, `host_bits` unpacks them.
        words: the observation packed into integers, (N, W): equal rows are equal observations.
        reward_parts: costs of held hosts, impact and Restore in the latest step, in tenths, (N, 3).
        final_total: return of the episode that ended in the latest step, in tenths, (N,).
    """

    episode_kind_names = REDS[:MIXED]

    def __init__(
        self,
        num_envs: int,
        *,
        red: Red | Sequence[Red] = "bline",
        revision: str = "head",
        variant: str = "challenge",
        green: bool = False,
        horizon: int = 100,
        objective: str = "return",
        extras: Iterable[str] = (),
        critic: str = "observation",
        scenario: Scenario | Mapping[str, float] | None = None,
        dtype: str = "uint8",
        seed: int | Sequence[int] = 0,
        stream: str = "train",
        first_index: int = 0,
        autoreset: bool = True,
        threads: int = 0,
    ):
        num_envs, changes = at_least("num_envs", num_envs, 1), scenario_of(scenario)
        bits = extras_bits(extras)
        if one_of("critic", critic, CRITICS):
            if bits & observe.TRUTH:
                raise ConfigError(
                    f"critic is {critic} and extras has truth; the policy would see it too, leave one out"
                )
            bits, self.critic_values = bits | observe.TRUTH, TRUTH_VALUES
        self.params = Params(
            revision=one_of("revision", revision, REVISIONS),
            variant=one_of("variant", variant, VARIANTS),
            green=int(green),
            horizon=at_least("horizon", horizon, 0),
            autoreset=int(autoreset),
            extras=bits,
            objective=one_of("objective", objective, OBJECTIVES),
            **changes.params,
        )
        self._dtype = np.dtype(DTYPES[one_of("dtype", dtype, DTYPES)])
        if self.params.extras & observe.TIME and (dtype != "float32" or not self.params.horizon):
            raise ConfigError(f"extras has time, with dtype {dtype} and horizon {horizon}; it needs float32 and an end")
        self.threads = at_least("threads", threads, 0) or all_threads()
        self._stream = np.uint64(one_of("stream", stream, STREAMS))
        self._first_index = at_least("first_index", first_index, 0)
        codes, own = red_codes(red, num_envs)
        self._choices = RedChoices(own) if own else None
        if own and self.params.red_delay:
            raise ConfigError(f"red_delay is {self.params.red_delay} with red {own[0].label}; let it wait by itself")
        if own and bits & observe.BELIEF:
            raise ConfigError(
                f"extras has belief with red {own[0].label}; beliefs are over the agents of the challenge"
            )
        self._allocate(num_envs)
        self.state.red_setting[:] = codes
        if self._choices:
            self.episode_kind_names = (*REDS, *(red.label for red in own))
            self._choices.compile(self.state, self._red_memory)
        if changes.differences:
            self.episode_kind_names = tuple(name + CHANGED for name in self.episode_kind_names)
        self._seed(seed)

    @property
    def words(self) -> NDArray[np.int64]:
        """The observation packed into integers, (N, W)."""
        return self._outputs.words

    @property
    def reward_parts(self) -> NDArray[np.int16]:
        """The parts of the latest reward, in tenths, (N, 3): hosts, impact, restore."""
        return self._outputs.parts

    @property
    def final_total(self) -> NDArray[np.int32]:
        """Returns of episodes in tenths, (N,), valid in rows whose episode ended in the latest step."""
        return self._outputs.final_total

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode in all or the given environments; with a seed, the first episode of that seed."""
        rows = self._rows(indices)
        if seed is not None:
            if indices is not None:
                raise ConfigError("reset was given a seed and indices; a seed is for the whole batch, leave one out")
            self._seed(seed)
        elif self._begun:
            self.state.episode[rows] += 1
        elif indices is not None:
            raise StateError("the first reset was given indices; it must begin all environments, leave them out")
        self._begin(rows)
        self._shown(rows)
        return self.buffers

    def send(self, actions: ArrayLike) -> None:
        """Checks and stores one action per environment; nothing changes if one of them is out of range."""
        if not self._begun:
            raise StateError("step before the first reset; call reset() once")
        array = checked_actions(actions, self.spec.num_envs)
        wrong = cpu.take_actions(array, self._actions)
        if wrong >= 0:
            raise ActionError(
                f"action {array[wrong]} of environment {wrong} is out of range; it must be from 0 to {NUM_ACTIONS - 1}"
            )
        self._sent = True

    def recv(self) -> Buffers:
        """Steps every game with the actions sent."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        self._choose_red()
        cpu.step(self.state, self.params, self._actions, self._outputs, self.threads)
        self._follow()
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games by field of `State`, one row per environment."""
        rows = self._rows(indices)
        saved = {name: self._by_row(name)[rows].copy() for name in GAME_FIELDS}
        saved |= self._belief.save(rows) if self._belief else {}
        return saved | {RED_MEMORY: self._red_memory[rows].copy()} if self._choices else saved

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Loads saved games into all or the given environments; nothing changes if they do not fit."""
        rows = self._rows(indices)
        check_saved(saved, len(rows))
        self._check_reds(saved, len(rows))
        if self._belief:
            self._belief.check(saved, len(rows))
        if indices is not None and not self._begun:
            raise StateError("load_state with indices before the first reset; call reset() once")
        for name in GAME_FIELDS:
            self._by_row(name)[rows] = saved[name]
        if self._choices:
            self._red_memory[rows] = saved[RED_MEMORY]
        if self._belief:
            self._belief.load(saved, rows)
        self._shown(rows)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        """An independent batch that continues from these games; equal actions give equal futures."""
        saved = self.save_state(indices)
        other = copy(self)
        other._allocate(len(saved["key"]))
        other.load_state(saved)
        return other

    def _allocate(self, num_envs: int) -> None:
        """Allocates state, outputs and spec."""
        self._everywhere = np.arange(num_envs)
        self._actions = np.zeros(num_envs, np.int32)
        self._sent = self._begun = False
        self.state = allocate(num_envs)
        self._red_memory = np.zeros((num_envs if self._choices else 0, MEMORY), np.int64)
        self._belief = ObservedBelief(num_envs, self.params) if self.params.extras & observe.BELIEF else None
        self._outputs = _outputs(num_envs, self.params.extras, self._dtype)
        self.buffers = Buffers(
            observation=self._outputs.values,
            reward=self._outputs.reward,
            terminated=self._outputs.terminated,
            truncated=self._outputs.truncated,
            final_observation=self._outputs.final_values,
            action_mask=self._outputs.mask,
        )
        self.episode_kinds = self._outputs.final_red
        self.packed = Packed(self._outputs.words, self._outputs.final_words, self._outputs.mask_words)
        self.spec = EnvSpec(
            name="cage2",
            num_envs=num_envs,
            observation_space=Box(0, 1, (observe.num_values(self.params.extras),), self._dtype.type),
            action_space=Discrete(NUM_ACTIONS),
        )

    def _seed(self, seed: int | Sequence[int]) -> None:
        """Derives every environment's random key and returns to its first episode."""
        num_envs = self.spec.num_envs
        seeds = np.atleast_1d(np.asarray(seed))
        if seeds.ndim != 1 or seeds.dtype.kind not in "iu" or (seeds < 0).any():
            raise ConfigError(f"seed is {seed!r}; it must be a whole number of at least 0, or a sequence of them")
        if not seeds.size or num_envs % seeds.size:
            raise ConfigError(
                f"{seeds.size} seeds do not divide {num_envs} environments; each seed takes an equal share"
            )
        share = num_envs // seeds.size
        indices = np.tile(np.arange(self._first_index, self._first_index + share, dtype=np.uint64), seeds.size)
        cpu.derive_keys(self._stream, np.repeat(seeds.astype(np.uint64), share), indices, self.state.key)
        self.state.episode[:] = 0

    def _begin(self, rows: NDArray[np.int64]) -> None:
        """Begins games."""
        cpu.begin(self.state, rows)
        if self._belief:
            self._belief.begin(self.state, rows)

    def _follow(self) -> None:
        """Takes the latest step into Blue's belief, if that is observed."""
        if self._belief:
            self._belief.follow(self.state, self._actions, self._outputs, self.threads)

    def _choose_red(self) -> None:
        """Ends the wait for actions; asks user-defined Reds for theirs."""
        self._sent = False
        if self._choices:
            self._choices.choose(self.state, self._red_memory, self.threads)

    def _check_reds(self, saved: SavedState, num_envs: int) -> None:
        """Raises `StateError` unless the Reds of saved games are those of this batch."""
        kinds = len(self._choices.reds) if self._choices else 0
        if (most := max(saved["red"].max(initial=0), saved["red_setting"].max(initial=0))) >= OWN + kinds:
            raise StateError(
                f"the saved games have {most - OWN + 1} user-defined Reds; this batch has {kinds}, make it with red=…"
            )
        if self._choices and np.shape(saved.get(RED_MEMORY, ())) != (num_envs, MEMORY):
            raise StateError(f"the saved state has no {RED_MEMORY} ({num_envs}, {MEMORY}); it has other Reds")

    def _rows(self, indices: ArrayLike | None) -> NDArray[np.int64]:
        """Row numbers of the given environments, or of all."""
        if indices is None:
            return self._everywhere
        rows = np.atleast_1d(np.asarray(indices))
        if rows.dtype == np.bool_ and rows.shape == self._everywhere.shape:
            rows = np.flatnonzero(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= self.spec.num_envs)).any():
            raise ConfigError(f"indices are {indices!r}; they must be whole numbers from 0 to {self.spec.num_envs - 1}")
        return rows.astype(np.int64)

    def _by_row(self, name: str) -> NDArray:
        """A view of a field of the state, one row per environment."""
        field = getattr(self.state, name)
        return field.reshape(self.spec.num_envs, -1) if name in WIDTHS else field

    def _shown(self, rows: NDArray[np.int64]) -> None:
        self._begun = True
        self._sent = False
        cpu.show(self.state, self.params, self._outputs, rows)
        if self._belief:
            self._belief.show(self._outputs, rows)


def scenario_of(given: Scenario | Mapping[str, float] | None) -> Scenario:
    """A scenario from its changes."""
    return given if isinstance(given, Scenario) else from_dict(Scenario, dict(given or {}), "scenario.")


def extras_bits(extras: Iterable[str]) -> int:
    """Observation extras as bits."""
    names = (extras,) if isinstance(extras, str) else tuple(extras)
    bits = 0
    for name in names:
        bits |= 1 << one_of("extras", name, observe.EXTRAS)
    return bits


def _outputs(num_envs: int, extras: int, dtype: np.dtype) -> Outputs:
    words, values = (num_envs, observe.num_words(extras)), (num_envs, observe.num_values(extras))
    return Outputs(
        words=np.zeros(words, np.int64),
        values=np.zeros(values, dtype),
        final_words=np.zeros(words, np.int64),
        final_values=np.zeros(values, dtype),
        mask=np.ones((num_envs, NUM_ACTIONS), np.bool_),
        mask_words=np.zeros((num_envs, 2), np.int64),
        reward=np.zeros(num_envs, np.float32),
        parts=np.zeros((num_envs, len(PARTS)), np.int16),
        terminated=np.zeros(num_envs, np.bool_),
        truncated=np.zeros(num_envs, np.bool_),
        final_total=np.zeros(num_envs, np.int32),
        final_red=np.zeros(num_envs, np.int8),
    )
