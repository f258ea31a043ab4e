"""One BLAS thread per compiled thread.

Kernels call BLAS from several threads at once, each on a small tile; a BLAS that starts its own threads there is slower
by an order of magnitude and fills the terminal with warnings.
"""

import functools

from threadpoolctl import threadpool_limits


@functools.cache
def single_threaded_blas() -> object:
    """Limits BLAS to one thread for the rest of the process. Loads it first, since the limit needs a loaded library."""
    import scipy.linalg.cython_blas  # noqa: F401 — the BLAS that compiled code calls

    return threadpool_limits(1, user_api="blas")
