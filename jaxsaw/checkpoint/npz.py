"""The file layer of checkpoints: arrays and a manifest in one NPZ file.

A file is a ZIP of uncompressed members: ``a0.npy``, ``a1.npy``, ... hold the arrays,
``manifest.json`` says what they are, and ``digest.sha256`` is a checksum of the manifest and of
the names, sizes and checksums in the ZIP's directory. Names that users gave occur in the manifest
only. ``numpy.load(path, allow_pickle=False)`` opens it.
"""

from .errors import CheckpointError
from .jsonable import check_jsonable
from .manifest import FORMAT_VERSION, KeyData
from .reader import Reader, read_arrays, read_manifest
from .writer import write

__all__ = [
    "FORMAT_VERSION",
    "CheckpointError",
    "KeyData",
    "Reader",
    "check_jsonable",
    "read_arrays",
    "read_manifest",
    "write",
]
