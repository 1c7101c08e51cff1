"""Reading data sets that were published as pickles, without running code from them."""

from __future__ import annotations

import io
import pickle
from typing import Any

from ldp_slicing.errors import DataError


class DataOnlyUnpickler(pickle.Unpickler):
    """An unpickler that allows arrays and plain containers, and refuses everything else that a pickle could call."""

    ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            *(
                (module, name)
                for module in ("numpy.core.multiarray", "numpy._core.multiarray")
                for name in ("_reconstruct", "scalar")
            ),
            *((module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if (module, name) not in self.ALLOWED:
            raise DataError(f"the pickle calls {module}.{name}, which a data set does not need; it was not read")
        return super().find_class(module, name)


def unpickle_data(data: bytes) -> dict[str, Any]:
    """Return a pickled dict of arrays, lists and strings, with text keys. No code from the file is run."""
    content = DataOnlyUnpickler(io.BytesIO(data), encoding="bytes").load()
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
