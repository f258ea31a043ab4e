"""Metric writers besides the run directory: TensorBoard and Weights & Biases."""

from pathlib import Path
from typing import Any, Protocol

from cavalcade.core.errors import ConfigError, one_of


class Writer(Protocol):
    """Writes scalars by name."""

    def scalars(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardWriter:
    """Writes event files into the run directory."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("writer tensorboard needs a package: pip install 'cavalcade[tensorboard]'") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbWriter:
    """Writes to a Weights & Biases run; with WANDB_MODE=offline, into the run directory."""

    def __init__(self, folder: Path, config: dict[str, Any]):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ConfigError("writer wandb needs a package: pip install 'cavalcade[wandb]'") from None
        self._run = wandb.init(project="cavalcade", name=folder.name, dir=str(folder), config=config, resume="allow")

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


def make_writer(name: str, folder: Path, config: dict[str, Any]) -> Writer:
    """A writer by name: tensorboard or wandb."""
    one_of("writer", name, ("tensorboard", "wandb"))
    return TensorBoardWriter(folder) if name == "tensorboard" else WandbWriter(folder, config)
