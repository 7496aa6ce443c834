"""The base of every configuration section, and ``name: epoch schedule`` checks they share."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen group of parameters; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
