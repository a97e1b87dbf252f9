"""Datasets, and a loader that goes into a checkpoint and resumes in the middle of an epoch."""

from jaxsaw.data.collate import default_collate
from jaxsaw.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from jaxsaw.data.loader import DataLoader
from jaxsaw.data.worker import WorkerInfo, get_worker_info

__all__ = [
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "Subset",
    "TensorDataset",
    "WorkerInfo",
    "default_collate",
    "get_worker_info",
    "random_split",
]
