"""Section ``data_loader``."""

from pydantic import Field

from obbflow.config.section import Section


class DataLoaderSection(Section):
    """Batches and loading processes."""

    batch_size: int = Field(16, ge=1, description="images a step, in each process")
    num_workers: int = Field(4, ge=0, description="loading processes; 0 loads in the training one")
    shuffle: bool = True
    pin_memory: bool = Field(True, description="only with CUDA")
