"""Single environments hosted as the CAGE-2 workflow-search scripts hosted them: pipes, shared memory, a loop.

Each host runs one CAGE-2 game per environment through Gymnasium and answers as a batch. What passes through a pipe is
pickled by Python, as it was there. Workers are spawned and import this module, so that it imports little.
"""

import multiprocessing as mp
from abc import ABC, abstractmethod
from multiprocessing import shared_memory
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from cavalcade.envs import CAGE2_ID

_OBSERVATIONS = 52


class Host(ABC):
    """A number of environments, stepped together."""

    num_envs: int

    @abstractmethod
    def reset(self) -> NDArray[np.float32]:
        """New games everywhere."""

    @abstractmethod
    def step(self, actions: NDArray) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """Observations, rewards, ends; a game that ends begins anew."""

    @abstractmethod
    def close(self) -> None:
        """Ends the workers."""


def _game(seed: int) -> gymnasium.Env:
    env = gymnasium.make(CAGE2_ID, dtype="float32")
    env.reset(seed=seed)
    return env


def _advance(env: gymnasium.Env, action: int) -> tuple[NDArray, float, bool]:
    observation, reward, terminated, truncated, _ = env.step(action)
    if terminated or truncated:
        observation, _ = env.reset()
    return observation, float(reward), bool(terminated or truncated)


class LoopHost(Host):
    """All environments in this process, one after the other: what the scripts called vectorised."""

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self._envs = [_game(i) for i in range(num_envs)]

    def reset(self):
        """New games everywhere."""
        return np.stack([env.reset()[0] for env in self._envs])

    def step(self, actions):
        """One after the other."""
        found = [_advance(env, int(action)) for env, action in zip(self._envs, actions, strict=True)]
        observations, rewards, ends = zip(*found, strict=True)
        return np.stack(observations), np.array(rewards, np.float32), np.array(ends)

    def close(self):
        """Nothing to end."""


def _pipe_worker(pipe: Any, seed: int) -> None:
    env: Any = _game(seed)
    while (message := pipe.recv()) is not None:
        if message == "state":
            pipe.send(env.unwrapped.batch.save_state())
        elif message == "reset":
            pipe.send(env.reset()[0])
        else:
            pipe.send(_advance(env, message))


class PipeHost(Host):
    """A process per environment behind a pipe; with true states it asks for them before and after each step."""

    def __init__(self, num_envs: int, true_states: bool = False):
        self.num_envs, self._true_states = num_envs, true_states
        context = mp.get_context("spawn")
        self._pipes, self._processes = [], []
        for i in range(num_envs):
            mine, theirs = context.Pipe()
            process = context.Process(target=_pipe_worker, args=(theirs, i), daemon=True)
            process.start()
            self._pipes.append(mine)
            self._processes.append(process)

    def _ask(self, messages: list[Any]) -> list[Any]:
        for pipe, message in zip(self._pipes, messages, strict=True):
            pipe.send(message)
        return [pipe.recv() for pipe in self._pipes]

    def reset(self):
        """New games everywhere."""
        return np.stack(self._ask(["reset"] * self.num_envs))

    def step(self, actions):
        """Waits for all workers; three times with true states."""
        if self._true_states:
            self._ask(["state"] * self.num_envs)
        observations, rewards, ends = zip(*self._ask([int(a) for a in actions]), strict=True)
        if self._true_states:
            self._ask(["state"] * self.num_envs)
        return np.stack(observations), np.array(rewards, np.float32), np.array(ends)

    def close(self):
        """Ends the workers."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()


def _views(block: shared_memory.SharedMemory, n: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Observations, rewards, ends and actions in a block of shared memory."""
    observation = np.ndarray((n, _OBSERVATIONS), np.float32, block.buf)
    at = observation.nbytes
    reward = np.ndarray(n, np.float32, block.buf, at)
    end = np.ndarray(n, np.float32, block.buf, at + 4 * n)
    action = np.ndarray(n, np.int32, block.buf, at + 8 * n)
    return observation, reward, end, action


def _shared_worker(name: str, n: int, i: int, go: Any, done: Any) -> None:
    block = shared_memory.SharedMemory(name)
    observation, reward, end, action = _views(block, n)
    env = _game(i)
    while True:
        go.acquire()
        if action[i] < 0:
            break
        observation[i], reward[i], end[i] = _advance(env, int(action[i]))
        done.release()
    del observation, reward, end, action
    block.close()


class SharedHost(Host):
    """A process per environment; observations, rewards and actions lie in shared memory, semaphores say when."""

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        context = mp.get_context("spawn")
        self._block = shared_memory.SharedMemory(create=True, size=num_envs * (4 * _OBSERVATIONS + 12))
        self._views = _views(self._block, num_envs)
        self._done = context.Semaphore(0)
        self._go = [context.Semaphore(0) for _ in range(num_envs)]
        self._processes = [
            context.Process(
                target=_shared_worker, args=(self._block.name, num_envs, i, self._go[i], self._done), daemon=True
            )
            for i in range(num_envs)
        ]
        for process in self._processes:
            process.start()

    def reset(self):
        """The games have begun with the workers; the first step shows them."""
        self._views[0][:] = 0
        return self._views[0].copy()

    def step(self, actions):
        """Waits for all workers, once."""
        self._views[3][:] = actions
        for go in self._go:
            go.release()
        for _ in self._go:
            self._done.acquire()
        return self._views[0].copy(), self._views[1].copy(), self._views[2] > 0

    def close(self):
        """Ends the workers."""
        self._views[3][:] = -1
        for go in self._go:
            go.release()
        for process in self._processes:
            process.join()
        del self._views
        self._block.close()
        self._block.unlink()
