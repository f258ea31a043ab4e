"""The Python API: train, search, evaluate, load policies and make environments, with one call each.

    run = cavalcade.train("cage2", red="meander", episodes=100_000)
    print(run.evaluate(), run.metrics())

The command line uses the same functions.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium

from cavalcade.config.base import RunConfig
from cavalcade.config.hosting import refuse_idle
from cavalcade.config.io import from_dict, merged, nested
from cavalcade.config.presets import hardware, recipe
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError, RunError, at_least
from cavalcade.core.files import plain_json, read_text
from cavalcade.envs.cage2.protocol import REDS
from cavalcade.envs.cage2.red_choice import Red, red_path
from cavalcade.policy.module import MakeModule, path_of
from cavalcade.ppo.distributed import ALONE, Ranks
from cavalcade.ppo.trainer import Callback
from cavalcade.runs import policies
from cavalcade.runs.advice import resume_command
from cavalcade.runs.directory import RunDirectory, is_search, new_path, open_run, write_whole
from cavalcade.runs.files import EPISODES, METRICS, REPORT, SEARCH, SUMMARY
from cavalcade.runs.history import read_history
from cavalcade.runs.table import read_csv, read_metrics, table
from cavalcade.runs.training import Outcome, Training, stop_on_signal
from cavalcade.runs.waiting import PREPARING, waiting
from cavalcade.search import directory as search_directory
from cavalcade.search.config import SearchConfig
from cavalcade.search.directory import open_search
from cavalcade.search.domains import DOMAINS
from cavalcade.search.policies import BEST, load_search_policy
from cavalcade.targets import target_named
from cavalcade.targets.base import Scores
from cavalcade.targets.cage2 import payoff as payoff_table
from cavalcade.targets.env import ENV
from cavalcade.watch.serve import Watching

if TYPE_CHECKING:  # with what a search computes by, the start of a training would take a quarter longer
    from cavalcade.search.run import Search


@dataclass(frozen=True)
class Run:
    """A training run and its directory."""

    path: Path
    outcome: Outcome | None = None  # how it ended; None if it was opened from disk
    network: MakeModule | None = None  # factory of a user-defined network

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))

    @property
    def config(self) -> RunConfig:
        """The configuration, read from config.yaml."""
        return open_run(self.path).config()

    def metrics(self) -> Any:
        """Metrics, one row per update and policy: a pandas DataFrame if pandas is installed, else a `Table`."""
        return table(read_metrics(open_run(self.path).path / METRICS))

    def episodes(self) -> Any:
        """Training episodes, as a table like `metrics`; at most the first 1,000 of each update."""
        return table(read_csv(open_run(self.path).path / EPISODES))

    def policy(self) -> Any:
        """Loads the policies of the newest checkpoint."""
        return load_policy(self.path, network=self.network)

    def heldout(self) -> Scores:
        """Evaluates the newest policies on held-out episodes of the run's own task."""
        policy = self.policy()
        return target_named(policy.config.target).heldout(policy)

    def evaluate(self, **options: Any) -> Scores:
        """Evaluates the newest policies; options as for `cavalcade evaluate`."""
        return evaluate(self, **options)

    def resume(
        self, *, progress: bool = True, callbacks: Sequence[Callback] = (), threads: int = 0, **settings: Any
    ) -> "Run":
        """Resumes from the newest checkpoint, exactly as if the run had never stopped.

        Settings by name, e.g. episodes=200_000 or learning_rate=1e-4, change from then on: see docs/training.md.
        """
        directory = open_run(self.path)
        config = changed(directory, settings)
        options: dict[str, Any] = {"callbacks": callbacks, "network": self.network, "threads": threads}
        outcome = run_training(directory, config, resume=True, quiet=not progress, **options)
        return Run(self.path, outcome, self.network)

    def history(self) -> list[dict[str, Any]]:
        """What the run started from, and every change of its settings: date, update, changes."""
        return read_history(self.path)

    def watch(self, *, port: int | None = None, height: int = 720) -> Watching:
        """Shows the run live: a frame in a notebook, an address elsewhere; the server ends with the program."""
        return Watching(self.path, port=port, height=height)


@dataclass(frozen=True)
class SearchRun:
    """A search and its run directory."""

    path: Path

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))

    @property
    def config(self) -> SearchConfig:
        """The configuration, read from config.yaml."""
        return open_search(self.path).config()

    @property
    def summary(self) -> dict[str, Any]:
        """Contents of summary.json; see docs/workflow-search.md."""
        try:
            return plain_json(read_text(open_search(self.path).path / SUMMARY))
        except (OSError, ValueError):
            raise RunError(
                f"{self.path} has no {SUMMARY} yet; resume with: {resume_command('search', self.path)}"
            ) from None

    @property
    def answer(self) -> str:
        """Whether the order matters: yes, no or cannot tell."""
        verdict = self.summary["verdict"]
        return verdict["answer"] if verdict else "cannot tell"

    @property
    def best(self) -> str | None:
        """The best order; None if no order was followed."""
        return self.summary["best"]

    def results(self) -> Any:
        """All trainings, one row each: a pandas DataFrame if pandas is installed, else a `Table`."""
        return table(read_csv(open_search(self.path).path / SEARCH))

    def ranking(self) -> Any:
        """The orders, best first, as a table like `results`."""
        return table(self.summary["ranking"])

    def policy(self, order: str = BEST, member: int | None = None) -> Any:
        """Loads the policy of an order, by name or `best`; member: number of a training in search.csv."""
        return load_search_policy(self.path, order, member)

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.path / REPORT

    def resume(self, *, progress: bool = True, threads: int = 0, **settings: Any) -> "SearchRun":
        """Resumes from the newest checkpoint, exactly as if the search had never stopped.

        Settings that have no effect on results may change, e.g. max_restarts.
        """
        directory = open_search(self.path)
        run_search(directory, changed(directory, settings), resume=True, quiet=not progress, threads=threads)
        return self

    def watch(self, *, port: int | None = None, height: int = 720) -> Watching:
        """Shows the search live: a frame in a notebook, an address elsewhere; the server ends with the program."""
        return Watching(self.path, port=port, height=height)


def changed(directory: RunDirectory[Any], settings: dict[str, Any]) -> Any:
    """Configuration of an existing run, with settings given by name on top."""
    return from_dict(directory.kind, _plain(directory.kind, settings), base=directory.config())


def make_config(target: Any, settings: dict[str, Any], *presets: Any) -> RunConfig:
    """Configuration of a training: defaults, then presets (plain data) in turn, then settings given by name."""
    if isinstance(target, RunConfig):
        if settings or presets:
            raise ConfigError("a configuration and further settings are given; change the configuration instead")
        return target
    name = name_of(target)
    kind = target_named(name).Config
    plain: Any = {}
    given = _plain(kind, settings)
    for preset in (*presets, given, {"target": name}):
        plain = merged(plain, preset)
    config = from_dict(kind, plain)
    refuse_idle(config, given)
    return config


def _plain(kind: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings given by name, as plain data; a Red that is a function becomes module:function."""
    red = settings.get("red")
    return nested(kind, settings | {"red": red_path(red)} if callable(red) else settings)


def name_of(target: Any) -> str:
    """The name of a target; of an environment class or factory, env:module:name."""
    if isinstance(target, str):
        return target
    if isinstance(target, RunConfig):
        return target.target
    if isinstance(target, gymnasium.Env) or (isinstance(target, type) and issubclass(target, gymnasium.Env)):
        raise ConfigError("an environment of Gymnasium is given; register it, and name it: gym:NAME or gym:MODULE:NAME")
    if not callable(target) or not hasattr(target, "__qualname__"):
        raise ConfigError(
            f"target is {target!r}; it must be a name, an environment class, a factory or a configuration"
        )
    return f"{ENV}{path_of(target)}"


def train(
    target: str | type[Environment] | Callable[..., Environment] | RunConfig,
    *,
    run: str | Path | None = None,
    recipe: str | None = None,
    hardware: str | None = None,
    threads: int = 0,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    network: MakeModule | None = None,
    writers: str | Sequence[str] = (),
    init: "str | Path | Run | None" = None,
    **settings: Any,
) -> Run:
    """Trains policies with PPO.

    Args:
        target: cage2, mettagrid, gym:NAME, cyborg, env:module:name, an environment class or factory, or a
            configuration.
        run: run directory; runs/TARGET-TIME by default.
        recipe: name of a shipped recipe, or a YAML file with settings.
        hardware: hardware preset, applied on top of the recipe.
        threads: CPU threads; 0 measures which number is fastest.
        progress: print progress.
        callbacks: called with an `Update` after each update; a callback that returns True stops the training.
        network: factory of a custom torch.nn.Module, called with observation size and outputs; see `policy.module`.
        writers: where metrics are logged in addition: tensorboard, wandb.
        init: run, checkpoint, policy file or model:NAME whose policies are the initial weights;
            optimiser, counters and games are fresh.
        **settings: settings by name, as on the command line: red="meander", num_envs=200.
    """
    presets = [recipe_of(recipe)] if recipe else []
    if hardware:
        name = name_of(target)
        presets.append(hardware_of(hardware, name, shipped=target_named(name).hardware))
    config = make_config(target, settings, *presets)
    path = Path(run) if run else default_path(config)
    options: dict[str, Any] = {"threads": threads, "callbacks": callbacks, "network": network}
    options["writers"] = (writers,) if isinstance(writers, str) else writers
    options["init"] = init.path if isinstance(init, Run) else Path(init) if init else None
    outcome = run_training(RunDirectory(path, type(config)), config, quiet=not progress, **options)
    return Run(path, outcome, network)


recipe_of, hardware_of = recipe, hardware  # `train` has arguments of the same names


def default_path(config: RunConfig) -> Path:
    """Default directory of a new run: runs/NAME-TIME."""
    return new_path(target_named(config.target).run_name(config))


def run_training(
    directory: RunDirectory[Any],
    config: RunConfig,
    *,
    quiet: bool = False,
    ranks: Ranks = ALONE,
    threads: int = 0,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Outcome:
    """Trains in a run directory, new or resumed; options: see `Training`."""
    if callable(callbacks):
        raise ConfigError("callbacks is a function; it must be a list of them")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ConfigError(f"callbacks is {callbacks!r}; it must be a list of functions")
    options |= {"threads": at_least("threads", threads, 0), "callbacks": callbacks}
    with directory.locked() if ranks.first else nullcontext():
        with waiting(PREPARING) if ranks.first and not quiet else nullcontext():
            training = Training(directory, config, quiet=quiet, ranks=ranks, **options)
        if not quiet:
            print(f"run {directory}", *training.notes, sep="\n", flush=True)
        return training.train()


def search(
    target: str | SearchConfig = "cage2",
    *,
    run: str | Path | None = None,
    threads: int = 0,
    progress: bool = True,
    **settings: Any,
) -> SearchRun:
    """Searches for the best repair order and tests whether the order matters.

    Args:
        target: cage2, gridworld, cyborg, or a configuration.
        run: run directory; runs/search-TARGET-TIME by default.
        threads: CPU threads; 0 measures which number is fastest.
        progress: print progress and findings.
        **settings: settings by name, as on the command line.
    """
    config = target if isinstance(target, SearchConfig) else search_config(target, _plain(SearchConfig, settings))
    path = Path(run) if run else search_directory.default_path(config.target)
    run_search(RunDirectory(path, SearchConfig), config, quiet=not progress, threads=threads)
    return SearchRun(path)


def search_config(target: str, plain: dict[str, Any]) -> SearchConfig:
    """Configuration of a search: defaults of the domain, then the settings given as plain data."""
    if target not in DOMAINS:
        raise ConfigError(f"target is {target!r}; it must be one of {', '.join(DOMAINS)}")
    return from_dict(SearchConfig, merged(merged(DOMAINS[target].defaults, plain), {"target": target}))


def run_search(
    directory: RunDirectory[SearchConfig],
    config: SearchConfig,
    *,
    quiet: bool = False,
    threads: int = 0,
    resume: bool = False,
) -> tuple["Search", int]:
    """Searches in a run directory, new or resumed; returns the search and the signal that stopped it, or 0."""
    threads = at_least("threads", threads, 0)
    from cavalcade.search.display import SearchDisplay
    from cavalcade.search.run import Search

    with directory.locked():
        with waiting(PREPARING) if not quiet else nullcontext():
            running = Search(directory, config, resume=resume, threads=threads)
        if not quiet:
            print(f"run {directory}", flush=True)
        display = SearchDisplay(running, quiet)
        with stop_on_signal(running) as received:
            try:
                while not running.done and not running.stopping:
                    for result in running.advance():
                        display.result(result)
                    display.tick()
                running.checkpoint()
            finally:
                display.close()
                running.close()
        if running.done:
            _finish_search(running, quiet)
    return running, received[0]


def _finish_search(running: "Search", quiet: bool) -> None:
    """Writes summary and report, and prints the findings."""
    if running.config.shard:
        text = (
            f"shard {running.config.shard} is done: {len(running.results)} trainings in {running.seconds:.1f} s; "
            "join all shards with: cavalcade search merge RUN…"
        )
    else:
        from cavalcade.report.search import search_report  # matplotlib takes a second to import
        from cavalcade.search.conclusion import conclude
        from cavalcade.search.records import read_rows

        run, found = running.run, conclude(running)
        report = search_report(found.plain, read_rows(run.path))
        run.check_files(SUMMARY, REPORT)  # before one of them is written
        write_whole(run.path / SUMMARY, json.dumps(found.plain, indent=1))
        write_whole(run.path / REPORT, report)
        text = f"\n{found.text}\nreport {run.path / REPORT}"
    if not quiet:
        print(text)


def load_policy(
    path: str | Path,
    *,
    order: str | None = None,
    member: int | Literal["best"] | None = None,
    network: MakeModule | None = None,
) -> Any:
    """Loads a trained policy from a run, a checkpoint, a search, a policy file or a shipped model.

    `policy(observation, mask=None, state=None)` returns the action for one observation or the actions for a batch;
    `policy.evaluate(observation)` returns probabilities and values.

    Args:
        path: directory of a run or a search, a checkpoint, a file that `cavalcade export --file` wrote, or model:NAME.
        order: of a search: the order whose policy is loaded; the best by default.
        member: of a run with several policies: index of one, or best, which plays validation episodes; all by
            default. Of a search: number of a training in search.csv.
        network: factory of a user-defined network.
    """
    path = Path(path)
    if is_search(path):
        return load_search_policy(path, order or BEST, None if member == BEST else member)
    if order is not None:
        raise ConfigError(f"order is {order!r}; {path} is not a search, its policies act as they were trained")
    found = policies.load_policy(path, network)
    if member is None:
        return found
    chosen = target_named(found.config.target).member(found, None if member == BEST else member)
    return found[chosen.index] if chosen.text else found


def _policy_of(given: Any, options: dict[str, Any]) -> Any:
    """The policy of a run, a path or a policy; of a search, the one that the options name. A baseline stays a name."""
    policy = given.policy() if isinstance(given, Run | SearchRun) else given
    if isinstance(policy, str | Path) and policies.is_saved(policy):
        chosen = {name: options.get(name) for name in ("order", "member")} if is_search(Path(policy)) else {}
        policy = load_policy(policy, **chosen)
    if not isinstance(policy, str | Path) and not hasattr(policy, "config"):
        raise ConfigError(f"{given!r} is not a run, a path, a policy or the name of a CAGE-2 baseline")
    return policy


def evaluate(run_or_policy: Any, **options: Any) -> Scores:
    """Evaluates a run, a path, a policy or a CAGE-2 baseline by name; options as for `cavalcade evaluate`."""
    policy = _policy_of(run_or_policy, options)
    target = target_named("cage2" if isinstance(policy, str | Path) else policy.config.target)
    return target.evaluate(policy, from_dict(target.EvaluateOptions, options))


def payoff(
    blues: Sequence[Any],
    *,
    reds: Sequence[Red] = REDS,
    progress: Callable[[int, int], Any] = lambda done, cells: None,
    **options: Any,
) -> Scores:
    """Plays every Blue against every Red of CAGE-2 on held-out games.

    Args:
        blues: runs, paths, policies, or baselines by name.
        reds: Reds by name, module:function, or functions.
        progress: called with the number of cells that are done and that of all.
        **options: as for `cavalcade payoff`: steps, episodes, revision, sampled, seed.
    """
    found = [_policy_of(blue, {}) for blue in blues]
    names = {"reds": tuple(red for red in reds if isinstance(red, str))}
    return payoff_table.payoff(found, from_dict(payoff_table.Options, options | names), tuple(reds), progress)


def make_env(target: str = "cage2", *, threads: int = 0, **settings: Any) -> Environment:
    """Makes the batch of environments that a training would use, already reset; close it when done."""
    config: Any = make_config(target, settings)
    env = target_named(config.target).make_env(config, threads)
    env.reset()
    return env


__all__ = ["Run", "Scores", "SearchRun", "evaluate", "load_policy", "make_env", "payoff", "search", "train"]
