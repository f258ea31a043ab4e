"""Where else metrics can go: TensorBoard and Weights & Biases, behind one small interface."""

from pathlib import Path
from typing import Any, Protocol

from cavalcade.errors import ConfigError


class Writer(Protocol):
    """Takes numbers by name."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers at a step."""
        ...

    def close(self) -> None:
        """Writes what is left."""
        ...


class TensorBoardWriter:
    """Event files in the run's folder."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("writer tensorboard needs a package: pip install 'cavalcade[tensorboard]'") from None
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers at a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


class WandbWriter:
    """A Weights & Biases run; with WANDB_MODE=offline it stays in the run's folder."""

    def __init__(self, folder: Path, config: dict[str, Any]):
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ConfigError("writer wandb needs a package: pip install 'cavalcade[wandb]'") from None
        self._run = wandb.init(project="cavalcade", name=folder.name, dir=str(folder), config=config, resume="allow")

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Numbers at a step."""
        self._run.log(values, step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._run.finish()


def make_writer(name: str, folder: Path, config: dict[str, Any]) -> Writer:
    """A writer by name."""
    return TensorBoardWriter(folder) if name == "tensorboard" else WandbWriter(folder, config)
