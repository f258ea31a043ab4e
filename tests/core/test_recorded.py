"""Work that is run as a CUDA graph; on the CPU it is run as it is."""

import pytest
import torch

from cavalcade.core.recorded import Recorded


def test_without_a_gpu_work_is_run_each_time():
    found, run = [], Recorded(on_gpu=False)
    assert [run(lambda i=i: found.append(i) or i) for i in range(3)] == [0, 1, 2]
    run.drop()
    assert found == [0, 1, 2]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_does_what_eager_runs_do():
    x, calls = torch.zeros(4, device="cuda"), []
    run = Recorded(on_gpu=True, eager=2)

    def work():
        calls.append(1)
        x.add_(1)
        return 2 * x

    found = [run(work).tolist() for _ in range(5)]
    assert found == [[2.0 * i] * 4 for i in range(1, 6)]
    assert len(calls) == 3  # two eager runs, and the one that is recorded
    run.drop()
    assert run(work).tolist() == [12.0] * 4
    assert len(calls) == 4
