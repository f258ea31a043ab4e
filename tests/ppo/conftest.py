import pytest
import torch


@pytest.fixture(autouse=True)
def _one_torch_thread():
    """Networks here are tiny: on a busy machine a second thread makes every product wait for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
