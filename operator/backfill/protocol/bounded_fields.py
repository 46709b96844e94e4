"""Types of bounded fields that several messages of a driver share."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0, le=10**15)]
"""Bounded, because the reports of a tenant's driver are added up and calculated with."""
QueryName = Annotated[str, Field(max_length=255)]
Seconds = Annotated[float, Field(ge=0, le=10**12)]
